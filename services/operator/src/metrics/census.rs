//! What there is, counted anew now and then: databases, and the schedules of their snapshots.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resources::{Phase, names};
use runtime::Metrics;
use runtime::metrics::Shown;
use runtime::prometheus_client::metrics::gauge::Gauge;

use super::Labels;
use crate::kept::brief::{Database, Leaving};

/// What there is.
#[derive(Clone)]
pub(crate) struct Census {
    databases: Shown<Labels>,
    degraded: Gauge,
    unseen: Gauge,
    unjoined: Shown<Labels>,
    deleting: Gauge,
    oldest_deleting: Gauge,
    schedules: Shown<Labels>,
}

impl Census {
    /// Registers everything.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let number = |name: &str, help: &str| metrics.register(name, help, Gauge::default());
        Self {
            databases: Shown::new(metrics, "slipway_databases", "Databases, by phase"),
            degraded: number(
                "slipway_databases_degraded",
                "Databases with a trouble that does not heal by itself, whatever their phase",
            ),
            unseen: number(
                "slipway_databases_unseen",
                "Databases on which nothing is decided, because not everything of their namespace can be seen",
            ),
            unjoined: Shown::new(
                metrics,
                "slipway_databases_unjoined",
                "Databases of which a machine cannot take the database, by what it lacks",
            ),
            deleting: number("slipway_databases_deleting", "Databases that are being taken away"),
            oldest_deleting: number(
                "slipway_databases_deleting_oldest_seconds",
                "For how long the one has been taken away that was begun first",
            ),
            schedules: Shown::new(
                metrics,
                "slipway_snapshot_schedules",
                "Schedules of snapshots, by what the last pass said of them",
            ),
        }
    }

    /// Databases on which nothing is decided.
    pub(crate) fn unseen(&self, count: usize) {
        self.unseen.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All databases.
    pub(crate) fn databases<'a>(&self, known: impl Iterator<Item = &'a Database>, now: Timestamp) {
        let (mut degraded, mut deleting, mut oldest) = (0, 0, 0);
        let mut phases = BTreeMap::<_, i64>::new();
        let mut unjoined = BTreeMap::<_, i64>::from(names::reason::OF_MACHINES.map(|reason| (reason, 0)));
        for database in known {
            *phases.entry(database.phase.map_or("Pending", Phase::as_str)).or_default() += 1;
            degraded += i64::from(database.is_degraded);
            if let Some(reason) = database.lack() {
                *unjoined.entry(reason).or_default() += 1;
            }
            let age = match database.leaving {
                Leaving::No => continue,
                Leaving::Asked => 0,
                Leaving::Since(since) => now.duration_since(since).as_secs(),
            };
            deleting += 1;
            oldest = oldest.max(age);
        }
        self.databases.show(by_word("phase", phases));
        self.degraded.set(degraded);
        self.unjoined.show(by_word("reason", unjoined));
        self.deleting.set(deleting);
        self.oldest_deleting.set(oldest);
    }

    /// All schedules, by what the last pass said of each in a word.
    pub(crate) fn schedules<'a>(&self, states: impl Iterator<Item = &'a str>) {
        let mut counts = BTreeMap::<_, i64>::new();
        for state in states {
            *counts.entry(state).or_default() += 1;
        }
        self.schedules.show(by_word("state", counts));
    }
}

/// How many there are by a word.
fn by_word(label: &'static str, counts: BTreeMap<&str, i64>) -> impl Iterator<Item = (Labels, i64)> {
    counts.into_iter().map(move |(word, count)| (vec![(label, word.to_owned())], count))
}
