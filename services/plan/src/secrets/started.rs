//! Whether the QuestDB that runs was started with what somebody wrote over in the operator's own Secret, because the operator was away
//! and did not put it right before. It is restarted with what is put right.
//!
//! *Invariant:* only where that is certain, and where nobody fights over the value. A restart that nobody needs is worse than a QuestDB
//! that has another value than is written, which somebody has to tell first.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use resources::names;

use super::Content;
use super::written::Former;
use crate::change::keyring_of_pod;
use crate::pod;

/// So much later than a value was written a pod must have been made: the clocks of two API servers differ by less.
const MADE: SignedDuration = SignedDuration::from_mins(1);
/// The same of the start of a container in a pod that may be older. By half of it the clock of a machine differs at most, or AWS would
/// take nothing from it; and a kubelet takes less than the other half to show a pod what became of a Secret.
const STARTED: SignedDuration = SignedDuration::from_mins(10);
/// So much later than the operator last wrote into the Secret a value must have been written. Who writes sooner may write it again each
/// time that it is put right: then it is left to them for a while, and whoever is restarted meanwhile has it once more, without an end.
const APART: SignedDuration = SignedDuration::from_hours(1);

/// Since when at least there stands what stands under a key of a Secret, of the keys that somebody wrote long after the operator wrote
/// anything there. Whoever writes another value takes the key from its owner.
pub(super) fn hands(metadata: &ObjectMeta) -> BTreeMap<String, Timestamp> {
    let entries = metadata.managed_fields.iter().flatten();
    let ours = entries.clone().filter(|entry| entry.manager.as_deref() == Some(names::OPERATOR));
    let Some(last) = ours.filter_map(|entry| Some(entry.time.as_ref()?.0)).max() else {
        return BTreeMap::new();
    };
    let mut hands = BTreeMap::new();
    for entry in entries {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:data")?.as_object());
        let (Some(fields), Some(Time(time))) = (fields, &entry.time) else { continue };
        for key in fields.keys().filter_map(|field| field.strip_prefix("f:")) {
            let since = hands.entry(key.to_owned()).or_insert(*time);
            *since = (*since).max(*time);
        }
    }
    hands.retain(|_, since| since.duration_since(last) >= APART);
    hands
}

/// Whether the QuestDB of a pod has certainly read what stands in the Secret in the place of a former value.
pub(super) fn has_read(pod: Option<&Pod>, own: &Content, former: &Former) -> bool {
    let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else { return false };
    // One that knows another revision is restarted anyway.
    let knows = keyring_of_pod(pod).is_some_and(|keyring| keyring.revision == former.revision);
    // Nobody knows since when something is missing, and what was put in is read by no pod.
    let replaced = former.values.iter().filter(|(_, value)| value.is_some());
    let mut hands = replaced.filter_map(|(key, _)| own.hands.get(*key));
    knows && hands.any(|since| is_later(pod, *since))
}

