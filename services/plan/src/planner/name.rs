//! The DNS name: an address record beside a text record that says whose it is.
//!
//! *Invariant:* records that are not ours are never changed, and a name with any record that is not ours is taken.
//! *Invariant:* a paused database keeps its name: the address goes, the text that says whose the name is stays.
//! *Invariant:* nobody is sent by the name to a pod that takes no ports of its machine ([`is_named`]): such a database has none.
//! *Invariant:* of two names of a living database the one in force always leads to it ([`rename`]).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use cloud::{ChangeId, DnsChangeState, DnsRecord, Instance, RecordChange, RecordKind};
use jiff::Timestamp;
use resources::{DnsState, DnsStatus, NextNameStatus, QuestDB, StepStatus};

use super::{World, rename};
use crate::change::takes_host_ports;
use crate::{Children, Goal, Led, Part, Plan, State, Step, Subject, Validated};

/// Seconds that resolvers may keep the address.
const TTL: u32 = 30;

/// Whether a name is to lead to a database: to one that is to serve, where its pod takes ports of its machine or, while there is no
/// pod, the next one will.
pub fn is_named(validated: &Validated, children: &Children) -> bool {
    let takes_ports = children.pod.as_deref().map_or(validated.reach.host_ports, takes_host_ports);
    validated.goal == Goal::Serve && takes_ports
}

/// What the text record says.
pub fn owner_text(subject: &Subject) -> String {
    owner_stem(&subject.cluster) + &subject.database
}

/// The database of a cluster that a text names as the owner of a name.
pub fn database_of_text<'a>(cluster: &str, text: &'a str) -> Option<&'a str> {
    text.strip_prefix(&owner_stem(cluster))
}

fn owner_stem(cluster: &str) -> String {
    format!("heritage=slipway,cluster={cluster},database=")
}

/// What has to be asked of Route 53 before a name can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsQuestion {
    /// Nothing: the name is known to be in sync with the address, or there is no address yet.
    Nothing,
    /// What the name in force holds or, of a change that is waited for, how far it came.
    InForce {
        /// Name.
        name: String,
        /// Change that is waited for.
        change: Option<ChangeId>,
    },
    /// The same of the name that is to take its place; what it holds once that change is in sync, too.
    Next {
        /// Name.
        name: String,
        /// Change that is waited for.
        change: Option<ChangeId>,
    },
    /// What both hold: one that is given back, and the one in force, without which it is not.
    Back {
        /// Name in force.
        in_force: String,
        /// Name that is given back.
        name: String,
    },
}

/// The name of a serving database that is to be dealt with; one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern<'a> {
    /// The one in force does not lead to the address for all that is known.
    InForce(&'a str),
    /// Another one that is to be given back.
    Back(&'a str),
    /// The one that is asked for, while another is in force.
    Next(&'a str),
    /// None: the one that is asked for is in force, and leads to the address.
    Nothing,
}

impl<'a> Concern<'a> {
    pub(super) fn of(resource: &'a QuestDB, validated: &'a Validated, address: &str) -> Self {
        let (in_force, wish) = (name_in_force(resource, validated), validated.hostname.as_str());
        let leads = |status: &&DnsStatus| {
            status.name == in_force
                && status.address.as_deref() == Some(address)
                && status.state == DnsState::InSync
        };
        let Some(status) = noted(resource).filter(leads) else { return Self::InForce(in_force) };
        let mut others = beside(status).filter(|other| *other != in_force);
        if let Some(other) = others.find(|other| *other != wish) {
            Self::Back(other)
        } else if in_force == wish {
            Self::Nothing
        } else {
            Self::Next(wish)
        }
    }
}

/// What has to be asked while a database should serve at `address`.
pub fn dns_question(
    resource: &QuestDB,
    validated: &Validated,
    (address, now): (Option<IpAddr>, Timestamp),
) -> DnsQuestion {
    let Some(address) = address.map(|address| address.to_string()) else { return DnsQuestion::Nothing };
    let status = noted(resource);
    match Concern::of(resource, validated, &address) {
        Concern::Nothing => DnsQuestion::Nothing,
        Concern::Back(name) if rename::leads_still(resource, name, now).is_some() => DnsQuestion::Nothing,
        Concern::Back(name) => {
            let in_force = name_in_force(resource, validated).to_owned();
            DnsQuestion::Back { in_force, name: name.to_owned() }
        }
        Concern::InForce(name) => {
            let same = |status: &&DnsStatus| {
                status.name == name
                    && status.address.as_ref() == Some(&address)
                    && status.state == DnsState::Pending
            };
            let change = status.filter(same).and_then(|status| status.change_id.as_ref());
            DnsQuestion::InForce { name: name.to_owned(), change: change.map(ChangeId::new) }
        }
        Concern::Next(name) => {
            let change = next_noted(resource, name, &address).and_then(|next| next.change_id.as_ref());
            DnsQuestion::Next { name: name.to_owned(), change: change.map(ChangeId::new) }
        }
    }
}

/// What status says of a name that is to take the place of the one in force, at this address.
pub(super) fn next_noted<'a>(resource: &'a QuestDB, name: &str, address: &str) -> Option<&'a NextNameStatus> {
    let next = noted(resource)?.next.as_ref();
    next.filter(|next| next.name == name && next.address == address)
}

