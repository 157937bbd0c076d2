//! Which objects a step writes, and what it puts right after somebody else: what is counted as drift. It does nothing itself.

use plan::{Action, Kind, Manifest, Part, Step};

/// How a machine is counted that is put back as it was launched.
const MACHINE: &str = "Instance";

/// The kind of object whose fields a step writes.
pub(super) const fn kind_written(step: &Step) -> Option<Kind> {
    match step {
        Step::Apply(Manifest { kind, .. }) => Some(*kind),
        Step::CreateSecret(_) | Step::SetCredentials(_) => Some(Kind::Secret),
        _ => None,
    }
}

/// The kind of what an action puts right where its database is at rest: somebody changed it, took it away, or took off the
/// label by which it is found. Whether it has `lost` anything is asked of what was seen: what was never there nobody took away, and
/// another operator makes objects that the one before did not. What a cluster may lack is made whenever the cluster has it, without
/// anybody's hand, and copies are made of a database that serves; nor has anybody done anything to the next machine, which joins.
pub(super) fn put_right(action: &Action, lost: bool) -> Option<&'static str> {
    if matches!(action.step, Step::LabelNode { .. }) {
        return (action.part == Part::Node).then_some(Kind::Node.as_str());
    }
    if matches!(action.step, Step::SetMachineGroups { .. } | Step::GuardMetadata { .. }) {
        return action.puts_right.then_some(MACHINE);
    }
    let kind = kind_written(&action.step)?;
    let stays = kind.definition().is_none() && kind != Kind::Snapshot;
    let comes_back = match &action.step {
        Step::Apply(manifest) | Step::CreateSecret(manifest) => manifest.uid.is_none() && stays,
        _ => false,
    };
    (action.puts_right || lost && comes_back).then_some(kind.as_str())
}

#[cfg(test)]
mod tests {
    use plan::Target;
    use serde_json::json;

    use super::*;

    /// An action that makes an object, or changes the one with this uid.
    fn action(kind: Kind, uid: Option<&str>, puts_right: bool) -> Action {
        let manifest = Manifest {
            kind,
            namespace: Some("data".to_owned()),
            name: "trades".to_owned(),
            body: json!({}),
            uid: uid.map(str::to_owned),
        };
        let step = if kind == Kind::Secret { Step::CreateSecret(manifest) } else { Step::Apply(manifest) };
        Action { step, part: Part::Config, reason: "it is not so".to_owned(), puts_right, writes_over: false }
    }

    #[test]
    fn what_somebody_took_away_is_put_right_and_what_was_not_there_before_is_not() {
        for (kind, uid, puts_right, [lost, complete]) in [
            (Kind::Service, Some("u"), true, [Some(Kind::Service); 2]),
            (Kind::Service, Some("u"), false, [None; 2]),
            (Kind::Service, None, false, [Some(Kind::Service), None]),
            (Kind::Secret, Some("u"), true, [Some(Kind::Secret); 2]),
            (Kind::Secret, Some("u"), false, [None; 2]),
            (Kind::Secret, None, false, [Some(Kind::Secret), None]),
            (Kind::ServiceMonitor, Some("u"), true, [Some(Kind::ServiceMonitor); 2]),
            (Kind::ServiceMonitor, None, false, [None; 2]),
            (Kind::Snapshot, None, false, [None; 2]),
        ] {
            let found = [true, false].map(|lost| put_right(&action(kind, uid, puts_right), lost));
            let expected = [lost, complete].map(|kind| kind.map(Kind::as_str));
            assert_eq!(found, expected, "{kind:?} {uid:?} {puts_right}");
        }
        let left = Target {
            kind: Kind::Service,
            namespace: None,
            name: "trades".to_owned(),
            uid: "u".to_owned(),
            resource_version: None,
            at_once: false,
            pod: None,
        };
        let deletes = Action { step: Step::Delete(left), ..action(Kind::Service, None, true) };
        assert_eq!(put_right(&deletes, true), None);
        for (part, expected) in [(Part::Node, Some("Node")), (Part::Candidate, None)] {
            let [name, uid] = ["ip-10-0-0-1", "u"].map(str::to_owned);
            let step = Step::LabelNode { name, uid, labels: std::collections::BTreeMap::new() };
            let labels = Action { step, part, ..action(Kind::Node, None, false) };
            assert_eq!(put_right(&labels, false), expected, "{part}");
        }
        for (puts_right, expected) in [(true, Some("Instance")), (false, None)] {
            for step in [
                Step::SetMachineGroups { instance: "i-1".into(), groups: vec!["sg-1".into()] },
                Step::GuardMetadata { instance: "i-1".into() },
            ] {
                let keeps = Action { step, ..action(Kind::Node, None, puts_right) };
                assert_eq!(put_right(&keeps, false), expected, "{}", keeps.step.name());
            }
        }
    }
}
