//! What is said of an upgrade.

use resources::QuestDBStatus;
use resources::names::condition;

use super::Outcome;
use super::conditions::{Word, no, yes};
use crate::{Part, State};

/// How far an upgrade came; nothing of a database that never had one.
pub(super) fn upgrading(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let known = status.conditions.iter().any(|found| found.type_ == condition::UPGRADE_IN_PROGRESS);
    if let Some(failure) = outcome.applied.failure(Part::Upgrade) {
        return Some(yes("Delayed", &failure.message));
    }
    match outcome.plan.state(Part::Upgrade) {
        Some(State::Running(text)) => Some(yes("Upgrading", text)),
        Some(State::Refused(text)) => Some(no("Refused", text)),
        Some(State::Broken(text)) => Some(no("Broken", text)),
        _ => known.then(|| no("Done", "the version that is asked for runs")),
    }
}
