//! The number of a disk: what was copied under another one, or is another's by now, is no last copy.

use cloud::key;
use resources::RunState;

use super::super::ends::{purge_with_copy, remove_with_copy};
use super::super::operations::{become_, change, deleted, on_the_way, serving_plain};
use super::super::oracle::check_end;
use super::{copied, destroys, passes, said, succeeded};
use crate::fixture::{settings, validated};
use crate::world::tests::model::World;
use crate::world::tests::runner::troubles_at;
use crate::world::tests::silent::say;
use crate::world::tests::{pass, settle};
use crate::{Plan, Step, Unseen, plan, suspended};

/// A leader that was stopped between its decision and its call writes the number of before over that of the disk, which a machine
/// wrote to since. An hour later EC2 shows no machine any more.
#[test]
fn a_number_that_is_written_back_makes_no_old_copy_count() {
    let forgotten =
        |world: &World| world.instances.iter().all(|one| one.state == cloud::InstanceState::Terminated);
    for wiped in [false, true] {
        let mut world = on_the_way(serving_plain(), remove_with_copy, succeeded);
        let first = world.copied[0].clone();
        let before = world.volumes[0].tags.get(key::GENERATION).unwrap().to_owned();
        change(&mut world, |spec| spec.deletion_protection = true);
        settle(&mut world, None, false);
        assert!(world.written > first.holds, "nothing was written");
        change(&mut world, |spec| spec.deletion_protection = false);
        let mut world = on_the_way(world, |_| {}, forgotten);
        world.instances.clear();
        say(&mut world, "Unknown");
        if wiped {
            world.wipe();
            let annotations = world.resource.metadata.annotations.as_mut().unwrap();
            annotations.remove(resources::names::RELEASED);
        }
        let tags = world.volumes[0].tags.clone();
        world.volumes[0].tags = tags.with(key::GENERATION, before);
        settle(&mut world, None, false);
        assert!(world.released && world.volumes.is_empty());
        assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id);
    }
}

/// The number of a copy is given to no machine, whoever wrote over it.
#[test]
fn no_machine_has_the_number_of_an_order() {
    let mut world = deleted();
    let tags = world.volumes[0].tags.clone();
    world.volumes[0].tags = tags.clone().with(key::GENERATION, "2");
    let mut world = on_the_way(world, purge_with_copy, succeeded);
    assert_eq!(world.copied[0].shown.tags.get(key::GENERATION), Some("2"));
    world.volumes[0].tags = tags;
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_end(&world, "back");
    assert_eq!(world.volumes[0].tags.get(key::GENERATION), Some("3"), "a machine has the number of a copy");
}

/// Whoever has the disk by hand may write to it, and nobody of ours would know.
#[test]
fn a_copy_of_before_a_strange_machine_had_the_disk_does_not_count() {
    let mut world = copied();
    let first = world.copied[0].clone();
    world.volumes[0].attachments = vec![cloud::Attachment {
        volume: world.volumes[0].id.clone(),
        instance: cloud::InstanceId::new("i-by-hand"),
        device: "/dev/sdz".to_owned(),
        state: cloud::AttachmentState::Attached,
        goes_with_machine: false,
    }];
    let plans: Vec<Plan> = (0..3).map(|_| pass(&mut world, &mut 0, None, false)).collect();
    assert!(!plans.iter().any(destroys));
    let tags = plans
        .iter()
        .flat_map(|plan| &plan.actions)
        .filter(|one| matches!(one.step, Step::Tag { .. }))
        .count();
    assert_eq!(tags, 1, "once is enough");
    world.volumes[0].attachments.clear();
    world.written += 1;
    settle(&mut world, None, false);
    check_end(&world, "gone after all");
    assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id);
}

/// Between two wishes for its end a disk that nothing of ours has may be anybody's.
#[test]
fn a_copy_of_a_wish_that_was_taken_back_does_not_count_for_the_next() {
    for state in [RunState::Deleted, RunState::Paused] {
        let mut world = copied();
        let first = world.copied[0].clone();
        become_(&mut world, state);
        settle(&mut world, None, false);
        let before = world.volumes[0].tags.clone();
        assert!(passes(&mut world, 3).iter().all(|plan| plan.actions.is_empty()), "it rests");
        assert_eq!(world.volumes[0].tags, before);
        // Somebody has it by hand, and nobody looks.
        world.written += 1;
        purge_with_copy(&mut world);
        settle(&mut world, None, false);
        check_end(&world, "copied and gone");
        assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id);
    }
}

