//! A machine of which somebody opened the metadata service by hand: it is shut to others again, and nothing waits where that is refused.

use cloud::{Instance, InstanceId, InstanceState};

use super::machine_groups::is_beside;
use super::model::{Refusal, World};
use super::operations::{Operation, half_moved, operation};
use super::runner::settle;
use super::{check_serving, pass, serving};
use crate::fixture::{settings, validated};
use crate::{Part, Step, plan};

/// What EC2 answers where nobody may change who asks for metadata.
pub(super) const FIXED: Refusal = "nobody may change who asks a machine for metadata";

/// Machines that somebody opened.
pub(super) const OPENED: &[Operation] = &[
    operation("a machine of which the metadata service was opened by hand", serving, open_all),
    operation("machines of which the metadata service was opened while it moves", half_moved, open_all),
];

impl World {
    pub(super) fn guard(&mut self, instance: &InstanceId) -> Result<(), Refusal> {
        if self.full.fixed == Some(Part::MachineMetadata) {
            return Err(FIXED);
        }
        let found = self.instances.iter_mut().find(|found| found.id == *instance && !found.state.is_ending());
        found.ok_or("it has ended")?.metadata_guarded = Some(true);
        Ok(())
    }
}

fn open_all(world: &mut World) {
    for machine in &mut world.instances {
        machine.metadata_guarded = Some(false);
    }
}

/// Which machines are to answer themselves alone.
fn guarded(world: &World) -> Vec<InstanceId> {
    let resource = &world.resource;
    let planned = plan(resource, &validated(resource), &world.look(), &settings());
    let steps = planned.actions.into_iter().map(|action| action.step);
    let of_step = |step: Step| match step {
        Step::GuardMetadata { instance } => Some(instance),
        _ => None,
    };
    steps.filter_map(of_step).collect()
}

#[test]
fn a_machine_that_somebody_opened_is_shut_to_others_by_one_step_that_is_counted() {
    let mut world = serving();
    let pod = world.pod_uid();
    open_all(&mut world);
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(
        matches!(planned.actions.as_slice(), [action] if action.puts_right
            && action.step == Step::GuardMetadata { instance: world.instances[0].id.clone() }),
        "{:?}",
        planned.actions
    );
    world.tick();
    assert_eq!(settle(&mut world, None, false), 0, "nothing more is written");
    check_serving(&world, None);
    assert_eq!((world.instances[0].metadata_guarded, world.pod_uid()), (Some(true), pod));
}

#[test]
fn both_machines_of_a_move_are_shut_to_others_at_once() {
    let mut world = half_moved();
    open_all(&mut world);
    let each = world.instances.iter().map(|machine| machine.id.clone());
    assert_eq!(guarded(&world), each.collect::<Vec<_>>());
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn where_aws_refuses_it_that_is_told_and_the_database_serves_and_moves_and_is_healed() {
    is_beside(Part::MachineMetadata, FIXED, open_all);
}

#[test]
fn nothing_is_done_where_ec2_does_not_say_who_may_ask_nor_about_machines_of_others() {
    for (state, is_guarded, expected) in [
        (InstanceState::Running, Some(false), 1),
        (InstanceState::Stopped, Some(false), 1),
        (InstanceState::Running, Some(true), 0),
        (InstanceState::Running, None, 0),
        (InstanceState::Pending, Some(false), 0),
        (InstanceState::ShuttingDown, Some(false), 0),
        (InstanceState::Terminated, Some(false), 0),
    ] {
        let mut world = serving();
        (world.instances[0].state, world.instances[0].metadata_guarded) = (state.clone(), is_guarded);
        assert_eq!(guarded(&world).len(), expected, "{state} {is_guarded:?}");
    }
    for token in [Some("of-the-console".to_owned()), None] {
        let mut world = serving();
        let copied = Instance {
            id: InstanceId::new("i-copy"),
            client_token: token.clone(),
            metadata_guarded: Some(false),
            ..world.instances[0].clone()
        };
        world.instances.push(copied);
        assert!(guarded(&world).is_empty(), "{token:?}");
    }
}
