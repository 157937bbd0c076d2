//! How a consumer stands with its group, by the library's statistics. Pure.
//!
//! A broker that hangs past the session and then restarts can leave the library outside its group for good. It says nothing
//! of it by itself, so somebody has to look. A consumer that waits for another member, which hangs, is not lost: the
//! group waits for that member as long as it may be silent, and then goes on without it.

use std::time::{Duration, Instant};

use super::MAX_POLL;
use crate::connection::Brokers;

/// How long a consumer may be outside of its group while brokers answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// While the next step is its own: longer than any rebalance among members that answer.
    pub own: Duration,
    /// While it waits for others, at a stretch: they may be silent for as long as we may.
    pub others: Duration,
    /// All in all, whatever it does: members may hang one after the other, but not for ever.
    pub all: Duration,
    /// Without a word that any broker answers. A client that is well finds a broker that is back within two seconds, so
    /// another one loses nothing while all are away; one that has lost its way may not even tell that it has.
    pub alone: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            own: Duration::from_secs(30),
            others: 2 * MAX_POLL,
            all: 5 * MAX_POLL,
            alone: Duration::from_secs(20),
        }
    }
}

/// The most that counts between two looks: a process that was stopped has not waited.
const LOOKS: Duration = Duration::from_secs(2);

/// How a consumer stands with its group.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Set while it is outside although brokers answer.
    outside: Option<Outside>,
    /// There is no broker left that it could ask.
    no_brokers: bool,
    /// How long nothing was heard of a broker that answers.
    alone: Duration,
    /// When somebody looked last.
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Outside {
    since: Instant,
    /// Since when it has waited for others, or not.
    turned: Instant,
    waits: bool,
    /// What the library calls it.
    state: String,
}

impl Standing {
    /// Takes in what the library says now.
    pub(crate) fn hear(&mut self, now: Instant, join_state: &str, brokers: Brokers) {
        self.no_brokers = brokers == Brokers::Forgotten;
        if brokers == Brokers::Reachable {
            self.alone = Duration::ZERO;
        }
        if join_state == "steady" || brokers != Brokers::Reachable {
            self.outside = None;
            return;
        }
        let waits = waits_for_others(join_state);
        let before = self.outside.take();
        self.outside = Some(Outside {
            since: before.as_ref().map_or(now, |before| before.since),
            turned: before
                .as_ref()
                .filter(|before| before.waits == waits)
                .map_or(now, |before| before.turned),
            waits,
            state: join_state.to_owned(),
        });
    }

    /// Whether it can never come back by itself.
    pub(crate) const fn has_no_brokers(&self) -> bool {
        self.no_brokers
    }

    /// For how long nothing was heard of any broker, once that is too long. To be asked every moment.
    pub(crate) fn too_lonely(&mut self, now: Instant, patience: Patience) -> Option<Duration> {
        let since = self.looked.replace(now).map_or(Duration::ZERO, |before| now.duration_since(before));
        self.alone += since.min(LOOKS);
        (self.alone >= patience.alone).then_some(self.alone)
    }

    /// For how long it has been outside, once that is too long.
    pub(crate) fn too_long(&self, now: Instant, patience: Patience) -> Option<(Duration, &str)> {
        let outside = self.outside.as_ref()?;
        let all = now.duration_since(outside.since);
        let limit = if outside.waits { patience.others } else { patience.own };
        let lost = now.duration_since(outside.turned) >= limit || all >= patience.all;
        lost.then_some((all, outside.state.as_str()))
    }
}

/// Whether the group's coordinator holds an answer back until the other members, or their leader, have had their say.
fn waits_for_others(join_state: &str) -> bool {
    matches!(join_state, "wait-join" | "wait-sync")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard at which second, when somebody looks, and whether it is too long.
    type Case = (&'static [(u64, &'static str, bool)], u64, bool);

    #[test]
    fn a_consumer_that_stays_outside_is_noticed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let brokers = |reachable| if reachable { Brokers::Reachable } else { Brokers::Away };
        let table: &[Case] = &[
            (&[(0, "steady", true)], 1_000, false),
            (&[(0, "init", true)], 29, false),
            (&[(0, "init", true), (10, "wait-metadata", true)], 30, true),
            (&[(0, "init", true), (10, "steady", true), (20, "init", true)], 40, false),
            (&[(0, "init", true), (10, "init", false), (20, "init", true)], 40, false),
            (&[(0, "init", false)], 1_000, false),
            // Others hang: the group goes on without them after a minute.
            (&[(0, "wait-join", true)], 70, false),
            (&[(0, "init", true), (20, "wait-join", true), (80, "wait-sync", true)], 100, false),
            (&[(0, "wait-join", true)], 120, true),
            (&[(0, "wait-join", true), (60, "init", true), (70, "wait-join", true)], 125, false),
            (&[(0, "wait-join", true), (60, "init", true)], 95, true),
            // To and fro without end.
            (&[(0, "wait-join", true), (100, "init", true), (110, "wait-join", true)], 229, false),
            (
                &[
                    (0, "wait-join", true),
                    (100, "init", true),
                    (120, "wait-join", true),
                    (220, "init", true),
                    (240, "wait-join", true),
                ],
                300,
                true,
            ),
        ];
        for (heard, when, expected) in table {
            let mut standing = Standing::default();
            for (seconds, state, reachable) in *heard {
                standing.hear(at(*seconds), state, brokers(*reachable));
            }
            let lost = standing.too_long(at(*when), Patience::default()).is_some();
            assert_eq!(lost, *expected, "{heard:?} at {when}");
        }
    }

    /// What is heard at which second, the seconds at which nobody looks, and when it is too long.
    type Lonely = (&'static [(u64, Brokers)], std::ops::Range<u64>, Option<u64>);

    fn lonely(heard: &[(u64, Brokers)], asleep: &std::ops::Range<u64>) -> Option<u64> {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut standing = Standing::default();
        (0..99).filter(|second| !asleep.contains(second)).find(|second| {
            for (_, brokers) in heard.iter().filter(|(when, _)| when == second) {
                standing.hear(at(*second), "steady", *brokers);
            }
            standing.too_lonely(at(*second), Patience::default()).is_some()
        })
    }

    #[test]
    fn a_consumer_that_hears_of_no_broker_is_noticed_even_if_it_hears_nothing() {
        let table: [Lonely; 6] = [
            (&[], 0..0, Some(20)),
            (&[(5, Brokers::Away), (10, Brokers::Away)], 0..0, Some(20)),
            (&[(5, Brokers::Reachable), (10, Brokers::Away)], 0..0, Some(24)),
            (&[(5, Brokers::Reachable), (24, Brokers::Reachable), (43, Brokers::Reachable)], 0..0, Some(62)),
            // Stopped for a quarter of a minute, of which two seconds count.
            (&[(5, Brokers::Reachable)], 6..21, Some(38)),
            (&[(5, Brokers::Reachable), (24, Brokers::Reachable), (43, Brokers::Reachable)], 44..99, None),
        ];
        for (heard, asleep, expected) in table {
            assert_eq!(lonely(heard, &asleep), expected, "{heard:?}, asleep {asleep:?}");
        }
    }

    #[test]
    fn only_who_has_nobody_left_to_ask_cannot_come_back() {
        let mut standing = Standing::default();
        for (brokers, lost) in [
            (Brokers::Reachable, false),
            (Brokers::Away, false),
            (Brokers::Forgotten, true),
            (Brokers::Away, false),
        ] {
            standing.hear(Instant::now(), "steady", brokers);
            assert_eq!(standing.has_no_brokers(), lost, "{brokers:?}");
        }
    }
}
