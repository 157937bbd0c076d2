//! The partitions of a sink: where each stands and which batch may be stored next. Pure.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;

use crate::Record;

/// Records of a batch that costs hardly more than one of a single record.
const SMALL: usize = 100;

/// All partitions that are ours.
#[derive(Debug)]
pub(crate) struct Shelves {
    parallel: usize,
    epochs: u64,
    by_partition: BTreeMap<i32, Shelf>,
    /// The partition that was served last; the others have their turn before it.
    last: i32,
}

#[derive(Debug)]
struct Shelf {
    epoch: u64,
    phase: Phase,
    /// Where the store stands.
    stands_at: Option<i64>,
    records: VecDeque<Record>,
    /// Of these records.
    bytes: usize,
    /// Failures to store since something was stored last.
    failures: u32,
}

/// How much a stretch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) records: usize,
    /// Different keys; records without one count as well.
    pub(crate) keys: usize,
    /// A record that is larger is a stretch by itself.
    pub(crate) bytes: usize,
}

/// How much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Waiting {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Waiting {
    /// Whether it comes to this part of a bound, in one way or the other.
    pub(crate) const fn reaches(self, bound: Self, (part, of): (usize, usize)) -> bool {
        self.records.saturating_mul(of) >= bound.records.saturating_mul(part)
            || self.bytes.saturating_mul(of) >= bound.bytes.saturating_mul(part)
    }
}

/// How far a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The store is being asked for its offset; records are not ours to take yet.
    Asking,
    /// The offset is known, reading is not there yet.
    Seeking,
    /// Records come in.
    Reading,
    /// Records come in, and a batch is being stored.
    Storing,
}

/// A stretch of one partition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) partition: i32,
    pub(crate) epoch: u64,
    pub(crate) start: Option<i64>,
    pub(crate) end: i64,
    pub(crate) records: Vec<Record>,
}

impl Shelves {
    pub(crate) fn new(parallel: usize) -> Self {
        Self { parallel, epochs: 0, by_partition: BTreeMap::new(), last: -1 }
    }

    /// A partition is ours. Answers the number of this assignment; the store is to be asked.
    pub(crate) fn assign(&mut self, partition: i32) -> u64 {
        self.epochs += 1;
        let (epoch, phase) = (self.epochs, Phase::Asking);
        let fresh = Shelf { epoch, phase, stands_at: None, records: VecDeque::new(), bytes: 0, failures: 0 };
        self.by_partition.insert(partition, fresh);
        self.epochs
    }

    pub(crate) fn revoke(&mut self, partition: i32) {
        self.by_partition.remove(&partition);
    }

    /// The store has answered.
    pub(crate) fn answered(&mut self, partition: i32, epoch: u64, stands_at: Option<i64>) {
        if let Some(stand) = self.current(partition, epoch).filter(|stand| stand.phase == Phase::Asking) {
            stand.stands_at = stands_at;
            stand.phase = Phase::Seeking;
        }
    }

    /// Partitions whose reading is to be moved to where the store stands.
    pub(crate) fn to_seek(&self) -> Vec<(i32, u64, Option<i64>)> {
        let seeking = self.by_partition.iter().filter(|(_, stand)| stand.phase == Phase::Seeking);
        seeking.map(|(&partition, stand)| (partition, stand.epoch, stand.stands_at)).collect()
    }

    /// Reading was moved.
    pub(crate) fn sought(&mut self, partition: i32, epoch: u64) {
        if let Some(stand) = self.current(partition, epoch).filter(|stand| stand.phase == Phase::Seeking) {
            stand.phase = Phase::Reading;
        }
    }

    /// A record was read. It is kept if reading stands where the store does.
    pub(crate) fn accept(&mut self, record: Record) {
        let Some(stand) = self.by_partition.get_mut(&record.partition) else { return };
        let reading = matches!(stand.phase, Phase::Reading | Phase::Storing);
        let behind = stand.records.back().map(|last| last.offset + 1).or(stand.stands_at);
        if reading && behind.is_none_or(|next| record.offset >= next) {
            stand.bytes += record.bytes();
            stand.records.push_back(record);
        }
    }

