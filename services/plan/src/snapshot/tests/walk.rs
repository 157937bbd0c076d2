//! The whole way: each fault at each step, twice; deletion, pause and a deadline at every step; several at once.

use resources::{CopyPolicy, SnapshotPhase};

use super::world::{FAULTS, Fault, World};
use crate::snapshot::is_settled;

/// More passes than anything may take.
const PASSES: usize = 200;

/// Passes until the object is settled or gone; `disturb` happens before each pass whose step has that number.
pub(super) fn run(world: &mut World, of: usize, mut disturb: impl FnMut(&mut World, usize) -> Option<Fault>) {
    for _ in 0..PASSES {
        if world.is_gone(of) || is_settled(&world.objects[of]) {
            return;
        }
        let step = world.steps.len();
        let fault = disturb(world, step);
        world.pass(of, fault);
        world.check();
        world.tick();
    }
    panic!("not settled after {:?}: {:?}", world.steps, world.objects[of].status);
}

pub(super) fn succeeded(world: &World) {
    assert_eq!(world.phase(0), Some(SnapshotPhase::Succeeded), "{:?}", world.steps);
    let [copy] = &world.living()[..] else { panic!("not one copy after {:?}", world.steps) };
    assert!(copy.whole);
    assert!(world.is_free());
}

/// The steps of an undisturbed run: faults are put at each of them.
fn undisturbed(prepare: fn(&mut World)) -> usize {
    let mut world = World::new(&["a"]);
    prepare(&mut world);
    run(&mut world, 0, |_, _| None);
    succeeded(&world);
    world.steps.len()
}

#[test]
fn undisturbed_it_takes_the_shortest_way() {
    let mut world = World::new(&["a"]);
    run(&mut world, 0, |_, _| None);
    succeeded(&world);
    let expect = [
        "Hold",
        "OweRelease",
        "CreateCheckpoint",
        "CreateSnapshot",
        "TrustSnapshot",
        "ReleaseCheckpoint",
        "StrikeRelease",
    ];
    assert_eq!(world.steps, expect);
}

#[test]
fn a_stopped_database_is_copied_without_a_checkpoint() {
    let mut world = World::new(&["a"]);
    world.stopped = Some(3);
    run(&mut world, 0, |_, _| None);
    succeeded(&world);
    assert_eq!(world.steps, ["Hold", "CreateSnapshot", "TrustSnapshot"]);
}

/// What a world is before the first look.
type Prepare = fn(&mut World);

#[test]
fn every_fault_at_every_step_once_and_twice() {
    let shapes: [(&str, Prepare); 4] = [
        ("serving", |_| {}),
        ("stopped", |world| world.stopped = Some(3)),
        ("shown at once", |world| world.shows_after = 0),
        ("held by somebody", |world| world.usurp(world.now - jiff::SignedDuration::from_hours(2))),
    ];
    let mut runs = 0;
    for (shape, prepare) in shapes {
        for (at, fault, times) in cases(undisturbed(prepare)) {
            let fired = struck(prepare, (at, fault, times));
            assert_eq!(fired, times, "{shape}: {fault:?} at {at} did not fire");
            runs += 1;
        }
    }
    assert!(runs > 300, "{runs}");
}

fn cases(steps: usize) -> impl Iterator<Item = (usize, Fault, usize)> {
    let faults = (0..steps).flat_map(|at| FAULTS.map(|fault| (at, fault)));
    faults.flat_map(|(at, fault)| [1, 2].map(|times| (at, fault, times)))
}

/// A run with a fault from a step on; how often it fired.
fn struck(prepare: fn(&mut World), (at, fault, times): (usize, Fault, usize)) -> usize {
    let mut world = World::new(&["a"]);
    prepare(&mut world);
    let mut fired = 0;
    run(&mut world, 0, |_, step| {
        let strikes = step >= at && fired < times;
        fired += usize::from(strikes);
        strikes.then_some(fault)
    });
    succeeded(&world);
    fired
}