/// The names that a database has beside the one in force.
fn beside(status: &DnsStatus) -> impl Iterator<Item = &str> {
    let next = status.next.as_ref().map(|next| next.name.as_str());
    let former = status.former.as_ref().map(|former| former.name.as_str());
    next.into_iter().chain(former)
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
    let status = noted(resource)?;
    match status.state {
        DnsState::InSync => Some(&status.name),
        DnsState::Pending | DnsState::Releasing | DnsState::Conflict => None,
    }
}

/// Whether the records of the name of a database at rest are what its status says of them.
pub fn are_as_noted(resource: &QuestDB, validated: &Validated, records: &[DnsRecord]) -> bool {
    let Some(status) = noted(resource) else { return true };
    let subject = &validated.subject;
    let address = status.address.as_ref().and_then(|address| address.parse().ok());
    let wanted = address.map(|address| DnsRecord::a(&status.name, TTL, address));
    let addresses = records.iter().filter(|record| !is_owner(record, subject));
    foreign(records, subject).is_none()
        && records.iter().any(|record| is_owner(record, subject))
        && addresses.eq(wanted.iter())
}

/// The names that a database gives back, each once: the one it was given last, those that it has beside it, and the one that
/// its wish asks for, which it may have been given without a report.
pub fn names_to_release<'a>(resource: &'a QuestDB, validated: &'a Validated) -> Vec<&'a str> {
    let of_status = |status: &'a DnsStatus| [status.name.as_str()].into_iter().chain(beside(status));
    let known = noted(resource).into_iter().flat_map(of_status);
    let mut names = Vec::new();
    for name in known.chain([validated.hostname.as_str()]) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What status says of the name.
pub(super) fn noted(resource: &QuestDB) -> Option<&DnsStatus> {
    resource.status.as_ref()?.dns.as_ref()
}

/// Names of which a picture of the zone says that they are this database's, by the text that says whose they are, and that a
/// database at rest does not have.
pub fn names_left<'a>(resource: &QuestDB, of_text: &'a [String]) -> Vec<&'a str> {
    let known = noted(resource).map(|status| status.name.as_str());
    of_text.iter().map(String::as_str).filter(|name| Some(*name) != known).collect()
}

/// Whether records of a name are, at least in part, this database's.
pub fn has_records(validated: &Validated, records: &[DnsRecord]) -> bool {
    !ours(records, &validated.subject).is_empty()
}

/// The name of a database that has another one than it asks for now.
pub(crate) fn other_name<'a>(world: &World<'a>) -> Option<&'a str> {
    name_given(world.resource).filter(|name| *name != world.validated.hostname)
}

/// The name that a database has been given.
fn name_given(resource: &QuestDB) -> Option<&str> {
    let status = noted(resource)?;
    match status.state {
        DnsState::InSync | DnsState::Pending | DnsState::Releasing => Some(&status.name),
        DnsState::Conflict => None,
    }
}

