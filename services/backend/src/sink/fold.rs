//! Of many observations those worth writing: of each database the newest. Pure.
//!
//! *Invariant:* what stays, written one by one, leaves what all of them would have left, written one by one in their order,
//! whatever was believed before. The guard is Postgres' own (`store`, table `observations`); the fold leaves out only what makes
//! no difference to it. Where positions rise as time goes on, which is nearly always, one of each database stays.
//!
//! More than one stays where a resource was seen to be gone and another one is there, whose position may be lower. Which of the
//! two is believed depends on what was believed before: a position that is higher than both refuses the end as well, and with it
//! what came after. The newer one alone would be refused by the position of the one that went, and the end alone would hide the
//! newer one until it is said again.

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
    /// Whether the resource is there; `false`: it is gone.
    fn present(&self) -> bool;
}

/// Folds observations as they come. Those that stay of a database follow each other, in their order.
///
/// By cluster too: what a foreign cluster says must not push aside what a database's own one says.
pub fn fold<S: Seen>(observations: impl IntoIterator<Item = S>) -> Vec<S> {
    let mut kept: BTreeMap<(DatabaseId, ClusterId), Vec<S>> = BTreeMap::new();
    for seen in observations {
        let key = (seen.database(), seen.cluster().clone());
        add(kept.entry(key).or_default(), seen);
    }
    kept.into_values().flatten().collect()
}

/// Adds an observation behind those that stay of its database.
fn add<S: Seen>(kept: &mut Vec<S>, seen: S) {
    while let Some(last) = kept.last() {
        if adds_nothing(&seen, last) {
            return;
        }
        if !replaces(&seen, last) {
            break;
        }
        kept.pop();
    }
    kept.push(seen);
}

/// Whether an observation is refused behind another one, be that taken or refused.
fn adds_nothing<S: Seen>(seen: &S, behind: &S) -> bool {
    seen.order() <= behind.order() && moment(seen) <= moment(behind)
}

/// Whether an observation leaves by itself what both leave, one after the other. An end is replaced by a later end only: it is
/// remembered, and refuses what was seen before it.
fn replaces<S: Seen>(seen: &S, before: &S) -> bool {
    let later = if before.present() {
        moment(seen) >= moment(before)
    } else {
        !seen.present() && moment(seen) > moment(before)
    };
    later && seen.order() > before.order()
}

