//! Tables, and models: of one tracker, and of everything that decides what is handled and committed.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "stretches of offsets are ranges, and one of them is a list too"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::lanes::{Class, Entry, Lanes, Limits, Place};

fn ticket(begun: Begun) -> Ticket {
    match begun {
        Begun::Open(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn gaps_do_not_matter() {
    let mut tracker = Tracker::default();
    assert_eq!(tracker.committable(), None);
    for offset in [3, 7, 100] {
        assert!(tracker.begin(offset));
    }
    assert_eq!(tracker.committable(), Some(3));
    tracker.finish(7);
    assert_eq!(tracker.committable(), Some(3));
    assert_eq!(tracker.ahead(), [4..100]);
    tracker.finish(3);
    assert_eq!(tracker.committable(), Some(100));
    assert_eq!(tracker.ahead(), []);
    tracker.finish(100);
    assert_eq!(tracker.committable(), Some(101));
}

#[test]
fn an_earlier_assignment_finishes_nothing_in_a_later_one() {
    let mut assignments = Assignments::default();
    assignments.assign(4);
    let first = ticket(assignments.begin(4, 10));
    assignments.revoke(4);
    assert_eq!(assignments.begin(4, 10), Begun::NotOurs);
    assert!(!assignments.finish(first));
    assignments.assign(4);
    let second = ticket(assignments.begin(4, 10));
    assert!(!assignments.finish(first), "finished in the earlier assignment");
    assert_eq!(assignments.to_commit(), [Mark::plain(4, 10)]);
    assert!(assignments.is_current(second) && !assignments.is_current(first));
    assert!(assignments.finish(second));
    assert_eq!(assignments.to_commit(), [Mark::plain(4, 11)]);
    assignments.committed(&[Mark::plain(4, 11)]);
    assert_eq!(assignments.to_commit(), []);
}

#[test]
fn what_was_finished_ahead_is_committed_and_recalled() {
    let mut assignments = Assignments::default();
    assignments.assign(0);
    let tickets: Vec<_> = (20..26).map(|offset| ticket(assignments.begin(0, offset))).collect();
    for at in [1, 2, 4] {
        assignments.finish(tickets[at]);
    }
    let [mark] = assignments.to_commit().try_into().unwrap();
    assert_eq!(mark.offset, 20);
    assignments.committed(std::slice::from_ref(&mark));
    assignments.finish(tickets[5]);
    let [later] = assignments.to_commit().try_into().unwrap();
    assert_eq!(later.offset, 20, "the offset stands still");
    assert_ne!(later.metadata, mark.metadata, "what is ahead of it is told nevertheless");

    assignments.assign(0);
    assert_eq!(assignments.recall(&mark), 3);
    let begun: Vec<bool> = (20..27).map(|offset| assignments.begin(0, offset) != Begun::Finished).collect();
    assert_eq!(begun, [true, false, false, true, false, true, true]);
}

#[test]
fn what_was_recalled_and_not_read_yet_is_told_again() {
    let mut tracker = Tracker::default();
    tracker.recall(20, &ahead::encode(20, &[21..23, 30..40]));
    assert!(tracker.begin(20) && !tracker.begin(21));
    assert_eq!(tracker.committable(), Some(20));
    assert_eq!(tracker.ahead(), [21..23, 30..40], "22 was not read, and is finished");
    tracker.finish(20);
    assert_eq!(tracker.committable(), Some(22));
    assert_eq!(tracker.ahead(), [22..23, 30..40]);
    assert!(!tracker.begin(35));
    assert_eq!((tracker.committable(), tracker.ahead()), (Some(36), vec![36..40]));
}

#[test]
fn a_commit_of_another_beginning_says_nothing() {
    let metadata = ahead::encode(20, &[21..23]);
    let mut tracker = Tracker::default();
    assert_eq!(tracker.recall(20, &metadata), 2);
    assert!(tracker.begin(5), "reading begins before: perhaps the topic was made anew");
    assert!(tracker.begin(21) && tracker.begin(22));
    let mut tracker = Tracker::default();
    assert_eq!(tracker.recall(19, &metadata), 0, "written with another offset");
    assert!(tracker.begin(19) && tracker.begin(21));
    let mut tracker = Tracker::default();
    assert_eq!(tracker.recall(20, "somebody else's words"), 0);
    assert!(tracker.begin(20) && tracker.begin(21));
}

#[test]
fn where_reading_goes_back_everything_is_open_again_and_what_stood_before_stays_so() {
    let mut tracker = Tracker::default();
    tracker.recall(3, &ahead::encode(3, &[30..40]));
    for offset in [3, 5, 8, 9] {
        assert!(tracker.begin(offset));
    }
    tracker.finish(5);
    tracker.finish(9);
    assert_eq!((tracker.committable(), tracker.ahead()), (Some(3), vec![4..8, 9..10, 30..40]));
    // The log lost its end, and other records stand there now.
    assert!(tracker.begin(6));
    assert_eq!((tracker.committable(), tracker.ahead()), (Some(3), vec![4..6]));
    tracker.finish(3);
    assert_eq!((tracker.committable(), tracker.ahead()), (Some(6), vec![]));
    assert!(tracker.begin(9), "finished was what stood there before");
    tracker.finish(6);
    assert_eq!(tracker.committable(), Some(9));
    // The topic was made anew.
    assert!(tracker.begin(0) && tracker.begin(1));
    tracker.finish(1);
    assert_eq!((tracker.committable(), tracker.ahead()), (Some(0), vec![1..2]), "the commit goes back");
    tracker.finish(0);
    assert_eq!(tracker.committable(), Some(2));
}

#[test]
fn what_is_read_more_than_once_is_open_until_each_reading_has_ended() {
    let mut tracker = Tracker::default();
    for offset in [3, 4, 5, 4, 5, 5] {
        assert!(tracker.begin(offset));
    }
    assert!(tracker.finish(3));
    assert!(!tracker.finish(4), "the other one may be of something else");
    assert_eq!((tracker.committable(), tracker.ahead(), tracker.open()), (Some(4), vec![], 2));
    assert!(tracker.finish(4));
    assert!(!tracker.finish(5) && !tracker.finish(5), "read three times");
    assert_eq!(tracker.committable(), Some(5));
    assert!(tracker.finish(5) && !tracker.finish(5));
    assert_eq!((tracker.committable(), tracker.open()), (Some(6), 0));
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
            prop_assert!(tracker.ahead().iter().all(|stretch| open.range(stretch.clone()).next().is_none()));
            prop_assert_eq!(tracker.open(), open.len());
        }
        for offset in open {
            tracker.finish(offset);
        }
        let expected = begun.checked_sub(1).map(|at| offsets[at] + 1);
        prop_assert_eq!(tracker.committable(), expected);
    }
}

/// A step of the world below.
#[derive(Debug, Clone)]
enum Step {
    Read,
    Take,
    Finish(prop::sample::Index),
    Hold(prop::sample::Index),
    Wake,
    Commit,
    /// Reading goes back.
    Back(prop::sample::Index),
    /// The partition is taken, given back, and read from what was committed; what runs goes on.
    Rebalance,
    /// The process dies and another one begins.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Read),
        6 => Just(Step::Take),
        5 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Hold),
        1 => Just(Step::Wake),
        3 => Just(Step::Commit),
        1 => any::<prop::sample::Index>().prop_map(Step::Back),
        1 => Just(Step::Rebalance),
        1 => Just(Step::Crash),
    ]
}

