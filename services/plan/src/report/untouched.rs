//! What is said of a database itself while its spec is refused: nothing is done for it, and how it is follows from what is seen
//! of it without asking anybody.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use resources::names::condition;
use resources::{DnsState, Phase, QuestDBStatus};

use super::conditions::{DELETED, INVALID, PAUSED, Word, as_said, no, put, reason, serving, stopped};
use crate::change::takes_host_ports;
use crate::planner::{is_on, is_ready};
use crate::{Children, Part, pod, pod_serves};

/// Judges it under the spec that is refused, so that who waits for that generation is answered. `status` is the one of before.
pub(super) fn judge(status: &mut QuestDBStatus, seen: &Children, generation: i64, now: Timestamp) {
    for (kind, word) in [(condition::READY, ready(status, seen)), (condition::PAUSED, paused(status, seen))] {
        put(&mut status.conditions, kind, word, (generation, now));
    }
}

/// One that was paused stays so, because nobody starts it.
fn paused(status: &QuestDBStatus, seen: &Children) -> Word {
    let said = as_said(status, condition::PAUSED);
    // An older report has the phase alone.
    let was = said.map_or_else(|| status.phase == Some(Phase::Paused), |(word, ..)| word == "True");
    match &seen.pod {
        Some(_) => no("Running", "QuestDB has a pod"),
        None if was => stopped(),
        None => no(INVALID, "the spec cannot be carried out"),
    }
}

fn ready(status: &QuestDBStatus, seen: &Children) -> Word {
    let Some(pod) = seen.pod.as_deref() else {
        let rests =
            as_said(status, condition::READY).filter(|(_, why, _)| [PAUSED, DELETED].contains(&why.as_str()));
        let missing = || no(INVALID, "QuestDB does not run, and the spec cannot be carried out");
        return rests.unwrap_or_else(missing);
    };
    match missing(status, seen, pod) {
        Some((part, text)) => no(&reason(part), &format!("{part}: {text}")),
        None => serving(takes_host_ports(pod)),
    }
}

/// What stands between a pod and its clients.
fn missing(status: &QuestDBStatus, seen: &Children, pod: &Pod) -> Option<(Part, String)> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some((Part::Pod, "QuestDB is being stopped".to_owned()));
    }
    if !pod_serves(pod) {
        return Some((Part::Pod, pod::awaited(pod)));
    }
    // The word of a kubelet that is silent is old.
    let Some(node) = seen.nodes.iter().find(|node| is_on(pod, node) && is_ready(node)) else {
        return Some((Part::Node, "the Node that QuestDB runs on is not ready".to_owned()));
    };
    (takes_host_ports(pod) && !is_led_to(status, node))
        .then(|| (Part::Dns, "the name does not lead to where QuestDB runs".to_owned()))
}

