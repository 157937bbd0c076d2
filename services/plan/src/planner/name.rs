//! The DNS name: an address record beside a text record that says whose it is.
//!
//! *Invariant:* records that are not ours are never changed, and a name with any record that is not ours is taken.

use std::net::{IpAddr, Ipv4Addr};

use cloud::{ChangeId, DnsChangeState, DnsRecord, Instance, RecordChange, RecordKind};
use resources::{DnsState, DnsStatus, QuestDB};

use super::World;
use crate::{Part, Plan, State, Step, Subject, Validated};

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
    let same =
        |status: &&DnsStatus| status.name == validated.hostname && status.address.as_ref() == Some(&address);
    let Some(status) = status.filter(same) else { return DnsQuestion::Records };
    match (status.state, &status.change_id) {
        (DnsState::InSync, _) => DnsQuestion::Nothing,
        (DnsState::Pending, Some(id)) => DnsQuestion::Change(ChangeId::new(id)),
        (DnsState::Pending | DnsState::Releasing | DnsState::Conflict, _) => DnsQuestion::Records,
    }
}

/// The name that a database gives back: the one it was given last, whatever its wish says by now.
pub fn name_to_release<'a>(resource: &'a QuestDB, validated: &'a Validated) -> &'a str {
    let status = resource.status.as_ref().and_then(|status| status.dns.as_ref());
    status.map_or(validated.hostname.as_str(), |status| status.name.as_str())
}

/// The name of a database that has another one than it asks for now.
fn other_name<'a>(world: &World<'a>) -> Option<&'a str> {
    let status = world.resource.status.as_ref().and_then(|status| status.dns.as_ref())?;
    let has = matches!(status.state, DnsState::InSync | DnsState::Pending | DnsState::Releasing);
    (has && status.name != world.validated.hostname).then_some(status.name.as_str())
}

/// The name answers with the instance's address.
pub(super) fn resolve(world: &World<'_>, plan: &mut Plan, instance: Option<&Instance>) {
    let address = instance.and_then(|instance| instance.private_ip);
    let Some(IpAddr::V4(address)) = address else {
        plan.say(Part::Dns, State::Pending);
        return;
    };
    if let Some(name) = other_name(world) {
        let text = format!(
            "the database answers to {name}: another name for a living database is not supported yet; it goes on as it is"
        );
        plan.say(Part::Dns, State::Refused(text));
        return;
    }
    let observed = &world.observed.dns;
    match (&observed.records, &observed.change) {
        (Some(records), _) => point(world, plan, records, address),
        (None, Some(change)) if change.state == DnsChangeState::InSync => plan.say(Part::Dns, State::Done),
        (None, Some(_)) => plan.wait(Part::Dns, "waiting for the change to reach all name servers"),
        (None, None) => match dns_question(world.resource, world.validated, Some(IpAddr::V4(address))) {
            DnsQuestion::Nothing => plan.say(Part::Dns, State::Done),
            DnsQuestion::Change(_) | DnsQuestion::Records => {
                plan.wait(Part::Dns, "what the name holds is not known yet");
            }
        },
    }
}

/// Records of ours that are to be removed, exactly as they are.
pub(super) fn releases(records: &[DnsRecord], subject: &Subject) -> Vec<RecordChange> {
    if foreign(records, subject).is_some() {
        return Vec::new();
    }
    records.iter().cloned().map(RecordChange::Delete).collect()
}

/// The first record that is not ours: any, where our text record is missing; else any kind that we never write.
fn foreign<'a>(records: &'a [DnsRecord], subject: &Subject) -> Option<&'a DnsRecord> {
    let ours = owner_text(subject);
    let is_ours = |record: &DnsRecord| {
        record.kind == RecordKind::Txt && record.plain && record.texts() == [ours.as_str()]
    };
    let owned = records.iter().any(is_ours);
    records.iter().find(|record| {
        let address = record.kind == RecordKind::A && record.plain && owned;
        !(address || is_ours(record))
    })
}

fn point(world: &World<'_>, plan: &mut Plan, records: &[DnsRecord], address: Ipv4Addr) {
    let name = &world.validated.hostname;
    if let Some(foreign) = foreign(records, &world.validated.subject) {
        let text = format!(
            "{name} has a {} record that is not ours: remove it or choose another name",
            foreign.kind
        );
        plan.say(Part::Dns, State::Conflict(text));
        return;
    }
    let text = DnsRecord::txt(name, TTL, &owner_text(&world.validated.subject));
    let wanted = DnsRecord::a(name, TTL, address);
    let known = dns_question(world.resource, world.validated, Some(IpAddr::V4(address)));
    if records.contains(&wanted) && known == DnsQuestion::Nothing {
        plan.say(Part::Dns, State::Done);
        return;
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