/// The name that leads to a database while it is to serve: the one that it has, whatever its wish says by now.
pub(crate) fn name_in_force<'a>(resource: &'a QuestDB, validated: &'a Validated) -> &'a str {
    name_given(resource).unwrap_or(&validated.hostname)
}

/// Whether the name in force is known to lead to a machine.
pub(super) fn leads_to(world: &World<'_>, instance: &Instance) -> bool {
    let address = instance.private_ip.map(|address| address.to_string());
    let in_force = name_in_force(world.resource, world.validated);
    noted(world.resource).is_some_and(|status| {
        status.name == in_force
            && address.is_some()
            && status.address == address
            && status.state == DnsState::InSync
    })
}

/// The name answers with the instance's address.
pub(super) fn resolve(world: &World<'_>, plan: &mut Plan, instance: Option<&Instance>) {
    let address = instance.and_then(|instance| instance.private_ip);
    let Some(IpAddr::V4(address)) = address else {
        plan.say(Part::Dns, State::Pending);
        return;
    };
    let concern = Concern::of(world.resource, world.validated, &address.to_string());
    let observed = &world.observed.dns;
    if let Concern::InForce(_) = concern {
        match (&observed.records, &observed.change) {
            (Some(records), _) => point(world, plan, (records, false), address),
            (None, Some(change)) if change.state == DnsChangeState::InSync => {
                plan.say(Part::Dns, State::Done);
            }
            (None, Some(_)) => plan.wait(Part::Dns, "waiting for the change to reach all name servers"),
            (None, None) => {
                let unknown = || State::Running("what the name holds is not known yet".to_owned());
                let why = observed.withheld.as_ref().map(|found| found.why.clone());
                plan.say(Part::Dns, why.map_or_else(unknown, State::Broken));
            }
        }
    } else if let (Concern::Nothing | Concern::Back(_), Some(records)) = (concern, &observed.records) {
        point(world, plan, (records, true), address);
    } else {
        plan.say(Part::Dns, State::Done);
    }
    rename::plan(world, plan, concern, address);
}

/// Records of ours that are to be removed, exactly as they are, whatever others put beside them. A pause keeps the text record
/// of the name that the database has; another one that is asked for takes its place once it serves again.
pub(super) fn releases(world: &World<'_>, records: &[DnsRecord]) -> Vec<RecordChange> {
    let subject = &world.validated.subject;
    let keeps = world.validated.goal == Goal::Pause;
    let has = name_had(world.resource, world.validated);
    let of_name = |name: &str| -> Vec<DnsRecord> {
        records.iter().filter(|record| record.name == name).cloned().collect()
    };
    let names: BTreeSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
    let removed = names.iter().flat_map(|name| {
        let kept = keeps && *name == has;
        let mut removed = withdrawn(&of_name(name), subject);
        removed.retain(|change| !(kept && change.record().kind == RecordKind::Txt));
        removed
    });
    let mut changes: Vec<RecordChange> = removed.collect();
    if keeps && of_name(has).is_empty() && noted_name(world.resource).is_some() {
        // Somebody took it away; nobody else has the name yet.
        changes.push(RecordChange::Create(DnsRecord::txt(has, TTL, &owner_text(subject))));
    }
    changes
}

/// What takes away all that is ours of one name.
pub(super) fn withdrawn(records: &[DnsRecord], subject: &Subject) -> Vec<RecordChange> {
    ours(records, subject).into_iter().cloned().map(RecordChange::Delete).collect()
}

/// The name that a database has or, before it ever had one, asks for.
pub(crate) fn name_had<'a>(resource: &'a QuestDB, validated: &'a Validated) -> &'a str {
    noted(resource).map_or(validated.hostname.as_str(), |status| status.name.as_str())
}

/// Whether the name of a database that stopped is still its own, as far as anybody looked.
pub(crate) fn is_reserved(resource: &QuestDB, validated: &Validated, records: Option<&[DnsRecord]>) -> bool {
    let name = name_had(resource, validated);
    let is_ours = |record: &DnsRecord| record.name == name && is_owner(record, &validated.subject);
    let owned = |records: &[DnsRecord]| records.iter().any(is_ours);
    validated.goal == Goal::Pause && records.map_or_else(|| noted(resource).is_some(), owned)
}

