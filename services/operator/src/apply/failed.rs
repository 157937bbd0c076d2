//! What is made of a step that failed: what is said of its part, and when the part is tried again. It tries nothing itself.

use plan::{Action, Failure, Part, Step, Target};

use super::contention::firewall;
use super::{Pass, drift};
use crate::error::Error;

/// Whether a part that failed keeps a time of its own, because nobody needs it. The others are tried again together, and so is
/// what somebody else was quicker in.
pub(super) fn rests(part: Part, error: &Error) -> bool {
    match part {
        Part::Tuning => true,
        Part::Candidate => matches!(error, Error::Aws { .. }),
        // Before AWS has answered it is tried again with all else: others wait for rules until then.
        Part::Rules | Part::FurtherRules | Part::MachineGroups | Part::MachineMetadata => is_refusal(error),
        Part::Keys => matches!(error, Error::Kubernetes { .. } | Error::Foreign { .. }) && error.is_lasting(),
        _ => false,
    }
}

/// Whether AWS answered that it does not do it, and will answer so until somebody does something about it.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Aws { .. }) && error.is_lasting()
}

/// Tells it where people look, and what status is to say of it.
pub(super) async fn told(pass: &Pass<'_>, action: &Action, error: &Error) -> Failure {
    let (name, subject) = (action.step.name(), &pass.validated.subject);
    let text = runtime::telemetry::chain(error);
    let goes_on = || pass.context.memories.overtaken(&subject.uid, action.part, object(&action.step));
    let overtaken = error.is_conflict() && !goes_on();
    if overtaken {
        tracing::debug!(step.name = name, error = text, "somebody was quicker; the next look decides anew");
    } else if error.is_conflict() {
        tracing::warn!(step.name = name, error = text, "somebody is quicker again and again");
    } else if matches!(error, Error::Ending { .. }) {
        tracing::info!(step.name = name, error = text, "nothing is made any more");
    } else {
        tracing::warn!(step.name = name, step.part = %action.part, error = text, "could not do {name}");
        let [note, same] = [text, error.stable()].map(|text| format!("{}: {text}", action.part));
        pass.context.events.failed(pass.resource, name, &note, &same).await;
    }
    let outdated = drift::kind_written(&action.step).filter(|_| matches!(error, Error::Undeclared { .. }));
    let message = if overtaken { meanwhile(&action.step, error) } else { error.stable() };
    let mut failure =
        Failure { part: action.part, message, lasting: error.is_lasting(), outdated, overtaken };
    if let Step::AuthorizeIngress { group, rules } = &action.step
        && is_refusal(error)
    {
        failure.message = format!("{}; {}", failure.message, firewall::refused(group, rules));
    }
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

/// What is said where somebody was only quicker. Who looked once more before the step says what has changed.
fn meanwhile(step: &Step, error: &Error) -> String {
    if error.is_overtaken() {
        format!("{} changed meanwhile and is looked at again", object(step))
    } else {
        error.stable()
    }
}

/// What a step writes.
fn object(step: &Step) -> String {
    match step {
        Step::Apply(manifest)
        | Step::CreateSecret(manifest)
        | Step::KeepSecret(manifest)
        | Step::DrawKey(manifest, _)
        | Step::RevokeKey(manifest) => format!("{} {}", manifest.kind.as_str(), manifest.name),
        Step::Delete(Target { kind, name, .. }) => format!("{} {name}", kind.as_str()),
        Step::SetCredentials(new) => format!("Secret {}", new.over.name),
        Step::LabelNode { name, .. } => format!("Node {name}"),
        step if step.writes_resource() => "the resource".to_owned(),
        step => step.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use plan::{Kind, Manifest};
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_aws_refuses_rest_and_what_it_has_not_answered_is_tried_again_with_all_else() {
        let call = || Box::new(cloud::Call::new("AuthorizeSecurityGroupIngress", "no").with_code("Code"));
        let aws = |error: cloud::Error| Error::Aws { call: "let somebody in", source: Box::new(error) };
        for (error, is_refused) in [
            (aws(cloud::Error::Quota { call: call() }), true),
            (aws(cloud::Error::Invalid { call: call() }), true),
            (aws(cloud::Error::Unrecognised { call: call() }), true),
            (aws(cloud::Error::Throttled { retry_after: None, call: call() }), false),
            (aws(cloud::Error::Timeout { call: call() }), false),
            (aws(cloud::Error::Unavailable { call: call() }), false),
            // Who is fought with has a time of his own.
            (Error::Contended { what: "a rule".to_owned() }, false),
        ] {
            for part in [Part::Rules, Part::FurtherRules, Part::MachineGroups, Part::MachineMetadata] {
                assert_eq!(rests(part, &error), is_refused, "{part} {error}");
            }
            assert!(!rests(Part::SecurityGroup, &error), "{error}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_handed_out_rests_and_one_that_may_be_in_a_moment_does_not() {
        for (code, is_refused) in [(403, true), (422, true), (409, false), (500, false)] {
            let words = "secrets \"trades.ilp.k1\" is forbidden: exceeded quota: small";
            let status = kube::core::Status::failure(words, "Forbidden").with_code(code).boxed();
            let error = Error::kubernetes("hand out a key")(kube::Error::Api(status));
            assert_eq!(rests(Part::Keys, &error), is_refused, "{code}");
            assert!(!rests(Part::Credentials, &error), "{code}");
        }
    }

    #[test]
    fn who_was_quicker_is_told_by_what_has_changed() {
        let refused = || {
            let words = "Operation cannot be fulfilled on statefulsets.apps \"trades\"";
            let status = kube::core::Status::failure(words, "Conflict").with_code(409).boxed();
            Error::kubernetes("apply an object")(kube::Error::Api(status))
        };
        let target = Target {
            kind: Kind::Pod,
            namespace: None,
            name: "trades-0".to_owned(),
            uid: "u".to_owned(),
            resource_version: Some("7".to_owned()),
            at_once: false,
            pod: None,
        };
        let manifest = Manifest {
            kind: Kind::StatefulSet,
            namespace: None,
            name: "trades".to_owned(),
            body: json!({}),
            uid: None,
        };
        let released = Step::WriteReleased { released: "1".to_owned(), unjoined: None };
        for (step, object) in [
            (Step::Apply(manifest), "StatefulSet trades"),
            (Step::Delete(target), "Pod trades-0"),
            (released, "the resource"),
        ] {
            let expected = format!("{object} changed meanwhile and is looked at again");
            assert_eq!(meanwhile(&step, &refused()), expected);
        }
        let what = "the resource changed before QuestDB was stopped";
        let stale = Error::Stale { what: what.to_owned() };
        assert_eq!(meanwhile(&Step::RemoveFinalizer, &stale), what);
    }
}
