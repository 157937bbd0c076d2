//! Tables of small cases, and models that take random steps. Nothing here runs anything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::turns::WEIGHT;
use super::*;

const LIMITS: Limits = Limits { total: 3, group: 2 };
/// What each record of these tests takes.
const BYTES: usize = 7;

fn entry(key: &str, seq: i64, offset: i64) -> Entry<i64> {
    placed(key, "t", "g", seq, offset)
}

fn placed(key: &str, tenant: &str, group: &str, seq: i64, offset: i64) -> Entry<i64> {
    let place = Place {
        key: key.into(),
        order: (1, seq),
        tenant: tenant.into(),
        group: group.into(),
        class: Class::Interactive,
    };
    Entry {
        place,
        ticket: Ticket { partition: 0, epoch: 1, offset },
        attempt: 0,
        panics: 0,
        bytes: BYTES,
        work: offset,
    }
}

fn bulk(mut entry: Entry<i64>) -> Entry<i64> {
    entry.place.class = Class::Bulk;
    entry
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
    assert_eq!((lanes.len(), lanes.bytes()), (1, BYTES));
}

#[test]
fn all_are_kept_in_order_where_that_is_wanted() {
    let mut lanes = Lanes::new(LIMITS).keeping(Keep::All);
    for offset in 10..13 {
        assert_eq!(lanes.offer(entry("a", 1, offset)), None, "nothing is superseded");
    }
    let first = lanes.take().unwrap();
    assert_eq!((first.ticket.offset, lanes.take()), (10, None), "one at a time");
    assert_eq!(lanes.hold(first), None);
    lanes.wake(&"a".into());
    for offset in 10..13 {
        let next = lanes.take().unwrap();
        assert_eq!(next.ticket.offset, offset);
        lanes.finish(&next);
    }
    assert_eq!((lanes.len(), lanes.bytes()), (0, 0));
    for offset in 20..23 {
        lanes.offer(entry("a", 1, offset));
    }
    let running = lanes.take().unwrap();
    assert_eq!(lanes.discard(|ticket| ticket.offset < 22), 1, "the one that runs goes on");
    lanes.finish(&running);
    assert_eq!(offset(lanes.take()), Some(22));
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
    lanes.finish(&running);
    assert_eq!(lanes.take(), Some(again));
}

#[test]
fn a_group_that_is_full_leaves_room_for_the_others() {
    let mut lanes = Lanes::new(LIMITS);
    for (at, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        lanes.offer(placed(key, "t", "slow", 1, i64::try_from(at).unwrap()));
    }
    let first = lanes.take().unwrap();
    assert_eq!(first.ticket.offset, 0);
    assert_eq!(offset(lanes.take()), Some(1));
    assert_eq!(lanes.take(), None, "two of the slow group run");
    lanes.offer(placed("x", "t", "quick", 1, 100));
    let quick = lanes.take().unwrap();
    assert_eq!(quick.ticket.offset, 100, "the other group of the same tenant has room");
    lanes.offer(placed("y", "t", "quick", 1, 101));
    assert_eq!(lanes.take(), None, "three run");
    lanes.finish(&first);
    assert_eq!(offset(lanes.take()), Some(101), "it was ready first");
    lanes.finish(&quick);
    assert_eq!(offset(lanes.take()), Some(2), "the slow group has room again");
}

/// Who is served, one after the other, when a tenant wants very much in some groups and another one little.
fn turns_of_a_modest_tenant(limits: Limits, groups: &[&str]) -> Vec<bool> {
    let mut lanes = Lanes::new(limits);
    for (at, group) in (0..100).zip(groups.iter().cycle()) {
        lanes.offer(placed(&format!("greedy-{at}"), "greedy", group, 1, at));
    }
    for at in 0..3 {
        lanes.offer(placed(&format!("modest-{at}"), "modest", groups[0], 1, 1_000 + at));
    }
    let serve = |_| {
        let next = lanes.take().unwrap();
        lanes.finish(&next);
        next.ticket.offset >= 1_000
    };
    (0..8).map(serve).collect()
}

#[test]
fn tenants_take_turns_however_much_one_of_them_wants() {
    let expected = [false, true, false, true, false, true, false, false];
    for groups in [&["g"][..], &["g", "h"], &["h", "i", "g", "k"]] {
        let pool = Limits { total: 1, group: 2 };
        assert_eq!(turns_of_a_modest_tenant(pool, groups), expected, "the pool is what is short: {groups:?}");
    }
    let room = Limits { total: 4, group: 1 };
    assert_eq!(turns_of_a_modest_tenant(room, &["g"]), expected, "the group is what is short");
}

