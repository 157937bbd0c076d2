//! Which databases have dead letters that nothing has superseded yet, kept in memory so that the many databases without
//! any cost nothing.
//!
//! What is here may be a few seconds old; Postgres is where it counts, and is asked on a period both for what is open and
//! whether a database has moved past what was set aside of it, dead letter or parked, in a way that this process did not
//! see.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use domain::DatabaseId;
use runtime::backoff::{Retry, random_share};
use runtime::{Backoff, CancellationToken};
use store::Store;

/// How often Postgres is asked, on average.
const EVERY: Duration = Duration::from_secs(5);
/// How much later where that fails again and again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(15));
const LIMIT: Duration = Duration::from_secs(5);
/// The most databases that are remembered, the latest first: the others are found by asking.
const MOST: u32 = 10_000;

/// The databases; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Letters(Arc<RwLock<Open>>);

#[derive(Debug, Default)]
struct Open {
    databases: HashSet<DatabaseId>,
    /// Those of them that came since Postgres was last asked.
    recent: HashSet<DatabaseId>,
}

impl Letters {
    /// Whether a database may have open dead letters.
    pub fn has(&self, database: DatabaseId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).databases.contains(&database)
    }

    /// A dead letter of this database was kept.
    pub fn add(&self, database: DatabaseId) {
        let mut open = self.write();
        if open.databases.len() < MOST as usize {
            open.databases.insert(database);
            open.recent.insert(database);
        }
    }

    /// Postgres is about to be asked.
    fn begin(&self) {
        self.write().recent.clear();
    }

    /// What came since Postgres was asked, and what it said, as far as that is remembered.
    fn set(&self, databases: Vec<DatabaseId>) {
        let mut open = self.write();
        open.databases = open.recent.iter().copied().chain(databases).take(MOST as usize).collect();
    }

    fn write(&self) -> RwLockWriteGuard<'_, Open> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks Postgres until the program stops.
pub async fn keep(letters: Letters, store: Store, stop: CancellationToken) {
    let mut retry = BACKOFF.start();
    loop {
        let answered = match runtime::deadline(LIMIT, "the dead letters", step(&letters, &store)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "dead letters were not asked for");
                false
            }
            Err(late) => {
                tracing::debug!("{late}");
                false
            }
        };
        if !runtime::backoff::sleep(pause(&mut retry, answered), &stop).await {
            return;
        }
    }
}

/// How long to wait before Postgres is asked again: each process at its own moments, and seldom while it does not answer.
fn pause(retry: &mut Retry, answered: bool) -> Duration {
    let usual = EVERY.mul_f64(0.5 + random_share());
    if answered {
        retry.reset();
        return usual;
    }
    usual + retry.next_delay()
}

async fn step(letters: &Letters, store: &Store) -> Result<(), store::Error> {
    letters.begin();
    let read = store.open_dead_letters(MOST).await.map(|open| letters.set(open));
    // Whatever came of that, and without being in its way: what is settled here is forgotten the next time.
    settle(store).await.and(read)
}

async fn settle(store: &Store) -> Result<(), store::Error> {
    let settled = store.settle_dead_letters().await?;
    if settled > 0 {
        tracing::info!(count = settled, "dead letters were superseded");
    }
    let passed = store.unpark_passed().await?;
    if passed > 0 {
        tracing::info!(count = passed, "parked instructions were passed by newer ones");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded() {
        let letters = Letters::default();
        let first = DatabaseId::mint();
        letters.add(first);
        for _ in 0..MOST + 10 {
            letters.add(DatabaseId::mint());
        }
        assert!(letters.has(first));
        assert_eq!(letters.0.read().unwrap().databases.len(), MOST as usize);
        letters.set((0..MOST).map(|_| DatabaseId::mint()).collect());
        assert_eq!(letters.0.read().unwrap().databases.len(), MOST as usize, "with what Postgres says");
        assert!(letters.has(first), "the latest come first");
    }

    #[test]
    fn a_postgres_that_does_not_answer_is_asked_less_often_and_not_by_all_at_once() {
        let mut retry = BACKOFF.start();
        for attempt in 0..20 {
            let most = EVERY.mul_f64(1.5) + BACKOFF.ceiling(attempt);
            let waited = pause(&mut retry, false);
            assert!((EVERY / 2..=most).contains(&waited), "attempt {attempt}: {waited:?}");
            assert_eq!(retry.attempts(), attempt + 1);
        }
        let waited = pause(&mut retry, true);
        assert!((EVERY / 2..=EVERY.mul_f64(1.5)).contains(&waited), "{waited:?}");
        assert_eq!(retry.attempts(), 0, "an answer ends it");
    }

    #[test]
    fn what_comes_while_postgres_is_asked_stays() {
        let letters = Letters::default();
        let (gone, old, new) = (DatabaseId::mint(), DatabaseId::mint(), DatabaseId::mint());
        letters.add(gone);
        letters.begin();
        letters.add(new);
        letters.set(vec![old]);
        assert!(!letters.has(gone) && letters.has(old) && letters.has(new));
    }
}