/// A log of one partition, its committed mark, and one consumer made of lanes and trackers.
struct World {
    /// Offset, key and seq of each record.
    log: Vec<(i64, u8, i64)>,
    read: usize,
    committed: Option<Mark>,
    lanes: Lanes<(u8, i64)>,
    assignments: Assignments,
    running: Vec<Entry<(u8, i64)>>,
    /// The newest that was handled, by key.
    handled: BTreeMap<u8, i64>,
}

impl World {
    fn new(records: &[(u8, i64)]) -> Self {
        let mut seqs: BTreeMap<u8, i64> = BTreeMap::new();
        let mut offset = 0;
        let mut record = |(key, gap): &(u8, i64)| {
            offset += gap;
            let seq = seqs.entry(*key).or_default();
            *seq += 1;
            (offset, *key, *seq)
        };
        let log = records.iter().map(&mut record).collect();
        let mut world = Self {
            log,
            read: 0,
            committed: None,
            lanes: Lanes::new(Limits { total: 4, group: 4 }),
            assignments: Assignments::default(),
            running: Vec::new(),
            handled: BTreeMap::new(),
        };
        world.assign();
        world
    }

    fn assign(&mut self) {
        self.assignments.assign(0);
        let from = self.committed.as_ref().map_or(0, |mark| mark.offset);
        self.read = self.log.iter().take_while(|(offset, ..)| *offset < from).count();
        if let Some(mark) = &self.committed {
            self.assignments.recall(mark);
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Read => self.read(),
            Step::Take => self.running.extend(self.lanes.take()),
            Step::Finish(at) if !self.running.is_empty() => {
                let done = self.running.swap_remove(at.index(self.running.len()));
                self.finish(&done);
            }
            Step::Hold(at) if !self.running.is_empty() => {
                let held = self.running.swap_remove(at.index(self.running.len()));
                if !self.assignments.is_current(held.ticket) {
                    return self.lanes.finish(&held);
                }
                let old = self.lanes.hold(held);
                self.superseded(old);
            }
            Step::Finish(_) | Step::Hold(_) => {}
            Step::Wake => (0..5_u8).for_each(|key| self.lanes.wake(&key.to_string().into())),
            Step::Commit => self.commit(),
            Step::Back(to) => self.read = to.index(self.read + 1),
            Step::Rebalance => {
                self.commit();
                self.assignments.revoke(0);
                self.lanes.discard(|_| true);
                self.assign();
            }
            Step::Crash => {
                self.running.clear();
                self.lanes = Lanes::new(Limits { total: 4, group: 4 });
                self.assignments = Assignments::default();
                self.assign();
            }
        }
    }

