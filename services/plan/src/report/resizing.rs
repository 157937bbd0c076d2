//! What status says of a change of the disk that is under way.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use resources::QuestDBStatus;
use resources::names::condition;

use super::Outcome;
use super::conditions::{Word, as_said, no, said, yes};
use crate::planner::{Work, living, progress, volume_change, work};
use crate::{Goal, Part, State, Step};

/// What is said of a disk that was changed.
const AS_ASKED: &str = "the disk is as asked for";
/// Reason of what is said of it while EC2 still moves what lies on it. Nothing waits for that but the next change.
const OPTIMIZING: &str = "Optimizing";
/// Reason of what is said of a change that was under way when the database was stopped: nobody asks EC2 meanwhile how far it is.
const STOPPED: &str = "Stopped";

pub(super) fn told(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let asked = outcome.plan.actions.iter().any(|action| matches!(action.step, Step::ModifyVolume { .. }));
    let known = said(status, condition::VOLUME_RESIZING);
    if let Some(failure) = outcome.applied.failure(Part::Tuning) {
        return Some(no(if failure.lasting { "Refused" } else { "Delayed" }, &failure.message));
    }
    let stops = outcome.validated.goal != Goal::Serve;
    match (outcome.plan.state(Part::Tuning), work(outcome.validated, outcome.observed)) {
        // What was told last is still asked about by it.
        (Some(State::Running(text)), Work::Untold) => {
            Some(as_said(status, condition::VOLUME_RESIZING).unwrap_or_else(|| no("Delayed", text)))
        }
        (Some(State::Running(text)), Work::Holding | Work::GivenUp) => Some(no("Delayed", text)),
        (Some(State::Running(text)), Work::Changing) => Some(yes("Modifying", text)),
        (Some(State::Running(text)), _) if asked => Some(yes("Modifying", text)),
        // What is waited for without a change of the disk is its file system.
        (Some(State::Running(text)), _) => Some(yes("Growing", text)),
        (None, _) if outcome.is_done(Part::VolumeRemoval) => {
            known.map(|_| no("Done", "the disk is destroyed"))
        }
        // Whoever is paused in the middle of it goes on later; how far EC2 came meanwhile, nobody asks.
        (None, _) if stops && known.is_some_and(is_optimizing) => Some(no("Done", AS_ASKED)),
        (None, _) if stops && known.is_some_and(is_under_way) => Some(no(STOPPED, left(outcome))),
        (None, _) | (_, Work::Untold) => as_said(status, condition::VOLUME_RESIZING),
        (_, Work::Optimizing) => {
            let progress = progress(&outcome.observed.account);
            let text = format!(
                "{AS_ASKED}; EC2 optimizes it{progress}: it may be slower meanwhile, and its next change waits for that"
            );
            Some(no(OPTIMIZING, &text))
        }
        _ => known.map(|_| no("Done", AS_ASKED)),
    }
}

/// What is seen of a change that was under way when the database was stopped. EC2 shows it before it is through with it.
fn left(outcome: &Outcome<'_>) -> &'static str {
    let mut disks = living(&outcome.observed.account.volumes);
    if disks.next().is_some_and(|disk| volume_change(outcome.validated, disk).is_empty()) {
        "the disk has what is asked for; whether all of it can be used is looked at only while the database is to run"
    } else {
        "how far EC2 came with the change of the disk is looked at only while the database is to run"
    }
}

/// Whether a change of the disk is told of that EC2 has not done with, or had not when it was looked at last.
pub(crate) fn is_change_told(status: Option<&QuestDBStatus>) -> bool {
    let told = status.and_then(|status| said(status, condition::VOLUME_RESIZING));
    told.is_some_and(|told| is_under_way(told) || is_optimizing(told))
}

fn is_under_way(told: &Condition) -> bool {
    told.status == "True" || told.reason == STOPPED
}

fn is_optimizing(told: &Condition) -> bool {
    told.reason == OPTIMIZING
}