#[test]
fn two_that_ask_at_once_never_share_the_database() {
    for (shows_after, order) in [(0, [0, 1]), (10, [1, 0])] {
        let mut world = World::new(&["a", "b"]);
        world.shows_after = shows_after;
        for _ in 0..PASSES {
            for of in order {
                look(&mut world, of);
            }
            world.tick();
        }
        assert_eq!([world.phase(0), world.phase(1)], [Some(SnapshotPhase::Succeeded); 2]);
        assert_eq!(world.living().len(), 2);
    }
}

fn look(world: &mut World, of: usize) {
    if !is_settled(&world.objects[of]) {
        world.pass(of, None);
        world.check();
    }
}

/// What somebody else holds, before it is asked for or from any moment on at which this process knows what it made itself.
#[test]
fn what_somebody_else_holds_is_told_and_left_to_them() {
    let mut told = 0;
    for at in 0..undisturbed(|_| {}) {
        let (mut world, mut usurped) = (World::new(&["a"]), false);
        run(&mut world, 0, |world, step| {
            assert!(world.foreign.is_none() || world.is_theirs(), "it is not its owner who ends it");
            let status = world.objects[0].status.as_ref();
            let reason =
                status.and_then(|status| status.conditions.first()).map(|ready| ready.reason.as_str());
            told += usize::from(world.is_theirs() && reason == Some("HeldByOthers"));
            if step >= at && !usurped {
                usurped = true;
                world.usurp(world.now);
            }
            None
        });
        succeeded(&world);
        assert!(usurped);
    }
    assert!(told > 50, "{told}");
}

#[test]
fn deleted_at_any_step_it_leaves_the_database_free() {
    for policy in [CopyPolicy::Retain, CopyPolicy::Delete] {
        // At last, when it has come to rest.
        for at in 0..=undisturbed(|_| {}) + 1 {
            let mut world = World::new(&["a"]);
            run_until_deleted(&mut world, at, policy);
            assert!(world.is_gone(0));
            assert_eq!(world.held_since, None);
            let whole = world.living().iter().all(|copy| copy.whole);
            assert!(whole, "a torn copy is left behind");
            let kept = usize::from(policy == CopyPolicy::Retain && at > 4);
            assert_eq!(world.living().len(), kept, "{policy:?} after {:?}", world.steps);
        }
    }
}

fn run_until_deleted(world: &mut World, at: usize, policy: CopyPolicy) {
    for _ in 0..PASSES {
        if world.is_gone(0) {
            return;
        }
        if world.steps.len() >= at || is_settled(&world.objects[0]) {
            world.delete(0, policy);
        }
        world.pass(0, None);
        world.check();
        world.tick();
    }
    panic!("not gone after {:?}", world.steps);
}

/// At each step from which on there is something to copy, and at last, when it has come to rest.
#[test]
fn what_somebody_copies_of_a_copy_is_left_to_them_and_not_taken_for_one() {
    for policy in [CopyPolicy::Retain, CopyPolicy::Delete] {
        for at in 4..=undisturbed(|_| {}) + 1 {
            let mut world = World::new(&["a"]);
            let mut copied = false;
            run_until_copied(&mut world, at, &mut copied);
            assert!(copied, "{:?}", world.steps);
            assert_eq!(world.phase(0), Some(SnapshotPhase::Succeeded), "{:?}", world.steps);
            let told = world.objects[0].status.as_ref().and_then(|status| status.volume_id.clone());
            assert_eq!(told.as_deref(), Some("vol-1"), "{:?}", world.steps);
            // The process forgets, and so does the object.
            world.wipe(0);
            world.delete(0, policy);
            run(&mut world, 0, |_, _| None);
            assert!(world.is_gone(0) && world.is_free());
            let kept = usize::from(policy == CopyPolicy::Retain);
            assert_eq!((world.living().len(), world.by_hand()), (kept + 1, 1), "{:?}", world.steps);
        }
    }
}

fn run_until_copied(world: &mut World, at: usize, copied: &mut bool) {
    run(world, 0, |world, step| {
        *copied |= step >= at && !*copied && world.copy_by_hand();
        None
    });
    *copied |= !*copied && world.copy_by_hand();
}

#[test]
fn stopped_or_started_at_any_step_no_torn_copy_is_trusted() {
    for (before, after) in [(None, Some(3)), (Some(3), None), (Some(3), Some(4))] {
        (0..8).for_each(|at| turned(at, before, after));
    }
}

