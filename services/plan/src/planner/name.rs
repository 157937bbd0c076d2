//! The DNS name: an address record beside a text record that says whose it is.
//!
//! *Invariant:* records that are not ours are never changed, and a name with any record that is not ours is taken.
//! *Invariant:* a paused database keeps its name: the address goes, the text that says whose the name is stays.

use std::net::{IpAddr, Ipv4Addr};

use cloud::{ChangeId, DnsChangeState, DnsRecord, Instance, RecordChange, RecordKind};
use jiff::Timestamp;
use resources::{DnsState, DnsStatus, QuestDB, StepStatus};

use super::World;
use crate::{Goal, Part, Plan, State, Step, Subject, Validated};

/// Seconds that resolvers may keep the address.
const TTL: u32 = 30;

/// What the text record says.
pub(super) fn owner_text(subject: &Subject) -> String {
    format!("heritage=slipway,cluster={},database={}", subject.cluster, subject.database)
}

/// What has to be asked of Route 53 before the name can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsQuestion {
    /// Nothing: the name is known to be in sync with the address, or there is no address yet.
    Nothing,
    /// How far this change came.
    Change(ChangeId),
    /// What the name holds.
    Records,
}

/// What has to be asked while a database should serve at `address`.
pub fn dns_question(resource: &QuestDB, validated: &Validated, address: Option<IpAddr>) -> DnsQuestion {
    let Some(address) = address.map(|address| address.to_string()) else { return DnsQuestion::Nothing };
    let status = resource.status.as_ref().and_then(|status| status.dns.as_ref());
    let name = name_in_force(resource, validated);
    let same = |status: &&DnsStatus| status.name == name && status.address.as_ref() == Some(&address);
    let Some(status) = status.filter(same) else { return DnsQuestion::Records };
    match (status.state, &status.change_id) {
        (DnsState::InSync, _) => DnsQuestion::Nothing,
        (DnsState::Pending, Some(id)) => DnsQuestion::Change(ChangeId::new(id)),
        (DnsState::Pending | DnsState::Releasing | DnsState::Conflict, _) => DnsQuestion::Records,
    }
}

/// The name of a database at rest whose records are worth a look: what they hold was settled before this moment, so that a
/// picture taken since then shows it. They are compared by [`are_as_noted`].
pub fn name_at_rest(resource: &QuestDB, before: Timestamp) -> Option<&str> {
    let status = resource.status.as_ref()?;
    let of_name =
        |step: &&StepStatus| [Part::Dns, Part::DnsRelease].map(Part::as_str).contains(&step.name.as_str());
    let ended = status.steps.iter().filter(of_name).filter_map(|step| step.ended_at.as_ref());
    if ended.into_iter().any(|ended| ended.0 > before) {
        return None;
    }
    noted_name(resource)
}

fn noted_name(resource: &QuestDB) -> Option<&str> {
    let status = resource.status.as_ref()?.dns.as_ref()?;
    match status.state {
        DnsState::InSync => Some(&status.name),
        DnsState::Pending | DnsState::Releasing | DnsState::Conflict => None,
    }
}

/// Whether the records of the name of a database at rest are what its status says of them.
pub fn are_as_noted(resource: &QuestDB, validated: &Validated, records: &[DnsRecord]) -> bool {
    let Some(status) = resource.status.as_ref().and_then(|status| status.dns.as_ref()) else { return true };
    let subject = &validated.subject;
    let address = status.address.as_ref().and_then(|address| address.parse().ok());
    let wanted = address.map(|address| DnsRecord::a(&status.name, TTL, address));
    let addresses = records.iter().filter(|record| !is_owner(record, subject));
    foreign(records, subject).is_none()
        && records.iter().any(|record| is_owner(record, subject))
        && addresses.eq(wanted.iter())
}

/// The name that a database gives back: the one it was given last, whatever its wish says by now.
pub fn name_to_release<'a>(resource: &'a QuestDB, validated: &'a Validated) -> &'a str {
    let status = resource.status.as_ref().and_then(|status| status.dns.as_ref());
    status.map_or(validated.hostname.as_str(), |status| status.name.as_str())
}

/// The name of a database that has another one than it asks for now.
pub(crate) fn other_name<'a>(world: &World<'a>) -> Option<&'a str> {
    name_given(world.resource).filter(|name| *name != world.validated.hostname)
}

/// The name that a database has been given.
fn name_given(resource: &QuestDB) -> Option<&str> {
    let status = resource.status.as_ref()?.dns.as_ref()?;
    match status.state {
        DnsState::InSync | DnsState::Pending | DnsState::Releasing => Some(&status.name),
        DnsState::Conflict => None,
    }
}

/// The name that leads to a database while it is to serve: the one that it has, whatever its wish says by now.
pub fn name_in_force<'a>(resource: &'a QuestDB, validated: &'a Validated) -> &'a str {
    name_given(resource).unwrap_or(&validated.hostname)
}

