//! Conditions about the end of a database: its last copy, and the protection that keeps it from ending.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{DeletionPolicy, LastCopyStatus, QuestDB, QuestDBSnapshot, QuestDBStatus, SnapshotPhase};

use super::Outcome;
use super::conditions::{Word, is_known, no, put, yes};
use crate::last_copy::{attempts, number_of_order};
use crate::{Goal, Part, Plan, State};

/// Reason for which no copy of before counts.
const OUTDATED: &str = "Outdated";
/// The same while the disk is not to be copied and destroyed.
const TAKEN_BACK: &str = "TakenBack";
const NOT_WANTED: &str = "NotWanted";

/// Whether the last report says that the disk may have been written to by anybody since it was copied, if it was.
pub(crate) fn are_copies_outdated(status: Option<&QuestDBStatus>) -> bool {
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.type_ == condition::LAST_COPY);
    found.any(|found| [OUTDATED, TAKEN_BACK, NOT_WANTED].contains(&found.reason.as_str()))
}

/// While nothing is done nobody sees who has the disk, and nothing can be written to it that says so: this is remembered.
pub(super) fn suspend(status: &mut QuestDBStatus, resource: &QuestDB, plan: Option<&Plan>, now: Timestamp) {
    let keeps_copy = Goal::of(resource) == Goal::Purge
        && resource.spec.storage.deletion_policy == DeletionPolicy::Snapshot;
    let gone = plan.is_some_and(|plan| plan.state(Part::VolumeRemoval) == Some(&State::Done));
    if keeps_copy && !gone {
        let at = (resource.metadata.generation.unwrap_or_default(), now);
        put(&mut status.conditions, condition::LAST_COPY, no(OUTDATED, OUTDATED_TEXT), at);
    }
}

const OUTDATED_TEXT: &str = "nobody saw whether the disk was written to meanwhile: what was copied before does not count, and the \
    disk is copied again before it is destroyed";

/// How far the last copy is, and which it is; nothing of a database of which none was ever asked for.
pub(super) fn copied(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if !outcome.validated.keeps_copy() {
        return not_wanted(status, outcome);
    }
    if let Some(copy) = &outcome.plan.last_copy {
        return Some(yes("Kept", &kept(copy)));
    }
    let failure = outcome.applied.failure(Part::LastCopy);
    if outcome.plan.copies_outdated {
        return Some(no(OUTDATED, failure.map_or(OUTDATED_TEXT, |failure| &failure.message)));
    }
    if let Some(failure) = failure {
        return Some(no("Failed", &failure.message));
    }
    if let Some(copy) = &outcome.plan.copy_reported {
        return Some(no("Reported", &reported(copy)));
    }
    Some(match outcome.plan.state(Part::LastCopy) {
        Some(State::Done) => no("NoDisk", "there was no disk that could be copied"),
        Some(State::Running(text)) => no("Copying", text),
        Some(State::Broken(text) | State::Conflict(text) | State::Refused(text)) => no("Failed", text),
        Some(State::Pending) | None => no("Waiting", "the disk is copied once nothing writes to it any more"),
    })
}

fn reported(copy: &LastCopyStatus) -> String {
    let LastCopyStatus { snapshot: _, snapshot_id, volume_id, started_at } = copy;
    format!(
        "{snapshot_id} holds {volume_id}{}; the disk was gone before that was found to be its last copy: whether more was written \
         after it nobody knows",
        as_it_was(started_at.as_ref())
    )
}

fn as_it_was(at: Option<&Time>) -> String {
    at.map_or_else(String::new, |at| format!(" as it was at {}", at.0))
}

fn kept(copy: &LastCopyStatus) -> String {
    let LastCopyStatus { snapshot, snapshot_id, volume_id, started_at } = copy;
    let at = as_it_was(started_at.as_ref());
    let way_back = match snapshot {
        Some(name) => format!("spec.storage.source.snapshot: {name}"),
        None => format!("spec.storage.source.snapshotId: {snapshot_id}"),
    };
    format!(
        "{snapshot_id} holds {volume_id}{at}, and stays when the disk is destroyed; a new database in this namespace is made of \
         it by {way_back}"
    )
}

/// An order that was begun when the wish turned round is nobody's last copy any more, and is told of while it is there.
fn not_wanted(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let order = outcome.observed.children.last_copy.as_deref();
    let left = order.filter(|order| {
        order.spec.database == outcome.validated.subject.name && number_of_order(order).is_some()
    });
    if let Some(order) = left {
        let first = attempts(&outcome.validated.subject).next();
        let is_first = order.metadata.name == first;
        return Some(no(TAKEN_BACK, &of_before(order, is_first)));
    }
    let known = is_known(status, condition::LAST_COPY);
    known.then(|| no(NOT_WANTED, "the disk is not to be copied and destroyed"))
}

fn of_before(order: &QuestDBSnapshot, is_first: bool) -> String {
    let name = order.metadata.name.as_deref().unwrap_or_default();
    let is = match order.status.as_ref().and_then(|status| status.phase) {
        Some(SnapshotPhase::Failed) => "failed",
        Some(SnapshotPhase::Succeeded | SnapshotPhase::Copying | SnapshotPhase::Releasing) => {
            "is a copy like any other"
        }
        Some(SnapshotPhase::Pending | SnapshotPhase::Checkpointing) | None => {
            "is given up unless it has begun"
        }
    };
    format!(
        "QuestDBSnapshot {name} was asked for when the disk was to be destroyed, which is not so any more: it {is}; delete it{} \
         when nobody needs it",
        if is_first { "" } else { ", and those of that name with lower numbers," }
    )
}

/// The resource is to be deleted, and its protection holds it.
pub(super) fn held_back(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if outcome.validated.held_back {
        return Some(yes(
            "Protected",
            "deletion is asked for, and the protection of the database holds it: the database goes on as it is; to let the \
             deletion happen, set spec.deletionProtection to false",
        ));
    }
    let known = is_known(status, condition::DELETION_HELD);
    known.then(|| no("NotHeld", "nothing holds a deletion of the resource"))
}
