//! One cluster: its registration, its clients as its credentials give them, and its guard.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use domain::Cluster;
use runtime::CancellationToken;

use super::breaker::Answer;
use super::client::{self, Clients};
use super::guard::Guard;
use super::{Settings, credentials};
use crate::classify::{Trouble, answer, code};

/// A registered cluster. A changed registration is another member.
#[derive(Debug)]
pub struct Member {
    /// Its registration.
    pub cluster: Cluster,
    /// Cancelled when it is registered no more, or otherwise.
    pub left: CancellationToken,
    /// What every call goes through.
    pub guard: Arc<Guard>,
    access: Mutex<Access>,
    making: Mutex<Making>,
}

/// The clients that were begun last. A program for tokens that hangs cannot be called off, and another one of the same kind would
/// only hang beside it.
#[derive(Debug, Default)]
struct Making {
    /// What they are made of.
    source: Vec<u8>,
    /// Alive until they are made.
    lasts: Weak<()>,
}

#[derive(Debug, Clone, Default)]
struct Access {
    /// What the clients were made of.
    source: Option<Vec<u8>>,
    clients: Option<Clients>,
    trouble: Option<String>,
}

impl Member {
    /// A cluster whose credentials were not read yet, and that takes so many calls at once.
    pub fn new(cluster: Cluster, bound: usize) -> Self {
        Self {
            cluster,
            left: CancellationToken::new(),
            guard: Arc::new(Guard::new(bound)),
            access: Mutex::default(),
            making: Mutex::default(),
        }
    }

    /// The same cluster, registered otherwise but for its credentials: the same server, which is as well or as ill as it was.
    #[must_use]
    pub fn registered_anew(&self, cluster: Cluster) -> Self {
        Self {
            cluster,
            left: CancellationToken::new(),
            guard: Arc::clone(&self.guard),
            access: Mutex::new(lock(&self.access).clone()),
            making: Mutex::default(),
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

    /// Asks the API server whether it works; the answer moves the breaker.
    pub async fn probe(&self, limit: Duration) -> Result<(), String> {
        let clients = self.clients().map_err(|trouble| trouble.message)?;
        let began = Instant::now();
        let probed = runtime::deadline(limit, "the API server", clients.calls.apiserver_version()).await;
        let (answer, result) = match probed {
            Ok(Ok(_)) => (Answer::Well, Ok(())),
            Ok(Err(error)) => (answer(&error), Err(runtime::telemetry::chain(&error))),
            Err(late) => {
                let trouble = Trouble::of_cluster(code::UNREACHABLE, late.to_string());
                (Answer::Late(trouble), Err(late.to_string()))
            }
        };
        self.guard.probed(&answer, began);
        result
    }

    /// Reads the credentials again and makes new clients if they changed. Unreadable credentials keep the old clients:
    /// a file that is being replaced must not stop the work.
    pub async fn reread_credentials(&self, settings: &Settings) {
        let read = credentials::read(&settings.credentials_dir, &self.cluster.credentials);
        let read = match runtime::deadline(settings.call_timeout, "the credentials", read).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return self.refuse(&error),
            Err(late) => return self.refuse(&late),
        };
        {
            let mut access = lock(&self.access);
            if access.source.as_ref() == Some(&read.source) {
                // What was wrong meanwhile is over, and is told again when it comes again.
                access.trouble = None;
                return;
            }
        }
        let Some(making) = self.begin_making(&read.source) else {
            return self.refuse(&client::Error::Begun);
        };
        match client::make(read.kubeconfig, Arc::clone(&self.guard), settings.call_timeout, making).await {
            // Newer ones were begun meanwhile.
            Ok(_) if lock(&self.making).source != read.source => {}
            Ok(clients) => {
                tracing::info!(cluster.name = %self.cluster.id, "credentials read");
                *lock(&self.access) =
                    Access { source: Some(read.source), clients: Some(clients), trouble: None };
                self.guard.look_again();
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// To be kept as long as it is at making clients of this; `None` while somebody else is.
    fn begin_making(&self, source: &[u8]) -> Option<Arc<()>> {
        let mut making = lock(&self.making);
        if making.source == source && making.lasts.strong_count() > 0 {
            return None;
        }
        let lasts = Arc::new(());
        *making = Making { source: source.to_owned(), lasts: Arc::downgrade(&lasts) };
        Some(lasts)
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