/// The name answers with the instance's address.
pub(super) fn resolve(world: &World<'_>, plan: &mut Plan, instance: Option<&Instance>) {
    let address = instance.and_then(|instance| instance.private_ip);
    let Some(IpAddr::V4(address)) = address else {
        plan.say(Part::Dns, State::Pending);
        return;
    };
    let observed = &world.observed.dns;
    match (&observed.records, &observed.change) {
        (Some(records), _) => point(world, plan, records, address),
        (None, Some(change)) if change.state == DnsChangeState::InSync => leads(world, plan),
        (None, Some(_)) => plan.wait(Part::Dns, "waiting for the change to reach all name servers"),
        (None, None) => match dns_question(world.resource, world.validated, Some(IpAddr::V4(address))) {
            DnsQuestion::Nothing => leads(world, plan),
            DnsQuestion::Change(_) | DnsQuestion::Records => {
                plan.wait(Part::Dns, "what the name holds is not known yet");
            }
        },
    }
}

/// The name leads to the database; whether it is the one that is asked for.
fn leads(world: &World<'_>, plan: &mut Plan) {
    let Some(name) = other_name(world) else { return plan.say(Part::Dns, State::Done) };
    let text = format!(
        "the database has the name {name}: another name for a living database is not supported yet; it goes on as it is"
    );
    plan.say(Part::Dns, State::Refused(text));
}

/// Records of ours that are to be removed, exactly as they are, whatever others put beside them. A pause keeps the text record
/// of the name that the wish still asks for.
pub(super) fn releases(world: &World<'_>, records: &[DnsRecord]) -> Vec<RecordChange> {
    let keeps = keeps_name(world.resource, world.validated);
    if keeps && records.is_empty() && noted_name(world.resource).is_some() {
        // Somebody took it away; nobody else has the name yet.
        let (name, subject) = (&world.validated.hostname, &world.validated.subject);
        return vec![RecordChange::Create(DnsRecord::txt(name, TTL, &owner_text(subject)))];
    }
    let ours = ours(records, &world.validated.subject);
    let removed = ours.into_iter().filter(|record| !(keeps && record.kind == RecordKind::Txt));
    removed.cloned().map(RecordChange::Delete).collect()
}

/// Whether a database that stops keeps the name that it has.
fn keeps_name(resource: &QuestDB, validated: &Validated) -> bool {
    validated.goal == Goal::Pause && name_to_release(resource, validated) == validated.hostname
}

/// Whether the name of a database that stopped is still its own, as far as anybody looked.
pub(crate) fn is_reserved(resource: &QuestDB, validated: &Validated, records: Option<&[DnsRecord]>) -> bool {
    let noted = || resource.status.as_ref().is_some_and(|status| status.dns.is_some());
    let owned = |records: &[DnsRecord]| records.iter().any(|record| is_owner(record, &validated.subject));
    keeps_name(resource, validated) && records.map_or_else(noted, owned)
}

/// The records that are ours: none, where our text record is missing; else of the kinds that we write.
fn ours<'a>(records: &'a [DnsRecord], subject: &Subject) -> Vec<&'a DnsRecord> {
    let owned = records.iter().any(|record| is_owner(record, subject));
    let address = |record: &DnsRecord| record.kind == RecordKind::A && record.plain && owned;
    records.iter().filter(|record| address(record) || is_owner(record, subject)).collect()
}

/// The first record that is not.
fn foreign<'a>(records: &'a [DnsRecord], subject: &Subject) -> Option<&'a DnsRecord> {
    let ours = ours(records, subject);
    records.iter().find(|record| !ours.contains(record))
}

/// Whether a record says that the name is ours.
fn is_owner(record: &DnsRecord, subject: &Subject) -> bool {
    record.kind == RecordKind::Txt && record.plain && record.texts() == [owner_text(subject)]
}

fn point(world: &World<'_>, plan: &mut Plan, records: &[DnsRecord], address: Ipv4Addr) {
    let name = name_in_force(world.resource, world.validated);
    let wanted = DnsRecord::a(name, TTL, address);
    let text = DnsRecord::txt(name, TTL, &owner_text(&world.validated.subject));
    let known = dns_question(world.resource, world.validated, Some(IpAddr::V4(address)));
    if known == DnsQuestion::Nothing && records == std::slice::from_ref(&wanted) {
        // The address is ours and was in sync: only what said so is gone.
        let changes = vec![RecordChange::Create(text), RecordChange::Upsert(wanted)];
        let reason = "the record that says whose the name is was taken away";
        plan.act(Part::Dns, Step::ChangeRecords { changes, address: Some(address.to_string()) }, reason);
        plan.wait(Part::Dns, "waiting for the change to reach all name servers");
        return;
    }
    if let Some(foreign) = foreign(records, &world.validated.subject) {
        let text = format!(
            "{name} has a {} record that is not ours: remove it or choose another name",
            foreign.kind
        );
        plan.say(Part::Dns, State::Conflict(text));
        return;
    }
    if records.contains(&wanted) && known == DnsQuestion::Nothing {
        return leads(world, plan);
    }
    let (changes, reason) = if records.is_empty() {
        // `Create` and not `Upsert`: of two who take the name at once, one is refused.
        (vec![RecordChange::Create(text), RecordChange::Create(wanted)], "the name is free")
    } else if records.contains(&wanted) {
        // The report of the change was lost: say it again to get one whose way can be followed.
        (vec![RecordChange::Upsert(wanted)], "whether the name is in sync is not known")
    } else {
        (vec![RecordChange::Upsert(wanted)], "the name does not answer with the machine's address")
    };
    plan.act(Part::Dns, Step::ChangeRecords { changes, address: Some(address.to_string()) }, reason);
    plan.wait(Part::Dns, "waiting for the change to reach all name servers");
}
