//! Copies that EC2 does not show any more before they are whole: asked for by their id, waited for, and told.

use cloud::VolumeSnapshot;
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::world::World;
use crate::snapshot::{Plan, Seen, Step, is_settled, left_out, plan, status};

/// An object whose copy EBS is making, and what is seen of it.
fn copying() -> (World, Seen) {
    let mut world = World::new(&["a"]);
    while world.phase(0) != Some(SnapshotPhase::Copying) {
        world.pass(0, None);
        world.tick();
    }
    let seen = world.seen(0);
    assert_eq!(seen.copies.len(), 1, "{seen:?}");
    (world, seen)
}

fn id(object: &QuestDBSnapshot) -> String {
    object.status.as_ref().unwrap().snapshot_id.clone().unwrap()
}

/// What is planned without any copy, and what the object is after it.
fn without_copies(
    object: &QuestDBSnapshot,
    seen: &Seen,
    (late, conclusive): (bool, bool),
) -> (Plan, QuestDBSnapshot) {
    let mut seen = Seen { copies: Vec::new(), conclusive, ..seen.clone() };
    if late {
        seen.now += jiff::SignedDuration::from_secs(3_601);
    }
    let planned = plan(object, &seen);
    let told = status(object, &seen, &planned, None);
    (planned, QuestDBSnapshot { status: Some(told), ..object.clone() })
}

#[test]
fn the_copy_that_was_told_of_is_asked_for_by_its_id_where_its_tags_do_not_show_it() {
    let (world, seen) = copying();
    let found = |phase: SnapshotPhase, copies: &[VolumeSnapshot]| {
        let told = world.objects[0].status.clone().unwrap();
        let told = QuestDBSnapshotStatus { phase: Some(phase), ..told };
        left_out(&QuestDBSnapshot { status: Some(told), ..world.objects[0].clone() }, copies)
    };
    let other = [VolumeSnapshot { id: "snap-other".into(), ..seen.copies[0].clone() }];
    for (phase, is_asked_for) in [
        (SnapshotPhase::Pending, false),
        (SnapshotPhase::Checkpointing, false),
        (SnapshotPhase::Releasing, false),
        (SnapshotPhase::Copying, true),
        (SnapshotPhase::Succeeded, true),
        (SnapshotPhase::Failed, false),
    ] {
        let expected = is_asked_for.then(|| seen.copies[0].id.clone());
        assert_eq!(found(phase, &[]), expected, "{phase:?}");
        assert_eq!(found(phase, &other), expected, "{phase:?}");
        assert_eq!(found(phase, &seen.copies), None, "{phase:?}");
    }
    let mut deleted = world.objects[0].clone();
    deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
    assert_eq!(left_out(&deleted, &[]), None, "nothing is destroyed that has no tags");
}

#[test]
fn a_copy_that_may_only_not_show_now_is_told_as_before() {
    let (world, seen) = copying();
    for late in [false, true] {
        let (planned, after) = without_copies(&world.objects[0], &seen, (late, false));
        assert_eq!((&planned.step, planned.phase), (&None, SnapshotPhase::Copying), "{late}");
        assert!(!is_settled(&after));
        assert_eq!(id(&after), id(&world.objects[0]), "{late}");
    }
}

#[test]
fn a_copy_that_somebody_destroys_before_it_is_whole_is_made_anew_or_told() {
    let (world, seen) = copying();
    let (planned, _) = without_copies(&world.objects[0], &seen, (false, true));
    assert_eq!(planned.step, Some(Step::Owe), "there is time for another");

    let (_, mut after) = without_copies(&world.objects[0], &seen, (true, false));
    // Another wish for it has it looked at once more.
    for _ in 0..2 {
        let (planned, told) = without_copies(&after, &seen, (true, true));
        assert_eq!(
            (&planned.step, planned.phase, planned.reason),
            (&None, SnapshotPhase::Failed, "CopyLost")
        );
        let lost = id(&world.objects[0]);
        assert!(planned.message.contains(&lost) && planned.message.contains("make another"), "{planned:?}");
        assert!(is_settled(&told) && id(&told) == lost, "{told:?}");
        after = told;
    }
}
