//! Whose a checkpoint is that holds the database under a debt, and when the debt is struck: single decisions, and requests for a
//! checkpoint that arrive late, on the whole way.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{CopyPolicy, QuestDBSnapshot, SnapshotPhase};

use super::table::after;
use super::walk::run;
use super::world::{Fault, World};
use crate::snapshot::{
    Checkpoint, Debt, Ground, Held, Known, Requests, Seen, debt, debt_struck, patience, plan,
};

/// What is known of a checkpoint for which no request is under way.
const fn quiet(checkpoint: Checkpoint) -> Known {
    Known { checkpoint, requests: Requests::Answered }
}

/// The same while one is that this process made.
const fn unanswered(checkpoint: Checkpoint) -> Known {
    Known { checkpoint, requests: Requests::Unanswered }
}

/// By who has only just begun.
const NEW: Known = Known { checkpoint: Checkpoint::Unknown, requests: Requests::Unknown };

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

#[test]
fn a_checkpoint_is_waited_for_while_its_copy_has_as_long_to_begin() {
    let (world, seen) = after(0);
    let resource = &world.objects[0];
    let made = resource.metadata.creation_timestamp.as_ref().unwrap().0;
    assert_eq!(seen.now, made);
    let deadline = i64::from(resource.spec.deadline_seconds);
    for (before, expected) in [(deadline, deadline / 2), (1_000, 500), (240, 120), (60, 120), (-60, 120)] {
        let found = patience(resource, made + seconds(deadline - before));
        assert_eq!(found.as_secs(), u64::try_from(expected).unwrap(), "{before}");
    }
    let mut ageless = resource.clone();
    ageless.metadata.creation_timestamp = None;
    assert_eq!(patience(&ageless, made).as_secs(), 120);
}

#[test]
fn where_the_debt_was_struck_only_the_very_checkpoint_that_was_made_is_released() {
    let (_, seen) = after(3);
    let Ground::Serving { disk, held: Some(held) } = &seen.ground else { panic!("{seen:?}") };
    let serving = |held| Ground::Serving { disk: disk.clone(), held };
    let stopped = Ground::Stopped { disk: disk.clone(), wish: "w".to_owned() };
    let ended = Ground::Ended { disk: disk.clone(), number: 1 };
    let unclear = Ground::Unclear("silent".to_owned());
    for (ground, expected) in [
        (serving(Some(*held)), Debt::Due),
        (serving(Some(Held { since: held.since + seconds(1), ..*held })), Debt::Void),
        (serving(None), Debt::Void),
        (stopped, Debt::Void),
        (ended, Debt::Void),
        (Ground::Absent, Debt::Void),
        (unclear, Debt::Unclear("silent".to_owned())),
    ] {
        assert_eq!(debt_struck(&ground, held.since), expected, "{ground:?}");
    }
}

#[test]
fn under_a_debt_it_is_ours_unless_we_know_better() {
    let (world, seen) = after(3);
    let Ground::Serving { held: Some(Held { since, .. }), .. } = seen.ground else { panic!("{seen:?}") };
    let before = since - seconds(1);
    let check = |known: Known, late: bool, expected: &str| {
        let mut seen = Seen { known, ..seen.clone() };
        if late {
            seen.now += seconds(3_601);
        }
        let plan = plan(&world.objects[0], &seen);
        assert_eq!(plan.step.map(|step| step.name()), Some(expected), "{known:?} {late}");
    };
    for (known, in_time, late) in [
        (quiet(Checkpoint::Unknown), "ReleaseCheckpoint", "ReleaseCheckpoint"),
        (NEW, "ReleaseCheckpoint", "ReleaseCheckpoint"),
        (unanswered(Checkpoint::Unknown), "ReleaseCheckpoint", "ReleaseCheckpoint"),
        (quiet(Checkpoint::Made(since)), "CreateSnapshot", "ReleaseCheckpoint"),
        (unanswered(Checkpoint::Made(since)), "CreateSnapshot", "ReleaseCheckpoint"),
        (quiet(Checkpoint::Made(before)), "StrikeRelease", "StrikeRelease"),
        // It may be what was asked for before the one that was made.
        (unanswered(Checkpoint::Made(before)), "ReleaseCheckpoint", "ReleaseCheckpoint"),
        (quiet(Checkpoint::Unmade), "StrikeRelease", "StrikeRelease"),
    ] {
        check(known, false, in_time);
        check(known, true, late);
    }
}

#[test]
fn a_debt_is_due_while_what_holds_the_database_may_be_ours_and_void_when_nothing_may_come() {
    let (world, seen) = after(3);
    let Ground::Serving { disk, held: Some(held) } = seen.ground else { panic!("{seen:?}") };
    let (since, serving) = (held.since, |held| Ground::Serving { disk: disk.clone(), held });
    let stopped = || Ground::Stopped { disk: disk.clone(), wish: "1".to_owned() };
    let (silent, made) = (Ground::Unclear("no answer".to_owned()), Checkpoint::Made(since));
    for (ground, known, expected) in [
        (serving(Some(held)), quiet(Checkpoint::Unknown), Debt::Due),
        (serving(Some(held)), quiet(made), Debt::Due),
        (serving(Some(held)), quiet(Checkpoint::Unmade), Debt::Void),
        (serving(None), quiet(Checkpoint::Unknown), Debt::Void),
        (serving(None), quiet(made), Debt::Void),
        (serving(None), NEW, Debt::Early),
        (serving(None), unanswered(Checkpoint::Unknown), Debt::Early),
        (serving(None), unanswered(made), Debt::Early),
        // No process is left that it could reach.
        (stopped(), unanswered(Checkpoint::Unknown), Debt::Void),
        (Ground::Absent, NEW, Debt::Void),
        (silent, quiet(Checkpoint::Unknown), Debt::Unclear("no answer".to_owned())),
    ] {
        let found = debt(&world.objects[0], &ground, known, seen.now);
        assert_eq!(found, expected, "{ground:?} {known:?}");
    }
}

