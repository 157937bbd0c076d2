//! Conditions about the end of a database: its last copy, and the protection that keeps it from ending.

use resources::names::condition;
use resources::{LastCopyStatus, QuestDBSnapshot, QuestDBStatus, SnapshotPhase};

use super::Outcome;
use super::conditions::{Word, no, yes};
use crate::last_copy::{attempts, number_of_order};
use crate::{Part, State};

/// How far the last copy is, and which it is; nothing of a database of which none was ever asked for.
pub(super) fn copied(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if !outcome.validated.keeps_copy() {
        return not_wanted(status, outcome);
    }
    if let Some(copy) = &outcome.plan.last_copy {
        return Some(yes("Kept", &kept(copy)));
    }
    if let Some(failure) = outcome.applied.failure(Part::LastCopy) {
        return Some(no("Failed", &failure.message));
    }
    Some(match outcome.plan.state(Part::LastCopy) {
        Some(State::Done) => no("NoDisk", "there was no disk that could be copied"),
        Some(State::Running(text)) => no("Copying", text),
        Some(State::Broken(text) | State::Conflict(text) | State::Refused(text)) => no("Failed", text),
        Some(State::Pending) | None => no("Waiting", "the disk is copied once nothing writes to it any more"),
    })
}

fn kept(copy: &LastCopyStatus) -> String {
    let LastCopyStatus { snapshot, snapshot_id, volume_id, started_at } = copy;
    let at = started_at.as_ref().map_or_else(String::new, |at| format!(" as it was at {}", at.0));
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
        return Some(no("TakenBack", &of_before(order, is_first)));
    }
    let known = status.conditions.iter().any(|found| found.type_ == condition::LAST_COPY);
    known.then(|| no("NotWanted", "the disk is not to be copied and destroyed"))
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
    let known = status.conditions.iter().any(|found| found.type_ == condition::DELETION_HELD);
    known.then(|| no("NotHeld", "nothing holds a deletion of the resource"))
}
