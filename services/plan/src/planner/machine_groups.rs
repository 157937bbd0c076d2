//! The security groups that the database's machines are in: those that they were launched with, and no others. By another one
//! somebody may come in who is not allowed, and without their own nobody who is.
//!
//! *Invariant:* nothing waits for it. AWS may refuse it, and somebody undo it again and again: the database is healed, and moves, all the
//! same. *Invariant:* only a machine that was launched for the database is touched, and only one of which EC2 says which groups it has.

use cloud::{Instance, InstanceState, SecurityGroupId};

use super::machine::generation_of;
use super::{World, home, network};
use crate::{Part, Plan, Step, build};

/// Puts each machine back into its groups.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan) {
    let told = |found: &&Instance| !found.security_groups.is_empty() && is_ours(world, found);
    for instance in world.observed.account.instances.iter().filter(told) {
        let Some(group) = network::of_machine(world, instance) else { continue };
        let groups = build::machine_groups(&group.id);
        if is_in(instance, &groups) {
            continue;
        }
        let id = &instance.id;
        let reason = format!(
            "somebody changed the security groups of {id}: who is allowed may not come in, or who is not may"
        );
        let step = Step::SetMachineGroups { instance: id.clone(), groups };
        plan.put_right(Part::MachineGroups, step, reason);
        plan.wait(Part::MachineGroups, format!("{id} is being put back into {}", group.id));
    }
}

/// Whether a machine was launched for the database and lives: while it is prepared it is as it was launched, and of one that ends nothing
/// is to be kept.
pub(super) fn is_ours(world: &World<'_>, instance: &Instance) -> bool {
    let has_begun = instance.state != InstanceState::Pending && !instance.state.is_ending();
    let own = || home::living(world.resource, world.observed, generation_of(instance)?);
    has_begun && own().is_some_and(|own| own.id == instance.id)
}

fn is_in(instance: &Instance, groups: &[SecurityGroupId]) -> bool {
    let found = &instance.security_groups;
    found.len() == groups.len() && groups.iter().all(|group| found.contains(group))
}
