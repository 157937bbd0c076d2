//! States that Postgres itself fails at, because the disk or what lies on it is damaged: each is left out and read again after a while,
//! so that all others are read in one statement meanwhile. Nothing overtakes it: it is the newest of its database, and what is minted
//! later takes its place, a while later at most.
//!
//! Postgres may fail for what ends by itself, as a storage that does not answer, and setting aside is for good: the operation fails. So
//! that is done only where it has failed each time for [`PATIENCE`]. Never to do it would not do either: as long as a state waits the
//! gate of the API counts it, and shuts in the end for others of its partition.
//!
//! *Invariant:* where Postgres fails at more than a [`FEW`] at once none is set aside, however long that lasts. That is an index or the
//! storage, which people mend: then all of them can be read, and many operations would have failed for nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::{DatabaseId, Position};
use store::{Instruction, Unreadable};

use super::Relay;
use super::doubts::Asked;

/// So long it fails before it is set aside: not as long as the API lets anything wait.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// How long it is left out before it is read again, at least and at most: longer the longer it fails, so that many of them keep nobody
/// from being read who waits behind them.
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(1));
/// So long after that nothing is known of it any more: something else took its place, or somebody else published it.
const FORGET: Duration = Duration::from_mins(1);
/// So many may be rows that are damaged, each for itself: as many as lie on a page or two.
const FEW: usize = 16;

/// States that Postgres failed at. Pure: whoever calls brings the time.
#[derive(Debug)]
pub(super) struct Damaged {
    patience: Duration,
    met: BTreeMap<DatabaseId, Met>,
}

#[derive(Debug)]
struct Met {
    position: Position,
    /// When it failed for the first time.
    since: Instant,
    /// Until when it is left out.
    until: Instant,
}

impl Damaged {
    /// None yet; what fails for so long is to be set aside.
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, met: BTreeMap::new() }
    }

    /// The databases of which nothing is to be read yet.
    pub(super) fn waiting(&mut self, now: Instant) -> Vec<DatabaseId> {
        self.met.retain(|_, met| met.until + FORGET > now);
        self.met.iter().filter(|(_, met)| met.until > now).map(|(database, _)| *database).collect()
    }

    /// States of these databases were read: Postgres does not fail at them each time.
    fn read(&mut self, databases: impl IntoIterator<Item = DatabaseId>) {
        for database in databases {
            self.met.remove(&database);
        }
    }

    /// Postgres failed at a state.
    fn failed(&mut self, (database, position): Asked, now: Instant) {
        let since = match self.met.get(&database) {
            Some(met) if met.position == position && met.until + FORGET > now => met.since,
            _ => now,
        };
        let rest = (now.duration_since(since) / 4).clamp(REST.0, REST.1);
        self.met.insert(database, Met { position, since, until: now + rest });
    }

    /// Whether the state of a database that Postgres failed at is to be set aside: it did for so long, and not at many others, too.
    fn lasts(&self, database: DatabaseId, now: Instant) -> bool {
        let met = self.met.get(&database).filter(|_| self.met.len() <= FEW);
        met.is_some_and(|met| now.duration_since(met.since) >= self.patience)
    }
}

impl Relay {
    /// The same, which sets aside what Postgres has failed at for so long, which is minutes usually: for whoever asks for single
    /// rounds.
    #[must_use]
    pub fn bearing_damage_for(self, patience: Duration) -> Self {
        Self { damaged: Mutex::new(Damaged::new(patience)), ..self }
    }