#[test]
fn a_checkpoint_that_began_when_nobody_asked_for_one_any_more_is_somebody_elses() {
    let (world, seen) = after(3);
    let Ground::Serving { disk, held: Some(Held { since, .. }) } = seen.ground else { panic!("{seen:?}") };
    let mut object = world.objects[0].clone();
    let made = object.metadata.creation_timestamp.clone().unwrap().0;
    // In seconds: how long ago the object was made, and for how long the database has been held by then.
    let found = |object: &QuestDBSnapshot, (age, held): (i64, i64), known: Known| {
        let held = Held { since, age: seconds(held) };
        let ground = Ground::Serving { disk: disk.clone(), held: Some(held) };
        debt(object, &ground, known, made + seconds(age))
    };
    for (age, held, expected) in [
        // Within its hour, and in time after it for a request that was on its way.
        (3_000, 1, Debt::Due),
        (3_900, 1, Debt::Due),
        (3_901, 0, Debt::Void),
        (90_000, 86_400, Debt::Due),
        (90_000, 86_100, Debt::Due),
        (90_000, 86_099, Debt::Void),
        // The database's clock was set back.
        (90_000, -1, Debt::Due),
        (3_000, -3_600, Debt::Due),
    ] {
        for known in [quiet(Checkpoint::Unknown), NEW] {
            assert_eq!(found(&object, (age, held), known), expected, "{age} {held} {known:?}");
        }
        // That it is ours is known, or that ours may come however late.
        for known in [quiet(Checkpoint::Made(since)), unanswered(Checkpoint::Unknown)] {
            assert_eq!(found(&object, (age, held), known), Debt::Due, "{age} {held} {known:?}");
        }
    }
    object.metadata.deletion_timestamp = Some(Time(made + seconds(60)));
    for (age, held, expected) in
        [(60, 0, Debt::Due), (360, 0, Debt::Due), (361, 0, Debt::Void), (3_000, 2_700, Debt::Due)]
    {
        let found = found(&object, (age, held), quiet(Checkpoint::Unknown));
        assert_eq!(found, expected, "deleted: {age} {held}");
    }
}

/// Nobody asks under an old debt.
#[test]
fn who_has_only_just_begun_strikes_at_once_what_has_been_over_for_long() {
    let (world, seen) = after(3);
    let Ground::Serving { disk, .. } = seen.ground else { panic!("{seen:?}") };
    let made = world.objects[0].metadata.creation_timestamp.clone().unwrap().0;
    let ground = Ground::Serving { disk, held: None };
    for (age, new, asked) in [
        (3_600, Debt::Early, Debt::Early),
        (3_900, Debt::Early, Debt::Early),
        (3_901, Debt::Void, Debt::Early),
    ] {
        let found = |known: Known| debt(&world.objects[0], &ground, known, made + seconds(age));
        assert_eq!((found(NEW), found(unanswered(Checkpoint::Unknown))), (new, asked), "{age}");
    }
}

/// How a snapshot goes on whose checkpoint was asked for and does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Another,
    Deadline,
    Deletion,
}

/// How late a request arrives at most: a process that has only just begun waits for so long.
const LATEST: i64 = 295;

#[test]
fn a_checkpoint_that_begins_late_is_released_whenever_it_comes() {
    for late in (5..=LATEST).step_by(10) {
        for end in [End::Another, End::Deadline, End::Deletion] {
            for dies in [false, true] {
                comes_late(late, end, dies);
            }
        }
    }
}

/// A way on which the first request for a checkpoint arrives so late, and whoever made it `dies`.
fn comes_late(late: i64, end: End, dies: bool) {
    let mut world = World::new(&["a"]);
    world.late_by = Some(seconds(late));
    if end == End::Deadline {
        world.objects[0].spec.deadline_seconds = 12;
    }
    run(&mut world, 0, |world, step| {
        if end == End::Deletion && step > 2 {
            world.delete(0, CopyPolicy::Retain);
        }
        (dies && step == 2).then_some(Fault::Crash)
    });
    assert_eq!(world.steps[2], "CreateCheckpoint");
    world.let_arrive();
    let what = format!("{late} {end:?} {dies}: {:?}", world.steps);
    match end {
        End::Another => assert_eq!(world.phase(0), Some(SnapshotPhase::Succeeded), "{what}"),
        End::Deadline => assert_eq!(world.phase(0), Some(SnapshotPhase::Failed), "{what}"),
        End::Deletion => assert!(world.is_gone(0), "{what}"),
    }
    assert_eq!(world.held_since, None, "{what}");
}

/// It read nothing for longer than anybody waits, and answers again before it reads that request.
#[test]
fn what_waits_in_a_database_that_does_not_answer_comes_later_still() {
    for late in (405..700).step_by(5) {
        let mut world = World::new(&["a"]);
        world.late_by = Some(seconds(late));
        run(&mut world, 0, |world, step| {
            if step > 2 && world.silent_until.is_none() {
                world.silent_until = Some(world.now + seconds(400));
                world.delete(0, CopyPolicy::Retain);
            }
            None
        });
        world.let_arrive();
        assert!(world.is_gone(0));
        assert_eq!(world.held_since, None, "{late}: {:?}", world.steps);
    }
}
