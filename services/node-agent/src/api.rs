//! Talking to the API server: one client, a deadline on every call, errors with what was attempted. Never retries:
//! callers have periods and back-off of their own.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Longest wait for one answer.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// A call that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("cannot read the kubeconfig")]
    Configure(#[source] Box<kube::config::KubeconfigError>),
    /// A client cannot be built from it.
    #[error("cannot build a client from the kubeconfig")]
    Build(#[source] Box<kube::Error>),
    /// No answer in time.
    #[error("the API server did not {what} within {DEADLINE:?}")]
    Timeout {
        /// What was attempted.
        what: &'static str,
    },
    /// An answer other than yes, or a broken connection.
    #[error("cannot {what}")]
    Call {
        /// What was attempted.
        what: &'static str,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    /// The object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Call { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_not_found()))
    }

    /// The object is there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Call { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_already_exists()))
    }

    /// Another version, or another object of that name, is there.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Call { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_conflict()))
    }
}

/// A client that neither retries by itself nor waits for ever.
pub async fn connect(kubeconfig: &Path) -> Result<Client, Error> {
    let file = Kubeconfig::read_from(kubeconfig).map_err(|error| Error::Configure(Box::new(error)))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::Configure(Box::new(error)))?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(30));
    // No read timeout: watches live on this client too, and every other call goes through `call`.
    config.read_timeout = None;
    Client::try_from(config).map_err(|error| Error::Build(Box::new(error)))
}

/// Waits for an answer, but not for ever.
pub async fn call<T>(
    what: &'static str,
    answer: impl Future<Output = Result<T, kube::Error>> + Send,
) -> Result<T, Error> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Err(_) => Err(Error::Timeout { what }),
        Ok(Err(source)) => Err(Error::Call { what, source: Box::new(source) }),
        Ok(Ok(value)) => Ok(value),
    }
}

/// "Not found" as an answer rather than an error.
pub fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error with everything below it, in one line, for a log or a status message.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text.push_str(": ");
        if let Some(kube::Error::Api(status)) = below.downcast_ref() {
            // Its own words are enough; printed whole it repeats itself.
            text.push_str(&status.message);
            break;
        }
        text.push_str(&below.to_string());
        source = below.source();
    }
    text
}
