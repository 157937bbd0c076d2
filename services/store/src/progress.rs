//! How far an operation came, judged from what its cluster says. Pure: the rows are read and written elsewhere.

use domain::operation::{Failure, Progress, StepState, judge};
use domain::{OperationState, Position};

use crate::events::EventKind;
use crate::observations::{Observation, Step};
use crate::operations::OperationRecord;
use crate::sink::{Outcome, OutcomeKind};

/// The step before the operator's own: the custom resource holds the desired state.
pub(crate) const APPLY: &str = "apply";

/// What is known of a database when its operations are judged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts<'a> {
    /// The position that the custom resource holds, as believed.
    pub(crate) held: Option<Position>,
    /// The position that was carried out in full, as believed.
    pub(crate) carried_out: Option<Position>,
    /// What was just seen, where it was news.
    pub(crate) seen: Option<&'a Observation>,
    /// What was just said of instructions, in order.
    pub(crate) outcomes: &'a [Outcome],
    /// The newest position that was minted.
    pub(crate) minted: Option<Position>,
}

/// What is to be written of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) state: OperationState,
    pub(crate) failure: Option<Failure>,
    pub(crate) steps: Vec<Step>,
    pub(crate) events: Vec<(OperationState, EventKind)>,
    /// The position that took its place.
    pub(crate) superseded_by: Option<Position>,
}

/// What moved in an operation; `None` where nothing did.
pub(crate) fn progress(record: &OperationRecord, facts: Facts<'_>) -> Option<Moved> {
    let operation = &record.operation;
    if operation.state.is_terminal() {
        return None;
    }
    let said: Vec<Outcome> =
        facts.outcomes.iter().filter(|outcome| counts(record, facts, outcome)).cloned().collect();
    let facts = Facts { outcomes: &said, ..facts };
    let said_applied = said.iter().filter(|outcome| outcome.kind == OutcomeKind::Applied);
    let applied = said_applied.map(|outcome| outcome.position).chain(facts.held).max();
    let judged =
        judge(operation.state, operation.position, Progress { carried_out: facts.carried_out, applied })
            .or_else(|| passed_over(record, facts));
    // A copy that comes again may be refused although the first was taken: that says nothing of what is carried out.
    let refused = said
        .iter()
        .rfind(|outcome| outcome.kind == OutcomeKind::Refused && outcome.position == operation.position)
        .filter(|_| judged.is_none() && !is_taken(record, applied));
    let failure =
        refused.map(|outcome| Failure { code: outcome.code.clone(), message: outcome.message.clone() });
    let state = if failure.is_some() { OperationState::Failed } else { judged.unwrap_or(operation.state) };
    let steps = steps(record, facts, applied);
    let events = events(record, state, failure.as_ref(), &steps);
    let moved = !events.is_empty() || steps != record.steps;
    let superseded_by = (state == OperationState::Superseded)
        .then(|| applied.max(facts.carried_out).filter(|newer| *newer > operation.position).or(facts.minted))
        .flatten();
    moved.then_some(Moved { state, failure, steps, events, superseded_by })
}

/// Whether an outcome is of what was minted, by these rows. After rows were lost it may be said again of an instruction that was
/// lost with them: one of another operation at this operation's position, or one later than any there is.
fn counts(record: &OperationRecord, facts: Facts<'_>, outcome: &Outcome) -> bool {
    let operation = &record.operation;
    let of_another = outcome.position == operation.position && outcome.operation != operation.id;
    !of_another && facts.minted.is_none_or(|minted| outcome.position <= minted)
}

/// Whether the cluster has taken the operation's state, or a later one, by all that is known.
fn is_taken(record: &OperationRecord, applied: Option<Position>) -> bool {
    let operation = &record.operation;
    operation.state != OperationState::Pending || applied.is_some_and(|applied| applied >= operation.position)
}

/// The cluster held something newer when the instruction came, even if it was not seen yet what.
fn passed_over(record: &OperationRecord, facts: Facts<'_>) -> Option<OperationState> {
    let position = record.operation.position;
    let said = facts
        .outcomes
        .iter()
        .any(|outcome| outcome.kind == OutcomeKind::Superseded && outcome.position == position);
    // Where nothing newer was minted, the cluster is ahead of these rows: nothing of ours took its place.
    (said && facts.minted > Some(position)).then_some(OperationState::Superseded)
}

/// A step that moved is told before an end and after a beginning, so that the last event of a stream is the end.
fn events(
    record: &OperationRecord,
    state: OperationState,
    failure: Option<&Failure>,
    steps: &[Step],
) -> Vec<(OperationState, EventKind)> {
    let before = record.operation.state;
    let turned = (state != before).then(|| (state, EventKind::State(failure.cloned())));
    let during = if state.is_terminal() { before } else { state };
    let moved = steps
        .iter()
        .filter(|step| !record.steps.contains(step))
        .map(|step| (during, EventKind::Step((*step).clone())));
    if state.is_terminal() {
        moved.chain(turned).collect()
    } else {
        turned.into_iter().chain(moved).collect()
    }
}

fn steps(record: &OperationRecord, facts: Facts<'_>, applied: Option<Position>) -> Vec<Step> {
    let position = record.operation.position;
    let (mut apply, mut rest): (Vec<Step>, Vec<Step>) =
        record.steps.iter().cloned().partition(|step| step.name == APPLY);
    let about_us = facts.outcomes.iter().filter(|outcome| outcome.position == position);
    // What was taken is neither refused nor waits, whatever is said of a copy of it.
    let taken = is_taken(record, applied);
    for outcome in about_us.filter(|outcome| !taken || outcome.kind == OutcomeKind::Applied) {
        apply = apply_step(record, outcome).into_iter().chain(apply).take(1).collect();
    }
    let done = apply.first().is_some_and(|step| step.state == StepState::Succeeded);
    if applied.is_some_and(|applied| applied >= position) && !done {
        let at = facts.seen.map(|seen| seen.said_at);
        apply = vec![Step {
            name: APPLY.to_owned(),
            state: StepState::Succeeded,
            message: String::new(),
            started_at: Some(record.created_at),
            ended_at: at,
        }];
    }
    if let Some(seen) = facts.seen.filter(|seen| seen.position == position) {
        rest.clone_from(&seen.steps);
        rest.retain(|step| step.name != APPLY);
    }
    apply.into_iter().chain(rest).collect()
}

/// The first step as an outcome tells it; a superseded instruction tells nothing of it.
fn apply_step(record: &OperationRecord, outcome: &Outcome) -> Option<Step> {
    let (state, ended_at) = match outcome.kind {
        OutcomeKind::Applied => (StepState::Succeeded, Some(outcome.said_at)),
        OutcomeKind::Refused => (StepState::Failed, Some(outcome.said_at)),
        OutcomeKind::Parked => (StepState::Pending, None),
        OutcomeKind::Superseded => return None,
    };
    let message = match (outcome.kind, outcome.code.as_str()) {
        (OutcomeKind::Applied, _) => String::new(),
        (_, "") => outcome.message.clone(),
        (_, code) => format!("{code}: {}", outcome.message),
    };
    Some(Step { name: APPLY.to_owned(), state, message, started_at: Some(record.created_at), ended_at })
}

#[cfg(test)]
mod tests;
