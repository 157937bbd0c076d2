//! Clients of one cluster, made so that no call can last for ever: the library's own retries, which sleep for minutes,
//! are off, and every wait has a limit.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};

/// A client for calls and one for watches, which stay silent for long.
#[derive(Clone)]
pub struct Clients {
    /// For calls.
    pub calls: kube::Client,
    /// For watches.
    pub watches: kube::Client,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Clients cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not text.
    #[error("the kubeconfig is not text")]
    Text(#[source] std::string::FromUtf8Error),
    /// Not a kubeconfig.
    #[error("read the kubeconfig")]
    Parse(#[source] kube::config::KubeconfigError),
    /// A kubeconfig that does not lead to a server.
    #[error("use the kubeconfig")]
    Config(#[source] kube::config::KubeconfigError),
    /// Keys or certificates are wrong.
    #[error("create a client")]
    Client(#[source] kube::Error),
}

/// Makes clients of the text of a kubeconfig; relative paths in it start at `directory`.
pub async fn make(directory: &Path, kubeconfig: &[u8], limit: Duration) -> Result<Clients, Error> {
    let text = String::from_utf8(kubeconfig.to_vec()).map_err(Error::Text)?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text).map_err(Error::Parse)?;
    make_absolute(&mut kubeconfig, directory);
    let options = KubeConfigOptions::default();
    let mut calls =
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Config)?;
    calls.default_retry = false;
    calls.connect_timeout = Some(limit.min(Duration::from_secs(5)));
    calls.write_timeout = Some(limit);
    calls.read_timeout = Some(limit);
    calls.reset_reader_on_write = true;
    let mut watches = calls.clone();
    // A watch may be silent until the server ends it, after less than this; a list that is never answered ends here too.
    watches.read_timeout = Some(Duration::from_mins(5));
    let client = |config| kube::Client::try_from(config).map_err(Error::Client);
    Ok(Clients { calls: client(calls)?, watches: client(watches)? })
}

fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) {
    let absolute = |path: &mut Option<String>| {
        if let Some(relative) = path.as_mut() {
            *relative = directory.join(&*relative).display().to_string();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for auth in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut auth.client_certificate);
        absolute(&mut auth.client_key);
        absolute(&mut auth.token_file);
    }
}
