//! The last copy of a disk: what has to be proved before a disk is destroyed that was to be copied first.
//!
//! *Invariant:* the proof is in EC2 alone. Uids, generations and whole objects of Kubernetes come back when its store is
//! restored; the number that the disk carries does not go back. It is raised before a machine may write, to a number that no
//! machine had before, and a last copy carries the number of the disk as it was when the copy was begun, with no machine left.
//! So a copy with the number that the disk has now holds everything that was ever written.
//!
//! *Invariant:* EC2 cannot compare and set, so a leader that wakes late may write an older number over the disk's. A number that
//! is lower than any that is known to have been given is no proof, whatever copy has it: Kubernetes can only speak against a copy.

use std::sync::Arc;
use std::time::SystemTime;

use cloud::{Instance, InstanceState, Owner, Role, SnapshotState, Volume, VolumeId, VolumeSnapshot, key};
use resources::names::snapshot::LAST_COPY;
use resources::{CopyPolicy, QuestDB, QuestDBSnapshot, RunState, SnapshotPhase, StepState, names};

use crate::planner::{generation_of, is_named};
use crate::{Children, Goal, Observed, Part, Subject, Validated};

pub use crate::planner::number_given;

/// Most orders for last copies of one database.
pub(crate) const ATTEMPTS: u32 = 100;

/// What EC2 says, asked at one time, of a disk that is to be destroyed once it was copied.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The database.
    pub subject: &'a Subject,
    /// Its disk.
    pub disk: &'a Volume,
    /// Every machine of the database that EC2 still shows.
    pub machines: &'a [Instance],
    /// The highest number that the resource, read at the same time, says was given ([`number_given`]).
    pub given: Option<u64>,
    /// What may be the last copy.
    pub copy: &'a VolumeSnapshot,
}

impl Evidence<'_> {
    /// Nothing when all that the disk holds is in the copy, which is complete and can be restored; else what speaks against it.
    pub fn judge(&self) -> Result<(), String> {
        let Self { subject, disk, machines, given, copy } = self;
        let id = &copy.id;
        let Some(number) = number(subject, disk) else {
            return Err(format!("{} does not say by its tags which machine it served last", disk.id));
        };
        let seen = machines.iter().filter_map(generation_of).max();
        if let Some(higher) = seen.max(*given).filter(|higher| *higher > number) {
            return Err(format!(
                "{} carries the number {number}, and {higher} was given out: the disk is numbered anew first",
                disk.id
            ));
        }
        let owner = Owner { generation: Some(number), ..subject.owner(Role::Snapshot) };
        if copy.volume != disk.id {
            return Err(format!("{id} is a copy of {} and not of {}", copy.volume, disk.id));
        }
        if Owner::parse(&copy.tags) != Ok(Some(owner)) || copy.tags.get(key::BASIS) != Some(&basis(number)) {
            return Err(format!("{id} is not tagged as the last copy of generation {number} of the disk"));
        }
        if copy.tags.get(key::CONSISTENT).is_none() {
            return Err(format!("{id} was begun, and never confirmed to be whole and at rest"));
        }
        if copy.state != SnapshotState::Completed {
            return Err(format!("EC2 calls {id} {}", copy.state));
        }
        if let Some(machine) = machines.iter().find(|machine| machine.state != InstanceState::Terminated) {
            return Err(format!("{} is {}", machine.id, machine.state));
        }
        if let Some(machine) = machines.iter().find(|machine| !is_later(copy.started_at, machine.launched_at))
        {
            return Err(format!("{id} was not begun after {} was launched", machine.id));
        }
        Ok(())
    }
}

/// Whether a copy was begun after a launch; one of which nobody knows when it was begun was not.
fn is_later(begun: Option<SystemTime>, launched: Option<SystemTime>) -> bool {
    begun.is_some_and(|begun| launched.is_none_or(|launched| launched < begun))
}

/// The number that a disk of this database carries.
pub(crate) fn number(subject: &Subject, disk: &Volume) -> Option<u64> {
    let owner = Owner::parse(&disk.tags).ok()??;
    let generation = owner.generation?;
    (Owner { generation: None, seq: None, ..owner } == subject.owner(Role::Volume)).then_some(generation)
}

/// What holds the database still while its last copy is begun, in the words of a tag. They begin as those of any stopped database
/// do, so that whoever makes a disk of the copy, an older operator too, knows that no checkpoint held it.
pub(crate) fn basis(number: u64) -> String {
    format!("stopped:last:{number}")
}

/// The number that a last copy is asked for of; `None` for any other snapshot.
pub(crate) fn number_of_order(snapshot: &QuestDBSnapshot) -> Option<u64> {
    snapshot.metadata.annotations.as_ref()?.get(LAST_COPY)?.parse().ok()
}

/// The names of all orders for last copies of a database, first to last.
pub(crate) fn attempts(subject: &Subject) -> impl Iterator<Item = String> + use<> {
    let stem = names::last_copy(&subject.name, subject.short());
    (1..=ATTEMPTS).map(move |attempt| if attempt == 1 { stem.clone() } else { format!("{stem}-{attempt}") })
}