    /// The next stretch to store, partitions in turn.
    pub(crate) fn take(&mut self, most: Most) -> Option<Stretch> {
        let storing = self.by_partition.values().filter(|stand| stand.phase == Phase::Storing).count();
        if storing >= self.parallel {
            return None;
        }
        let idle = |(_, stand): &(&i32, &Shelf)| stand.phase == Phase::Reading && !stand.records.is_empty();
        let after = self.by_partition.range(self.last.saturating_add(1)..).find(idle);
        let (&partition, _) = after.or_else(|| self.by_partition.iter().find(idle))?;
        let stand = self.by_partition.get_mut(&partition)?;
        let (count, bytes) = stand.fitting(most);
        let rest = stand.records.split_off(count);
        let records: Vec<Record> = mem::replace(&mut stand.records, rest).into();
        stand.bytes -= bytes;
        let end = records.last()?.offset + 1;
        stand.phase = Phase::Storing;
        self.last = partition;
        Some(Stretch { partition, epoch: stand.epoch, start: stand.stands_at, end, records })
    }

    /// A stretch is stored.
    pub(crate) fn stored(&mut self, partition: i32, epoch: u64, end: i64) {
        if let Some(stand) = self.current(partition, epoch).filter(|stand| stand.phase == Phase::Storing) {
            stand.stands_at = Some(end);
            stand.phase = Phase::Reading;
            stand.failures = 0;
        }
    }

    /// How many places' time a place rests after a batch of so many records: one, or all of them together where small
    /// batches of more partitions than there are places take turns. A batch costs the store far more than a record.
    pub(crate) fn rest(&self, stored: usize) -> u32 {
        let waiting = self.by_partition.values().filter(|stand| !stand.records.is_empty()).count();
        if stored < SMALL && waiting >= self.parallel { u32::try_from(self.parallel).unwrap_or(1) } else { 1 }
    }

    /// Storing failed once more. Answers how often it had failed before, since something of the partition was stored.
    pub(crate) fn count_failure(&mut self, partition: i32, epoch: u64) -> u32 {
        let Some(stand) = self.current(partition, epoch) else { return 0 };
        let before = stand.failures;
        stand.failures = before.saturating_add(1);
        before
    }

    /// A stretch is not stored, or nobody knows. Answers whether the store is to be asked again.
    pub(crate) fn failed(&mut self, partition: i32, epoch: u64) -> bool {
        let Some(stand) = self.current(partition, epoch) else { return false };
        stand.phase = Phase::Asking;
        stand.records.clear();
        stand.bytes = 0;
        true
    }

    /// Partitions at rest, of which nothing waits and nothing is being stored, and where the store stood last.
    pub(crate) fn resting(&self) -> Vec<(i32, u64, Option<i64>)> {
        let resting = self.by_partition.iter().filter(|(_, stand)| stand.rests());
        resting.map(|(&partition, stand)| (partition, stand.epoch, stand.stands_at)).collect()
    }

    /// Where the store stands now that stood at `before`. Answers whether it was moved by others; then reading follows.
    pub(crate) fn compared(
        &mut self,
        partition: i32,
        epoch: u64,
        before: Option<i64>,
        now: Option<i64>,
    ) -> bool {
        let Some(stand) = self.current(partition, epoch) else { return false };
        // What was stored meanwhile says more than an answer that is older.
        if !stand.rests() || stand.stands_at != before || now == before {
            return false;
        }
        stand.stands_at = now;
        stand.phase = Phase::Seeking;
        true
    }

    /// Whether the assignment is the present one.
    pub(crate) fn is_current(&self, partition: i32, epoch: u64) -> bool {
        self.by_partition.get(&partition).is_some_and(|stand| stand.epoch == epoch)
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        self.by_partition.keys().copied().collect()
    }

    /// What waits, by partition.
    pub(crate) fn waiting(&self) -> Vec<(i32, Waiting)> {
        self.by_partition.iter().map(|(&partition, stand)| (partition, stand.waiting())).collect()
    }

