//! Protection from deletion: what is protected stays what it is, whoever deletes the resource.

use cloud::InstanceState;
use jiff::SignedDuration;
use resources::names::{self, condition};
use resources::{DeletionPolicy, Phase, RunState};

use super::ends::protected_plain;
use super::model::World;
use super::operations::{change, on_the_way, remove, serving_plain};
use super::oracle::{check_end, check_moment};
use super::{pass, phase, settle};
use crate::Step;

fn held(world: &World) -> Option<(String, String)> {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.type_ == condition::DELETION_HELD);
    found.next().map(|found| (found.status.clone(), found.message.clone()))
}

/// A protected resource of this state, and what is there of it.
fn protected(run_state: RunState, policy: DeletionPolicy) -> World {
    let mut world = protected_plain();
    world.clock = SignedDuration::from_secs(20);
    // The two are never written together: this is one that was deleted before, and protected then.
    change(&mut world, |spec| {
        spec.run_state = run_state;
        spec.storage.deletion_policy = policy;
        spec.storage.provisioned = true;
    });
    settle(&mut world, None, false);
    world
}

fn picture(world: &World) -> (usize, usize, usize, Option<Phase>) {
    let living = world.instances.iter().filter(|found| found.state != InstanceState::Terminated).count();
    (living, world.volumes.len(), world.records.len(), phase(world))
}

#[test]
fn what_is_protected_stays_what_it_is_when_it_is_removed() {
    for policy in [DeletionPolicy::Retain, DeletionPolicy::Snapshot, DeletionPolicy::Delete] {
        let kept = [
            (RunState::Running, 1, Phase::Ready),
            (RunState::Paused, 0, Phase::Paused),
            (RunState::Deleted, 0, Phase::Deleted),
        ];
        for (run_state, machines, expected) in kept {
            let what = format!("{run_state:?} {policy:?}");
            let mut world = protected(run_state, policy);
            let before = picture(&world);
            assert_eq!((before.0, before.1, before.3), (machines, 1, Some(expected)), "{what}");
            assert_eq!(held(&world), None, "{what}");
            remove(&mut world);
            for _ in 0..10 {
                let planned = pass(&mut world, &mut 0, None, false);
                assert!(planned.actions.is_empty() && planned.is_settled(), "{what}: {:?}", planned.actions);
                world.tick();
                check_moment(&world, &what);
                assert_eq!(picture(&world), before, "{what}");
            }
            let (status, message) = held(&world).unwrap();
            assert!(
                status == "True" && message.contains("set spec.deletionProtection to false"),
                "{message}"
            );
            assert!(world.resource.metadata.finalizers.iter().flatten().any(|one| one == names::FINALIZER));
        }
    }
}

#[test]
fn without_its_protection_the_deletion_goes_on_as_the_policy_says() {
    let ends =
        [(DeletionPolicy::Retain, 1, 0), (DeletionPolicy::Snapshot, 0, 1), (DeletionPolicy::Delete, 0, 0)];
    for (policy, volumes, copies) in ends {
        for run_state in [RunState::Running, RunState::Paused] {
            let mut world = protected(run_state, policy);
            remove(&mut world);
            settle(&mut world, None, false);
            change(&mut world, |spec| spec.deletion_protection = false);
            settle(&mut world, None, false);
            assert!(world.released, "{policy:?} {run_state:?}");
            assert_eq!(
                (world.volumes.len(), world.copied.len()),
                (volumes, copies),
                "{policy:?} {run_state:?}"
            );
        }
    }
}

#[test]
fn what_is_protected_only_once_its_disk_was_destroyed_does_not_begin_anew_with_an_empty_one() {
    let remove_with_disk = |world: &mut World| {
        world.resource.spec.storage.deletion_policy = DeletionPolicy::Delete;
        remove(world);
    };
    // What is left of it is on its way out, and the resource is still there.
    let is_destroyed = |world: &World| {
        let disk = world.resource.status.as_ref().and_then(|status| status.volume.as_ref());
        disk.is_some_and(|disk| disk.state == "deleted")
            && world.children.persistent_volumes.is_empty()
            && !world.released
    };
    let mut world = on_the_way(serving_plain(), remove_with_disk, is_destroyed);
    change(&mut world, |spec| spec.deletion_protection = true);
    let mut taken = 0;
    for _ in 0..10 {
        let planned = pass(&mut world, &mut taken, None, false);
        let makes =
            |action: &crate::Action| matches!(action.step, Step::CreateVolume(_) | Step::RunInstance { .. });
        assert!(!planned.actions.iter().any(makes), "{:?}", planned.actions);
        world.tick();
    }
    assert_eq!(phase(&world), Some(Phase::Degraded));
    assert!(world.volumes.is_empty() && !world.released);
}

#[test]
fn what_is_protected_and_removed_is_looked_after_still() {
    let mut world = protected(RunState::Running, DeletionPolicy::Delete);
    remove(&mut world);
    settle(&mut world, None, false);
    // Its machine dies.
    world.instances[0].state = InstanceState::Terminated;
    world.protected.clear();
    world.children.nodes.clear();
    world.children.pod = None;
    world.children.attachments.clear();
    world.volumes[0].attachments.clear();
    settle(&mut world, None, false);
    check_end(&world, "healed");
    assert_eq!(phase(&world), Some(Phase::Ready));
    // And another wish is carried out.
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(Phase::Paused));
}

#[test]
fn nothing_is_begun_for_what_is_removed_before_it_was_taken_in_hand() {
    for protection in [true, false] {
        let mut world = World::new(crate::fixture::plain());
        world.resource.spec.deletion_protection = protection;
        remove(&mut world);
        // Nobody may put a finalizer on it; another one holds it.
        world.resource.metadata.finalizers = Some(vec!["other".to_owned()]);
        let planned = pass(&mut world, &mut 0, None, false);
        assert_eq!(planned.actions, [], "{protection}");
    }
}
