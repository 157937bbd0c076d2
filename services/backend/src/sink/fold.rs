//! Of many observations those worth writing: of each database the newest. Pure.

use std::collections::BTreeMap;

use domain::{ClusterId, DatabaseId, Position};
use store::Observation;

/// Folds observations: whatever order they come in, the newest of each database stays.
///
/// By cluster too: what a foreign cluster says must not push aside what a database's own one says.
pub(crate) fn fold(observations: Vec<Observation>) -> Vec<Observation> {
    let mut newest: BTreeMap<(DatabaseId, ClusterId), Observation> = BTreeMap::new();
    for seen in observations {
        let key = (seen.database, seen.cluster.clone());
        let is_newer = newest.get(&key).is_none_or(|kept| order(kept) < order(&seen));
        if is_newer {
            newest.insert(key, seen);
        }
    }
    newest.into_values().collect()
}

/// The order of observations of one database; what is said again is newer than what was said before.
fn order(seen: &Observation) -> (Position, i64, i64, jiff::Timestamp) {
    (seen.position, seen.term, seen.resource_version, seen.said_at)
}
