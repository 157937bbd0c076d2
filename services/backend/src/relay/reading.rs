//! What the relay reads, a portion at a time. While Kafka writes one portion and Postgres marks it, the next is read, so
//! that neither waits for the other.
//!
//! What was read ahead may be outdated when it is published, as anything may that was read: readers keep the newest, and
//! what was minted meanwhile stays unpublished.

use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::DatabaseId;
use store::{Error, Store, Unpublished};
use tokio_util::task::AbortOnDropHandle;

use super::portion::Portion;

/// Reads what is unpublished.
#[derive(Debug)]
pub(super) struct Reading {
    store: Store,
    portion: Portion,
    ahead: Mutex<Option<Unpublished>>,
}

impl Reading {
    /// Nothing read yet.
    pub(super) fn of(store: Store) -> Self {
        Self { store, portion: Portion::default(), ahead: Mutex::default() }
    }

    /// The next portion, without these databases.
    pub(super) async fn next(&self, without: &[DatabaseId]) -> Result<Unpublished, Error> {
        let ahead = self.ahead().take();
        match ahead {
            Some(ahead) => Ok(ahead),
            None => self.store.unpublished_beside(self.portion.size(), without).await,
        }
    }

    /// Reads the portion behind this one, if there is any. What fails here is only read later.
    pub(super) async fn read_ahead(&self, more: bool, these: &[DatabaseId]) {
        if !more {
            return;
        }
        let (store, size, these) = (self.store.clone(), self.portion.size(), these.to_vec());
        // A task of its own: what is read takes the processor for a while, and so does what is written.
        let read = tokio::spawn(async move { store.unpublished_beside(size, &these).await });
        match AbortOnDropHandle::new(read).await {
            Ok(Ok(ahead)) => *self.ahead() = Some(ahead),
            Ok(Err(error)) => {
                tracing::debug!(reason = runtime::telemetry::chain(&error), "nothing was read ahead");
            }
            Err(error) => tracing::debug!(reason = %error, "nothing was read ahead"),
        }
    }

    /// Forgets what was read ahead: the next portion begins with whoever waits longest.
    pub(super) fn forget(&self) {
        *self.ahead() = None;
    }

    /// Learns from a round of so many records with so many bytes.
    pub(super) fn learn(&self, records: usize, bytes: usize) {
        self.portion.learn(records, bytes);
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Unpublished>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