    fn read(&mut self) {
        let Some(&(offset, key, seq)) = self.log.get(self.read) else { return };
        self.read += 1;
        match self.assignments.begin(0, offset) {
            Begun::Open(ticket) => {
                let key_text: std::sync::Arc<str> = key.to_string().into();
                let place = Place {
                    key: key_text,
                    order: (0, seq),
                    tenant: "t".into(),
                    group: "g".into(),
                    class: Class::Interactive,
                };
                let old = self.lanes.offer(Entry {
                    place,
                    ticket,
                    attempt: 0,
                    panics: 0,
                    bytes: 1,
                    work: (key, seq),
                });
                self.superseded(old);
            }
            Begun::Finished => {
                let newest = self.handled.get(&key).copied().unwrap_or(0);
                assert!(
                    newest >= seq || self.is_known_later(key, seq),
                    "{key}/{seq} at {offset} is passed over and was never dealt with"
                );
            }
            Begun::NotOurs => panic!("the partition is ours"),
        }
    }

    /// Whether a newer record of the key is alive: this one was superseded by it.
    fn is_known_later(&self, key: u8, seq: i64) -> bool {
        self.log.iter().any(|(_, other, later)| *other == key && *later > seq)
    }

    fn finish(&mut self, done: &Entry<(u8, i64)>) {
        let (key, seq) = done.work;
        let newest = self.handled.entry(key).or_default();
        *newest = seq.max(*newest);
        self.assignments.finish(done.ticket);
        self.lanes.finish(done);
    }

    fn superseded(&mut self, old: Option<Entry<(u8, i64)>>) {
        if let Some(old) = old {
            self.assignments.finish(old.ticket);
        }
    }

    fn commit(&mut self) {
        let marks = self.assignments.to_commit();
        self.assignments.committed(&marks);
        self.committed = marks.into_iter().next().or_else(|| self.committed.take());
    }
}

proptest! {
    /// Reading, also once more, working, holding, committing, rebalances and crashes in any order: in the end the newest record of each
    /// key was handled, whatever was passed over because a commit said that it was finished.
    #[test]
    fn nothing_is_lost(
        records in prop::collection::vec((0..5_u8, 1..4_i64), 1..40),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut world = World::new(&records);
        for step in &steps {
            world.take(step);
            let mut keys = BTreeSet::new();
            prop_assert!(world.running.iter().all(|entry| keys.insert(entry.work.0)), "a key runs twice");
        }
        for _ in 0..200 {
            for step in [Step::Read, Step::Wake, Step::Take] {
                world.take(&step);
            }
            if let Some(done) = world.running.pop() {
                world.finish(&done);
            }
            world.commit();
        }
        let newest: BTreeMap<u8, i64> = world.log.iter().map(|(_, key, seq)| (*key, *seq)).collect();
        prop_assert_eq!(&world.handled, &newest);
        let end = world.log.last().map(|(offset, ..)| Mark::plain(0, offset + 1));
        prop_assert_eq!(world.committed, end, "everything is committed, and nothing is ahead");
        prop_assert!(world.lanes.is_empty() && world.assignments.open() == 0);
    }
}
