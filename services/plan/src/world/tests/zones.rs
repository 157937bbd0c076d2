//! Zones: one without capacity is passed over by a database that has no disk yet; and in one that the operator has no subnet in any
//! more nothing is asked for, and what to do is said.

use cloud::{InstanceState, Volume, VolumeState};
use resources::RunState;
use resources::names::condition;

use super::model::World;
use super::operations::{Operation, become_, change, fresh, operation, paused};
use super::reach::condition as word;
use super::runner::{pass, settle};
use super::{ENOUGH, check_serving, serving, silent, source};
use crate::fixture::settings;
use crate::{Part, State, Step};

const CLOSED: &str = "eu-west-1z";

/// What there is no room for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Full {
    /// Zones in which none is free for a machine of ours.
    pub(crate) machines: Vec<String>,
    /// Zones for no further disk.
    pub(crate) disks: Vec<String>,
    /// So many rules of one family of addresses are all that it takes in a group.
    pub(crate) rules: Option<usize>,
    /// It lets nobody change this of a machine.
    pub(crate) fixed: Option<Part>,
    /// Whatever it shows has as many tags as anything may have.
    pub(crate) tags: bool,
    /// The namespace takes no further Secret.
    pub(crate) secrets: bool,
}

/// A database is made where EC2 lacks something for it.
pub(super) const FULL: &[Operation] = &[
    operation("create where a zone is full", fresh, |world| world.full.machines = vec![zone(world)]),
    operation("create where a zone has no room for the disk", fresh, no_room),
    operation("create from a copy where a zone has no room for the disk", source::fresh_of_copy, no_room),
];

/// The zone that a database without a wish for one is made in.
fn zone(world: &World) -> String {
    let mut other = world.clone();
    settle(&mut other, None, false);
    other.volumes[0].zone.clone()
}

fn no_room(world: &mut World) {
    world.full.disks = vec![zone(world)];
}

fn passes(world: &mut World) {
    for _ in 0..20 {
        let planned = pass(world, &mut 0, None, false);
        let asks = |step: &Step| matches!(step, Step::RunInstance { .. } | Step::WriteGeneration { .. });
        assert!(!planned.actions.iter().any(|action| asks(&action.step)), "{:?}", planned.actions);
        world.tick();
    }
}

fn conditions(world: &World) -> String {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let lines = conditions.iter().map(|found| format!("{} {}: {}", found.type_, found.status, found.message));
    lines.collect::<Vec<_>>().join("\n")
}

fn move_disk(world: &mut World, zone: &str) -> String {
    std::mem::replace(&mut world.volumes[0].zone, zone.to_owned())
}

#[test]
fn a_machine_for_a_disk_in_a_closed_zone_is_not_asked_for_until_it_opens() {
    let mut world = paused();
    let open = move_disk(&mut world, CLOSED);
    become_(&mut world, RunState::Running);
    passes(&mut world);
    let told = conditions(&world);
    assert!(told.contains(CLOSED) && told.contains("SLIPWAY_ZONES"), "{told}");
    move_disk(&mut world, &open);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn nobody_moves_in_a_closed_zone_and_what_serves_serves_on() {
    let mut world = serving();
    let open = move_disk(&mut world, CLOSED);
    change(&mut world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
    passes(&mut world);
    let told = conditions(&world);
    assert!(told.contains("SLIPWAY_ZONES") && told.contains(&format!("{} True", condition::READY)), "{told}");
    move_disk(&mut world, &open);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.instances.last().unwrap().instance_type, "m7i.xlarge");
}

#[test]
fn a_database_without_a_disk_goes_where_there_is_room_for_one_and_says_why() {
    for start in [fresh, source::fresh_of_copy] {
        let mut world = start();
        let first = zone(&world);
        world.full.disks = vec![first.clone()];
        let told = (0..ENOUGH).find_map(|_| {
            let planned = silent::passes(&mut world, 1);
            let ready = word(&world, condition::READY)?.1.to_owned();
            match planned.state(Part::Volume) {
                Some(State::Running(text)) if text.contains("InsufficientVolumeCapacity") => {
                    Some((text.clone(), ready))
                }
                _ => None,
            }
        });
        let (text, ready) = told.unwrap();
        assert!(text.contains(&first) && text.contains("another zone"), "{text}");
        assert!(ready.contains(&text), "{ready}");
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_ne!(world.volumes[0].zone, first);
        let states: Vec<_> = world.instances.iter().map(|found| found.state.clone()).collect();
        assert_eq!(states, [InstanceState::Terminated, InstanceState::Running]);
    }
}

/// What is asked for in vain, and how many machines it takes until nothing else is tried.
type Vain = (&'static str, fn(&mut World), usize);

#[test]
fn no_machine_is_given_up_for_its_zone_where_no_other_can_take_the_database() {
    let vain: [Vain; 3] = [
        ("it is to be in this one", |world| world.resource.spec.zone = world.full.disks.first().cloned(), 1),
        ("none has room", |world| world.full.disks = settings().zones.into_keys().collect(), 2),
        (
            "the other has no machine",
            |world| {
                let others = settings().zones.into_keys().filter(|zone| !world.full.disks.contains(zone));
                world.full.machines = others.collect();
            },
            2,
        ),
    ];
    for (what, lack, machines) in vain {
        let mut world = fresh();
        no_room(&mut world);
        lack(&mut world);
        let planned = silent::passes(&mut world, ENOUGH);
        let asks = planned.actions.iter().any(|action| matches!(action.step, Step::CreateVolume(_)));
        assert!(asks, "{what}: {:?}", planned.actions);
        assert_eq!(world.instances.len(), machines, "{what}");
        let last = world.instances.last().unwrap();
        assert!(last.state == InstanceState::Running && world.is_protected(&last.id), "{what}: {last:?}");
        // It is asked for again, and there is room by then.
        world.full.disks.clear();
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(world.instances.len(), machines, "{what}");
    }
}

/// A resource of its name is made again, and asks for another zone than its disk is in; or a disk was put in the place of another.
#[test]
fn a_disk_in_another_zone_than_is_asked_for_is_served_where_it_is_and_that_is_told() {
    let left =
        Volume { state: VolumeState::Available, attachments: Vec::new(), ..serving().volumes.swap_remove(0) };
    let zones: Vec<Option<String>> = settings().zones.into_keys().map(Some).chain([None]).collect();
    assert_eq!(zones.len(), 3);
    for wish in zones {
        let mut world = fresh();
        world.volumes = vec![left.clone()];
        world.resource.spec.zone.clone_from(&wish);
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(world.instances[0].zone, left.zone);
        let (status, text) = word(&world, condition::CONFIG_ACCEPTED).unwrap();
        assert_eq!(status, "True", "{text}");
        let said =
            wish.as_ref().map(|zone| format!("spec.zone is {zone}, and {} is in {}", left.id, left.zone));
        let is_other = wish.as_ref().is_some_and(|zone| *zone != left.zone);
        assert_eq!(said.is_some_and(|said| text.contains(&said)), is_other, "{wish:?}: {text}");
        assert_eq!(text == "the spec can be carried out", !is_other, "{wish:?}: {text}");
    }
}

#[test]
fn where_the_disk_is_the_database_stays_whatever_the_zone_lacks() {
    let mut world = serving();
    let before = world.volumes[0].clone();
    world.memory.zones_without_volumes = vec![before.zone.clone()];
    assert_eq!(silent::passes(&mut world, 5).actions, []);
    become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!((&world.volumes[0].id, &world.volumes[0].zone), (&before.id, &before.zone));
    assert_eq!(world.instances.last().unwrap().zone, before.zone);
}
