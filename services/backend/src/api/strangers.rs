//! Whoever comes with a token that was not seen here before: only so many of these tokens are looked up at once.
//!
//! A look takes a connection to Postgres, of which all requests have some together, and anybody may make up tokens. Those that were
//! valid before pass by: however many strangers come, they hold up nobody who is known. While Postgres does not answer, that so many
//! wait is not their doing: they are told what all others are told. *Invariant:* what is kept is bounded.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure::Failure;

/// Strangers whose tokens are looked up at once: fewer than there are connections.
const AT_ONCE: usize = 4;
/// How long a stranger waits for that.
const PATIENCE: Duration = Duration::from_secs(3);
/// After how long one may come again.
const LATER: Duration = Duration::from_secs(2);
/// The most tokens that are known.
const MOST: usize = 10_000;

/// SHA-256 of a token's secret.
type Token = [u8; 32];

/// Who is known. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Strangers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    places: Semaphore,
    known: Mutex<HashSet<Token>>,
    /// How many looks Postgres answered, whatever it said.
    answered: AtomicU64,
}

impl Default for Strangers {
    fn default() -> Self {
        let places = Semaphore::new(AT_ONCE);
        Self(Arc::new(Inner { places, known: Mutex::default(), answered: AtomicU64::new(0) }))
    }
}

impl Strangers {
    /// Waits until a token may be looked up, which one that is known may be at once. What it answers is held meanwhile.
    pub(super) async fn admit(&self, token: &Token) -> Result<Option<SemaphorePermit<'_>>, Failure> {
        if self.known().contains(token) {
            return Ok(None);
        }
        let before = self.answered();
        let place = self.0.places.acquire();
        if let Ok(Ok(place)) = runtime::deadline(PATIENCE, "a place among the strangers", place).await {
            return Ok(Some(place));
        }
        Err(self.refusal(before))
    }

    /// Why there was no place since so many looks had been answered.
    fn refusal(&self, before: u64) -> Failure {
        if self.answered() != before {
            return Failure::too_many("very many come at once with tokens that were not seen before", LATER);
        }
        let cause = "no look for a token was answered meanwhile";
        Failure::unavailable("the database of the control plane cannot be reached", cause.to_owned())
    }

    fn answered(&self) -> u64 {
        self.0.answered.load(Ordering::Relaxed)
    }

    /// Remembers whether a token was found to be valid.
    pub(super) fn note(&self, token: Token, is_valid: bool) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known();
        if !is_valid {
            known.remove(&token);
            return;
        }
        if known.len() >= MOST && !known.contains(&token) {
            // They are strangers once more each.
            known.clear();
        }
        known.insert(token);
    }

    fn known(&self) -> MutexGuard<'_, HashSet<Token>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::hash;

    #[tokio::test]
    async fn strangers_wait_for_each_other_and_nobody_who_is_known_waits_for_them() {
        let strangers = Strangers::default();
        let (known, revoked) = (hash("known"), hash("revoked"));
        strangers.note(known, true);
        strangers.note(revoked, true);
        let mut places = Vec::new();
        for number in 0..AT_ONCE {
            places.push(strangers.admit(&hash(&format!("stranger {number}"))).await.unwrap());
        }
        assert!(places.iter().all(Option::is_some));
        assert!(strangers.admit(&known).await.unwrap().is_none());
        strangers.note(revoked, false);
        let mut waits = Box::pin(strangers.admit(&revoked));
        assert!(futures::poll!(&mut waits).is_pending(), "it is a stranger again");
        drop(places.pop());
        assert!(waits.await.unwrap().is_some());
    }

    #[test]
    fn who_waited_in_vain_is_told_whether_too_many_came_or_postgres_is_away() {
        let strangers = Strangers::default();
        let refused = |before| strangers.refusal(before).problem.status;
        assert_eq!(refused(0), 503, "nobody was ever answered");
        strangers.note(hash("unknown"), false);
        assert_eq!(refused(0), 429, "somebody was, and be it that there is no such token");
        assert_eq!(refused(1), 503, "nobody was since then");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let strangers = Strangers::default();
        for number in 0..=MOST {
            strangers.note(hash(&number.to_string()), true);
        }
        assert_eq!(strangers.known().len(), 1);
    }
}