/// When it was seen, as its cluster counts: term and resource version.
fn moment<S: Seen>(seen: &S) -> (i64, i64) {
    let (_, term, resource_version, _) = seen.order();
    (term, resource_version)
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

    fn present(&self) -> bool {
        self.present
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few databases, clusters and positions, so that they meet. What is said at one place in the order is one thing.
    fn observation() -> impl Strategy<Value = Observation> {
        let place = (1_i64..3, 1_i64..4, 1_i64..3, 1_i64..6, 0_i64..2);
        (0_u128..3, prop::sample::select(vec!["eu-west-1", "us-east-1"]), place).prop_map(
            |(database, cluster, (epoch, seq, term, resource_version, second))| Observation {
                database: DatabaseId::new(uuid::Uuid::from_u128(database)),
                cluster: cluster.parse().unwrap(),
                position: Position { epoch, seq },
                term,
                phase: format!("{epoch}/{seq}/{term}/{resource_version}/{second}"),
                said_at: Timestamp::from_second(second).unwrap(),
                ..seen(seq, resource_version, true)
            },
        )
    }

    fn observations() -> impl Strategy<Value = Vec<Observation>> {
        prop::collection::vec(observation(), 0..40)
    }

    /// Of one database; every third version is of an end.
    fn life(most: usize) -> impl Strategy<Value = Vec<Observation>> {
        let one = observation().prop_map(|seen| Observation {
            database: DatabaseId::new(uuid::Uuid::nil()),
            cluster: "eu-west-1".parse().unwrap(),
            present: seen.resource_version % 3 != 0,
            ..seen
        });
        prop::collection::vec(one, 0..most)
    }

    /// What is believed of a database: the guard of `store::statements::UPSERT` in words of here. An integration test (`store`,
    /// `what_a_batch_leaves_is_what_its_observations_leave_one_by_one`) holds the statement itself against the fold.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Belief {
        newest: Option<Observation>,
        /// When it was last seen to be gone.
        gone: (i64, i64),
    }

    impl Belief {
        fn takes(&self, seen: &Observation) -> bool {
            let Some(newest) = &self.newest else { return true };
            moment(seen) > self.gone && (!newest.present || seen.order() > newest.order())
        }

        fn take(self, seen: Observation) -> Self {
            if !self.takes(&seen) {
                return self;
            }
            let gone = if seen.present { self.gone } else { moment(&seen) };
            Self { newest: Some(seen), gone }
        }

        fn after(self, all: Vec<Observation>) -> Self {
            all.into_iter().fold(self, Self::take)
        }
    }

    fn seen(seq: i64, resource_version: i64, present: bool) -> Observation {
        Observation {
            database: DatabaseId::new(uuid::Uuid::nil()),
            cluster: "eu-west-1".parse().unwrap(),
            position: Position { epoch: 1, seq },
            term: 1,
            resource_version,
            present,
            content_hash: String::new(),
            phase: String::new(),
            carried_out: None,
            volume: false,
            steps: Vec::new(),
            body: serde_json::Value::Null.into(),
            body_schema: 1,
            said_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_is_there_again_is_believed_although_it_stands_lower_and_of_the_former_one_nothing_more() {
        let (former, end, again) = (seen(5, 10, true), seen(5, 20, false), seen(3, 30, true));
        let kept = fold([former.clone(), end.clone(), again.clone()]);
        assert_eq!(kept, [end.clone(), again.clone()]);
        for before in [Vec::new(), vec![seen(4, 5, true)], vec![seen(4, 5, true), seen(4, 6, false)]] {
            let believed = Belief::default().after(before).after(kept.clone());
            assert_eq!(believed.newest.as_ref(), Some(&again));
            for late in [former.clone(), end.clone(), seen(9, 19, true)] {
                assert_eq!(
                    believed.clone().take(late).newest.as_ref(),
                    Some(&again),
                    "it is of the one that went"
                );
            }
            assert_eq!(believed.take(seen(5, 31, true)).newest, Some(seen(5, 31, true)));
        }
        let higher = Belief::default().take(seen(6, 7, true));
        assert_eq!(higher.clone().after(kept), higher, "an end below what is believed is not its end");
    }

    #[test]
    fn where_positions_rise_with_time_one_stays() {
        let told =
            [seen(1, 1, true), seen(1, 2, true), seen(2, 4, true), seen(2, 4, true), seen(2, 5, false)];
        assert_eq!(fold(told), [seen(2, 5, false)]);
    }

    proptest! {
        #[test]
        fn a_batch_leaves_what_its_observations_leave_one_by_one(before in life(6), batch in life(12)) {
            let believed = Belief::default().after(before);
            let kept = fold(batch.clone());
            prop_assert!(kept.iter().all(|seen| batch.contains(seen)), "nothing is made up");
            prop_assert_eq!(believed.clone().after(kept), believed.after(batch));
        }

        #[test]
        fn a_batch_may_be_cut_anywhere(before in life(6), all in life(12), cut in any::<prop::sample::Index>()) {
            let believed = Belief::default().after(before);
            let (first, second) = all.split_at(cut.index(all.len() + 1));
            let parts = [fold(first.to_vec()), fold(second.to_vec())].concat();
            prop_assert_eq!(believed.clone().after(parts), believed.after(fold(all)));
        }

        #[test]
        fn the_greatest_of_each_database_and_cluster_is_among_those_that_stay(all in observations()) {
            let kept = fold(all.clone());
            for seen in &all {
                let of_it = |other: &&Observation| (other.database, &other.cluster) == (seen.database, &seen.cluster);
                let greatest = all.iter().filter(of_it).map(Seen::order).max();
                prop_assert_eq!(kept.iter().filter(of_it).map(Seen::order).max(), greatest);
            }
            prop_assert!(kept.iter().all(|seen| all.contains(seen)), "nothing is made up");
        }

        #[test]
        fn of_what_is_not_gone_neither_order_nor_repetition_matters((all, shuffled) in observations().prop_flat_map(|all| {
            (Just(all.clone()), Just(all).prop_shuffle())
        })) {
            for database in all.iter().map(Seen::database) {
                let of_it = |all: &[Observation]| {
                    let kept = fold(all.iter().filter(|seen| seen.database == database).cloned());
                    Belief::default().after(kept)
                };
                prop_assert_eq!(of_it(&all), of_it(&[shuffled.clone(), all.clone()].concat()));
            }
        }
    }
}
