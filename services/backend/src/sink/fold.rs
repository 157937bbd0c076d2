//! Of many observations those worth writing: of each database the newest. Pure.

use std::collections::BTreeMap;

use domain::{ClusterId, DatabaseId, Position};
use jiff::Timestamp;
use store::Observation;

/// Where an observation stands among those of its database: position, term, resource version, and when it was said. What is
/// said again is newer than what was said before.
pub type Order = (Position, i64, i64, Timestamp);

/// An observation, in whatever form it is at hand.
pub trait Seen {
    /// Of which database.
    fn database(&self) -> DatabaseId;
    /// The cluster that speaks.
    fn cluster(&self) -> &ClusterId;
    /// Where it stands.
    fn order(&self) -> Order;
}

/// Folds observations as they come: whatever their order, the newest of each database stays, and nothing else is kept.
///
/// By cluster too: what a foreign cluster says must not push aside what a database's own one says.
pub fn fold<S: Seen>(observations: impl IntoIterator<Item = S>) -> Vec<S> {
    let mut newest: BTreeMap<(DatabaseId, ClusterId), S> = BTreeMap::new();
    for seen in observations {
        let key = (seen.database(), seen.cluster().clone());
        let is_newer = newest.get(&key).is_none_or(|kept| kept.order() < seen.order());
        if is_newer {
            newest.insert(key, seen);
        }
    }
    newest.into_values().collect()
}

impl Seen for Observation {
    fn database(&self) -> DatabaseId {
        self.database
    }

    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    fn order(&self) -> Order {
        (self.position, self.term, self.resource_version, self.said_at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few databases, clusters and positions, so that they meet. What is said at one place in the order is one thing.
    fn observation() -> impl Strategy<Value = Observation> {
        let place = (1_i64..3, 1_i64..4, 1_i64..3, 1_i64..4, 0_i64..2);
        (0_u128..3, prop::sample::select(vec!["eu-west-1", "us-east-1"]), place).prop_map(
            |(database, cluster, (epoch, seq, term, resource_version, second))| Observation {
                database: DatabaseId::new(uuid::Uuid::from_u128(database)),
                cluster: cluster.parse().unwrap(),
                position: Position { epoch, seq },
                term,
                resource_version,
                present: true,
                content_hash: String::new(),
                phase: format!("{epoch}/{seq}/{term}/{resource_version}/{second}"),
                carried_out: None,
                volume: false,
                steps: Vec::new(),
                body: serde_json::Value::Null.into(),
                body_schema: 1,
                said_at: Timestamp::from_second(second).unwrap(),
            },
        )
    }

    fn observations() -> impl Strategy<Value = Vec<Observation>> {
        prop::collection::vec(observation(), 0..40)
    }

    proptest! {
        #[test]
        fn the_greatest_of_each_database_and_cluster_stays(all in observations()) {
            let kept = fold(all.clone());
            for seen in &all {
                let of_it = |other: &&Observation| (other.database, &other.cluster) == (seen.database, &seen.cluster);
                prop_assert_eq!(kept.iter().filter(of_it).count(), 1);
                prop_assert!(kept.iter().filter(of_it).all(|newest| newest.order() >= seen.order()));
            }
            prop_assert!(kept.iter().all(|seen| all.contains(seen)), "nothing is made up");
        }

        #[test]
        fn the_order_of_arrival_does_not_matter((all, shuffled) in observations().prop_flat_map(|all| {
            (Just(all.clone()), Just(all).prop_shuffle())
        })) {
            prop_assert_eq!(fold(all), fold(shuffled));
        }

        #[test]
        fn batches_may_be_cut_anywhere_and_come_twice(all in observations(), cut in any::<prop::sample::Index>()) {
            let whole = fold(all.clone());
            let (first, second) = all.split_at(cut.index(all.len() + 1));
            let parts = [fold(first.to_vec()), fold(second.to_vec()), fold(first.to_vec())].concat();
            prop_assert_eq!(fold(parts), whole.clone());
            prop_assert_eq!(fold(whole.clone()), whole);
        }
    }
}
