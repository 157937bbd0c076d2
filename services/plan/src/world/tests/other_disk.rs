//! A disk that somebody else brings with the tags of a database: it takes the place of one that is missing.

use cloud::{Role, Volume, VolumeId, VolumeState};
use resources::{RunState, names};

use super::model::World;
use super::operations::{become_, deleted, end_machine, paused};
use super::runner::{pass, settle};
use super::{check_serving, serving};
use crate::fixture::subject;
use crate::{Part, Plan, State};

const RESTORED: &str = "vol-restored";

/// A disk that was made of a backup of this one, and given the tags of its database.
fn restored(disk: &Volume) -> Volume {
    Volume {
        id: VolumeId::new(RESTORED),
        state: VolumeState::Available,
        attachments: Vec::new(),
        tags: subject().owner(Role::Volume).tags(),
        ..disk.clone()
    }
}

fn passes(world: &mut World, count: usize) -> Plan {
    let mut planned = Plan::default();
    for _ in 0..count {
        planned = pass(world, &mut 0, None, false);
        world.tick();
    }
    planned
}

/// The disk that the claim stands for, and which claim it is.
fn claimed(world: &World) -> (Option<String>, Option<String>) {
    let claim = world.children.claim.as_deref().unwrap();
    (claim.spec.as_ref().unwrap().volume_name.clone(), claim.metadata.uid.clone())
}

fn without_machine() -> World {
    let mut world = serving();
    end_machine(&mut world, 0);
    world
}

#[test]
fn a_disk_in_the_place_of_a_missing_one_is_claimed_anew() {
    let worlds =
        [("paused", paused()), ("deleted", deleted()), ("its machine ended, too", without_machine())];
    for (what, mut world) in worlds {
        let (disk, (_, before)) = (world.volumes.remove(0), claimed(&world));
        become_(&mut world, RunState::Running);
        let planned = passes(&mut world, 2);
        let told = planned.state(Part::Volume);
        assert!(matches!(told, Some(State::Broken(text)) if text.contains("tag it")), "{what}: {told:?}");
        world.volumes.push(restored(&disk));
        settle(&mut world, None, false);
        check_serving(&world, None);
        let (now, uid) = claimed(&world);
        assert_eq!(now, Some(names::persistent_volume(RESTORED)), "{what}");
        assert!(world.is_bound() && uid != before, "{what}");
    }
}

#[test]
fn a_claim_is_not_taken_from_under_a_pod_and_people_are_told_how_it_goes_on() {
    let mut world = serving();
    world.volumes = vec![restored(&world.volumes[0])];
    let before = (world.pod_uid(), claimed(&world));
    let planned = passes(&mut world, 6);
    let told = planned.state(Part::Attachment);
    assert!(matches!(told, Some(State::Broken(text)) if text.contains("pause the database")), "{told:?}");
    assert_eq!((world.pod_uid(), claimed(&world)), before);
    become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(claimed(&world).0, Some(names::persistent_volume(RESTORED)));
}