/// Whether an order that is there now takes a copy away with it: one that is being deleted, and was to delete its copy.
pub fn takes_copy(order: &QuestDBSnapshot, copy: &VolumeSnapshot) -> bool {
    order.metadata.name.as_deref() == copy.tags.get(key::OBJECT)
        && order.metadata.deletion_timestamp.is_some()
        && order.spec.deletion_policy == CopyPolicy::Delete
}

/// Under which name the order of this name is found, if it may be one: that of the first of them all.
pub fn stem_of_order(name: &str) -> Option<&str> {
    Some(attempt(name).0).filter(|stem| stem.ends_with(names::LAST_COPY_END))
}

/// The name of the first attempt, and which one this is.
fn attempt(name: &str) -> (&str, u32) {
    let later = name.rsplit_once('-').and_then(|(stem, number)| {
        let number = number.parse().ok().filter(|_| !number.starts_with(['0', '+']))?;
        (2..=ATTEMPTS).contains(&number).then_some((stem, number))
    });
    later.unwrap_or((name, 1))
}

/// The latest order for a last copy; `find` knows every snapshot of the namespace that [`stem_of_order`] leads to. People may have
/// deleted any before it.
pub fn last_copy_to_look_at(
    subject: &Subject,
    find: impl Fn(&str) -> Vec<Arc<QuestDBSnapshot>>,
) -> Option<Arc<QuestDBSnapshot>> {
    let found = find(&names::last_copy(&subject.name, subject.short()));
    found.into_iter().max_by_key(|order| order.metadata.name.as_deref().map(|name| attempt(name).1))
}

/// The disk whose last copies are to be looked for, and the tag `questdb.io/basis` that they have: nobody asks before the last
/// machine has ended.
pub fn copies_to_look_at(validated: &Validated, observed: &Observed) -> Option<(VolumeId, String)> {
    let account = &observed.account;
    let ended = account.instances.iter().all(|instance| instance.state == InstanceState::Terminated);
    let disk = crate::planner::living(&account.volumes).next()?;
    let number = number(&validated.subject, disk)?;
    if observed.children.last_copy.as_deref().is_some_and(|order| is_under_way(order, number)) {
        return None;
    }
    (validated.keeps_copy() && ended && account.conclusive).then(|| (disk.id.clone(), basis(number)))
}

/// Whether an order for a copy of a disk with this number is being carried out: whoever does that asks EC2 how far it came.
fn is_under_way(order: &QuestDBSnapshot, number: u64) -> bool {
    let phase = order.status.as_ref().and_then(|status| status.phase).unwrap_or(SnapshotPhase::Pending);
    let ended = matches!(phase, SnapshotPhase::Succeeded | SnapshotPhase::Failed);
    !ended && order.metadata.deletion_timestamp.is_none() && number_of_order(order) == Some(number)
}

/// Whether the last report says that this very wish has given the name back, and nobody takes it again meanwhile: while the last copy is
/// made, which takes long, and while a database serves without a name.
pub fn is_name_known_released(resource: &QuestDB, validated: &Validated, children: &Children) -> bool {
    let Some(status) = &resource.status else { return false };
    let step = |part: Part| status.steps.iter().find(|step| step.name == part.as_str());
    let released = step(Part::DnsRelease).is_some_and(|step| step.state == StepState::Succeeded);
    let copying = step(Part::LastCopy).is_some_and(|step| match step.state {
        StepState::Running | StepState::Failed => true,
        StepState::Pending | StepState::Succeeded => false,
    });
    let lasts = match validated.goal {
        Goal::Purge => copying,
        Goal::Serve => !is_named(validated, children),
        Goal::Pause | Goal::Retire => false,
    };
    lasts && released && status.dns.is_none() && crate::is_judged(resource)
}

/// The way out where the namespace of a database is being deleted, and takes no order for the last copy of its disk any more.
pub fn without_last_copy(resource: &QuestDB, subject: &Subject) -> String {
    let Subject { namespace, name, .. } = subject;
    let stays = "the disk cannot be copied any more and stays, and so do resource and namespace";
    let by_hand = "copy the volume in EC2 by hand";
    if resource.spec.instruction.is_some() {
        return format!("{stays}; {by_hand} if what it holds is needed, and destroy it there");
    }
    let set = |policy: &str| {
        let patch = format!("{{\"spec\":{{\"storage\":{{\"deletionPolicy\":\"{policy}\"}}}}}}");
        format!("kubectl --namespace {namespace} patch qdb {name} --type merge --patch '{patch}'")
    };
    let keep = if resource.spec.run_state == RunState::Purged {
        format!("if what it holds is needed, {by_hand} first")
    } else {
        format!("to keep the disk: {}", set("Retain"))
    };
    format!("{stays}; {keep}; to have it destroyed without a copy: {}", set("Delete"))
}

#[cfg(test)]
pub(crate) mod tests;