/// A pass while the annotation says that nothing is to be done.
fn suspended_pass(world: &mut World) {
    let (seen, observed) = world.see();
    let planned = plan(&seen, &validated(&seen), &observed, &settings());
    let (version, now) = (seen.metadata.resource_version.clone(), world.now);
    world.report(version.as_ref(), suspended(&seen, Some(&planned), now));
}

/// What is known to be copied, and whether the report says so yet.
fn written_down() -> World {
    let noted = |world: &World| world.resource.status.as_ref().is_some_and(|one| one.last_copy.is_some());
    on_the_way(copied(), |_| {}, noted)
}

#[test]
fn a_copy_of_before_nothing_was_done_for_a_while_does_not_count() {
    for start in [copied, written_down] {
        let first = start().copied[0].clone();
        for trouble in (0..3).flat_map(troubles_at).map(Some).chain([None]) {
            let mut world = start();
            suspended_pass(&mut world);
            assert_eq!(said(&world).1, "Outdated");
            // Somebody has the disk by hand, and gives it back.
            world.written += 1;
            settle(&mut world, trouble, false);
            check_end(&world, "copied and gone");
            assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id, "{trouble:?}");
            assert_eq!((said(&world).1.as_str(), world.copied.len()), ("Kept", 2), "{trouble:?}");
        }
    }
}

#[test]
fn it_is_remembered_until_the_disk_has_its_number_although_other_things_come_first() {
    let mut world = copied();
    suspended_pass(&mut world);
    world.written += 1;
    // EC2 is not sure to show everything.
    (world.lag, world.quiet) = (3, 0);
    for _ in 0..3 {
        assert!(!destroys(&pass(&mut world, &mut 0, None, false)));
        assert_eq!(said(&world).1, "Outdated");
    }
    world.lag = 0;
    settle(&mut world, None, false);
    check_end(&world, "copied and gone");
}

#[test]
fn what_was_kept_of_a_disk_that_is_gone_stays_kept_while_nothing_is_done() {
    let mut world = copied();
    settle(&mut world, None, false);
    let kept = said(&world);
    suspended_pass(&mut world);
    assert_eq!(said(&world), kept);
}

/// Nobody sees the order any more by which the copy was known: it was deleted, or cannot be seen, or those before it are gone.
#[test]
fn a_copy_that_was_taken_back_does_not_count_for_the_next_wish_without_its_order_either() {
    let forgotten: [fn(&mut World); 2] = [
        |world| world.snapshots.clear(),
        |world| world.children.copies_unseen = Some(Unseen::Broken("it broke".to_owned())),
    ];
    for forget in forgotten {
        let mut world = copied();
        let first = world.copied[0].clone();
        forget(&mut world);
        become_(&mut world, RunState::Deleted);
        settle(&mut world, None, false);
        world.children.copies_unseen = None;
        // By hand, and nobody looks.
        world.written += 1;
        purge_with_copy(&mut world);
        settle(&mut world, None, false);
        check_end(&world, "copied and gone");
        assert_ne!(world.whole_copy().unwrap().shown.id, first.shown.id);
    }
}

/// The word of an order is no proof: the disk was somebody's since.
#[test]
fn a_copy_that_nobody_accepted_as_the_last_is_not_called_kept() {
    let mut world = copied();
    become_(&mut world, RunState::Deleted);
    settle(&mut world, None, false);
    world.volumes.clear();
    purge_with_copy(&mut world);
    settle(&mut world, None, false);
    let (status, reason, message) = said(&world);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Reported"), "{message}");
    assert!(message.contains("nobody knows"), "{message}");
    assert_eq!(world.resource.status.as_ref().unwrap().last_copy, None);
}

#[test]
fn a_number_in_an_order_that_none_of_ours_can_have_come_to_is_none() {
    for (written, next) in [("3", "4"), ("101", "102"), ("150", "2"), ("18446744073709551615", "2")] {
        let mut world = copied();
        let order = std::sync::Arc::make_mut(&mut world.snapshots[0]);
        let annotations = order.metadata.annotations.as_mut().unwrap();
        annotations.insert(resources::names::snapshot::LAST_COPY.to_owned(), written.to_owned());
        become_(&mut world, RunState::Running);
        settle(&mut world, None, false);
        assert_eq!(world.volumes[0].tags.get(key::GENERATION), Some(next), "{written}");
    }
}
