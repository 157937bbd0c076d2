//! What is said of a snapshot.

use cloud::key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::lost::COPY_LOST;
use super::{
    COPY_GONE, COPY_OF_BEFORE, Plan, Seen, begun, gone_text, identity, is_gone, owes, told_begun, whole,
};
use crate::report::conditions::{Word, no, put, yes};

/// The status of a snapshot after a pass; `failure` is what went wrong in it.
pub fn status(
    resource: &QuestDBSnapshot,
    seen: &Seen,
    plan: &Plan,
    failure: Option<&str>,
) -> QuestDBSnapshotStatus {
    let before = resource.status.clone().unwrap_or_default();
    let generation = resource.metadata.generation.unwrap_or_default();
    let message = match failure {
        Some(failure) => format!("{}; {failure}", plan.message),
        None => plan.message.clone(),
    };
    let ended = plan.phase.is_final().then(|| before.ended_at.clone().unwrap_or(Time(seen.now)));
    // What a copy was that is gone, or may be, stays told.
    let is_lost = plan.reason == COPY_LOST;
    let told = if is_lost || matches!(plan.phase, SnapshotPhase::Copying | SnapshotPhase::Succeeded) {
        before.clone()
    } else {
        QuestDBSnapshotStatus::default()
    };
    let mut status = QuestDBSnapshotStatus {
        phase: Some(plan.phase),
        observed_generation: Some(generation),
        identity: identity(resource).map(str::to_owned),
        database_id: seen.ground.disk().map(|disk| disk.database.clone()).or(before.database_id),
        ended_at: ended,
        conditions: before.conditions,
        ..told
    };
    if let Some(copy) = plan.copy.as_ref().filter(|_| !is_lost) {
        let tag = |key| copy.tags.get(key).map(str::to_owned);
        status.database_id = tag(key::DATABASE).or(status.database_id);
        status.snapshot_id = Some(copy.id.to_string());
        status.volume_id = Some(copy.volume.to_string());
        status.size_gib = Some(copy.size_gib);
        status.version = tag(key::QUESTDB);
        status.progress = copy.progress;
        status.started_at = begun(copy).map(Time);
    }
    let words: [(&str, Word); 3] = [
        (condition::READY, ready(plan, &message)),
        (condition::PROGRESSING, progressing(plan, failure, &message)),
        (condition::HELD, held(resource)),
    ];
    for (kind, word) in words {
        put(&mut status.conditions, kind, word, (generation, seen.now));
    }
    status
}

/// The status of a snapshot that had succeeded, once EC2 was asked whether its copy is still there.
pub fn looked_after(resource: &QuestDBSnapshot, is_there: bool, now: Timestamp) -> QuestDBSnapshotStatus {
    let mut status = resource.status.clone().unwrap_or_default();
    if is_there != is_gone(resource) {
        // It was told.
        return status;
    }
    let (reason, message) =
        if is_there { whole(resource, told_begun(resource)) } else { (COPY_GONE, gone_text(resource)) };
    let word = succeeded(reason, &message);
    let at = (resource.metadata.generation.unwrap_or_default(), now);
    put(&mut status.conditions, condition::READY, word, at);
    status
}

fn ready(plan: &Plan, message: &str) -> Word {
    let has_succeeded = plan.phase == SnapshotPhase::Succeeded;
    if has_succeeded { succeeded(plan.reason, message) } else { no(plan.reason, message) }
}

/// What `Ready` says of one that has succeeded: whether a copy of its own is there.
fn succeeded(reason: &str, message: &str) -> Word {
    let lacks_one = reason == COPY_GONE || reason == COPY_OF_BEFORE;
    if lacks_one { no(reason, message) } else { yes(reason, message) }
}

fn progressing(plan: &Plan, failure: Option<&str>, message: &str) -> Word {
    if plan.settled && failure.is_none() {
        return no(plan.reason, "nothing is left to be done");
    }
    yes(plan.reason, message)
}

fn held(resource: &QuestDBSnapshot) -> Word {
    if owes(resource) {
        yes("ReleaseOwed", "the database may be held still for this snapshot; its release is owed")
    } else {
        no("Free", "the database is not held for this snapshot")
    }
}
