//! Which offset of a partition may be committed: everything before it is finished.
//!
//! Pure. Offsets may have gaps (aborted transactions, compaction) and finish in any order. What is finished beyond the
//! offset to be committed is told in the commit's metadata, and taken from there when the partition is read again.
//! *Invariant:* an offset that was begun and is not finished is never passed over. *Invariant:* what an earlier assignment
//! finishes is not counted in a later one. *Invariant:* what was begun more than once is open until each reading of it has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::ahead;

/// The offsets of one partition in one assignment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracker {
    open: BTreeSet<i64>,
    /// Those that were open where reading went back, once for each reading: it still has to end, and may be of another record than
    /// what stands there now.
    former: Vec<i64>,
    /// The offset after the last one begun.
    next: Option<i64>,
    /// What the last commit says of offsets that were not read yet.
    told: Told,
}

/// What the last commit says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Told {
    /// The committed offset: reading has to begin there.
    from: i64,
    /// Finished, in order.
    finished: VecDeque<Range<i64>>,
}

impl Tracker {
    /// The last commit says `metadata` of offsets from `from` on. Answers how many of them it says are finished.
    pub fn recall(&mut self, from: i64, metadata: &str) -> u64 {
        let finished = ahead::decode(metadata, from).unwrap_or_default();
        let count = finished.iter().map(|stretch| stretch.end.abs_diff(stretch.start)).sum();
        self.told = Told { from, finished };
        count
    }

    /// A record was read. Answers whether it is to be dealt with: not if the last commit says it is finished.
    ///
    /// One that stands before the last one begun is where reading goes on, in a log that lost its end or a topic that was made
    /// anew: what stands from there on is read again and may be something else, and what is committed goes back as well.
    pub fn begin(&mut self, offset: i64) -> bool {
        if offset < self.next.unwrap_or(self.told.from) {
            // Reading begins elsewhere than the commit says, or anew: then the offsets mean other records.
            self.told.finished.clear();
            self.former.extend(self.open.split_off(&offset));
        }
        self.next = Some(offset + 1);
        while self.told.finished.front().is_some_and(|stretch| stretch.end <= offset) {
            self.told.finished.pop_front();
        }
        let finished = self.told.finished.front().is_some_and(|stretch| stretch.contains(&offset));
        if !finished {
            self.open.insert(offset);
        }
        !finished
    }

    /// A record is dealt with. Answers whether it was open and is no more. Which reading of it ended does not matter: the last that
    /// ends is the one that counts.
    pub fn finish(&mut self, offset: i64) -> bool {
        if let Some(at) = self.former.iter().position(|former| *former == offset) {
            self.former.swap_remove(at);
            return false;
        }
        self.open.remove(&offset)
    }

    /// The offset to commit: the first that is open, or else the one after the last read. `None` before any record.
    pub fn committable(&self) -> Option<i64> {
        self.open.first().copied().or(self.next)
    }

    /// What is finished beyond the offset to commit: stretches in order. An offset that was passed by and is not open
    /// is finished, or there is no such record.
    fn ahead(&self) -> Vec<Range<i64>> {
        let Some(next) = self.next else { return Vec::new() };
        let after = |open: &i64| *open + 1;
        let starts = self.open.iter().map(after);
        let ends = self.open.iter().copied().skip(1).chain([next]);
        let behind = starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end);
        let mut stretches: Vec<Range<i64>> = behind.collect();
        for told in &self.told.finished {
            let told = told.start.max(next)..told.end;
            match stretches.last_mut().filter(|last| last.end == told.start) {
                Some(last) => last.end = told.end.max(last.end),
                None if told.is_empty() => {}
                None => stretches.push(told),
            }
        }
        stretches
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

/// What is to be committed of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The partition.
    pub partition: i32,
    /// Everything before it is finished.
    pub offset: i64,
    /// What is finished beyond it.
    pub metadata: String,
}

impl Mark {
    /// A mark that says nothing of what lies beyond it.
    pub fn plain(partition: i32, offset: i64) -> Self {
        Self { partition, offset, metadata: String::new() }
    }
}

/// What became of a record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// To be dealt with.
    Open(Ticket),
    /// Finished before, by the word of the last commit.
    Finished,
    /// Its partition is not ours (any more).
    NotOurs,
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
    /// Whether something was begun or finished since the last look at what to commit.
    moved: bool,
    committed: Option<Mark>,
}

impl Assignments {
    /// A partition was given to us: its tracker begins anew. Answers the number of the assignment.
    pub fn assign(&mut self, partition: i32) -> u64 {
        self.epochs += 1;
        let assigned =
            Assigned { epoch: self.epochs, tracker: Tracker::default(), moved: false, committed: None };
        self.partitions.insert(partition, assigned);
        self.epochs
    }

    /// A partition was taken from us.
    pub fn revoke(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// The last commit of a partition, before its first record is begun. Answers how many records it says are finished
    /// beyond its offset.
    pub fn recall(&mut self, mark: &Mark) -> u64 {
        let assigned = self.partitions.get_mut(&mark.partition);
        assigned.map_or(0, |assigned| assigned.tracker.recall(mark.offset, &mark.metadata))
    }

    /// A record was read.
    pub fn begin(&mut self, partition: i32, offset: i64) -> Begun {
        let Some(assigned) = self.partitions.get_mut(&partition) else { return Begun::NotOurs };
        assigned.moved = true;
        if assigned.tracker.begin(offset) {
            Begun::Open(Ticket { partition, epoch: assigned.epoch, offset })
        } else {
            Begun::Finished
        }
    }

    /// A record is dealt with; without effect if it was read in an earlier assignment.
    pub fn finish(&mut self, ticket: Ticket) -> bool {
        self.current(ticket).is_some_and(|assigned| {
            assigned.moved = true;
            assigned.tracker.finish(ticket.offset)
        })
    }

    /// Whether the record was read in the present assignment of its partition.
    pub fn is_current(&self, ticket: Ticket) -> bool {
        self.epoch(ticket.partition) == Some(ticket.epoch)
    }

    /// The present assignment of a partition.
    pub fn epoch(&self, partition: i32) -> Option<u64> {
        self.partitions.get(&partition).map(|assigned| assigned.epoch)
    }

    /// What to commit, by partition: only where it changed since [`Assignments::committed`].
    pub fn to_commit(&mut self) -> Vec<Mark> {
        let changed = |(&partition, assigned): (&i32, &mut Assigned)| {
            if !assigned.moved {
                return None;
            }
            let offset = assigned.tracker.committable()?;
            let metadata = ahead::encode(offset, &assigned.tracker.ahead());
            let mark = Mark { partition, offset, metadata };
            assigned.moved = assigned.committed.as_ref() != Some(&mark);
            assigned.moved.then_some(mark)
        };
        self.partitions.iter_mut().filter_map(changed).collect()
    }

    /// These were handed to the broker.
    pub fn committed(&mut self, marks: &[Mark]) {
        for mark in marks {
            if let Some(assigned) = self.partitions.get_mut(&mark.partition) {
                assigned.moved = false;
                assigned.committed = Some(mark.clone());
            }
        }
    }

    /// Nobody knows whether what was handed over arrived: everything counts as not handed over.
    pub fn forget_committed(&mut self) {
        for assigned in self.partitions.values_mut() {
            assigned.moved = true;
            assigned.committed = None;
        }
    }

    /// The partitions that are ours, and the numbers of their assignments.
    pub fn ours(&self) -> Vec<(i32, u64)> {
        self.partitions.iter().map(|(&partition, assigned)| (partition, assigned.epoch)).collect()
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
mod tests;
