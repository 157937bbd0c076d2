//! What is said of Secrets and `ConfigMaps` that the pod names.

use resources::QuestDBStatus;
use resources::names::condition;

use super::Outcome;
use super::conditions::{Word, no, yes};
use crate::Goal;
use crate::few::few;
use crate::references::{missing, references};

/// Said where something is named, and where something was.
pub(super) fn found(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    if outcome.validated.goal != Goal::Serve {
        return None;
    }
    let missing = missing(outcome.validated, outcome.observed);
    if !missing.is_empty() {
        let text = few(&missing, "; ");
        let what_now = "A pod does not start without it, so QuestDB is not restarted meanwhile: make it, or take it out of the spec";
        return Some(no("Missing", &format!("{text}. {what_now}")));
    }
    let named = references(outcome.validated);
    let known = status.conditions.iter().any(|found| found.type_ == condition::REFERENCES_FOUND);
    let seen = named.iter().all(|what| outcome.observed.references.contains_key(what));
    (seen && (known || !named.is_empty())).then(|| yes("Found", "everything that the pod names is there"))
}
