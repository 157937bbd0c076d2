//! What is said of a snapshot.

use cloud::key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};

use super::{Plan, Seen, identity, owes};
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
    let mut status = QuestDBSnapshotStatus {
        phase: Some(plan.phase),
        observed_generation: Some(generation),
        identity: identity(resource).map(str::to_owned),
        database_id: seen.ground.disk().map(|disk| disk.database.clone()).or(before.database_id),
        ended_at: ended,
        conditions: before.conditions,
        ..QuestDBSnapshotStatus::default()
    };
    if let Some(copy) = &plan.copy {
        let tag = |key| copy.tags.get(key).map(str::to_owned);
        let started = copy.started_at.and_then(|at| Timestamp::try_from(at).ok());
        status.database_id = tag(key::DATABASE).or(status.database_id);
        status.snapshot_id = Some(copy.id.to_string());
        status.volume_id = Some(copy.volume.to_string());
        status.size_gib = Some(copy.size_gib);
        status.version = tag(key::QUESTDB);
        status.progress = copy.progress;
        status.started_at = started.map(Time);
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

fn ready(plan: &Plan, message: &str) -> Word {
    if plan.phase == SnapshotPhase::Succeeded { yes(plan.reason, message) } else { no(plan.reason, message) }
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
