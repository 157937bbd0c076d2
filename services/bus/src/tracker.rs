//! Which offset of a partition may be committed: everything before it is finished.
//!
//! Pure. Offsets may have gaps (aborted transactions, compaction) and finish in any order. *Invariant:* an offset that
//! was begun and is not finished is never passed over. *Invariant:* what an earlier assignment finishes is not counted in
//! a later one.

use std::collections::{BTreeMap, BTreeSet};

/// The offsets of one partition in one assignment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracker {
    open: BTreeSet<i64>,
    /// The offset after the greatest one begun.
    next: Option<i64>,
    /// The greatest answer given, which is never taken back.
    given: Option<i64>,
}

impl Tracker {
    /// A record was read.
    pub fn begin(&mut self, offset: i64) {
        self.open.insert(offset);
        self.next = self.next.max(Some(offset + 1));
    }

    /// A record is dealt with. Answers whether it was open.
    pub fn finish(&mut self, offset: i64) -> bool {
        self.open.remove(&offset)
    }

    /// The offset to commit: the first that is open, or else the one after the last read. `None` before any record.
    pub fn committable(&mut self) -> Option<i64> {
        let prefix = self.open.first().copied().or(self.next);
        self.given = self.given.max(prefix);
        self.given
    }

    /// Records read and not finished.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

/// Which reading of a record this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The partition.
    pub partition: i32,
    /// The assignment of the partition, counted up with each.
    pub epoch: u64,
    /// The record.
    pub offset: i64,
}

/// The trackers of the partitions that are assigned now.
#[derive(Debug, Clone, Default)]
pub struct Assignments {
    epochs: u64,
    partitions: BTreeMap<i32, Assigned>,
}

#[derive(Debug, Clone)]
struct Assigned {
    epoch: u64,
    tracker: Tracker,
    committed: Option<i64>,
}

impl Assignments {
    /// A partition was given to us: its tracker begins anew.
    pub fn assign(&mut self, partition: i32) {
        self.epochs += 1;
        let assigned = Assigned { epoch: self.epochs, tracker: Tracker::default(), committed: None };
        self.partitions.insert(partition, assigned);
    }

    /// A partition was taken from us.
    pub fn revoke(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// A record was read. `None` if its partition is not ours (any more).
    pub fn begin(&mut self, partition: i32, offset: i64) -> Option<Ticket> {
        let assigned = self.partitions.get_mut(&partition)?;
        assigned.tracker.begin(offset);
        Some(Ticket { partition, epoch: assigned.epoch, offset })
    }

    /// A record is dealt with; without effect if it was read in an earlier assignment.
    pub fn finish(&mut self, ticket: Ticket) -> bool {
        self.current(ticket).is_some_and(|assigned| assigned.tracker.finish(ticket.offset))
    }

    /// Whether the record was read in the present assignment of its partition.
    pub fn is_current(&self, ticket: Ticket) -> bool {
        self.partitions.get(&ticket.partition).is_some_and(|assigned| assigned.epoch == ticket.epoch)
    }

    /// What to commit, by partition: only where it moved since [`Assignments::committed`].
    pub fn to_commit(&mut self) -> Vec<(i32, i64)> {
        let moved = |(&partition, assigned): (&i32, &mut Assigned)| {
            let offset = assigned.tracker.committable()?;
            (assigned.committed < Some(offset)).then_some((partition, offset))
        };
        self.partitions.iter_mut().filter_map(moved).collect()
    }

    /// These offsets were handed to the broker.
    pub fn committed(&mut self, offsets: &[(i32, i64)]) {
        for (partition, offset) in offsets {
            if let Some(assigned) = self.partitions.get_mut(partition) {
                assigned.committed = assigned.committed.max(Some(*offset));
            }
        }
    }

    /// A commit failed: everything counts as not handed over.
    pub fn forget_committed(&mut self) {
        for assigned in self.partitions.values_mut() {
            assigned.committed = None;
        }
    }

    /// The partitions that are ours.
    pub fn partitions(&self) -> Vec<i32> {
        self.partitions.keys().copied().collect()
    }

    /// Records read and not finished, of all partitions.
    pub fn open(&self) -> usize {
        self.partitions.values().map(|assigned| assigned.tracker.open()).sum()
    }

    /// The next offset that would be committed, by partition.
    pub fn positions(&mut self) -> Vec<(i32, i64)> {
        let position = |(&partition, assigned): (&i32, &mut Assigned)| {
            assigned.tracker.committable().map(|offset| (partition, offset))
        };
        self.partitions.iter_mut().filter_map(position).collect()
    }

    fn current(&mut self, ticket: Ticket) -> Option<&mut Assigned> {
        self.partitions.get_mut(&ticket.partition).filter(|assigned| assigned.epoch == ticket.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_do_not_matter() {
        let mut tracker = Tracker::default();
        assert_eq!(tracker.committable(), None);
        for offset in [3, 7, 100] {
            tracker.begin(offset);
        }
        assert_eq!(tracker.committable(), Some(3));
        tracker.finish(7);
        assert_eq!(tracker.committable(), Some(3));
        tracker.finish(3);
        assert_eq!(tracker.committable(), Some(100));
        tracker.finish(100);
        assert_eq!(tracker.committable(), Some(101));
    }

    #[test]
    fn an_earlier_assignment_finishes_nothing_in_a_later_one() {
        let mut assignments = Assignments::default();
        assignments.assign(4);
        let first = assignments.begin(4, 10).unwrap();
        assignments.revoke(4);
        assert_eq!(assignments.begin(4, 10), None);
        assert!(!assignments.finish(first));
        assignments.assign(4);
        let second = assignments.begin(4, 10).unwrap();
        assert!(!assignments.finish(first), "finished in the earlier assignment");
        assert_eq!(assignments.to_commit(), [(4, 10)]);
        assert!(assignments.is_current(second) && !assignments.is_current(first));
        assert!(assignments.finish(second));
        assert_eq!(assignments.to_commit(), [(4, 11)]);
        assignments.committed(&[(4, 11)]);
        assert_eq!(assignments.to_commit(), []);
    }

    proptest! {
        /// Offsets with gaps, finished in any order and only some of them: the committable one never passes an open
        /// record, never goes back, and passes everything once all are finished.
        #[test]
        fn nothing_open_is_passed_over(
            gaps in prop::collection::vec(1_i64..50, 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..120),
        ) {
            let offsets: Vec<i64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut tracker = Tracker::default();
            let mut begun = 0;
            let mut open: BTreeSet<i64> = BTreeSet::new();
            let mut last = None;
            for index in order {
                // Reading and finishing take turns by chance.
                let pick = index.index(offsets.len() + 1);
                if pick >= open.len() && begun < offsets.len() {
                    tracker.begin(offsets[begun]);
                    open.insert(offsets[begun]);
                    begun += 1;
                } else if let Some(&offset) = open.iter().nth(pick.min(open.len().saturating_sub(1))) {
                    prop_assert!(tracker.finish(offset));
                    open.remove(&offset);
                }
                let now = tracker.committable();
                prop_assert!(now >= last);
                last = now;
                if let (Some(&first), Some(now)) = (open.first(), now) {
                    prop_assert!(now <= first, "{now} passes the open {first}");
                }
                prop_assert_eq!(tracker.open(), open.len());
            }
            for offset in open {
                tracker.finish(offset);
            }
            let expected = begun.checked_sub(1).map(|at| offsets[at] + 1);
            prop_assert_eq!(tracker.committable(), expected);
        }
    }
}
