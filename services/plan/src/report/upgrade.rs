//! What is said of an upgrade.

use resources::names::condition;
use resources::{QuestDBStatus, UpgradeResult};

use super::Outcome;
use super::conditions::{Word, is_known, no, yes};
use crate::upgrade::version_of;
use crate::{Goal, Part, State};

/// How far an upgrade came; nothing of a database that never had one.
pub(super) fn upgrading(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let known = is_known(status, condition::UPGRADE_IN_PROGRESS);
    if let Some(failure) = outcome.applied.failure(Part::Upgrade) {
        return Some(yes("Delayed", &failure.message));
    }
    match outcome.plan.state(Part::Upgrade) {
        Some(State::Running(text)) => Some(yes("Upgrading", text)),
        Some(State::Refused(text)) => Some(no("Refused", text)),
        Some(State::Broken(text)) => Some(no("Broken", text)),
        _ if outcome.validated.goal != Goal::Serve => known.then(|| at_rest(outcome)),
        _ => known.then(|| no("Done", "the version that is asked for runs")),
    }
}

/// The same of a database that is not to serve.
fn at_rest(outcome: &Outcome<'_>) -> Word {
    let open = outcome.plan.upgrade.as_ref().filter(|record| record.result == UpgradeResult::Running);
    match open {
        Some(record) => {
            let text = "had not served when the database was stopped: that is looked at when it starts again";
            no("Stopped", &format!("QuestDB {} {text}", version_of(&record.to)))
        }
        None => no("Stopped", "no version is started while the database is not to serve"),
    }
}
