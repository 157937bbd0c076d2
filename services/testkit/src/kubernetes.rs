//! Clients of the stack's API servers.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Longer than a watch is silent that lives: so long an API server serves one, unless it is asked for less.
const SILENCE: Duration = Duration::from_mins(6);

/// A client by a kubeconfig file, without retries of its own and with deadlines.
///
/// # Errors
/// When the file cannot be read or used.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    // Beside all other tests an API server may take long to answer.
    client_within(kubeconfig, Duration::from_secs(30)).await
}

/// The same for watches. Of what does not change they are told nothing for a minute or more: whoever gave one up for that would begin it
/// again and again, after ever longer pauses, and be told the later of what changes then.
///
/// # Errors
/// When the file cannot be read or used.
pub async fn client_of_watches(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    client_within(kubeconfig, SILENCE).await
}

/// A client whose connections are given up where nothing comes for so long.
async fn client_within(kubeconfig: &Path, silence: Duration) -> anyhow::Result<kube::Client> {
    // Two crypto providers may be linked; the first caller chooses, later calls are told so and change nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file =
        Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    // Beside all other tests an API server may take long to greet.
    config.connect_timeout = Some(Duration::from_secs(30));
    config.read_timeout = Some(silence);
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
