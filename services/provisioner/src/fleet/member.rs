//! One cluster: its registration, its clients as its credentials give them, and its guard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::Cluster;
use jiff::Timestamp;
use kubeconfig::Given;
use runtime::CancellationToken;
use tokio::sync::Notify;

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
    /// Cancelled when it is registered no more, or with other credentials: nobody goes to that server any more.
    pub gone: CancellationToken,
    /// What every call goes through.
    pub guard: Arc<Guard>,
    /// Rung when something else than before is wrong with the credentials.
    pub(super) trouble: Arc<Notify>,
    /// Whether somebody observes the server, until it is gone.
    is_observed: Arc<AtomicBool>,
    access: Arc<Mutex<Access>>,
    /// What its program for tokens gave. Held while the credentials are read: one at a time, and so one program at a time.
    given: Arc<tokio::sync::Mutex<Given>>,
}

#[derive(Debug, Default)]
struct Access {
    /// What the clients were made of.
    source: Option<Vec<u8>>,
    clients: Option<Clients>,
    /// Until when they hold, by what a program for tokens said.
    until: Option<Timestamp>,
    trouble: Option<String>,
}

impl Member {
    /// A cluster whose credentials were not read yet, and that takes so many calls at once.
    pub fn new(cluster: Cluster, bound: usize) -> Self {
        Self {
            cluster,
            left: CancellationToken::new(),
            gone: CancellationToken::new(),
            guard: Arc::new(Guard::new(bound)),
            trouble: Arc::default(),
            is_observed: Arc::default(),
            access: Arc::default(),
            given: Arc::default(),
        }
    }

    /// The same cluster, registered otherwise but for its credentials: the same server, which is as well or as ill as it was.
    #[must_use]
    pub fn registered_anew(&self, cluster: Cluster) -> Self {
        Self {
            cluster,
            left: CancellationToken::new(),
            gone: self.gone.clone(),
            guard: Arc::clone(&self.guard),
            trouble: Arc::clone(&self.trouble),
            is_observed: Arc::clone(&self.is_observed),
            access: Arc::clone(&self.access),
            given: Arc::clone(&self.given),
        }
    }

    /// Whether the other one is the same server by the same credentials.
    pub fn is_same_server(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.guard, &other.guard)
    }

    /// Whether nobody observes the server yet: whoever asks first is to. Of that server a registration that says something else
    /// changes nothing.
    pub fn is_to_be_observed(&self) -> bool {
        !self.is_observed.swap(true, Ordering::Relaxed)
    }

    /// The clients, or why there are none. Those whose token is over and that nothing gives another one for are none: the server would
    /// say less of why. By our clock alone nothing is over, which may be wrong.
    pub fn clients(&self) -> Result<Clients, Trouble> {
        let access = lock(&self.access);
        let is_over = access.trouble.is_some() && access.until.is_some_and(|until| until <= Timestamp::now());
        access.clients.clone().filter(|_| !is_over).ok_or_else(|| {
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
    /// a file that is being replaced must not stop the work. Does nothing while somebody else is at it.
    pub async fn reread_credentials(&self, settings: &Settings) {
        let Ok(mut given) = self.given.try_lock() else { return };
        let limit = settings.call_timeout;
        let read = credentials::read(&settings.credentials_dir, &self.cluster.credentials);
        let mut read = match runtime::deadline(limit, "the credentials", read).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => return self.refuse(&error),
            Err(late) => return self.refuse(&late),
        };
        let refused = lock(&self.access).clients.as_ref().is_some_and(Clients::were_refused);
        let until = match given.put_into((&mut read.source, &mut read.kubeconfig), refused, limit).await {
            Ok(until) => until,
            Err(error) => return self.refuse(&error),
        };
        {
            let mut access = lock(&self.access);
            if access.source.as_ref() == Some(&read.source) {
                // What was wrong meanwhile is over, and is told again when it comes again.
                (access.until, access.trouble) = (until, None);
                return;
            }
        }
        match client::make(read.kubeconfig, Arc::clone(&self.guard), limit).await {
            Ok(clients) => {
                tracing::info!(cluster.name = %self.cluster.id, "credentials read");
                *lock(&self.access) =
                    Access { source: Some(read.source), clients: Some(clients), until, trouble: None };
                self.guard.look_again();
            }
            Err(error) => {
                // Another one may be of more use.
                *given = Given::default();
                self.refuse(&error);
            }
        }
    }

    fn refuse(&self, error: &(dyn std::error::Error + 'static)) {
        let trouble = runtime::telemetry::chain(error);
        let mut access = lock(&self.access);
        if access.trouble.as_ref() == Some(&trouble) {
            return;
        }
        tracing::warn!(cluster.name = %self.cluster.id, "credentials are of no use: {trouble}");
        access.trouble = Some(trouble);
        drop(access);
        self.trouble.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
