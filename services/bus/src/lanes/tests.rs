//! Tables of small cases, and a model that takes random steps. Nothing here runs anything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { total: 3, group: 2 };

fn entry(key: &str, seq: i64, offset: i64) -> Entry<i64> {
    grouped(key, "g", seq, offset)
}

fn grouped(key: &str, group: &str, seq: i64, offset: i64) -> Entry<i64> {
    Entry {
        place: Place { key: key.into(), order: (1, seq), group: group.into() },
        ticket: Ticket { partition: 0, epoch: 1, offset },
        attempt: 0,
        work: offset,
    }
}

fn offset(entry: Option<Entry<i64>>) -> Option<i64> {
    entry.map(|entry| entry.ticket.offset)
}

#[test]
fn only_the_newest_waits() {
    let mut lanes = Lanes::new(LIMITS);
    assert_eq!(lanes.offer(entry("a", 1, 10)), None);
    assert_eq!(offset(lanes.offer(entry("a", 3, 11))), Some(10), "the older one is superseded");
    assert_eq!(offset(lanes.offer(entry("a", 2, 12))), Some(12), "an older one that comes later too");
    assert_eq!(offset(lanes.offer(entry("a", 3, 13))), Some(11), "of equals the later reading stays");
    assert_eq!(offset(lanes.take()), Some(13));
    assert_eq!(lanes.take(), None);
    assert_eq!(lanes.len(), 1);
}

#[test]
fn a_key_is_locked_while_it_runs_even_across_assignments() {
    let mut lanes = Lanes::new(LIMITS);
    lanes.offer(entry("a", 1, 10));
    let running = lanes.take().unwrap();
    lanes.discard(|_| true);
    let mut again = entry("a", 1, 10);
    again.ticket.epoch = 2;
    lanes.offer(again.clone());
    assert_eq!(lanes.take(), None, "the first reading still runs");
    lanes.finish(&running.place);
    assert_eq!(lanes.take(), Some(again));
}

#[test]
fn groups_take_turns_and_are_bounded() {
    let mut lanes = Lanes::new(LIMITS);
    for (at, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        lanes.offer(grouped(key, "slow", 1, i64::try_from(at).unwrap()));
    }
    lanes.offer(grouped("x", "quick", 1, 100));
    let first = lanes.take().unwrap();
    assert_eq!(first.ticket.offset, 0);
    assert_eq!(offset(lanes.take()), Some(100), "the other group has its turn");
    assert_eq!(offset(lanes.take()), Some(1));
    assert_eq!(lanes.take(), None, "three run");
    lanes.finish(&Place { key: "x".into(), order: (1, 1), group: "quick".into() });
    assert_eq!(lanes.take(), None, "two of the slow group run");
    lanes.finish(&first.place);
    assert_eq!(offset(lanes.take()), Some(2));
}

#[test]
fn a_held_record_waits_for_its_wake_or_a_newer_one() {
    let mut lanes = Lanes::new(LIMITS);
    lanes.offer(entry("a", 1, 10));
    let held = lanes.take().unwrap();
    assert_eq!(lanes.hold(held), None);
    assert_eq!(lanes.take(), None, "it rests");
    assert_eq!((lanes.len(), lanes.running()), (1, 0));
    lanes.wake(&"a".into());
    let held = lanes.take().unwrap();
    lanes.offer(entry("a", 2, 11));
    assert_eq!(offset(lanes.hold(held)), Some(10), "the newer one takes its place");
    let held = lanes.take().unwrap();
    assert_eq!(lanes.hold(held), None);
    assert_eq!(offset(lanes.offer(entry("a", 3, 12))), Some(11), "also while it rests");
    assert_eq!(offset(lanes.take()), Some(12));
}

#[test]
fn discarded_lanes_do_not_stop_the_queue() {
    let mut lanes = Lanes::new(LIMITS);
    let mut gone = entry("a", 1, 10);
    gone.ticket.partition = 7;
    lanes.offer(gone);
    lanes.offer(entry("b", 1, 11));
    assert_eq!(lanes.discard(|ticket| ticket.partition == 7), 1);
    assert_eq!(offset(lanes.take()), Some(11));
}

/// A step of the model below.
#[derive(Debug, Clone)]
enum Step {
    Offer { key: u8, group: u8, seq: i64 },
    Take,
    Finish(prop::sample::Index),
    Hold(prop::sample::Index),
    Wake(u8),
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5_u8, 0..3_u8, 0..6_i64).prop_map(|(key, group, seq)| Step::Offer { key, group, seq }),
        5 => Just(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Hold),
        2 => (0..5_u8).prop_map(Step::Wake),
        1 => Just(Step::Discard),
    ]
}

proptest! {
    /// Whatever happens: one at a time per key, bounds kept, every record ends exactly once (run, superseded or
    /// discarded), never an older one after a newer one of the waiting, and in the end nothing is left behind.
    #[test]
    fn every_record_ends_once(steps in prop::collection::vec(step(), 1..200)) {
        let mut lanes: Lanes<i64> = Lanes::new(LIMITS);
        let mut running: Vec<Entry<i64>> = Vec::new();
        let mut alive: BTreeSet<i64> = BTreeSet::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Offer { key, group, seq } => {
                    next += 1;
                    alive.insert(next);
                    if let Some(old) = lanes.offer(grouped(&key.to_string(), &group.to_string(), seq, next)) {
                        prop_assert!(alive.remove(&old.ticket.offset));
                    }
                }
                Step::Take => running.extend(lanes.take()),
                Step::Finish(at) if !running.is_empty() => {
                    let done = running.swap_remove(at.index(running.len()));
                    prop_assert!(alive.remove(&done.ticket.offset));
                    lanes.finish(&done.place);
                }
                Step::Hold(at) if !running.is_empty() => {
                    let held = running.swap_remove(at.index(running.len()));
                    if let Some(old) = lanes.hold(held) {
                        prop_assert!(alive.remove(&old.ticket.offset));
                    }
                }
                Step::Wake(key) => lanes.wake(&key.to_string().into()),
                Step::Discard => {
                    lanes.discard(|_| true);
                    alive = running.iter().map(|entry| entry.ticket.offset).collect();
                }
                Step::Finish(_) | Step::Hold(_) => {}
            }
            let mut keys: BTreeMap<&str, usize> = BTreeMap::new();
            let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
            for entry in &running {
                *keys.entry(&entry.place.key).or_default() += 1;
                *groups.entry(&entry.place.group).or_default() += 1;
            }
            prop_assert!(keys.values().all(|count| *count == 1), "a key runs twice: {keys:?}");
            prop_assert!(running.len() <= LIMITS.total);
            prop_assert_eq!(lanes.running(), running.len());
            prop_assert_eq!(lanes.len(), alive.len());
        }
        for _ in 0..1000 {
            for key in 0..5_u8 {
                lanes.wake(&key.to_string().into());
            }
            running.extend(lanes.take());
            if let Some(done) = running.pop() {
                prop_assert!(alive.remove(&done.ticket.offset));
                lanes.finish(&done.place);
            }
        }
        prop_assert!(alive.is_empty() && lanes.is_empty(), "left behind: {alive:?}");
    }
}
