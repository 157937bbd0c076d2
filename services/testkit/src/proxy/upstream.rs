//! The server behind a proxy, reached as it is or through TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where connections lead.
#[derive(Clone)]
pub(super) enum Upstream {
    /// As they are.
    Plain(SocketAddr),
    /// Through TLS that ends in the proxy.
    Tls(Tls),
}

/// A server that is spoken to through TLS.
#[derive(Clone)]
pub(super) struct Tls {
    server: SocketAddr,
    connector: TlsConnector,
}

impl Upstream {
    /// The API server of a kubeconfig, and whom it trusts.
    pub(super) async fn of_kubeconfig(path: &Path) -> anyhow::Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in config.root_cert.context("the kubeconfig trusts nobody")? {
            roots.add(CertificateDer::from(certificate)).context("a certificate of the kubeconfig")?;
        }
        let settings = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let server = config.cluster_url.authority().context("the kubeconfig names no server")?.as_str();
        let server = server.parse().context("the kubeconfig's server is no address")?;
        Ok(Self::Tls(Tls { server, connector: TlsConnector::from(Arc::new(settings)) }))
    }
}

impl Tls {
    pub(super) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(ServerName::IpAddress(self.server.ip().into()), stream).await
    }
}