#[test]
fn those_who_wait_go_first_and_bulk_work_goes_on() {
    let mut lanes = Lanes::new(Limits { total: 1, group: 1 });
    for at in 0..20 {
        lanes.offer(bulk(placed(&format!("bulk-{at}"), "t", "g", 1, at)));
        lanes.offer(placed(&format!("people-{at}"), "t", "g", 1, 100 + at));
    }
    let mut classes = Vec::new();
    while let Some(next) = lanes.take() {
        classes.push(next.place.class);
        lanes.finish(&next);
    }
    assert_eq!(classes.len(), 40);
    let weight = usize::try_from(WEIGHT).unwrap();
    for turn in classes[..25].chunks(weight + 1) {
        assert!(turn[..weight].iter().all(|class| *class == Class::Interactive), "{classes:?}");
        assert_eq!(turn[weight], Class::Bulk, "one of few is bulk");
    }
    assert!(classes[25..].iter().all(|class| *class == Class::Bulk), "nobody else is left");
}

#[test]
fn bulk_work_that_replaces_what_somebody_waits_for_is_as_urgent() {
    let mut lanes = Lanes::new(Limits { total: 1, group: 1 });
    lanes.offer(bulk(entry("first", 1, 1)));
    lanes.offer(bulk(entry("other", 1, 2)));
    lanes.offer(entry("other", 2, 3));
    lanes.offer(bulk(entry("other", 3, 4)));
    let taken = lanes.take().unwrap();
    assert_eq!((taken.ticket.offset, taken.place.class), (4, Class::Interactive));
    lanes.finish(&taken);
    assert_eq!(offset(lanes.take()), Some(1));
}

#[test]
fn a_held_record_waits_for_its_wake_or_a_newer_one() {
    let mut lanes = Lanes::new(LIMITS);
    lanes.offer(entry("a", 1, 10));
    let held = lanes.take().unwrap();
    assert_eq!(lanes.hold(held), None);
    assert_eq!(lanes.take(), None, "it rests");
    assert_eq!((lanes.len(), lanes.running(), lanes.bytes()), (1, 0, BYTES));
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

#[test]
fn who_runs_on_after_its_turn_is_in_the_way_of_its_key_alone() {
    let mut lanes = Lanes::new(Limits { total: 1, group: 1 });
    lanes.offer(entry("a", 1, 10));
    lanes.offer(entry("b", 1, 11));
    lanes.offer(entry("c", 1, 12));
    let first = lanes.take().unwrap();
    lanes.offer(entry("a", 2, 13));
    assert_eq!(lanes.take(), None, "there is one place");
    assert!(lanes.end_turn(&first.place) && !lanes.end_turn(&first.place), "it is over once");
    let second = lanes.take().unwrap();
    assert_eq!((second.ticket.offset, lanes.take()), (11, None));
    assert!(!lanes.end_turn(&second.place), "as many as may run on do");
    assert_eq!((lanes.running(), lanes.len()), (2, 4), "both still run");
    lanes.finish(&second);
    let third = lanes.take().unwrap();
    assert_eq!(third.ticket.offset, 12);
    lanes.finish(&third);
    assert_eq!(lanes.take(), None, "the key is locked");
    lanes.finish(&first);
    assert_eq!(offset(lanes.take()), Some(13));
}

/// A step of the model below.
#[derive(Debug, Clone)]
enum Step {
    Offer { key: u8, tenant: u8, group: u8, bulk: bool, seq: i64 },
    Take,
    Finish(prop::sample::Index),
    Hold(prop::sample::Index),
    EndTurn(prop::sample::Index),
    Wake(u8),
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    let offer = (0..6_u8, 0..3_u8, 0..3_u8, any::<bool>(), 0..6_i64);
    prop_oneof![
        6 => offer.prop_map(|(key, tenant, group, bulk, seq)| Step::Offer { key, tenant, group, bulk, seq }),
        5 => Just(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::Finish),
        2 => any::<prop::sample::Index>().prop_map(Step::Hold),
        3 => any::<prop::sample::Index>().prop_map(Step::EndTurn),
        2 => (0..6_u8).prop_map(Step::Wake),
        1 => Just(Step::Discard),
    ]
}

/// The lanes, what was taken of them, and the records that are to end some day.
struct Model {
    lanes: Lanes<i64>,
    running: Vec<Entry<i64>>,
    /// Those of them whose turn is over, by offset.
    after: BTreeSet<i64>,
    alive: BTreeSet<i64>,
    next: i64,
}

impl Model {
    fn new() -> Self {
        let (after, alive) = (BTreeSet::new(), BTreeSet::new());
        Self { lanes: Lanes::new(LIMITS), running: Vec::new(), after, alive, next: 0 }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Offer { key, tenant, group, bulk: is_bulk, seq } => {
                self.next += 1;
                self.alive.insert(self.next);
                let entry =
                    placed(&key.to_string(), &tenant.to_string(), &group.to_string(), *seq, self.next);
                let old = self.lanes.offer(if *is_bulk { bulk(entry) } else { entry });
                self.ended(old);
            }
            Step::Take => self.running.extend(self.lanes.take()),
            Step::Finish(at) if !self.running.is_empty() => {
                let done = self.stop(at.index(self.running.len()));
                self.lanes.finish(&done);
                self.ended(Some(done));
            }
            Step::Hold(at) if !self.running.is_empty() => {
                let held = self.stop(at.index(self.running.len()));
                let old = self.lanes.hold(held);
                self.ended(old);
            }
            Step::EndTurn(at) if !self.running.is_empty() => {
                let entry = &self.running[at.index(self.running.len())];
                let free = self.after.len() < LIMITS.total;
                let ended = self.lanes.end_turn(&entry.place);
                assert_eq!(ended, free && self.after.insert(entry.ticket.offset));
            }
            Step::Wake(key) => self.lanes.wake(&key.to_string().into()),
            Step::Discard => {
                self.lanes.discard(|_| true);
                self.alive = self.running.iter().map(|entry| entry.ticket.offset).collect();
            }
            Step::Finish(_) | Step::Hold(_) | Step::EndTurn(_) => {}
        }
    }

    fn stop(&mut self, at: usize) -> Entry<i64> {
        let entry = self.running.swap_remove(at);
        self.after.remove(&entry.ticket.offset);
        entry
    }

    fn ended(&mut self, entry: Option<Entry<i64>>) {
        if let Some(entry) = entry {
            assert!(self.alive.remove(&entry.ticket.offset), "{} ends twice", entry.ticket.offset);
        }
    }

    fn check(&self) {
        let mut keys: BTreeMap<&str, usize> = BTreeMap::new();
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in &self.running {
            *keys.entry(&entry.place.key).or_default() += 1;
            let has_turn = !self.after.contains(&entry.ticket.offset);
            *groups.entry(&entry.place.group).or_default() += usize::from(has_turn);
        }
        assert!(keys.values().all(|count| *count == 1), "a key runs twice: {keys:?}");
        assert!(groups.values().all(|count| *count <= LIMITS.group), "a group runs too often: {groups:?}");
        assert!(self.running.len() - self.after.len() <= LIMITS.total && self.after.len() <= LIMITS.total);
        assert_eq!(self.lanes.running(), self.running.len());
        assert_eq!(self.lanes.len(), self.alive.len());
        assert_eq!(self.lanes.bytes(), self.alive.len() * BYTES);
    }

    /// Lets everything end. Whatever is ready must be given sooner or later.
    fn drain(&mut self) {
        for _ in 0..1_000 {
            for key in 0..6_u8 {
                self.lanes.wake(&key.to_string().into());
            }
            self.running.extend(self.lanes.take());
            if let Some(last) = self.running.len().checked_sub(1) {
                let done = self.stop(last);
                self.lanes.finish(&done);
                self.ended(Some(done));
            }
        }
    }
}

