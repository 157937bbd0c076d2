//! An object that a backup brought back, with the identity of the first one: that may be there still, in another cluster of the name.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::CopyPolicy;

use super::world::World;
use crate::snapshot::{Seen, Step, left_to_others, plan};

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
