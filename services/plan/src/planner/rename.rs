//! Another name for a living database: it is added beside the one in force, takes its place once all name servers answer to
//! it, and only then the former one is given back. Whoever connects by either of them meanwhile comes in.
//!
//! How far that is stands in status, always before it is done: whoever goes on from there knows of every name that may have
//! been made. Where status was lost, a name that is left is found by the text that says whose it is, in the picture of the
//! zone that databases at rest are compared with.
//! *Invariant:* no name is given back unless the one in force was seen to lead to the database in the same pass.

use std::net::Ipv4Addr;
use std::time::Duration;

use cloud::DnsChangeState;
use jiff::Timestamp;
use resources::QuestDB;

use super::World;
use super::name::{
    Concern, LOOKED_AGAIN, foreign, lead, name_in_force, next_noted, noted, records_of, taking, withdrawn,
};
use crate::{Led, Part, Plan, Renamed, State, Step};

/// How long the former name goes on leading to the database after another was told: as long as resolvers keep it. Whoever
/// read it a moment before, in `status.endpoints` or elsewhere, still comes in.
const GRACE: Duration = Duration::from_secs(30);

const FIRST: &str = "first the name in force has to lead to the database";

/// The next step on the way from one name to another; `concern` is the name that is dealt with now.
pub(super) fn plan(world: &World<'_>, plan: &mut Plan, concern: Concern<'_>, address: Ipv4Addr) {
    match concern {
        Concern::Nothing => give_back_what_is_left(world, plan),
        Concern::InForce(_) if is_due(world) => {
            plan.wait(Part::Rename, FIRST);
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
    let Some(records) = &observed.beside else {
        let text = if observed.change.is_some() {
            format!("waiting for {name} to reach all name servers; {in_force} leads to the database")
        } else {
            format!("what {name} holds is not known yet; {in_force} leads to the database")
        };
        return plan.wait(Part::Rename, text);
    };
    if let Some(foreign) = foreign(records, &world.validated.subject) {
        let text = format!(
            "{name} has a {} record that is not ours: remove it or choose another name; it is looked at again within \
             {LOOKED_AGAIN}, and the database goes on as {in_force}",
            foreign.kind
        );
        return plan.say(Part::Rename, State::Refused(text));
    }
    let wanted = records_of(world, name, address);
    let is_in_sync = observed.change.as_ref().is_some_and(|change| change.state == DnsChangeState::InSync);
    if is_in_sync && wanted.iter().all(|wanted| records.contains(wanted)) {
        plan.renamed = Some(Renamed::Taken(name.to_owned()));
        return plan.wait(Part::Rename, format!("{name} takes the place of {in_force}"));
    }
    if next_noted(world.resource, name, &address.to_string()).is_none() {
        plan.renamed = Some(Renamed::Begun(Led { name: name.to_owned(), address: address.to_string() }));
        return plan.wait(Part::Rename, format!("{name} is added beside {in_force}"));
    }
    let reason = "another name is asked for: it is added before the one in force is given back";
    lead(plan, (Part::Rename, false), taking(records, wanted), (name, address), reason);
}

fn give_back(world: &World<'_>, plan: &mut Plan, name: &str) {
    if let Some(until) = leads_still(world.resource, name, world.observed.at) {
        return plan.wait(
            Part::Rename,
            format!("{name} is given back at {until:.0}: who has just read it still comes in"),
        );
    }
    let Some(records) = &world.observed.dns.beside else {
        return plan.wait(Part::Rename, format!("what {name} holds is not known yet"));
    };
    if !leads(world, plan) {
        return plan.wait(Part::Rename, FIRST);
    }
    let changes = withdrawn(records, &world.validated.subject);
    if changes.is_empty() {
        plan.renamed = Some(Renamed::GivenBack(name.to_owned()));
    } else {
        let reason = "another name took its place";
        plan.act(Part::Rename, Step::ChangeRecords { changes, led: None }, reason);
    }
    plan.wait(Part::Rename, format!("{name} is given back"));
}

/// Until when a former name leads to the database beside the one that took its place.
pub(super) fn leads_still(resource: &QuestDB, name: &str, now: Timestamp) -> Option<Timestamp> {
    let former = noted(resource)?.former.as_ref().filter(|former| former.name == name)?;
    let until = former.since.0 + GRACE;
    (now < until).then_some(until)
}

/// What status does not tell of.
fn give_back_what_is_left(world: &World<'_>, plan: &mut Plan) {
    let changes = withdrawn(&world.observed.dns.left, &world.validated.subject);
    let Some(first) = changes.first() else { return };
    if !leads(world, plan) {
        return plan.wait(Part::Rename, FIRST);
    }
    plan.wait(Part::Rename, format!("{} is given back", first.record().name));
    let reason = "a name of this database that it does not have any more";
    plan.act(Part::Rename, Step::ChangeRecords { changes, led: None }, reason);
}

/// Whether the name in force was just seen to lead to the database.
fn leads(world: &World<'_>, plan: &Plan) -> bool {
    world.observed.dns.records.is_some() && plan.state(Part::Dns) == Some(&State::Done)
}
