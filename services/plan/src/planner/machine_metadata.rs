//! Who may ask the metadata service of the database's machines, which gives out the credentials of their role: their own processes alone,
//! and in sessions alone, as they were launched.
//!
//! *Invariant:* nothing waits for it, and only a machine that was launched for the database is touched, and only one of which EC2 says
//! that others may ask: as with their groups (`machine_groups`).

use super::{World, machine_groups};
use crate::{Part, Plan, Step};

/// Has each machine answer itself alone again.
pub(super) fn guard(world: &World<'_>, plan: &mut Plan) {
    let open = world.observed.account.instances.iter().filter(|found| found.metadata_guarded == Some(false));
    for instance in open.filter(|found| machine_groups::is_ours(world, found)) {
        let id = &instance.id;
        let reason = format!(
            "somebody opened the metadata service of {id}: pods may have the credentials of its role from it"
        );
        plan.put_right(Part::MachineMetadata, Step::GuardMetadata { instance: id.clone() }, reason);
        plan.wait(Part::MachineMetadata, format!("the metadata service of {id} is being shut to others"));
    }
}
