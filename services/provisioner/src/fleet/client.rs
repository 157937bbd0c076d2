//! Clients of one cluster, made so that no call can last for ever: the library's own retries, which sleep for minutes,
//! are off, and every wait has a limit. A server's wish for patience is passed on to the cluster's guard, whichever call
//! it was said to; so is that it does not know us, to whoever reads the credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubeconfig::NoClient;
use tower::util::MapResponseLayer;

use super::guard::Guard;

/// How long a server that only says that it is too busy is left alone.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much longer the library waits for an answer than we do: our own limit says what became of the call.
const SLACK: Duration = Duration::from_secs(1);

/// A client for calls and one for watches, which stay silent for long.
#[derive(Clone)]
pub struct Clients {
    /// For calls.
    pub calls: kube::Client,
    /// For watches.
    pub watches: kube::Client,
    /// Whether the server has said that it does not know us by these.
    refused: Arc<AtomicBool>,
}

impl Clients {
    /// Whether the server has said since the last question that it does not know us by these.
    pub fn were_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Clients cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kubeconfig that does not lead to a server.
    #[error("use the kubeconfig")]
    Config(#[source] kube::config::KubeconfigError),
    /// Keys or certificates are wrong.
    #[error("create a client")]
    Client(#[source] NoClient),
    /// It took too long, as files may that are read.
    #[error("create a client")]
    Late(#[source] runtime::DeadlineExceeded),
    /// The task that made it broke.
    #[error("create a client")]
    Broken(#[source] tokio::task::JoinError),
}

/// Makes clients of a kubeconfig, in which a token stands instead of the program that gives it: here such a program would have no end.
pub async fn make(kubeconfig: Kubeconfig, guard: Arc<Guard>, limit: Duration) -> Result<Clients, Error> {
    let config = config(kubeconfig, limit).await?;
    // Files are read here: not on a thread that others wait for.
    let made = tokio::task::spawn_blocking(move || both(config, &guard));
    runtime::deadline(limit, "a client", made).await.map_err(Error::Late)?.map_err(Error::Broken)?
}

/// The library's settings, with limits.
async fn config(kubeconfig: Kubeconfig, limit: Duration) -> Result<kube::Config, Error> {
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::Config)?;
    config.default_retry = false;
    config.connect_timeout = Some(limit.min(Duration::from_secs(5)));
    config.write_timeout = Some(limit + SLACK);
    config.read_timeout = Some(limit + SLACK);
    config.reset_reader_on_write = true;
    Ok(config)
}

fn both(calls: kube::Config, guard: &Arc<Guard>) -> Result<Clients, Error> {
    let mut watches = calls.clone();
    // A watch may be silent until the server ends it, after less than this; a list that is never answered ends here too.
    watches.read_timeout = Some(Duration::from_mins(5));
    let refused = Arc::new(AtomicBool::new(false));
    let client = |config| -> Result<kube::Client, Error> {
        let builder =
            ClientBuilder::try_from(config).map_err(|error: kube::Error| Error::Client(error.into()))?;
        let (guard, refused) = (Arc::clone(guard), Arc::clone(&refused));
        let listen = move |response| listen(&guard, &refused, response);
        Ok(builder.with_layer(&MapResponseLayer::new(listen)).build())
    };
    let (calls, watches) = (client(calls)?, client(watches)?);
    Ok(Clients { calls, watches, refused })
}

fn listen<B>(guard: &Guard, refused: &AtomicBool, response: http::Response<B>) -> http::Response<B> {
    if response.status() == http::StatusCode::UNAUTHORIZED {
        refused.store(true, Ordering::Relaxed);
    }
    let header = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(patience) = patience(response.status().as_u16(), header) {
        guard.rest(patience);
    }
    response
}

/// How much patience an answer asks for.
fn patience(status: u16, retry_after: Option<&str>) -> Option<Duration> {
    let asked = retry_after.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    match status {
        429 => Some(asked.unwrap_or(PATIENCE).max(PATIENCE)),
        500.. => asked.filter(|asked| !asked.is_zero()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_what_the_header_says() {
        let seconds = |number| Some(Duration::from_secs(number));
        let table = [
            (429, Some("7"), seconds(7)),
            (429, Some("0"), seconds(1)),
            (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), seconds(1)),
            (429, None, seconds(1)),
            (503, Some(" 3 "), seconds(3)),
            (500, Some("2"), seconds(2)),
            (503, None, None),
            (503, Some("0"), None),
            (200, Some("7"), None),
            (409, Some("7"), None),
        ];
        for (status, header, expected) in table {
            assert_eq!(patience(status, header), expected, "{status} {header:?}");
        }
    }

    /// The library would repeat the line.
    #[tokio::test]
    async fn a_key_that_is_not_in_pem_is_not_repeated_in_the_error() {
        runtime::install_crypto();
        // A key that says swordfish, without a line of its own for what is in it.
        let key = "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tc3dvcmRmaXNo";
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}], \
             users: [{{name: a, user: {{client-certificate-data: {key}, client-key-data: {key}}}}}]}}"
        );
        let (kubeconfig, guard) = (Kubeconfig::from_yaml(&text).unwrap(), Arc::new(Guard::new(1)));
        let error = make(kubeconfig, guard, Duration::from_secs(20)).await.unwrap_err();
        assert_eq!(
            crate::classify::chain(&error),
            "create a client: the client certificate or its key is not in PEM"
        );
    }

    /// What the library would do by itself is minutes of retries and reads without end.
    #[tokio::test]
    async fn the_library_neither_retries_nor_waits_for_ever() {
        let text = "{apiVersion: v1, kind: Config, current-context: a, \
                    contexts: [{name: a, context: {cluster: a, user: a}}], \
                    clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}]}";
        let limit = Duration::from_secs(3);
        let config = config(Kubeconfig::from_yaml(text).unwrap(), limit).await.unwrap();
        assert!(!config.default_retry);
        let longest = Some(limit + SLACK);
        assert_eq!((config.read_timeout, config.write_timeout), (longest, longest));
        assert!(config.connect_timeout.is_some_and(|connect| connect <= limit));
    }
}
