//! Clients of the stack's API servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// A client by a kubeconfig file, without retries of its own and with deadlines.
///
/// # Errors
/// When the file cannot be read or used.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    // Two crypto providers may be linked; the first caller chooses, later calls are told so and change nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file =
        Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    // Beside all other tests an API server may take long to greet.
    config.connect_timeout = Some(Duration::from_secs(30));
    config.read_timeout = Some(Duration::from_secs(30));
    // Or the time that a connection lay idle counts too, and a request sent at the end of it is cut off at once.
    config.reset_reader_on_write = true;
    Ok(kube::Client::try_from(config)?)
}

/// A namespace for one test; its name begins with `prefix`.
///
/// # Errors
/// When the API server refuses.
pub async fn temporary_namespace(client: &kube::Client, prefix: &str) -> anyhow::Result<String> {
    let name = crate::unique(prefix);
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(name)
}
