//! Another name for a living database: it is added beside the one in force, takes its place once all name servers answer to
//! it, and only then the former one is given back. Whoever connects by either of them meanwhile comes in.
//!
//! How far that is stands in status. Where that was lost, a name that is left is found by the text that says whose it is,
//! in the picture of the zone that databases at rest are compared with.

use std::net::Ipv4Addr;

use cloud::DnsChangeState;

use super::World;
use super::name::{Concern, foreign, lead, name_in_force, records_of, taking, withdrawn};
use crate::{Part, Plan, Renamed, State, Step};

/// The next step on the way from one name to another; `concern` is the name that is dealt with now.
pub(super) fn plan(world: &World<'_>, plan: &mut Plan, concern: Concern<'_>, address: Ipv4Addr) {
    match concern {
        Concern::Nothing => give_back_what_is_left(world, plan),
        Concern::InForce(_) if is_due(world) => {
            plan.wait(Part::Rename, "first the name in force has to lead to the database");
        }
        Concern::InForce(_) => {}
        Concern::Back(name) => give_back(world, plan, name),
        Concern::Next(name) => add(world, plan, name, address),
    }
}

/// Whether there is anything to do about names beside the one in force.
fn is_due(world: &World<'_>) -> bool {
    let beside = super::name::noted(world.resource)
        .is_some_and(|status| status.next.is_some() || status.former.is_some());
    beside || name_in_force(world.resource, world.validated) != world.validated.hostname
}

fn add(world: &World<'_>, plan: &mut Plan, name: &str, address: Ipv4Addr) {
    let in_force = name_in_force(world.resource, world.validated);
    let observed = &world.observed.dns;
    let Some(records) = &observed.records else {
        if observed.change.as_ref().is_some_and(|change| change.state == DnsChangeState::InSync) {
            plan.renamed = Some(Renamed::Taken(name.to_owned()));
            plan.wait(Part::Rename, format!("{name} takes the place of {in_force}"));
        } else {
            let text =
                format!("waiting for {name} to reach all name servers; {in_force} leads to the database");
            plan.wait(Part::Rename, text);
        }
        return;
    };
    if let Some(foreign) = foreign(records, &world.validated.subject) {
        let text = format!(
            "{name} has a {} record that is not ours: remove it or choose another name; the database goes on as {in_force}",
            foreign.kind
        );
        return plan.say(Part::Rename, State::Refused(text));
    }
    let reason = "another name is asked for: it is added before the one in force is given back";
    let changes = taking(records, records_of(world, name, address));
    lead(plan, Part::Rename, changes, (name, address), reason);
}

fn give_back(world: &World<'_>, plan: &mut Plan, name: &str) {
    let Some(records) = &world.observed.dns.records else {
        return plan.wait(Part::Rename, format!("what {name} holds is not known yet"));
    };
    let changes = withdrawn(records, &world.validated.subject);
    if changes.is_empty() {
        plan.renamed = Some(Renamed::GivenBack(name.to_owned()));
    } else {
        let reason = "another name took its place";
        plan.act(Part::Rename, Step::ChangeRecords { changes, led: None }, reason);
    }
    plan.wait(Part::Rename, format!("{name} is given back"));
}

/// What status does not tell of.
fn give_back_what_is_left(world: &World<'_>, plan: &mut Plan) {
    let changes = withdrawn(&world.observed.dns.left, &world.validated.subject);
    if let Some(first) = changes.first() {
        plan.wait(Part::Rename, format!("{} is given back", first.record().name));
        let reason = "a name of this database that it does not have any more";
        plan.act(Part::Rename, Step::ChangeRecords { changes, led: None }, reason);
    }
}
