//! One cluster: its registration, its clients as its credentials give them, and its breaker.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::Cluster;
use runtime::CancellationToken;

use super::breaker::Breaker;
use super::client::{self, Clients};
use super::{Settings, credentials};
use crate::classify::{Trouble, code};

/// A registered cluster. A changed registration is another member.
#[derive(Debug)]
pub struct Member {
    /// Its registration.
    pub cluster: Cluster,
    /// Cancelled when it is registered no more, or otherwise.
    pub left: CancellationToken,
    access: Mutex<Access>,
    breaker: Mutex<Breaker>,
    observed_here: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
struct Access {
    /// What the clients were made of.
    source: Option<Vec<u8>>,
    clients: Option<Clients>,
    trouble: Option<String>,
}

impl Member {
    /// A cluster whose credentials were not read yet.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            left: CancellationToken::new(),
            access: Mutex::default(),
            breaker: Mutex::new(Breaker::default()),
            observed_here: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The clients, or why there are none.
    pub fn clients(&self) -> Result<Clients, Trouble> {
        let access = lock(&self.access);
        access.clients.clone().ok_or_else(|| {
            let reason = access.trouble.as_deref().unwrap_or("the credentials were not read yet");
            Trouble::of_cluster(code::CREDENTIALS, reason)
        })
    }

    /// Whether a call may be tried now; else why not.
    pub fn admits(&self) -> Result<(), Trouble> {
        match lock(&self.breaker).open_since() {
            None => Ok(()),
            Some(reason) => Err(Trouble::of_cluster(code::UNREACHABLE, reason)),
        }
    }

    /// A call was answered, whatever the answer.
    pub fn answered(&self) {
        lock(&self.breaker).answered();
    }

    /// A call was not answered.
    pub fn unanswered(&self, reason: &str) {
        lock(&self.breaker).unanswered(reason, Instant::now());
    }

    /// Whether this process is the one that speaks for the cluster, and so carries out what is parked for it.
    pub fn is_observed_here(&self) -> bool {
        self.observed_here.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Says whether this process speaks for the cluster.
    pub fn set_observed_here(&self, here: bool) {
        self.observed_here.store(here, std::sync::atomic::Ordering::Relaxed);
    }

    /// Asks the API server whether it works; the answer moves the breaker.
    pub async fn probe(&self, limit: Duration) -> Result<(), String> {
        let clients = self.clients().map_err(|trouble| trouble.message)?;
        let answer = runtime::deadline(limit, "the API server", clients.calls.apiserver_version()).await;
        match answer {
            Ok(Ok(_)) => {
                self.answered();
                Ok(())
            }
            // It lives, but does not take us for who we are, or is overloaded: calls will say the same.
            Ok(Err(error @ kube::Error::Api(_))) => {
                self.answered();
                Err(runtime::telemetry::chain(&error))
            }
            Ok(Err(error)) => Err(self.noted(runtime::telemetry::chain(&error))),
            Err(late) => Err(self.noted(late.to_string())),
        }
    }

    fn noted(&self, reason: String) -> String {
        self.unanswered(&reason);
        reason
    }

    /// Reads the credentials again and makes new clients if they changed. Unreadable credentials keep the old clients:
    /// a file that is being replaced must not stop the work.
    pub async fn reread_credentials(&self, settings: &Settings) {
        let read = credentials::read(&settings.credentials_dir, &self.cluster.credentials).await;
        let source = match read {
            Ok(source) => source,
            Err(error) => return self.refuse(&error),
        };
        if lock(&self.access).source.as_ref() == Some(&source) {
            return;
        }
        match client::make(&settings.credentials_dir, &source, settings.call_timeout).await {
            Ok(clients) => {
                tracing::info!(cluster.name = %self.cluster.id, "credentials read");
                *lock(&self.access) = Access { source: Some(source), clients: Some(clients), trouble: None };
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&self, error: &(dyn std::error::Error + 'static)) {
        let trouble = runtime::telemetry::chain(error);
        let mut access = lock(&self.access);
        if access.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(cluster.name = %self.cluster.id, "credentials are of no use: {trouble}");
        }
        access.trouble = Some(trouble);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