    /// What waits, of all partitions.
    pub(crate) fn waiting_in_all(&self) -> Waiting {
        self.by_partition.values().map(Shelf::waiting).fold(Waiting::default(), |sum, one| Waiting {
            records: sum.records + one.records,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// Batches being stored.
    pub(crate) fn storing(&self) -> usize {
        self.by_partition.values().filter(|stand| stand.phase == Phase::Storing).count()
    }

    /// Where the store stands, by partition.
    pub(crate) fn positions(&self) -> Vec<(i32, i64)> {
        self.by_partition
            .iter()
            .filter_map(|(&partition, stand)| Some((partition, stand.stands_at?)))
            .collect()
    }

    fn current(&mut self, partition: i32, epoch: u64) -> Option<&mut Shelf> {
        self.by_partition.get_mut(&partition).filter(|stand| stand.epoch == epoch)
    }
}

impl Shelf {
    fn rests(&self) -> bool {
        self.phase == Phase::Reading && self.records.is_empty()
    }

    fn waiting(&self) -> Waiting {
        Waiting { records: self.records.len(), bytes: self.bytes }
    }

    /// How many of the first records fit into a stretch, and their bytes; at least one does.
    fn fitting(&self, most: Most) -> (usize, usize) {
        let (mut keys, mut keyless, mut bytes) = (HashSet::new(), 0, 0);
        for (count, record) in self.records.iter().enumerate() {
            match &record.key {
                Some(key) => _ = keys.insert(key.as_slice()),
                None => keyless += 1,
            }
            let with = bytes + record.bytes();
            let full = count >= most.records || with > most.bytes || keys.len() + keyless > most.keys;
            if full && count > 0 {
                return (count, bytes);
            }
            bytes = with;
        }
        (self.records.len(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// So many records, whatever their keys and sizes.
    fn most(records: usize) -> Most {
        Most { records, keys: usize::MAX, bytes: usize::MAX }
    }

    fn reading(shelves: &mut Shelves, partition: i32, position: Option<i64>) -> u64 {
        let epoch = shelves.assign(partition);
        shelves.answered(partition, epoch, position);
        shelves.sought(partition, epoch);
        epoch
    }

    #[test]
    fn records_are_not_taken_before_reading_stands_where_the_store_does() {
        let mut shelves = Shelves::new(2);
        let epoch = shelves.assign(0);
        shelves.accept(Record::bare(0, 99));
        assert_eq!(shelves.take(most(10)), None);
        shelves.answered(0, epoch, Some(5));
        shelves.accept(Record::bare(0, 99));
        assert_eq!(shelves.to_seek(), [(0, epoch, Some(5))]);
        shelves.sought(0, epoch);
        shelves.accept(Record::bare(0, 4));
        shelves.accept(Record::bare(0, 5));
        shelves.accept(Record::bare(0, 8));
        let stretch = shelves.take(most(10)).unwrap();
        assert_eq!((stretch.start, stretch.end, stretch.records.len()), (Some(5), 9, 2));
    }

    #[test]
    fn a_store_that_was_moved_by_others_is_followed_where_nothing_is_under_way() {
        let mut shelves = Shelves::new(2);
        let epoch = reading(&mut shelves, 0, Some(7));
        assert_eq!(shelves.resting(), [(0, epoch, Some(7))]);
        assert!(!shelves.compared(0, epoch, Some(7), Some(7)), "it stands where it stood");
        assert!(!shelves.compared(0, epoch, Some(6), Some(3)), "an answer to a question of earlier");
        assert!(!shelves.compared(0, epoch + 1, Some(7), Some(3)), "about another assignment");
        shelves.accept(Record::bare(0, 7));
        assert_eq!(shelves.resting(), [], "something waits");
        assert!(!shelves.compared(0, epoch, Some(7), Some(3)), "storing it will tell");
        let stretch = shelves.take(most(10)).unwrap();
        assert_eq!(shelves.resting(), [], "something is being stored");
        assert!(!shelves.compared(0, epoch, Some(7), Some(3)), "storing it will tell");
        shelves.stored(0, epoch, stretch.end);
        assert_eq!(shelves.resting(), [(0, epoch, Some(8))]);
        assert!(shelves.compared(0, epoch, Some(8), Some(3)));
        assert_eq!(shelves.to_seek(), [(0, epoch, Some(3))]);
        shelves.sought(0, epoch);
        assert!(shelves.compared(0, epoch, Some(3), None), "a store that has lost its offset");
        assert_eq!(shelves.to_seek(), [(0, epoch, None)]);
    }

    #[test]
    fn small_batches_of_many_partitions_come_together() {
        let cases = [(0, 1, 1), (2, 1, 1), (3, 1, 3), (5, 99, 3), (5, 100, 1), (5, 4_000, 1)];
        for (waiting, stored, expected) in cases {
            let mut shelves = Shelves::new(3);
            for partition in 0..5 {
                reading(&mut shelves, partition, None);
            }
            (0..waiting).for_each(|partition| shelves.accept(Record::bare(partition, 0)));
            assert_eq!(shelves.rest(stored), expected, "{waiting} wait, {stored} were stored");
        }
    }

    #[test]
    fn one_batch_of_a_partition_at_a_time_and_partitions_in_turn() {
        let mut shelves = Shelves::new(2);
        let epochs: Vec<u64> = (0..3).map(|partition| reading(&mut shelves, partition, None)).collect();
        for offset in 0..4 {
            (0..3).for_each(|partition| shelves.accept(Record::bare(partition, offset)));
        }
        assert_eq!(shelves.take(most(2)).unwrap().partition, 0);
        assert_eq!(shelves.take(most(2)).unwrap().partition, 1);
        assert_eq!(shelves.take(most(2)), None, "two are being stored");
        shelves.stored(0, epochs[0], 2);
        assert_eq!(shelves.take(most(2)).unwrap().partition, 2, "the partition that waited longest");
        shelves.stored(2, epochs[2], 2);
        let next = shelves.take(most(2)).unwrap();
        assert_eq!((next.partition, next.start, next.end), (0, Some(2), 4));
    }

    #[test]
    fn a_stretch_ends_at_its_records_its_keys_or_its_bytes() {
        let keyed = |offset, key: Option<&str>, length| Record {
            key: key.map(|key| key.as_bytes().to_vec()),
            payload: Some(vec![0; length]),
            ..Record::bare(0, offset)
        };
        let records = [Some("a"), Some("b"), Some("a"), None, Some("b"), Some("c"), None];
        let table = [
            (Most { keys: 1, ..most(9) }, 10, 1),
            (Most { keys: 2, ..most(9) }, 10, 3),
            (Most { keys: 3, ..most(9) }, 10, 5),
            (Most { keys: 9, ..most(9) }, 10, 7),
            (most(4), 10, 4),
            (Most { bytes: 42, ..most(9) }, 10, 3),
            (Most { bytes: 43, ..most(9) }, 10, 4),
            (Most { bytes: 9, ..most(9) }, 10, 1),
            (Most { keys: 0, ..most(0) }, 10, 1),
        ];
        for (most, length, expected) in table {
            let mut shelves = Shelves::new(1);
            reading(&mut shelves, 0, Some(0));
            records.iter().zip(0..).for_each(|(key, offset)| shelves.accept(keyed(offset, *key, length)));
            let before = shelves.waiting_in_all();
            let stretch = shelves.take(most).unwrap();
            assert_eq!(stretch.records.len(), expected, "{most:?}");
            let taken: usize = stretch.records.iter().map(Record::bytes).sum();
            let left = Waiting { records: records.len() - expected, bytes: before.bytes - taken };
            assert_eq!((shelves.waiting_in_all(), shelves.waiting()), (left, vec![(0, left)]));
        }
    }

    #[test]
    fn much_is_much_by_count_or_by_bytes() {
        let bound = Waiting { records: 100, bytes: 1_000 };
        for (records, bytes, expected) in
            [(0, 0, false), (74, 749, false), (75, 0, true), (0, 750, true), (usize::MAX, 0, true)]
        {
            assert_eq!(Waiting { records, bytes }.reaches(bound, (3, 4)), expected, "{records} {bytes}");
        }
    }

    #[test]
    fn after_a_failure_the_store_is_asked_again() {
        let mut shelves = Shelves::new(1);
        let epoch = reading(&mut shelves, 0, Some(0));
        shelves.accept(Record::bare(0, 0));
        shelves.take(most(1)).unwrap();
        assert!(shelves.failed(0, epoch));
        assert_eq!(shelves.waiting_in_all(), Waiting::default());
        shelves.accept(Record::bare(0, 1));
        assert_eq!(shelves.take(most(1)), None);
        shelves.answered(0, epoch, Some(1));
        shelves.sought(0, epoch);
        shelves.accept(Record::bare(0, 1));
        assert_eq!(shelves.take(most(1)).unwrap().start, Some(1));
    }

    #[test]
    fn failures_are_counted_by_partition_until_something_of_it_is_stored() {
        let mut shelves = Shelves::new(2);
        let [epoch, other] = [0, 1].map(|partition| reading(&mut shelves, partition, None));
        assert_eq!([(); 3].map(|()| shelves.count_failure(0, epoch)), [0, 1, 2]);
        assert_eq!(shelves.count_failure(1, other), 0, "another partition");
        assert_eq!(shelves.count_failure(0, epoch + 9), 0, "another assignment");
        shelves.accept(Record::bare(0, 0));
        let stretch = shelves.take(most(1)).unwrap();
        assert!(shelves.failed(0, epoch));
        shelves.answered(0, epoch, None);
        shelves.sought(0, epoch);
        assert_eq!(shelves.count_failure(0, epoch), 3, "an answer where it stands is not yet a batch");
        shelves.accept(Record::bare(0, 0));
        shelves.take(most(1)).unwrap();
        shelves.stored(0, epoch, stretch.end);
        assert_eq!(shelves.count_failure(0, epoch), 0);
    }

    #[test]
    fn an_earlier_assignment_moves_nothing() {
        let mut shelves = Shelves::new(1);
        let first = reading(&mut shelves, 0, Some(0));
        shelves.accept(Record::bare(0, 0));
        shelves.take(most(1)).unwrap();
        shelves.revoke(0);
        let second = reading(&mut shelves, 0, Some(7));
        shelves.stored(0, first, 1);
        assert!(!shelves.failed(0, first));
        assert!(shelves.is_current(0, second) && !shelves.is_current(0, first));
        assert_eq!(shelves.positions(), [(0, 7)]);
    }

    proptest! {
        /// Storing fails by chance, after or before it took effect: the store still gets every record once, in order.
        #[test]
        fn batches_join_without_a_gap(fates in prop::collection::vec(0..3_u8, 1..60), records in 1_usize..5) {
            const RECORDS: i64 = 20;
            let mut shelves = Shelves::new(1);
            let mut fates = fates.into_iter().chain(std::iter::repeat(0));
            let (mut stored, mut position) = (Vec::new(), None);
            let epoch = reading(&mut shelves, 0, None);
            let mut read = 0;
            while position != Some(RECORDS) {
                if read < RECORDS {
                    shelves.accept(Record::bare(0, read));
                    read += 1;
                }
                let Some(stretch) = shelves.take(most(records)) else { continue };
                let fate = fates.next().unwrap_or(0);
                prop_assert_eq!(stretch.start, position);
                if fate != 2 {
                    stored.extend(stretch.records.iter().map(|record| record.offset));
                    position = Some(stretch.end);
                }
                if fate == 0 {
                    shelves.stored(0, epoch, stretch.end);
                } else {
                    prop_assert!(shelves.failed(0, epoch));
                    shelves.answered(0, epoch, position);
                    shelves.sought(0, epoch);
                    read = position.unwrap_or(0);
                }
            }
            prop_assert_eq!(stored, (0..RECORDS).collect::<Vec<_>>());
        }
    }
}
