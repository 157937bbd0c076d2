//! What is made of a step that failed: what is said of its part, and when the part is tried again. It tries nothing itself.

use plan::{Action, Failure, Part};

use super::{Pass, drift};
use crate::error::Error;

/// Whether a part that failed keeps a time of its own, because nobody needs it. The others are tried again together, and so is
/// what somebody else was quicker in.
pub(super) fn rests(part: Part, error: &Error) -> bool {
    match part {
        Part::Tuning => true,
        Part::Candidate => matches!(error, Error::Aws { .. }),
        _ => false,
    }
}

/// Tells it where people look, and what status is to say of it.
pub(super) async fn told(pass: &Pass<'_>, action: &Action, error: &Error) -> Failure {
    let name = action.step.name();
    let text = runtime::telemetry::chain(error);
    if error.is_conflict() {
        tracing::debug!(step.name = name, error = text, "somebody was quicker; the next look decides anew");
    } else if matches!(error, Error::Ending { .. }) {
        tracing::info!(step.name = name, error = text, "nothing is made any more");
    } else {
        tracing::warn!(step.name = name, step.part = %action.part, error = text, "could not do {name}");
        let [note, same] = [text, error.stable()].map(|text| format!("{}: {text}", action.part));
        pass.context.events.failed(pass.resource, name, &note, &same).await;
    }
    let subject = &pass.validated.subject;
    let outdated = drift::kind_written(&action.step).filter(|_| matches!(error, Error::Undeclared { .. }));
    let (message, lasting) = (error.stable(), error.is_lasting());
    let mut failure = Failure { part: action.part, message, lasting, outdated };
    if action.part == Part::LastCopy && matches!(error, Error::Ending { .. }) {
        // Nothing else that is made is waited for in a namespace that goes.
        failure.message = format!("{}: {}", failure.message, plan::without_last_copy(pass.resource, subject));
        failure.lasting = true;
    }
    if !rests(action.part, error) {
        return failure;
    }
    // Asking for a machine that cannot be had every few seconds makes nobody give one back.
    let rationed = error.is_rationed() || (action.part == Part::Candidate && !error.is_passing());
    pass.context.memories.hold(&subject.uid, pass.validated.generation, failure, rationed)
}
