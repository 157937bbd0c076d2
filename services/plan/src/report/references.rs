//! What is said of what the pod and the routes name.

use resources::QuestDBStatus;
use resources::names::condition;

use super::Outcome;
use super::conditions::{Word, is_known, no, yes};
use crate::Goal;
use crate::few::few;
use crate::references::{missing, missing_certificate, missing_to_pull, references};

/// Said where something is named, and where something was; once all of it is known.
pub(super) fn found(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Option<Word> {
    let (validated, observed) = (outcome.validated, outcome.observed);
    let said = is_known(status, condition::REFERENCES_FOUND);
    if validated.goal != Goal::Serve {
        let nobody_looks =
            ("Unknown", "NotRunning".to_owned(), "nothing runs that names anything".to_owned());
        return said.then_some(nobody_looks);
    }
    let named = references(validated);
    if named.iter().any(|what| !observed.references.contains_key(what)) {
        return None;
    }
    let mut told = Vec::new();
    let absent = missing(validated, observed);
    if !absent.is_empty() {
        told.push(format!(
            "{}. A pod does not start without it, so QuestDB is not restarted meanwhile",
            few(&absent, "; ")
        ));
    }
    let to_pull = missing_to_pull(validated, observed);
    if !to_pull.is_empty() {
        told.push(format!("{}. Images are pulled without it, where that can be", few(&to_pull, "; ")));
    }
    let certificate = missing_certificate(validated, observed);
    if !certificate.is_empty() {
        told.push(format!(
            "{}. Traefik answers with its default certificate without it",
            certificate.join("; ")
        ));
    }
    if told.is_empty() {
        return (said || !named.is_empty()).then(|| yes("Found", "everything that the spec names is there"));
    }
    Some(no("Missing", &format!("{}: make it, or take it out of the spec", told.join(". "))))
}
