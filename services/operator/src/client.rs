//! Two clients of one API server: one for calls, which must answer soon, and one for watches, which are silent for long.
//! Neither retries by itself: a pass that failed is begun again from the top, with back-off.

mod renewal;

use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubeconfig::{NoClient, NoToken, Program};

use self::renewal::Renewal;
use crate::clock::Clock;
use crate::count::Count;

/// A request of a watch that is answered by nothing: longer than the five minutes after which a watch is ended anyway.
const IDLE: Duration = Duration::from_secs(320);
/// How long an answer to a call may take.
const READ: Duration = Duration::from_secs(15);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Clients of one API server.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) calls: Client,
    pub(crate) watches: Client,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no kubeconfig. Where, and not what: the library repeats lines of the file, tokens and all, and this is logged.
    #[error("{path} is no kubeconfig{place}")]
    Parse {
        /// The file.
        path: String,
        /// Where it stops being one.
        place: String,
    },
    /// A file of the client certificate that the kubeconfig names cannot be read.
    #[error("read {name}, which the kubeconfig names")]
    File {
        /// Name of the file.
        name: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig cannot be used.
    #[error("read the kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// There is no kubeconfig and no service account.
    #[error("find the pod's service account (no kubeconfig was named)")]
    InCluster(#[source] kube::config::InClusterError),
    /// Certificates or keys cannot be used.
    #[error("prepare the connection to the API server")]
    Connect(#[source] NoClient),
    /// The program that the kubeconfig names for tokens gives none.
    #[error("get a token for the API server")]
    Token(#[source] NoToken),
}

/// Prepares both clients; nothing is sent to the API server yet. Everything that is sent will be counted, and its answer heard for its
/// time. A program for tokens that the kubeconfig names is asked for the first time; its [`Renewal`] is then to be kept up, as is that of
/// a client certificate in files.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    count: &Count,
    clock: &Clock,
) -> Result<(Clients, Option<Renewal>), Error> {
    let Some(path) = kubeconfig else {
        let config = Config::incluster().map_err(Error::InCluster)?;
        return Ok((both(config, count, clock)?, None));
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unread(path, error))?;
    let is_renewed = Program::of(&kubeconfig).map_err(Error::Token)?.is_some();
    if is_renewed || !kubeconfig::files(&kubeconfig).is_empty() {
        let renewal = Renewal::begin(kubeconfig, (count, clock)).await?;
        return Ok((renewal.clients(), Some(renewal)));
    }
    Ok((both(load(kubeconfig).await?, count, clock)?, None))
}

async fn load(kubeconfig: Kubeconfig) -> Result<Config, Error> {
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Kubeconfig)
}

fn both(mut config: Config, count: &Count, clock: &Clock) -> Result<Clients, Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.reset_reader_on_write = true;
    let mut calls = config.clone();
    calls.read_timeout = Some(READ);
    calls.write_timeout = Some(READ);
    // Longer than a watch may be silent, so that only what never will be answered is ended.
    config.read_timeout = Some(IDLE);
    Ok(Clients { calls: client(calls, count, clock)?, watches: client(config, count, clock)? })
}

fn client(config: Config, count: &Count, clock: &Clock) -> Result<Client, Error> {
    let host = config.cluster_url.authority().map_or("", |authority| authority.as_str()).to_owned();
    let builder =
        ClientBuilder::try_from(config).map_err(|error: kube::Error| Error::Connect(error.into()))?;
    Ok(builder.with_layer(&count.of(&host)).with_layer(clock).build())
}

fn unread(path: &Path, error: KubeconfigError) -> Error {
    let Some(place) = kubeconfig::place(&error) else { return Error::Kubeconfig(error) };
    Error::Parse { path: path.display().to_string(), place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_read_is_not_repeated_in_the_error() {
        let file = std::env::temp_dir().join(format!("operator-broken-{}", std::process::id()));
        std::fs::write(&file, "users:\n- name: a\n  user:\n    token: swordfish\n    bad: [\n").unwrap();
        let count = Count::new(&runtime::Metrics::default());
        let error = connect(Some(&file), &count, &Clock::default()).await.err().unwrap();
        let (told, shown) = (runtime::telemetry::chain(&error), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("line 5"), "nobody can find what is wrong: {told}");
        std::fs::remove_file(&file).unwrap();
    }
}
