//! A batch of gossip as what is worth writing: of each database the newest observation, and every outcome. Pure.

use std::collections::BTreeMap;

use domain::{ClusterId, DatabaseId};
use wire::{Gossip, Said};

use super::translate;

/// What is worth writing.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    /// At most one of a database and cluster.
    pub(crate) observations: Vec<store::Observation>,
    /// In the order they were said.
    pub(crate) outcomes: Vec<store::Outcome>,
    /// What no row can hold.
    pub(crate) impossible: Vec<(ClusterId, DatabaseId, String)>,
}

/// Folds gossip. Whatever order observations come in, the newest stays.
///
/// By cluster too: what a foreign cluster says must not push aside what a database's own one says.
pub(crate) fn fold(gossip: Vec<Gossip>) -> Folded {
    let mut folded = Folded::default();
    let mut newest: BTreeMap<(DatabaseId, ClusterId), store::Observation> = BTreeMap::new();
    for Gossip { database, cluster, said_at, said } in gossip {
        match said {
            Said::Outcome(outcome) => {
                folded.outcomes.push(translate::outcome(database, cluster, said_at, outcome));
            }
            Said::Observation(seen) => {
                match translate::observation(database, cluster.clone(), said_at, *seen) {
                    Ok(seen) => keep_newer(&mut newest, seen),
                    Err(reason) => folded.impossible.push((cluster, database, reason)),
                }
            }
        }
    }
    folded.observations = newest.into_values().collect();
    folded
}

fn keep_newer(newest: &mut BTreeMap<(DatabaseId, ClusterId), store::Observation>, seen: store::Observation) {
    let key = (seen.database, seen.cluster.clone());
    let is_newer = newest.get(&key).is_none_or(|kept| order(kept) < order(&seen));
    if is_newer {
        newest.insert(key, seen);
    }
}

/// The order of observations of one database.
fn order(seen: &store::Observation) -> (domain::Position, i64, i64) {
    (seen.position, seen.term, seen.resource_version)
}
