//! What is said of a database that goes to another machine, of machines beside its own, and of what else needs attention while it serves.

use jiff::Timestamp;
use resources::QuestDBStatus;
use resources::names::condition;
use resources::names::reason::{NODE_CLOSED, NOT_JOINED, NOT_READY};

use super::Outcome;
use super::conditions::{Word, is_known, no, yes};
use crate::few::few;
use crate::{Goal, Part, Plan, State, tables};

/// Reason of condition `Degraded` while QuestDB has suspended tables.
pub(crate) const TABLES_SUSPENDED: &str = "TablesSuspended";

/// Whether what is said now has been so since before, where its status has: what becomes of a machine whose Node is closed hangs on
/// since when that is told, whatever else was wrong before; and since when nothing but tables needs anybody is for people to read.
pub(super) fn goes_on(before: &str, now: &str) -> bool {
    [NODE_CLOSED, TABLES_SUSPENDED].iter().all(|reason| (before == *reason) == (now == *reason))
}

/// Why a part waits for longer than it should for what a machine has to become.
fn overdue(outcome: &Outcome<'_>, part: Part) -> Option<&'static str> {
    if outcome.plan.unjoined == Some(part) {
        Some(NOT_JOINED)
    } else if outcome.plan.unready.contains(&part) {
        Some(NOT_READY)
    } else if outcome.plan.closed == Some(part) {
        Some(NODE_CLOSED)
    } else {
        None
    }
}

/// What is said of a Node that a machine does not become in its time, or that is not ready in its.
pub(super) fn late(outcome: &Outcome<'_>, part: Part) -> Option<Word> {
    let reason = overdue(outcome, part)?;
    match outcome.plan.state(part) {
        Some(State::Running(text) | State::Broken(text)) => Some(no(reason, text)),
        _ => None,
    }
}

/// How far a move came; nothing of a database that never had one.
pub(super) fn moving(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let known = is_known(status, condition::MOVING);
    let rests = || known.then(|| no("Done", "the database is on the machine that it is to be on"));
    if outcome.validated.goal != Goal::Serve {
        return rests();
    }
    let overdue = overdue(outcome, Part::Candidate);
    if let Some(failure) = outcome.applied.failure(Part::Candidate) {
        // Of one whose Node was drained nothing may be left that serves.
        let serves = outcome.serves() || outcome.plan.serves_on.is_some();
        let beside = if serves { "; the database serves on where it is" } else { "" };
        let text = format!("{}{beside}", failure.message);
        let usual = if failure.lasting { "Refused" } else { "Delayed" };
        // One whose machine could not be given up is closed still, and since then.
        let closed = overdue.filter(|reason| *reason == NODE_CLOSED);
        return Some(no(closed.unwrap_or(usual), &text));
    }
    let reason = |usual| overdue.unwrap_or(usual);
    match (outcome.plan.state(Part::Candidate), outcome.plan.state(Part::Former)) {
        // Since when it is so is since when that is told: what becomes of the machine hangs on it.
        (Some(State::Running(text)), _) if overdue == Some(NODE_CLOSED) => Some(no(NODE_CLOSED, text)),
        (Some(State::Running(text)), _) => Some(yes(reason("Preparing"), text)),
        (Some(State::Broken(text)), _) => Some(no(reason("Broken"), text)),
        (Some(_), _) => Some(yes("Going", "the next machine is ready: QuestDB and its disk go there")),
        (None, Some(State::Running(text))) if known => Some(yes("Leaving", text)),
        (None, _) => rests(),
    }
}

/// Whether anything needs attention where the database does not lack anything; `status` is the one of before.
pub(super) fn beside(status: &QuestDBStatus, outcome: &Outcome<'_>, now: Timestamp) -> Word {
    let Plan { locked_out, strangers, problems, .. } = outcome.plan;
    let with_tables = |reason, text: &str| {
        let tables = tables::told_beside(status, outcome, now).unwrap_or_default();
        yes(reason, &format!("{text}{tables}"))
    };
    if let Some(text) = locked_out {
        return with_tables("CredentialsNotInForce", text);
    }
    if !strangers.is_empty() {
        return with_tables("StrangeMachine", &few(strangers, "; "));
    }
    if let Some(text) = problems {
        return with_tables("CredentialsRefused", text);
    }
    match tables::told(status, outcome, now) {
        Some(text) => yes(TABLES_SUSPENDED, &text),
        None => no("AsExpected", "nothing needs anybody's attention"),
    }
}