/// A run during which the database is stopped or started.
fn turned(at: usize, before: Option<u64>, after: Option<u64>) {
    let mut world = World::new(&["a"]);
    world.stopped = before;
    run(&mut world, 0, |world, step| {
        if step >= at && world.stopped != after {
            world.stopped = after;
            world.held_since = None;
        }
        None
    });
    succeeded(&world);
}

#[test]
fn past_its_deadline_it_fails_frees_the_database_and_stays_failed() {
    for at in 1..=4 {
        let mut world = World::new(&["a"]);
        run(&mut world, 0, |world, step| {
            if step >= at && world.steps.len() == at {
                world.now += jiff::SignedDuration::from_secs(3_700);
            }
            None
        });
        assert_eq!(world.phase(0), Some(SnapshotPhase::Failed), "{:?}", world.steps);
        assert_eq!((world.living().len(), world.held_since), (0, None));
        // Forgotten status changes nothing.
        world.wipe(0);
        run(&mut world, 0, |_, _| None);
        assert_eq!(world.phase(0), Some(SnapshotPhase::Failed));
    }
}

#[test]
fn a_copy_that_ec2_gives_up_at_any_step_fails_at_once_and_is_not_begun_again() {
    let faults = || FAULTS.map(Some).into_iter().chain([None]);
    for (at, fault) in (3..7).flat_map(|at| faults().map(move |fault| (at, fault))) {
        let (mut world, mut fired) = (World::new(&["a"]), false);
        run(&mut world, 0, |world, step| {
            world.gives_up |= step >= at;
            let strikes = step >= at && !fired;
            fired |= strikes;
            fault.filter(|_| strikes)
        });
        let told = world.objects[0].status.clone().unwrap();
        assert_eq!(told.phase, Some(SnapshotPhase::Failed), "{fault:?} at {at}: {:?}", world.steps);
        let ready = &told.conditions[0];
        assert_eq!(ready.reason, "CopyFailed", "{fault:?} at {at}: {:?}", world.steps);
        assert!(ready.message.contains("the key is disabled"), "{}", ready.message);
        assert!(world.is_free(), "{fault:?} at {at}: {:?}", world.steps);
        // Whoever heard nothing asks twice, and nobody asks again for what EC2 gave up.
        assert!(world.copies.len() <= 2, "{fault:?} at {at}: {:?}", world.steps);
        world.wipe(0);
        run(&mut world, 0, |_, _| None);
        assert_eq!(world.phase(0), Some(SnapshotPhase::Failed));
        world.delete(0, CopyPolicy::Retain);
        run(&mut world, 0, |_, _| None);
        assert_eq!(
            world.living().len(),
            usize::from(at > 4),
            "{fault:?} at {at}: what was never trusted is left"
        );
    }
}

#[test]
fn what_was_owed_is_paid_when_the_database_comes_back_after_the_deadline() {
    let mut world = World::new(&["a"]);
    for _ in 0..3 {
        world.pass(0, None);
        world.tick();
    }
    assert!(world.held_since.is_some());
    world.now += jiff::SignedDuration::from_secs(3_700);
    world.silent_until = Some(world.now + jiff::SignedDuration::from_secs(600));
    for _ in 0..20 {
        let plan = world.pass(0, None);
        assert_eq!((plan.step, plan.phase), (None, SnapshotPhase::Failed));
        assert!(plan.message.contains("freed once it answers"), "{}", plan.message);
        assert!(!is_settled(&world.objects[0]));
        world.tick();
    }
    world.silent_until = None;
    run(&mut world, 0, |_, _| None);
    assert_eq!(world.held_since, None);
}

#[test]
fn a_copy_that_arrives_late_is_surplus() {
    let mut world = World::new(&["a"]);
    let mut late = None;
    run(&mut world, 0, |world, step| {
        if step == 5 && late.is_none() {
            // A second leader's request, of the same basis.
            let tags = world.seen(0).copies.first().map(|copy| copy.tags.clone());
            late = tags.inspect(|tags| world.arrive(tags.clone()));
        }
        None
    });
    assert!(late.is_some());
    succeeded(&world);
    assert_eq!(world.copies.len(), 2);
}
