//! Security groups of a machine that somebody changed by hand: it is put back into its own, and nothing waits where that is refused.

use cloud::{Instance, InstanceId, InstanceState, SecurityGroup, SecurityGroupId};
use resources::Phase;

use super::model::{Refusal, World};
use super::operations::{Operation, begin_move, change, end_machine, half_moved, operation};
use super::reach::condition as word;
use super::runner::{ENOUGH, settle};
use super::{check_serving, pass, phase, serving};
use crate::fixture::{settings, validated};
use crate::{Part, State, Step, plan};

/// What EC2 answers where nobody may change the groups of a machine.
pub(super) const FIXED: Refusal = "nobody may change the groups of a machine";

/// Machines that somebody put elsewhere.
pub(super) const REGROUPED: &[Operation] = &[
    operation("a machine put behind another firewall by hand", serving, |world| {
        world.instances[0].security_groups = vec![other()];
    }),
    operation("machines put behind one firewall more while it moves", half_moved, open_all),
];

impl World {
    pub(super) fn put_into(
        &mut self,
        instance: &InstanceId,
        groups: &[SecurityGroupId],
    ) -> Result<(), Refusal> {
        if self.full.fixed == Some(Part::MachineGroups) {
            return Err(FIXED);
        }
        if groups.iter().any(|id| self.groups.iter().all(|known| known.id != *id)) {
            return Err("no such group");
        }
        let found = self.instances.iter_mut().find(|found| found.id == *instance && !found.state.is_ending());
        found.ok_or("it has no interface any more")?.security_groups = groups.to_vec();
        Ok(())
    }
}

fn other() -> SecurityGroupId {
    SecurityGroupId::new("sg-other")
}

/// One that lets everybody in, beside those that each machine has.
fn open_all(world: &mut World) {
    for machine in &mut world.instances {
        machine.security_groups.push(other());
    }
}

/// Which machines are to be put into which groups.
fn put_back(world: &World) -> Vec<(InstanceId, Vec<SecurityGroupId>)> {
    let resource = &world.resource;
    let planned = plan(resource, &validated(resource), &world.look(), &settings());
    let steps = planned.actions.into_iter().map(|action| action.step);
    let of_step = |step: Step| match step {
        Step::SetMachineGroups { instance, groups } => Some((instance, groups)),
        _ => None,
    };
    steps.filter_map(of_step).collect()
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
    }
}

#[test]
fn a_machine_whose_groups_somebody_changed_is_put_back_by_one_step_that_is_counted() {
    let own = serving().groups[0].id.clone();
    for groups in [vec![other()], vec![own.clone(), other()], vec![other(), own.clone()]] {
        let mut world = serving();
        let pod = world.pod_uid();
        world.instances[0].security_groups.clone_from(&groups);
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(
            matches!(planned.actions.as_slice(), [action] if action.puts_right
                && matches!(action.step, Step::SetMachineGroups { .. })),
            "{groups:?}: {:?}",
            planned.actions
        );
        assert_eq!(planned.state(Part::SecurityGroup), Some(&State::Done), "its rules are as they were");
        assert_eq!(world.instances[0].security_groups, std::slice::from_ref(&own), "{groups:?}");
        world.tick();
        assert_eq!(settle(&mut world, None, false), 0, "{groups:?}: nothing more is written");
        check_serving(&world, None);
        assert_eq!(world.pod_uid(), pod, "{groups:?}");
    }
}

#[test]
fn both_machines_of_a_move_are_put_back_at_once() {
    let mut world = half_moved();
    open_all(&mut world);
    let own = world.groups[0].id.clone();
    let each = world.instances.iter().map(|machine| (machine.id.clone(), vec![own.clone()]));
    assert_eq!(put_back(&world), each.collect::<Vec<_>>());
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn where_aws_refuses_it_that_is_told_and_the_database_serves_and_moves_and_is_healed() {
    is_beside(Part::MachineGroups, FIXED, open_all);
}

/// Somebody changed machines, and AWS answers with `words` to whoever makes this part good: it is told, and nothing waits for it.
pub(super) fn is_beside(fixed: Part, words: Refusal, changed: fn(&mut World)) {
    let mut world = serving();
    let pod = world.pod_uid();
    world.full.fixed = Some(fixed);
    changed(&mut world);
    passes(&mut world, 6);
    assert_eq!((word(&world, "Ready").unwrap().0, world.pod_uid()), ("True", pod));
    let expected = format!("{fixed}: {words}");
    assert_eq!(word(&world, "Degraded"), Some(("True", expected.as_str())));
    assert_eq!(word(&world, "Progressing"), Some(("False", expected.as_str())));
    assert_eq!(phase(&world), Some(Phase::Degraded));
    // Nobody who wishes for something else waits for that.
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    passes(&mut world, ENOUGH);
    let done = world.resource.status.as_ref().unwrap().instruction.as_ref().unwrap().seq;
    assert_eq!(done, world.resource.spec.instruction.as_ref().unwrap().seq);

    let harms: [fn(&mut World); 2] = [begin_move, |world| end_machine(world, 0)];
    for harm in harms {
        let mut world = world.clone();
        harm(&mut world);
        passes(&mut world, ENOUGH);
        // The next machine is as it is to be from its launch on.
        assert_eq!(world.instances.len(), 2);
        settle(&mut world, None, false);
        check_serving(&world, None);
    }

    world.full.fixed = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn nothing_is_done_about_groups_that_are_not_known_nor_about_machines_of_others() {
    for (state, groups, expected) in [
        (InstanceState::Running, vec![other()], 1),
        (InstanceState::Stopped, vec![other()], 1),
        (InstanceState::Running, vec![], 0),
        (InstanceState::Pending, vec![other()], 0),
        (InstanceState::ShuttingDown, vec![other()], 0),
        (InstanceState::Terminated, vec![other()], 0),
    ] {
        let mut world = serving();
        (world.instances[0].state, world.instances[0].security_groups) = (state.clone(), groups.clone());
        assert_eq!(put_back(&world).len(), expected, "{state} {groups:?}");
    }
    for token in [Some("of-the-console".to_owned()), None] {
        let mut world = serving();
        let copied = Instance {
            id: InstanceId::new("i-copy"),
            client_token: token.clone(),
            security_groups: vec![other()],
            ..world.instances[0].clone()
        };
        world.instances.push(copied);
        assert!(put_back(&world).is_empty(), "{token:?}");
    }
}

/// The operator was given another VPC, where a firewall was made for the next machine.
#[test]
fn a_machine_is_put_back_into_the_group_of_its_own_vpc() {
    let mut world = serving();
    let (before, vpc) = (SecurityGroupId::new("sg-before"), "vpc-of-before".to_owned());
    let machine = &mut world.instances[0];
    (machine.vpc, machine.security_groups) = (Some(vpc.clone()), vec![before.clone()]);
    let of_before = SecurityGroup { id: before.clone(), vpc, ..world.groups[0].clone() };
    world.groups.push(of_before);
    assert!(put_back(&world).is_empty());
    open_all(&mut world);
    assert_eq!(put_back(&world), [(world.instances[0].id.clone(), vec![before])]);
    // Its firewall is not shown.
    world.groups.pop();
    assert!(put_back(&world).is_empty());
}
