//! Machines of a row that did not join the cluster, between which others ended for another reason.

use cloud::{InstanceState, key};

use super::model::World;
use super::oracle::check_end;
use super::runner::settle;
use super::unjoined::{fresh, machines, minutes, passes, until_ended};

/// A new database of which no machine joins. The first was given up, and the second ended for this reason right after its launch.
fn second_ended(reason: &str) -> World {
    let mut world = fresh(9);
    until_ended(&mut world, 0);
    for _ in 0..20 {
        if world.instances.len() > 1 {
            break;
        }
        passes(&mut world, 1);
    }
    world.instances[1].state = InstanceState::Terminated;
    world.instances[1].state_reason = Some(reason.to_owned());
    world
}

#[test]
fn one_that_ends_by_itself_between_two_that_were_given_up_begins_no_other_row() {
    let mut world = second_ended("Server.InternalError");
    let after = until_ended(&mut world, 2);
    assert!(after >= minutes(30) && after < minutes(35), "{after}");
    // EC2 shows it no more.
    world.instances.retain(|found| found.tags.get(key::GENERATION) != Some("2"));
    passes(&mut world, 200);
    let ended = |generation| (generation, InstanceState::Terminated);
    assert_eq!(machines(&world), [ended("1"), ended("3"), ("4", InstanceState::Running)]);

    world.strangers = 0;
    world.instances[2].state = InstanceState::Terminated;
    settle(&mut world, None, false);
    check_end(&world, "somebody ended the one that was left, and the next joined");
}

#[test]
fn one_that_somebody_ends_begins_a_row_of_its_own() {
    let mut world = second_ended("Client.UserInitiatedShutdown");
    let after = until_ended(&mut world, 2);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
}
