//! Whether a Node can take the pod, and whether anybody is left there to stop it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use resources::names;

use super::machine::is_ready;
use super::reach::is_leaving;
use super::workload::is_on;
use crate::{Validated, build};

/// How long a kubelet may be silent before its machine is ended without its help: as long as Kubernetes itself waits.
const SILENCE: SignedDuration = SignedDuration::from_mins(5);
/// The same of one that says itself that it is not ready. It lives, reports, and stops what it is told to stop, most often.
const TROUBLE: SignedDuration = SignedDuration::from_mins(15);
/// What is added to the time that the pod was given, for the word that it has stopped to come here.
const MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// What only repeats the condition of a Node, later than that. Memory is short most often because of QuestDB itself, and is
/// free again when that stops.
const BORNE: [&str; 3] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/memory-pressure"];

/// What people say of a machine that is down: Kubernetes has pod and disk leave it then, whether it is or not.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How the taints begin that are of a Node's own state, and that no wish has QuestDB tolerate.
const OF_STATE: &str = "node.kubernetes.io/";

/// Whether a pod was told to stop, had all the time that it was given, and is on a Node that has not been ready for so long
/// that nobody there is expected to stop anything.
pub(super) fn is_abandoned(pod: &Pod, node: &Node, at: Timestamp) -> bool {
    // The API server puts the grace period into it.
    let end = pod.metadata.deletion_timestamp.as_ref();
    let is_over = end.is_some_and(|end| at.duration_since(end.0) >= MARGIN);
    is_over && is_on(pod, node) && is_silent(node, at)
}

fn is_silent(node: &Node, at: Timestamp) -> bool {
    let is_heard = word(node).is_some_and(|word| word.status == "False");
    is_unready_for(node, if is_heard { TROUBLE } else { SILENCE }, at)
}

/// Whether a Node has not been ready for so long: since that was said last, or since it is there.
pub(super) fn is_unready_for(node: &Node, least: SignedDuration, at: Timestamp) -> bool {
    word(node).is_none_or(|word| word.status != "True")
        && since(node).is_some_and(|since| at.duration_since(since) >= least)
}

/// Whether a Node that is ready has been so for so long, as far as is known.
pub(super) fn is_ready_for(node: &Node, least: SignedDuration, at: Timestamp) -> bool {
    since(node).is_none_or(|since| at.duration_since(since) >= least)
}

/// Since when what is said of a Node is said, or it is there.
pub(super) fn since(node: &Node) -> Option<Timestamp> {
    let changed = word(node).and_then(|word| word.last_transition_time.as_ref());
    changed.or(node.metadata.creation_timestamp.as_ref()).map(|since| since.0)
}

/// What is said of a Node, by its kubelet or where that is silent: whether it is ready.
pub(super) fn word(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// What keeps the pod from a Node that is ready.
#[derive(Clone, Copy)]
pub(super) enum Closed<'a> {
    /// Somebody wants it empty.
    Cordoned,
    /// It has a taint that the pod does not tolerate.
    Tainted(&'a Taint),
}

/// What keeps the pod from a Node, apart from its not being ready.
pub(super) fn closed<'a>(validated: &Validated, node: &'a Node) -> Option<Closed<'a>> {
    if is_leaving(node) {
        return Some(Closed::Cordoned);
    }
    repelling(validated, node).map(Closed::Tainted)
}

/// Whether a Node is ready and takes the pod.
pub(super) fn is_open(validated: &Validated, node: &Node) -> bool {
    is_ready(node) && closed(validated, node).is_none()
}

/// A taint that keeps the pod from a Node: of several the first, but before any other the one by which the disk is taken off, too, which
/// people give to Nodes that have others by then. Whether a Node is ready is asked of its condition.
pub(super) fn repelling<'a>(validated: &Validated, node: &'a Node) -> Option<&'a Taint> {
    let tolerations: Vec<Toleration> =
        serde_json::from_value(build::all_tolerations(validated)).unwrap_or_default();
    let taints = node.spec.as_ref()?.taints.iter().flatten();
    let repelling = taints
        .filter(|taint| repels(taint) && !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    repelling.min_by_key(|taint| taint.key != OUT_OF_SERVICE)
}

/// What people can do about a taint that keeps the pod from a Node.
pub(super) fn way_out(node: &str, key: &str) -> String {
    let off = format!("take that taint off (kubectl taint node {node} {key}-)");
    match key {
        OUT_OF_SERVICE | names::TAINT => off,
        _ if key.starts_with(OF_STATE) => {
            format!("it goes with what the Node lacks (kubectl describe node {node})")
        }
        _ => format!("{off}, or have QuestDB tolerate it (spec.pod.tolerations)"),
    }
}

