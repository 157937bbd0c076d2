//! States that Postgres itself fails at, because the disk or what lies on it is damaged: each is left out and read again after a while,
//! so that all others are read in one statement meanwhile. Nothing overtakes it: it is the newest of its database, and what is minted
//! later takes its place.
//!
//! Postgres may fail for what ends by itself, as a storage that does not answer, and setting aside is for good: the operation fails. So
//! that is done only where it has failed each time for [`PATIENCE`]. Never to do it would not do either: as long as a state waits the
//! gate of the API counts it, and shuts in the end for others of its partition.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::{DatabaseId, Position};
use store::Unreadable;

use super::doubts::Asked;
use super::{Error, Relay};

/// So long it fails before it is set aside: not as long as the API lets anything wait.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// How long it is left out before it is read again.
const REST: Duration = Duration::from_secs(10);
/// So long after that nothing is known of it any more: it was read, or something else took its place.
const FORGET: Duration = Duration::from_mins(1);

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

    /// Postgres failed at a state. Says whether it did for so long that it is to be set aside.
    fn failed(&mut self, (database, position): Asked, now: Instant) -> bool {
        let since = match self.met.get(&database) {
            Some(met) if met.position == position && met.until + FORGET > now => met.since,
            _ => now,
        };
        self.met.insert(database, Met { position, since, until: now + REST });
        now.duration_since(since) >= self.patience
    }
}

impl Relay {
    /// The same, which sets aside what Postgres has failed at for so long, which is minutes usually: for whoever asks for single
    /// rounds.
    #[must_use]
    pub fn bearing_damage_for(self, patience: Duration) -> Self {
        Self { damaged: Mutex::new(Damaged::new(patience)), ..self }
    }

    /// Tells of states that Postgres fails at, and sets aside those that last.
    pub(super) async fn meet(&self, damaged: &[Unreadable]) -> Result<(), Error> {
        for one in damaged {
            self.metrics.unreadable("instructions");
            tracing::error!(
                db.id = %one.database,
                db.position = %one.position,
                reason = runtime::telemetry::chain(&one.error),
                "Postgres fails at a desired state, so that it alone is not published: what is on its disk is damaged"
            );
            let lasts = self.damaged().failed((one.database, one.position), Instant::now());
            if lasts {
                self.set_aside_unreadable(one).await?;
            }
        }
        Ok(())
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
        assert!(!damaged.failed((sick, at(1)), now));
        assert_eq!(damaged.waiting(now + REST - SECOND), [sick], "and not {other}");
        assert!(damaged.waiting(now + REST).is_empty(), "it is read again");
        assert!(damaged.waiting(now + REST + FORGET).is_empty() && damaged.met.is_empty());
    }

    #[test]
    fn only_what_fails_each_time_for_long_is_set_aside() {
        let (mut damaged, start) = (Damaged::new(PATIENCE), Instant::now());
        let (sick, mut now) = (DatabaseId::mint(), start);
        while now < start + PATIENCE {
            assert!(!damaged.failed((sick, at(1)), now), "after {:?}", now - start);
            now += REST;
            damaged.waiting(now);
        }
        assert!(damaged.failed((sick, at(1)), now));
        assert!(damaged.failed((sick, at(1)), now + REST), "somebody held its database locked");
        assert!(!damaged.failed((sick, at(2)), now + REST), "another state");
        assert!(!damaged.failed((sick, at(2)), now + REST + PATIENCE), "it was read meanwhile");
    }

    #[test]
    fn it_is_set_aside_before_the_gate_shuts() {
        assert!(PATIENCE + 2 * REST < crate::api::Limits::default().age);
    }
}
