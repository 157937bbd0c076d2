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
use runtime::CancellationToken;
use store::Store;

/// How often Postgres is asked.
const EVERY: Duration = Duration::from_secs(5);
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

    /// What Postgres said, and what came since it was asked.
    fn set(&self, databases: Vec<DatabaseId>) {
        let mut open = self.write();
        open.databases = databases.into_iter().chain(open.recent.iter().copied()).collect();
    }

    fn write(&self) -> RwLockWriteGuard<'_, Open> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks Postgres until the program stops.
pub async fn keep(letters: Letters, store: Store, stop: CancellationToken) {
    loop {
        match runtime::deadline(LIMIT, "the dead letters", step(&letters, &store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "dead letters were not asked for");
            }
            Err(late) => tracing::debug!("{late}"),
        }
        if !runtime::backoff::sleep(EVERY, &stop).await {
            return;
        }
    }
}

async fn step(letters: &Letters, store: &Store) -> Result<(), store::Error> {
    let settled = store.settle_dead_letters().await?;
    if settled > 0 {
        tracing::info!(count = settled, "dead letters were superseded");
    }
    let passed = store.unpark_passed().await?;
    if passed > 0 {
        tracing::info!(count = passed, "parked instructions were passed by newer ones");
    }
    letters.begin();
    letters.set(store.open_dead_letters(MOST).await?);
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