/// Whether the QuestDB of a pod certainly started later than this.
fn is_later(pod: &Pod, since: Timestamp) -> bool {
    let state = pod::questdb(pod).and_then(|found| found.state.as_ref());
    let Some(running) = state.and_then(|state| state.running.as_ref()) else { return false };
    let by = |at: Option<&Time>, least| at.is_some_and(|at| at.0.duration_since(since) >= least);
    by(pod.metadata.creation_timestamp.as_ref(), MADE) || by(running.started_at.as_ref(), STARTED)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::{Value, json};

    use super::super::Hidden;
    use super::*;

    fn at(time: &str) -> String {
        format!("2026-01-01T{time}Z")
    }

    fn by(manager: &str, time: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": "Update", "time": at(time), "fieldsV1": fields })
    }

    /// A password that somebody wrote over at noon, when the operator had written last at these times.
    fn own_after(ours: &[&str]) -> Content {
        let fields = json!({ "f:data": { "f:pg-password": {} } });
        let rest = json!({ "f:data": { "f:pg-user": {} } });
        let ours = ours.iter().map(|time| by(names::OPERATOR, time, &rest));
        let managers: Vec<Value> = ours.chain([by("somebody", "12:00:00", &fields)]).collect();
        let secret = json!({ "metadata": { "managedFields": managers } });
        Content::of(serde_json::from_value(secret).unwrap())
    }

    fn own() -> Content {
        own_after(&["11:00:00"])
    }

    fn former(key: &'static str, value: Option<&str>) -> Former {
        let value = value.map(|value| Hidden::new(value.as_bytes().to_vec()));
        Former { values: BTreeMap::from([(key, value)]), revision: Some("r".to_owned()) }
    }

    fn pod(made: &str, state: &Value) -> Pod {
        let running = json!({ "image": "questdb", "credentials": "r", "config": {} });
        let annotations = json!({ names::RUNNING: running.to_string() });
        let container = json!({
            "name": "questdb", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state,
        });
        let pod = json!({
            "metadata": { "creationTimestamp": at(made), "annotations": annotations },
            "status": { "containerStatuses": [container] },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn running(since: &str) -> Value {
        json!({ "running": { "startedAt": at(since) } })
    }

    #[test]
    fn only_who_started_later_for_certain_has_read_it() {
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        for (what, made, state, expected) in [
            ("a pod that was made later", "12:01:00", running("12:01:02"), true),
            ("a pod that was made at about that time", "12:00:59", running("12:09:59"), false),
            ("a container that was started later", "11:00:00", running("12:10:00"), true),
            ("a container to which the value may not have come", "11:00:00", running("12:09:59"), false),
            ("one from before", "11:00:00", running("11:00:02"), false),
            ("one that does not run", "12:01:00", waiting, false),
        ] {
            let pod = pod(made, &state);
            assert_eq!(has_read(Some(&pod), &own(), &former("pg-password", Some("x"))), expected, "{what}");
        }
        assert!(!has_read(None, &own(), &former("pg-password", Some("x"))), "no pod");
    }

    #[test]
    fn who_writes_soon_after_the_operator_may_fight_for_it_and_restarts_nobody() {
        let pod = pod("12:01:00", &running("12:01:02"));
        let former = former("pg-password", Some("x"));
        let check = |ours: &[&str], expected: bool| {
            assert_eq!(has_read(Some(&pod), &own_after(ours), &former), expected, "{ours:?}");
        };
        check(&["10:00:00", "11:00:00"], true);
        check(&["10:00:00", "11:00:01"], false);
        check(&["11:00:01", "10:00:00"], false);
        check(&["12:30:00"], false);
        // Nobody knows when that was.
        check(&[], false);
    }

    #[test]
    fn only_what_was_replaced_under_the_revision_of_the_pod_asks_for_a_restart() {
        let check = |what: &str, former: &Former, change: fn(&mut Pod)| {
            let mut pod = pod("12:01:00", &running("12:01:02"));
            change(&mut pod);
            assert!(!has_read(Some(&pod), &own(), former), "{what}");
        };
        let replaced = former("pg-password", Some("x"));
        check("what was put in", &former("pg-password", None), |_| {});
        check("what was taken out, or replaced by nobody knows whom", &former("pg-user", Some("x")), |_| {});
        let other = Former { revision: Some("s".to_owned()), ..former("pg-password", Some("x")) };
        check("a pod that knows another revision", &other, |_| {});
        check("a pod that goes", &replaced, |pod| {
            pod.metadata.deletion_timestamp.clone_from(&pod.metadata.creation_timestamp);
        });
        check("a pod that does not say what it knows", &replaced, |pod| pod.metadata.annotations = None);
    }

    #[test]
    fn what_others_wrote_is_known_by_key_and_by_the_last_of_them() {
        let secret = json!({ "metadata": { "managedFields": [
            by(names::OPERATOR, "10:03:00", &json!({ "f:data": { "f:pg-user": {}, "f:http-user": {} } })),
            by("a", "12:01:00", &json!({ "f:data": { "f:http-user": {}, "f:http-password": {} } })),
            by("b", "12:02:00", &json!({ "f:data": { ".": {}, "f:http-password": {} } })),
            by("c", "12:00:00", &json!({ "f:data": { "f:http-password": {} } })),
            by("d", "12:04:00", &json!({ "f:metadata": { "f:labels": {} } })),
        ] } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let found = hands(&secret.metadata).into_iter().map(|(key, since)| (key, since.to_string()));
        let expected = [("http-password", "12:02:00"), ("http-user", "12:01:00")];
        let expected = expected.map(|(key, since)| (key.to_owned(), at(since)));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
