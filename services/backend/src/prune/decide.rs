//! What of a database's history is still needed. Pure: the rows are read and taken away elsewhere.
//!
//! A state is needed while something may begin with it: the relay and the sweep publish the newest, a change goes on from the
//! newest that was not refused, and a way back leads to the newest before it that was carried out or, where none was, to the
//! newest that was not refused. Where that is doubtful, both begin with the newest that was taken, which was carried out or is still
//! open, in the run state of the other. Whatever else was minted, nothing comes back to. *Invariant:* what is not needed now is
//! never needed later: ends are final, and the newest position only rises.

use std::time::Duration;

use store::Past;

/// Actions of which the audit's entries are kept for ever: nothing else remembers why a disk was destroyed, and which.
pub const FOR_EVER: &[&str] = &["databases.purge"];

/// What stays of a state and of the operation that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// All of it.
    Everything,
    /// The state, and the end of its operation.
    State,
    /// The end of its operation.
    End,
}

/// What stays of a state whose operation's history is kept for this long after its end.
pub fn stays(past: &Past, kept: Duration) -> Stays {
    if past.over_ago.is_none_or(|ago| ago < kept) {
        return Stays::Everything;
    }
    let at = Some(past.position);
    if past.position >= past.newest || at == past.good || at == past.accepted {
        Stays::State
    } else {
        Stays::End
    }
}

#[cfg(test)]
mod tests {
    use domain::lifecycle::Verb;
    use domain::{InstructionId, OperationId, Position};
    use proptest::prelude::*;

    use super::*;

    const KEPT: Duration = Duration::from_hours(1);

    fn at(number: usize) -> Position {
        Position { epoch: 1, seq: i64::try_from(number).unwrap() }
    }

    /// The one at 5 of nine, of which the seventh was carried out and the eighth was not refused.
    fn past() -> Past {
        Past {
            instruction: InstructionId::mint(),
            operation: OperationId::mint(),
            position: at(5),
            newest: at(9),
            good: Some(at(7)),
            accepted: Some(at(8)),
            over_ago: Some(KEPT),
        }
    }

    #[test]
    fn what_may_be_begun_with_stays_and_so_does_what_is_young() {
        let table = [
            ("passed by", past(), Stays::End),
            ("carried out later than all others", Past { position: at(7), ..past() }, Stays::State),
            ("later than all others not refused", Past { position: at(8), ..past() }, Stays::State),
            ("newest", Past { position: at(9), ..past() }, Stays::State),
            ("newer than was known", Past { position: at(10), ..past() }, Stays::State),
            ("nothing to return to", Past { good: None, accepted: None, ..past() }, Stays::End),
            ("of an operation that goes on", Past { over_ago: None, ..past() }, Stays::Everything),
            (
                "of one that ended just now",
                Past { over_ago: KEPT.checked_sub(Duration::from_secs(1)), ..past() },
                Stays::Everything,
            ),
            (
                "newest, and young",
                Past { position: at(9), over_ago: Some(Duration::ZERO), ..past() },
                Stays::Everything,
            ),
        ];
        for (what, past, expected) in table {
            assert_eq!(stays(&past, KEPT), expected, "{what}");
        }
    }

    #[test]
    fn why_a_disk_was_destroyed_is_kept_under_the_word_it_is_written_with() {
        assert_eq!(FOR_EVER, [format!("databases.{}", Verb::Purge)]);
    }

