//! The number of a disk: what was copied under another one, or is another's by now, is no last copy.

use cloud::key;
use resources::RunState;

use super::super::ends::{purge_with_copy, remove_with_copy};
use super::super::operations::{become_, change, deleted, on_the_way, serving_plain};
use super::super::oracle::check_end;
use super::{copied, destroys, passes, succeeded};
use crate::world::tests::model::World;
use crate::world::tests::{pass, settle};
use crate::{Plan, Step};

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
