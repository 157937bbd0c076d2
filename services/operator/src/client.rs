//! Two clients of one API server: one for calls, which must answer soon, and one for watches, which are silent for long.
//! Neither retries by itself: a pass that failed is begun again from the top, with back-off.

use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubeconfig::NoClient;

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
    /// The kubeconfig cannot be used.
    #[error("read the kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// There is no kubeconfig and no service account.
    #[error("find the pod's service account (no kubeconfig was named)")]
    InCluster(#[source] kube::config::InClusterError),
    /// Certificates or keys cannot be used, or the program that the kubeconfig names gives no token.
    #[error("prepare the connection to the API server")]
    Connect(#[source] NoClient),
}

/// Prepares both clients; nothing is sent yet. Everything that is sent will be counted, and its answer heard for its time.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    count: &Count,
    clock: &Clock,
) -> Result<Clients, Error> {
    let mut config = load(kubeconfig).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    let mut calls = config.clone();
    calls.read_timeout = Some(READ);
    calls.write_timeout = Some(READ);
    calls.reset_reader_on_write = true;
    // Longer than a watch may be silent, so that only what never will be answered is ended.
    config.read_timeout = Some(IDLE);
    config.reset_reader_on_write = true;
    Ok(Clients { calls: client(calls, count, clock)?, watches: client(config, count, clock)? })
}

fn client(config: Config, count: &Count, clock: &Clock) -> Result<Client, Error> {
    let host = config.cluster_url.authority().map_or("", |authority| authority.as_str()).to_owned();
    let builder =
        ClientBuilder::try_from(config).map_err(|error: kube::Error| Error::Connect(error.into()))?;
    Ok(builder.with_layer(&count.of(&host)).with_layer(clock).with_layer(&kubeconfig::hidden()).build())
}

async fn load(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let Some(path) = kubeconfig else { return Config::incluster().map_err(Error::InCluster) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unread(path, error))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Kubeconfig)
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
        let error = load(Some(&file)).await.unwrap_err();
        let (told, shown) = (runtime::telemetry::chain(&error), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("line 5"), "nobody can find what is wrong: {told}");
        std::fs::remove_file(&file).unwrap();
    }

    /// A kubeconfig whose token is given by a line of a shell, at a path of its own.
    fn with_program(name: &str, line: &str) -> std::path::PathBuf {
        let user = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", line],
            "env": [{"name": "TOKEN", "value": "swordfish"}], "interactiveMode": "Never",
        }});
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "a", "user": user}],
        });
        let file = std::env::temp_dir().join(format!("operator-{name}-{}", std::process::id()));
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    fn assert_hidden(error: &(dyn std::error::Error + 'static)) {
        let (told, shown) = (runtime::telemetry::chain(error), format!("{error:?}"));
        assert!(!told.contains("swordfish") && !shown.contains("swordfish"), "{told}\n{shown}");
        assert!(told.contains("exit status: 3") && told.contains("by hand"), "{told}");
    }

    #[tokio::test]
    async fn a_program_for_tokens_that_fails_is_not_repeated_in_the_error() {
        let file = with_program("no-token", "echo swordfish; echo swordfish >&2; exit 3");
        let count = Count::new(&runtime::Metrics::default());
        let made = connect(Some(&file), &count, &Clock::default()).await;
        assert_hidden(&made.err().unwrap());
        std::fs::remove_file(&file).unwrap();
    }

    /// It gives a token that is over at once, and then none any more: that is a part of the next call.
    #[tokio::test]
    async fn a_program_for_tokens_that_fails_later_is_not_repeated_in_the_error_of_a_call() {
        let mark = std::env::temp_dir().join(format!("operator-no-more-tokens-{}", std::process::id()));
        let over = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "swordfish", "expirationTimestamp": "2020-01-01T00:00:00Z"},
        });
        let mark_path = mark.display();
        let line = format!("if [ -e {mark_path} ]; then echo swordfish >&2; exit 3; fi; echo '{over}'");
        let file = with_program("old-token", &line);
        let count = Count::new(&runtime::Metrics::default());
        let clients = connect(Some(&file), &count, &Clock::default()).await.unwrap();
        std::fs::write(&mark, "").unwrap();
        for client in [&clients.calls, &clients.watches] {
            assert_hidden(&client.apiserver_version().await.unwrap_err());
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&mark).unwrap();
    }
}