    /// How far an operation came.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Came {
        Open,
        /// Open, and a cluster took it.
        Taken,
        Succeeded,
        Superseded,
        OutOfTime,
        /// Out of time, and a cluster had taken it.
        Late,
        Refused,
        /// Refused, without a way back.
        Stuck,
    }

    impl Came {
        fn is_open(self) -> bool {
            matches!(self, Self::Open | Self::Taken)
        }

        fn is_refused(self) -> bool {
            matches!(self, Self::Refused | Self::Stuck)
        }

        fn is_taken(self) -> bool {
            matches!(self, Self::Taken | Self::Succeeded)
        }
    }

    const MOVES: [Came; 7] = [
        Came::Taken,
        Came::Succeeded,
        Came::Superseded,
        Came::OutOfTime,
        Came::Late,
        Came::Refused,
        Came::Stuck,
    ];

    /// A database's operations, and whether their states are still there.
    #[derive(Debug, Default)]
    struct History(Vec<(Came, bool)>);

    impl History {
        /// Numbers of states that are there, or of all there ever were; those that were refused are left out.
        fn unrefused(&self, all: bool) -> impl DoubleEndedIterator<Item = usize> {
            let states = self.0.iter().enumerate();
            states
                .filter(move |(_, (came, there))| (all || *there) && !came.is_refused())
                .map(|(number, _)| number)
        }

        /// What was found, and with it again what is begun with or, where that is doubtful, what was taken before this one, if
        /// anything was.
        fn sure(&self, all: bool, found: Option<usize>, before: usize) -> Option<(usize, usize)> {
            let found = found?;
            let came = self.0[found].0;
            let is_stuck = self.0[found..].iter().any(|(came, _)| *came == Came::Stuck);
            if came.is_taken() || came == Came::Late || !is_stuck {
                return Some((found, found));
            }
            let taken = self.unrefused(all).rfind(|other| *other < before && self.0[*other].0.is_taken());
            Some((found, taken.unwrap_or(found)))
        }

        /// What `store::Transaction::base` finds.
        fn base(&self, all: bool) -> Option<(usize, usize)> {
            self.sure(all, self.unrefused(all).next_back(), self.0.len())
        }

        /// What `store::Transaction::last_good` finds before the newest.
        fn last_good(&self, all: bool) -> Option<(usize, usize)> {
            let good = |number: usize| self.0[number].0 == Came::Succeeded || self.0[number].0.is_open();
            let before = self.unrefused(all).filter(|number| number + 1 < self.0.len());
            let found = before.max_by_key(|number| (good(*number), *number));
            self.sure(all, found, self.0.len().saturating_sub(1))
        }

        /// What `store::Transaction::before` finds before the newest.
        fn before(&self, all: bool) -> Option<(usize, usize)> {
            let found = self.unrefused(all).rfind(|number| number + 1 < self.0.len());
            self.sure(all, found, self.0.len().saturating_sub(1))
        }

        /// What `store::Store::pasts` tells of a state.
        fn past(&self, number: usize) -> Past {
            let before = &self.0[..self.0.len() - 1];
            let newest = |like: fn(Came) -> bool| before.iter().rposition(|(came, _)| like(*came)).map(at);
            Past {
                position: at(number),
                newest: at(self.0.len() - 1),
                good: newest(|came| came == Came::Succeeded),
                accepted: newest(|came| !came.is_open() && !came.is_refused()),
                over_ago: (!self.0[number].0.is_open()).then_some(KEPT),
                ..past()
            }
        }

        /// One of the operations that are open, if any is, comes so far.
        fn come(&mut self, which: usize, far: Came) {
            let mut open: Vec<&mut Came> =
                self.0.iter_mut().map(|(came, _)| came).filter(|came| came.is_open()).collect();
            let count = open.len().max(1);
            if let Some(came) = open.get_mut(which % count) {
                **came = far;
            }
        }

        fn prune(&mut self) {
            let ends: Vec<bool> =
                (0..self.0.len()).map(|number| stays(&self.past(number), KEPT) == Stays::End).collect();
            for ((_, there), ends) in self.0.iter_mut().zip(ends) {
                *there &= !ends;
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_away_every_change_and_every_way_back_begins_with_the_same(
            steps in proptest::collection::vec((0_usize..10, any::<usize>()), 1..80)
        ) {
            let mut history = History::default();
            for (step, which) in steps {
                match step {
                    0 | 1 => history.0.push((Came::Open, true)),
                    2 => history.prune(),
                    _ => history.come(which, MOVES[step - 3]),
                }
                prop_assert_eq!(history.base(false), history.base(true), "{:?}", history);
                prop_assert_eq!(history.last_good(false), history.last_good(true), "{:?}", history);
                prop_assert_eq!(history.before(false), history.before(true), "{:?}", history);
                prop_assert!(history.0.last().is_none_or(|(_, there)| *there), "the newest is published again");
            }
            history.prune();
            let open = history.0.iter().filter(|(came, _)| came.is_open()).count();
            let there = history.0.iter().filter(|(_, there)| *there).count();
            prop_assert!(there <= open + 3, "{there} of {history:?}");
        }
    }
}
