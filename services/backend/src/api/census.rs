//! How many databases each cluster has, for the choice among several of a region: counted now and then, kept up meanwhile with
//! what this process places.
//!
//! A count costs as much as there are databases, so a create must not make one. What is kept may be off by what ends, and by
//! what other processes place: it spreads load and bounds nothing. Whether a cluster takes new databases is asked of
//! Postgres each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::Cluster;
use domain::placement::{self, Candidate, Refusal};

/// For how long a count is good.
const KEPT: Duration = Duration::from_secs(5);

/// What is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Census(Arc<Mutex<Option<Count>>>);

#[derive(Debug)]
struct Count {
    /// When somebody last began to count.
    begun: Instant,
    /// By names of clusters; those that are missing have none.
    databases: BTreeMap<String, u64>,
}

impl Census {
    /// Whether the caller is to count. Of an old count that is said to one caller, and again only when this one could have
    /// counted: all others go on with what there is. Without any count it is said to everybody.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut known = self.known();
        let Some(count) = known.as_mut() else { return true };
        let is_old = now.saturating_duration_since(count.begun) >= KEPT;
        if is_old {
            count.begun = now;
        }
        is_old
    }

    /// Takes what was counted by somebody who began at `begun`.
    pub(super) fn counted(&self, databases: BTreeMap<String, u64>, begun: Instant) {
        *self.known() = Some(Count { begun, databases });
    }

    /// The cluster for a new database of a region, which counts as one of its databases from then on.
    pub(super) fn place(&self, region: &str, clusters: Vec<Cluster>) -> Result<Cluster, Refusal> {
        let mut known = self.known();
        let held = |cluster: &Cluster| {
            let count = known.as_ref()?;
            Some(count.databases.get(cluster.id.as_str()).copied().unwrap_or_default())
        };
        let candidates: Vec<Candidate> =
            clusters.into_iter().map(|cluster| Candidate { databases: held(&cluster), cluster }).collect();
        let chosen = placement::choose(region, &candidates)?;
        if let Some(count) = known.as_mut() {
            *count.databases.entry(chosen.id.as_str().to_owned()).or_default() += 1;
        }
        Ok(chosen)
    }

    fn known(&self) -> MutexGuard<'_, Option<Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use domain::ClusterState;

    use super::*;

    fn cluster(id: &str) -> Cluster {
        Cluster {
            id: id.parse().unwrap(),
            region: "eu-west-1".to_owned(),
            account: "000000000000".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: ClusterState::Active,
            credentials: "file:x".to_owned(),
        }
    }

    /// Where so many new databases go, one after the other.
    fn placed(census: &Census, count: usize) -> String {
        let one = || census.place("eu-west-1", vec![cluster("a"), cluster("b")]).unwrap();
        (0..count).map(|_| one().id.as_str().to_owned()).collect()
    }

    fn counts(a: u64, b: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)])
    }

    #[test]
    fn one_caller_counts_and_no_sooner_than_a_count_is_old() {
        let (census, start) = (Census::default(), Instant::now());
        let due = |after: Duration| census.is_due(start + after);
        assert_eq!([due(Duration::ZERO), due(Duration::ZERO)], [true, true], "nothing is known");
        census.counted(counts(0, 0), start);
        let millisecond = Duration::from_millis(1);
        assert_eq!([due(Duration::ZERO), due(KEPT.saturating_sub(millisecond))], [false, false]);
        assert_eq!([due(KEPT), due(KEPT), due(KEPT + millisecond)], [true, false, false]);
        // Whoever was to count did not.
        assert_eq!(
            [due((KEPT * 2).saturating_sub(millisecond)), due(KEPT * 2), due(KEPT * 2)],
            [false, true, false]
        );
        census.counted(counts(0, 0), start + KEPT * 2);
        assert!(!due((KEPT * 3).saturating_sub(millisecond)));
    }

    #[test]
    fn new_databases_are_spread_between_two_counts() {
        let (census, now) = (Census::default(), Instant::now());
        census.counted(counts(3, 0), now);
        assert_eq!(placed(&census, 6), "bbbaba");
        // A count knows better.
        census.counted(counts(0, 2), now);
        assert_eq!(placed(&census, 4), "aaab");
    }

    #[test]
    fn a_cluster_that_was_not_counted_has_none() {
        let census = Census::default();
        assert_eq!(placed(&census, 2), "aa", "nobody has counted");
        census.counted(BTreeMap::from([("a".to_owned(), 2)]), Instant::now());
        assert_eq!(placed(&census, 3), "bba");
    }

    #[test]
    fn what_is_known_outlives_a_refusal() {
        let census = Census::default();
        census.counted(counts(1, 0), Instant::now());
        let closed = Cluster { state: ClusterState::Draining, ..cluster("a") };
        assert!(census.place("eu-west-1", vec![closed]).is_err());
        assert_eq!(placed(&census, 1), "b");
    }
}