/// Whether the name led to a machine when it was looked at last: it stays so, because nobody of us changes it.
fn is_led_to(status: &QuestDBStatus, node: &Node) -> bool {
    let Some(dns) = status.dns.as_ref().filter(|dns| dns.state == DnsState::InSync) else { return false };
    let own = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let own = own.filter(|found| found.type_ == "InternalIP").map(|found| &found.address);
    let told = status.node.as_ref().filter(|told| told.name == node.metadata.name);
    own.chain(told.and_then(|told| told.ip.as_ref())).any(|address| dns.address.as_ref() == Some(address))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::Violations;
    use resources::{QuestDB, names};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::resource;
    use crate::refused;

    /// What is seen of a database that serves, and what was reported of it.
    fn scene() -> Value {
        let condition = |kind: &str, status: &str| {
            json!({ "type": kind, "status": status, "reason": "Before", "message": "before", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        json!({
            "pod": {
                "metadata": {},
                "spec": { "nodeName": "n", "containers": [] },
                "status": { "conditions": [
                    { "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" }] },
            },
            "node": {
                "metadata": { "name": "n" },
                "status": {
                    "conditions": [{ "type": "Ready", "status": "True" }],
                    "addresses": [{ "type": "Hostname", "address": "n" }, { "type": "InternalIP", "address": "10.0.0.1" }],
                },
            },
            "status": {
                "phase": "Ready",
                "observedGeneration": 1,
                "conditions": [condition("Ready", "True"), condition("DNSReady", "True")],
                "dns": { "name": "a.example.com", "state": "InSync", "address": "10.0.0.1" },
                "node": { "name": "n", "ip": "10.0.0.1", "ready": true },
            },
        })
    }

    /// What is said of a scene under a second spec, which is refused; again after that, it is the same.
    fn told(scene: &Value) -> QuestDBStatus {
        let object = |field: &str| Some(&scene[field]).filter(|value| !value.is_null()).cloned();
        let seen = Children {
            pod: object("pod").map(|pod| Arc::new(serde_json::from_value(pod).unwrap())),
            nodes: object("node")
                .map(|node| Arc::new(serde_json::from_value(node).unwrap()))
                .into_iter()
                .collect(),
            ..Children::default()
        };
        let status = object("status").map(|status| serde_json::from_value(status).unwrap());
        let resource = QuestDB { status, ..resource(2) };
        let say = |resource: &QuestDB, second| {
            refused(resource, &seen, &Violations(Vec::new()), Timestamp::from_second(second).unwrap())
        };
        let first = say(&resource, 1);
        let again = say(&QuestDB { status: Some(first.clone()), ..resource }, 2);
        assert_eq!(again, first, "what means the same is the same: {scene}");
        first
    }

    fn word<'a>(status: &'a QuestDBStatus, kind: &str) -> (&'a str, &'a str, Option<i64>) {
        let found = status.conditions.iter().find(|found| found.type_ == kind).unwrap();
        (found.status.as_str(), found.reason.as_str(), found.observed_generation)
    }

    type Change = fn(&mut Value);

    /// What is said of each scene, which is the one of a database that serves but for the change.
    fn check(table: &[(&str, Change, (&str, &str))]) {
        for (what, change, (status, reason)) in table {
            let mut scene = scene();
            change(&mut scene);
            let told = told(&scene);
            assert_eq!(word(&told, condition::READY), (*status, *reason, Some(2)), "{what}");
            assert_eq!(told.observed_generation, Some(2), "{what}");
        }
    }

    #[test]
    fn whether_it_serves_is_judged_under_a_spec_that_is_refused() {
        check(&[
            ("it serves", |_| {}, ("True", "Serving")),
            (
                "an older report says nothing of it",
                |scene| scene["status"]["conditions"] = json!([]),
                ("True", "Serving"),
            ),
            (
                "it serves again",
                |scene| scene["status"]["conditions"][0]["status"] = json!("False"),
                ("True", "Serving"),
            ),
            (
                "it does not answer",
                |scene| scene["pod"]["status"]["conditions"][1]["status"] = json!("False"),
                ("False", "Pod"),
            ),
            (
                "it is being stopped",
                |scene| scene["pod"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                ("False", "Pod"),
            ),
            (
                "its kubelet is silent",
                |scene| scene["node"]["status"]["conditions"][0]["status"] = json!("Unknown"),
                ("False", "Node"),
            ),
            ("its Node is gone", |scene| scene["node"] = Value::Null, ("False", "Node")),
            (
                "it is on another Node",
                |scene| scene["pod"]["spec"]["nodeName"] = json!("m"),
                ("False", "Node"),
            ),
            ("nothing runs", |scene| scene["pod"] = Value::Null, ("False", INVALID)),
            ("nothing was ever made", |scene| *scene = json!({}), ("False", INVALID)),
        ]);
    }

    #[test]
    fn whether_its_name_leads_to_it_is_judged_too() {
        check(&[
            ("it has no name", |scene| scene["status"]["dns"] = Value::Null, ("False", "Dns")),
            (
                "it takes no ports of its machine, and has no name",
                |scene| {
                    scene["status"]["dns"] = Value::Null;
                    let running = r#"{"image": "i", "config": {}, "hostPorts": false}"#;
                    scene["pod"]["metadata"]["annotations"] = json!({ names::RUNNING: running });
                },
                ("True", "Serving"),
            ),
            (
                "its name is not in sync",
                |scene| scene["status"]["dns"]["state"] = json!("Pending"),
                ("False", "Dns"),
            ),
            (
                "its name is only kept",
                |scene| scene["status"]["dns"]["address"] = Value::Null,
                ("False", "Dns"),
            ),
            (
                "its name leads to the machine of before",
                |scene| scene["status"]["dns"]["address"] = json!("10.0.0.2"),
                ("False", "Dns"),
            ),
            (
                "the machine is known by its Node alone",
                |scene| scene["status"]["node"] = Value::Null,
                ("True", "Serving"),
            ),
            (
                "the machine is known by the report alone",
                |scene| scene["node"]["status"]["addresses"] = Value::Null,
                ("True", "Serving"),
            ),
            (
                "its name leads to another address of the machine",
                |scene| {
                    scene["node"]["status"]["addresses"][1]["type"] = json!("ExternalIP");
                    scene["status"]["node"] = Value::Null;
                },
                ("False", "Dns"),
            ),
            (
                "the report is of another machine",
                |scene| {
                    scene["node"]["status"]["addresses"] = Value::Null;
                    scene["status"]["node"]["name"] = json!("m");
                },
                ("False", "Dns"),
            ),
        ]);
    }

    #[test]
    fn what_is_at_rest_stays_so_under_a_spec_that_is_refused() {
        for why in [PAUSED, DELETED] {
            let mut scene = scene();
            scene["status"]["conditions"][0]["status"] = json!("False");
            scene["status"]["conditions"][0]["reason"] = json!(why);
            let runs = told(&scene);
            assert_eq!(
                word(&runs, condition::READY),
                ("True", "Serving", Some(2)),
                "{why}: it runs all the same"
            );
            scene["pod"] = Value::Null;
            let rests = told(&scene);
            assert_eq!(word(&rests, condition::READY), ("False", why, Some(2)));
        }
    }

    #[test]
    fn what_was_paused_stays_so_until_there_is_a_pod() {
        let table: [(&str, Change, (&str, &str)); 6] = [
            ("it was", |_| {}, ("True", "Stopped")),
            (
                "it has a pod all the same",
                |scene| scene["pod"] = self::scene()["pod"].clone(),
                ("False", "Running"),
            ),
            (
                "it was about to be",
                |scene| scene["status"]["conditions"][0]["status"] = json!("False"),
                ("False", INVALID),
            ),
            (
                "an older report has the phase alone",
                |scene| scene["status"]["conditions"] = json!([]),
                ("True", "Stopped"),
            ),
            (
                "and says that it was about to be",
                |scene| scene["status"] = json!({ "phase": "Pausing" }),
                ("False", INVALID),
            ),
            ("nothing was ever made", |scene| *scene = json!({}), ("False", INVALID)),
        ];
        for (what, change, (status, reason)) in table {
            let mut scene = scene();
            scene["pod"] = Value::Null;
            scene["status"]["phase"] = json!("Paused");
            scene["status"]["conditions"][0]["type"] = json!(condition::PAUSED);
            change(&mut scene);
            assert_eq!(word(&told(&scene), condition::PAUSED), (status, reason, Some(2)), "{what}");
        }
    }

    #[test]
    fn what_was_not_looked_at_keeps_the_generation_that_it_was_said_of() {
        let told = told(&scene());
        assert_eq!(word(&told, condition::DNS_READY), ("True", "Before", Some(1)));
        for (kind, status) in [
            (condition::CONFIG_ACCEPTED, "False"),
            (condition::DEGRADED, "True"),
            (condition::PROGRESSING, "False"),
        ] {
            assert_eq!(word(&told, kind), (status, INVALID, Some(2)));
        }
        assert_eq!(told.phase, Some(resources::Phase::Degraded));
    }
}