    /// Takes in what was read and what Postgres failed at, and tells of that. Gives those that are to be set aside.
    pub(super) fn meet<'a>(&self, read: &[Instruction], failed: &'a [Unreadable]) -> Vec<&'a Unreadable> {
        let (mut damaged, now) = (self.damaged(), Instant::now());
        damaged.read(read.iter().map(|one| one.database));
        for one in failed {
            damaged.failed((one.database, one.position), now);
        }
        for one in failed {
            self.metrics.unreadable("instructions");
            tracing::error!(
                db.id = %one.database,
                db.position = %one.position,
                reason = runtime::telemetry::chain(&one.error),
                count = damaged.met.len(),
                "Postgres fails at a desired state, so that it is not published: what is on its disk may be damaged"
            );
        }
        failed.iter().filter(|one| damaged.lasts(one.database, now)).collect()
    }

    pub(super) fn damaged(&self) -> MutexGuard<'_, Damaged> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seq: i64) -> Position {
        Position { epoch: 1, seq }
    }

    #[test]
    fn what_postgres_failed_at_is_left_out_for_a_while_and_nobody_else_is() {
        let (mut damaged, now) = (Damaged::new(PATIENCE), Instant::now());
        let [sick, other] = [DatabaseId::mint(), DatabaseId::mint()];
        damaged.failed((sick, at(1)), now);
        assert_eq!(damaged.waiting(now + REST.0.saturating_sub(SECOND)), [sick], "and not {other}");
        assert!(damaged.waiting(now + REST.0).is_empty(), "it is read again");
        assert!(damaged.waiting(now + REST.0 + FORGET).is_empty() && damaged.met.is_empty());
    }

    /// Has these fail each time they are read until so long has passed. Gives when they did for the last time.
    fn fail(damaged: &mut Damaged, all: &[DatabaseId], start: Instant, long: Duration) -> Instant {
        let mut now = start;
        loop {
            for database in all {
                damaged.failed((*database, at(1)), now);
            }
            if now >= start + long {
                return now;
            }
            let lasts = all.iter().any(|database| damaged.lasts(*database, now));
            assert!(!lasts || now >= start + PATIENCE, "after {:?}", now - start);
            assert_eq!(damaged.waiting(now).len(), all.len());
            now = damaged.met[&all[0]].until;
            assert!(damaged.waiting(now).is_empty(), "all are read again");
        }
    }

    #[test]
    fn only_what_fails_each_time_for_long_is_set_aside() {
        let (mut damaged, start, sick) = (Damaged::new(PATIENCE), Instant::now(), DatabaseId::mint());
        let now = fail(&mut damaged, &[sick], start, PATIENCE);
        assert!(damaged.lasts(sick, now));
        damaged.failed((sick, at(1)), now + REST.1);
        assert!(damaged.lasts(sick, now + REST.1), "somebody held its database locked");
        damaged.failed((sick, at(2)), now + REST.1);
        assert!(!damaged.lasts(sick, now + REST.1), "another state");
        let later = now + REST.1 + PATIENCE;
        damaged.failed((sick, at(2)), later);
        assert!(!damaged.lasts(sick, later), "nothing was known of it for long");
        let now = fail(&mut damaged, &[sick], later + PATIENCE, PATIENCE / 2);
        damaged.read([sick]);
        damaged.failed((sick, at(1)), now + SECOND);
        assert!(!damaged.lasts(sick, now + PATIENCE), "it was read meanwhile");
    }

    #[test]
    fn where_postgres_fails_at_many_none_is_set_aside() {
        let (mut damaged, start) = (Damaged::new(PATIENCE), Instant::now());
        let all: Vec<DatabaseId> = (0..=FEW).map(|_| DatabaseId::mint()).collect();
        let now = fail(&mut damaged, &all, start, PATIENCE * 5);
        assert!(!all.iter().any(|database| damaged.lasts(*database, now)));
        damaged.read([all[0]]);
        assert!(all[1..].iter().all(|database| damaged.lasts(*database, now)), "these are few");
    }

    #[test]
    fn what_fails_for_longer_rests_longer() {
        let (mut damaged, start, sick) = (Damaged::new(PATIENCE), Instant::now(), DatabaseId::mint());
        let now = fail(&mut damaged, &[sick], start, PATIENCE * 3);
        assert_eq!(damaged.waiting(now + REST.1.saturating_sub(SECOND)), [sick]);
        assert!(damaged.waiting(now + REST.1).is_empty(), "but not for ever");
    }

    #[test]
    fn it_is_set_aside_before_the_gate_shuts() {
        assert!(PATIENCE + 2 * REST.1 < crate::api::Limits::default().age);
    }
}