proptest! {
    /// Whatever happens: one at a time per key, bounds kept, every record ends exactly once (run, superseded or
    /// discarded), and in the end nothing is left behind, in no count and no queue.
    #[test]
    fn every_record_ends_once(steps in prop::collection::vec(step(), 1..300)) {
        let mut model = Model::new();
        for step in &steps {
            model.take(step);
            model.check();
        }
        model.drain();
        prop_assert!(model.alive.is_empty() && model.lanes.is_empty(), "left behind: {:?}", model.alive);
        prop_assert_eq!((model.lanes.bytes(), model.lanes.running()), (0, 0));
        prop_assert!(model.lanes.turns.is_clean(), "{:?}", model.lanes.turns);
        prop_assert!(model.lanes.by_key.is_empty());
    }

    /// However much others want, and of whatever class: who is ready runs after at most as many others as there are
    /// tenants, in the turns of its class, as long as its group has room.
    #[test]
    fn nobody_starves(
        others in prop::collection::vec((0..4_u8, 0..2_u8, any::<bool>()), 0..200),
        is_bulk in any::<bool>(),
    ) {
        let mut lanes = Lanes::new(Limits { total: 1, group: 1 });
        let mut add = {
            let mut number = 0;
            move |lanes: &mut Lanes<i64>, (tenant, group, is_bulk): (u8, u8, bool)| {
                number += 1;
                let entry = placed(&format!("k-{number}"), &tenant.to_string(), &group.to_string(), 1, number);
                lanes.offer(if is_bulk { bulk(entry) } else { entry });
            }
        };
        for other in &others {
            add(&mut lanes, *other);
        }
        let mine = placed("mine", "me", "0", 1, -1);
        lanes.offer(if is_bulk { bulk(mine) } else { mine });
        let mut rounds = 0;
        loop {
            let next = lanes.take().unwrap();
            lanes.finish(&next);
            if next.ticket.offset == -1 {
                break;
            }
            rounds += 1;
            // The four tenants of two groups go on wanting.
            (0..8_u8).for_each(|at| add(&mut lanes, (at % 4, at / 4, at % 3 == 0)));
            // The group's line, and the tenants' round behind it, at the weight of the class.
            let bound = (8 + 8) * (usize::try_from(WEIGHT).unwrap() + 1);
            prop_assert!(rounds <= bound, "not run after {rounds} others");
        }
    }
}
