//! A zone that the operator has no subnet in any more: nothing is asked for there, and what to do is said.

use resources::RunState;
use resources::names::condition;

use super::model::World;
use super::operations::{become_, change, paused};
use super::runner::{pass, settle};
use super::{check_serving, serving};
use crate::Step;

const CLOSED: &str = "eu-west-1z";

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
