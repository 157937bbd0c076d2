//! More than one copy for one snapshot: two operators led at once, or EC2 carried out what it had seemed to lose.

use cloud::{SnapshotId, SnapshotState, Tags, VolumeSnapshot, key};
use resources::{QuestDBSnapshot, SnapshotPhase};

use super::table::after;
use super::world::World;
use crate::snapshot::{Seen, Step, plan, surplus};

/// One that was seen through but for its end, and a second copy that was begun for it a moment after its own.
fn two(is_marked: bool) -> (World, Seen) {
    let (world, mut seen) = after(7);
    seen.copies[0].state = SnapshotState::Completed;
    let mut other = VolumeSnapshot { id: "snap-other".into(), ..seen.copies[0].clone() };
    other.started_at = other.started_at.map(|begun| begun + std::time::Duration::from_secs(1));
    if !is_marked {
        let left = other.tags.iter().filter(|(name, _)| *name != key::CONSISTENT);
        other.tags = left.fold(Tags::new(), |tags, (name, value)| tags.with(name, value));
    }
    seen.copies.insert(0, other);
    seen.conclusive = true;
    (world, seen)
}

fn removed(object: &QuestDBSnapshot, seen: &Seen) -> Option<SnapshotId> {
    match plan(object, seen).step {
        Some(Step::Discard(id)) => Some(id),
        None => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_that_is_trusted_counts_and_nothing_ends_before_the_other_is_gone() {
    for is_marked in [true, false] {
        let (world, mut seen) = two(is_marked);
        let (object, own) = (&world.objects[0], seen.copies[1].id.clone());
        assert_eq!(removed(object, &seen), Some("snap-other".into()));
        seen.conclusive = false;
        let waits = plan(object, &seen);
        assert_eq!((&waits.step, waits.phase, waits.settled), (&None, SnapshotPhase::Copying, false));
        assert!(waits.message.contains(own.as_str()) && waits.message.contains("snap-other"), "{waits:?}");
        assert_eq!(waits.copy.as_ref().map(|copy| &copy.id), Some(&own));
        seen.copies.remove(0);
        assert!(plan(object, &seen).settled, "it is not waited for where there is none");
    }
}

/// The same once it has come to its end and tells of a copy, or of none.
fn settled(phase: SnapshotPhase, told: Option<&str>) -> (QuestDBSnapshot, Seen) {
    let (mut world, seen) = two(true);
    let status = world.objects[0].status.get_or_insert_default();
    (status.phase, status.snapshot_id) = (Some(phase), told.map(str::to_owned));
    (world.objects.remove(0), seen)
}

#[test]
fn beside_one_that_is_settled_only_what_it_does_not_tell_of_is_one_too_many() {
    use SnapshotPhase::{Copying, Failed, Succeeded};
    let (_, seen) = two(true);
    let own = seen.copies[1].id.as_str();
    for (phase, told, expected) in [
        // Whichever was begun first, and whatever both are marked with.
        (Succeeded, Some(own), Some("snap-other")),
        (Succeeded, Some("snap-other"), Some(own)),
        // It went, or does not show: the others are all that there is.
        (Succeeded, Some("snap-gone"), None),
        (Succeeded, None, None),
        (Failed, Some(own), Some("snap-other")),
        (Failed, None, Some("snap-other")),
        (Copying, Some(own), None),
    ] {
        let (object, seen) = settled(phase, told);
        let found = surplus(&object, &seen.copies);
        assert_eq!(found.as_ref().map(SnapshotId::as_str), expected, "{phase:?} {told:?}");
    }
    let (object, mut seen) = settled(Succeeded, Some(own));
    seen.copies.remove(0);
    assert_eq!(surplus(&object, &seen.copies), None);
}

#[test]
fn what_others_made_of_a_copy_or_was_begun_before_its_object_is_never_one_too_many() {
    let (_, seen) = two(true);
    let own = seen.copies[1].id.as_str();
    let (object, mut seen) = settled(SnapshotPhase::Succeeded, Some(own));
    seen.copies[0].tags = seen.copies[0].tags.clone().with(key::VOLUME, "vol-of-others");
    assert_eq!(surplus(&object, &seen.copies), None);
    let (mut object, seen) = settled(SnapshotPhase::Failed, None);
    let made = object.metadata.creation_timestamp.as_mut().unwrap();
    made.0 += jiff::SignedDuration::from_hours(48);
    assert_eq!(surplus(&object, &seen.copies), None);
}

#[test]
fn of_two_that_are_trusted_the_one_stays_that_was_told_of_and_none_that_ec2_gave_up() {
    let (mut world, mut seen) = two(true);
    let own = seen.copies[1].id.clone();
    let status = world.objects[0].status.get_or_insert_default();
    (status.phase, status.snapshot_id) = (Some(SnapshotPhase::Copying), Some("snap-other".to_owned()));
    assert_eq!(removed(&world.objects[0], &seen), Some(own.clone()), "it was begun later, and told of");
    seen.copies[0].state = SnapshotState::Error;
    assert_eq!(removed(&world.objects[0], &seen), Some("snap-other".into()));
    world.objects[0].status = None;
    seen.copies[0].state = SnapshotState::Completed;
    seen.copies[1].state = SnapshotState::Error;
    assert_eq!(removed(&world.objects[0], &seen), Some(own));
    seen.copies[0].state = SnapshotState::Error;
    assert_eq!(
        removed(&world.objects[0], &seen),
        Some("snap-other".into()),
        "of two alike it is the first again"
    );
}
