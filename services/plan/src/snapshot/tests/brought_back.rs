//! An object that a backup brought back, or a person from its own YAML, with the identity of the first one: that may be there still, in
//! another cluster of the name.

use cloud::SnapshotState;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::snapshot::IDENTITY;
use resources::{CopyPolicy, QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::world::World;
use crate::snapshot::{
    COPY_OF_BEFORE, Seen, Step, WHOLE, is_gone, is_settled, left_to_others, looked_after, plan, status,
    unfinished,
};

/// One that is being deleted, whose copy was begun so long before it was made.
fn brought_back(after: SignedDuration, policy: CopyPolicy) -> (World, Seen) {
    let mut world = World::new(&["a"]);
    while world.steps.len() < 7 {
        world.pass(0, None);
        world.tick();
    }
    world.delete(0, policy);
    let seen = Seen { conclusive: true, ..world.seen(0) };
    let [copy] = seen.copies.as_slice() else { panic!("not one copy: {seen:?}") };
    let begun = Timestamp::try_from(copy.started_at.unwrap()).unwrap();
    world.objects[0].metadata.creation_timestamp = Some(Time(begun + after));
    // A backup takes no status along.
    world.objects[0].status = None;
    (world, seen)
}

#[test]
fn what_was_copied_before_its_object_was_made_is_not_destroyed_with_it() {
    let hour = SignedDuration::from_hours(1);
    for (after, policy, destroys, tells) in [
        (-hour, CopyPolicy::Delete, true, false),
        (hour, CopyPolicy::Delete, true, false),
        (hour + SignedDuration::from_secs(1), CopyPolicy::Delete, false, true),
        (SignedDuration::from_hours(24), CopyPolicy::Retain, false, false),
    ] {
        let (world, seen) = brought_back(after, policy);
        let (object, copy) = (&world.objects[0], &seen.copies[0]);
        let expected = if destroys { Step::Discard(copy.id.clone()) } else { Step::LetGo };
        assert_eq!(plan(object, &seen).step, Some(expected), "{after:?} {policy:?}");
        let told = left_to_others(object, &seen.copies);
        assert_eq!(told.is_some_and(|told| told.contains(copy.id.as_str())), tells, "{after:?} {policy:?}");
    }
}

#[test]
fn of_what_nobody_knows_when_it_was_begun_the_policy_decides() {
    let (mut world, mut seen) = brought_back(SignedDuration::from_hours(24), CopyPolicy::Delete);
    let id = seen.copies[0].id.clone();
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::LetGo));
    let begun = seen.copies[0].started_at.take();
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::Discard(id.clone())));
    seen.copies[0].started_at = begun;
    world.objects[0].metadata.creation_timestamp = None;
    assert_eq!(plan(&world.objects[0], &seen).step, Some(Step::Discard(id)));
}

/// What condition `Ready` is, why, and what it says.
fn ready(status: &QuestDBSnapshotStatus) -> (String, String, String) {
    let ready = status.ready().unwrap();
    (ready.status.clone(), ready.reason.clone(), ready.message.clone())
}

/// Who waits for condition `Ready` has asked for a copy of now.
#[test]
fn a_copy_that_was_begun_before_its_object_was_made_is_told_to_be_none_of_now() {
    let hour = SignedDuration::from_hours(1);
    for (after, is_of_now) in [
        (-hour, true),
        (hour, true),
        (hour + SignedDuration::from_secs(1), false),
        (SignedDuration::from_hours(24), false),
    ] {
        let (world, mut seen) = brought_back(after, CopyPolicy::Retain);
        let mut object = world.objects[0].clone();
        object.metadata.deletion_timestamp = None;
        seen.copies[0].state = SnapshotState::Completed;
        let planned = plan(&object, &seen);
        let reason = if is_of_now { WHOLE.0 } else { COPY_OF_BEFORE };
        let (step, phase) = (&planned.step, planned.phase);
        assert_eq!((step, phase, planned.reason), (&None, SnapshotPhase::Succeeded, reason), "{after:?}");
        let told = status(&object, &seen, &planned, None);
        let (state, why, message) = ready(&told);
        assert_eq!((state == "True", why.as_str()), (is_of_now, reason), "{after:?}");
        let says = message.contains("as of 2026-01-01T00:") && message.contains(IDENTITY);
        assert_eq!(says, !is_of_now, "{after:?}: {message}");

        // A database may begin with it, and schedules count it.
        let told_of = |status: &QuestDBSnapshotStatus| {
            let status = Some(status.clone());
            QuestDBSnapshot { status, ..object.clone() }
        };
        let known = told_of(&told);
        assert!(is_settled(&known) && !is_gone(&known) && unfinished(&known).is_none(), "{after:?}");
        // Somebody takes the copy out of the Recycle Bin.
        let gone = looked_after(&known, false, seen.now);
        assert!(is_gone(&told_of(&gone)), "{after:?}");
        assert_eq!(ready(&looked_after(&told_of(&gone), true, seen.now)), ready(&told), "{after:?}");
        // EC2 may not show it now.
        let unseen = Seen { copies: Vec::new(), conclusive: false, ..seen.clone() };
        let planned = plan(&known, &unseen);
        assert_eq!(ready(&status(&known, &unseen, &planned, None)), ready(&told), "{after:?}");
    }
}