/// Whether a taint keeps away who does not tolerate it.
fn repels(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !BORNE.contains(&taint.key.as_str())
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any_value = toleration.operator.as_deref() == Some("Exists");
    let same = |wanted: Option<&str>, found: &str| wanted.is_none_or(|wanted| wanted == found);
    let value = taint.value.as_deref().unwrap_or_default();
    same(toleration.key.as_deref(), &taint.key)
        && same(toleration.effect.as_deref(), &taint.effect)
        && (any_value || toleration.value.as_deref().unwrap_or_default() == value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{resource, subject, validated, with};

    fn node(status: &str, taints: &serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n" },
            "spec": { "taints": taints },
            "status": { "conditions": [
                { "type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ] },
        }))
        .unwrap()
    }

    #[test]
    fn only_taints_that_the_pod_does_not_tolerate_keep_it_away() {
        let own = json!({ "key": names::TAINT, "value": subject().short(), "effect": "NoSchedule" });
        let other = json!({ "key": names::TAINT, "value": "other", "effect": "NoSchedule" });
        for (taint, repels) in [
            (own, false),
            (other, true),
            (json!({ "key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule" }), true),
            (json!({ "key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule" }), false),
            (json!({ "key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute" }), true),
            (json!({ "key": "somebody/would-rather-not", "effect": "PreferNoSchedule" }), false),
            (json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }), false),
            (json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }), false),
        ] {
            let found = repelling(&validated(&resource(1)), &node("True", &json!([taint]))).is_some();
            assert_eq!(found, repels, "{taint}");
        }
        let chosen =
            json!({ "tolerations": [{ "key": "desk", "value": "trading", "effect": "NoSchedule" }] });
        let chosen = validated(&with("/spec/pod", chosen));
        for (value, repels) in [("trading", false), ("other", true)] {
            let taint = json!([{ "key": "desk", "value": value, "effect": "NoSchedule" }]);
            assert_eq!(repelling(&chosen, &node("True", &taint)).is_some(), repels, "{taint}");
        }
        assert!(repelling(&validated(&resource(1)), &Node::default()).is_none());
    }

    #[test]
    fn of_several_taints_the_one_counts_by_which_the_disk_is_taken_off() {
        let wish = validated(&resource(1));
        let shut_down = "node.cloudprovider.kubernetes.io/shutdown";
        for (keys, expected) in [
            ([shut_down, OUT_OF_SERVICE], OUT_OF_SERVICE),
            ([OUT_OF_SERVICE, shut_down], OUT_OF_SERVICE),
            (["desk", shut_down], "desk"),
        ] {
            let taints = keys.map(|key| json!({ "key": key, "effect": "NoSchedule" }));
            let node = node("Unknown", &json!(taints));
            assert_eq!(repelling(&wish, &node).unwrap().key, expected, "{keys:?}");
        }
    }

    #[test]
    fn what_is_to_be_done_about_a_taint_can_be_done() {
        for (key, off, tolerated) in [
            ("desk", true, true),
            ("node.cloudprovider.kubernetes.io/uninitialized", true, true),
            (OUT_OF_SERVICE, true, false),
            (names::TAINT, true, false),
            ("node.kubernetes.io/disk-pressure", false, false),
        ] {
            let text = way_out("n", key);
            assert_eq!(text.contains(&format!("(kubectl taint node n {key}-)")), off, "{text}");
            assert_eq!(text.contains("spec.pod.tolerations"), tolerated, "{text}");
            assert_eq!(text.contains("kubectl describe node n"), !off, "{text}");
        }
    }

    #[test]
    fn a_pod_is_abandoned_only_after_its_own_time_and_that_of_its_node() {
        let pod = |end: Option<&str>, on: &str| -> Pod {
            let metadata = json!({ "deletionTimestamp": end });
            serde_json::from_value(
                json!({ "metadata": metadata, "spec": { "nodeName": on, "containers": [] } }),
            )
            .unwrap()
        };
        let check = |pod: &Pod, status: &str, at: &str, expected: bool| {
            let found = is_abandoned(pod, &node(status, &json!([])), at.parse().unwrap());
            assert_eq!(found, expected, "{pod:?} {status} {at}");
        };
        let early = pod(Some("2026-01-01T00:01:00Z"), "n");
        check(&early, "Unknown", "2026-01-01T00:04:59Z", false);
        check(&early, "Unknown", "2026-01-01T00:05:00Z", true);
        check(&early, "False", "2026-01-01T00:14:59Z", false);
        check(&early, "False", "2026-01-01T00:15:00Z", true);
        check(&early, "True", "2026-01-02T00:00:00Z", false);
        let late = pod(Some("2026-01-01T01:00:00Z"), "n");
        check(&late, "Unknown", "2026-01-01T01:00:29Z", false);
        check(&late, "Unknown", "2026-01-01T01:00:30Z", true);
        check(&pod(None, "n"), "Unknown", "2026-01-02T00:00:00Z", false);
        check(&pod(Some("2026-01-01T00:01:00Z"), "other"), "Unknown", "2026-01-02T00:00:00Z", false);
    }
}