/// The records that are ours: none, where our text record is missing; else of the kinds that we write.
fn ours<'a>(records: &'a [DnsRecord], subject: &Subject) -> Vec<&'a DnsRecord> {
    let owned = records.iter().any(|record| is_owner(record, subject));
    let address = |record: &DnsRecord| record.kind == RecordKind::A && record.plain && owned;
    records.iter().filter(|record| address(record) || is_owner(record, subject)).collect()
}

/// The first record that is not.
pub(super) fn foreign<'a>(records: &'a [DnsRecord], subject: &Subject) -> Option<&'a DnsRecord> {
    let ours = ours(records, subject);
    records.iter().find(|record| !ours.contains(record))
}

/// The longest time between two looks at a name that somebody else has.
pub(super) const LOOKED_AGAIN: &str = "5 minutes";

/// Whether somebody else has a name with these records.
pub fn is_taken(records: &[DnsRecord], subject: &Subject) -> bool {
    foreign(records, subject).is_some()
}

/// Whether a record says that the name is ours.
fn is_owner(record: &DnsRecord, subject: &Subject) -> bool {
    record.kind == RecordKind::Txt && record.plain && record.texts() == [owner_text(subject)]
}

/// Makes the name in force lead to the address; `known` when it did, for all that status says.
fn point(world: &World<'_>, plan: &mut Plan, (records, known): (&[DnsRecord], bool), address: Ipv4Addr) {
    let name = name_in_force(world.resource, world.validated);
    let [text, wanted] = records_of(world, name, address);
    if known && records == std::slice::from_ref(&wanted) {
        // The address is ours and was in sync: only what said so is gone.
        let changes = vec![RecordChange::Create(text), RecordChange::Upsert(wanted)];
        let reason = "the record that says whose the name is was taken away";
        return lead(plan, (Part::Dns, known), changes, (name, address), reason);
    }
    if let Some(foreign) = foreign(records, &world.validated.subject) {
        let text = format!(
            "{name} has a {} record that is not ours: remove it or choose another name; it is looked at again within {LOOKED_AGAIN}",
            foreign.kind
        );
        plan.say(Part::Dns, State::Conflict(text));
        return;
    }
    if known && records.contains(&wanted) {
        return plan.say(Part::Dns, State::Done);
    }
    let reason = if records.is_empty() {
        "the name is free"
    } else if records.contains(&wanted) {
        // The report of the change was lost: say it again to get one whose way can be followed.
        "whether the name is in sync is not known"
    } else {
        "the name does not answer with the machine's address"
    };
    lead(plan, (Part::Dns, known), taking(records, [text, wanted]), (name, address), reason);
}

/// The two records of a name: whose it is, and where it leads.
pub(super) fn records_of(world: &World<'_>, name: &str, address: Ipv4Addr) -> [DnsRecord; 2] {
    let text = DnsRecord::txt(name, TTL, &owner_text(&world.validated.subject));
    [text, DnsRecord::a(name, TTL, address)]
}

/// What makes a name lead to an address that is free or ours.
pub(super) fn taking(records: &[DnsRecord], [text, wanted]: [DnsRecord; 2]) -> Vec<RecordChange> {
    if records.is_empty() {
        // `Create` and not `Upsert`: of two who take the name at once, one is refused.
        vec![RecordChange::Create(text), RecordChange::Create(wanted)]
    } else {
        vec![RecordChange::Upsert(wanted)]
    }
}

/// Makes a name lead to an address; `known` when it did, and only somebody else can have changed that.
pub(super) fn lead(
    plan: &mut Plan,
    (part, known): (Part, bool),
    changes: Vec<RecordChange>,
    (name, address): (&str, Ipv4Addr),
    reason: &str,
) {
    let led = Some(Led { name: name.to_owned(), address: address.to_string() });
    let step = Step::ChangeRecords { changes, led };
    plan.push(step, part, reason.to_owned(), known);
    plan.wait(part, "waiting for the change to reach all name servers");
}
