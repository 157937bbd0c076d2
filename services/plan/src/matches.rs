//! Whether an object already is what we intend: our fields, as observed. A hash of the intention alone would miss what
//! somebody edited by hand.
//!
//! What others added beside our fields is theirs: server-side apply would not take it away, so that asking for it again
//! would have no end.

use serde_json::Value;

use crate::exclusive::excluding;

/// Whether everything `intended` says is so in `observed`, and nothing there excludes it. Maps may hold more (defaults, other
/// owners' fields), and so may lists whose elements have a key. A list without keys is one value with one owner: nobody adds to
/// it, nor to a list within it. An empty map, list, text or null is the same as its absence, because the API server drops those.
pub(crate) fn covers(observed: &Value, intended: &Value) -> bool {
    covers_within(observed, intended, false)
}

/// `whole` is what lies in a list without keys.
fn covers_within(observed: &Value, intended: &Value, whole: bool) -> bool {
    match (observed, intended) {
        (Value::Object(observed), Value::Object(intended)) => intended.iter().all(|(field, value)| {
            observed.get(field).map_or_else(|| is_empty(value), |found| has(found, value, field, whole))
        }),
        (Value::Array(observed), Value::Array(intended)) => {
            observed.len() == intended.len()
                && observed
                    .iter()
                    .zip(intended)
                    .all(|(observed, intended)| covers_within(observed, intended, true))
        }
        (Value::Number(observed), Value::Number(intended)) => observed.as_f64() == intended.as_f64(),
        (observed, intended) => observed == intended,
    }
}

/// The keys by which the API server tells elements of a list apart, for the lists that we write; none, and the list is one
/// value with one owner.
pub(crate) fn keys(field: &str) -> &'static [&'static str] {
    match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        // Of a container by the first and the last, of a Service by the last two.
        "ports" => &["containerPort", "port", "protocol"],
        "ownerReferences" => &["uid"],
        _ => &[],
    }
}

fn has(observed: &Value, intended: &Value, field: &str, whole: bool) -> bool {
    let keys = if whole { &[] } else { keys(field) };
    let (Value::Array(found), Value::Array(wanted), [_, ..]) = (observed, intended, keys) else {
        return excluding(field, observed, intended).is_empty() && covers_within(observed, intended, whole);
    };
    wanted.iter().all(|wanted| {
        let same = |found: &&Value| keys.iter().all(|key| found.get(key) == wanted.get(key));
        let is_so = |found: &Value| excluding(field, found, wanted).is_empty() && covers(found, wanted);
        found.iter().find(same).is_some_and(is_so)
    })
}

pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_fields_decide() {
        let check = |observed: Value, intended: Value, expected: bool| {
            assert_eq!(covers(&observed, &intended), expected, "{observed} {intended}");
        };
        check(json!({"a": 1, "b": 2}), json!({"a": 1}), true);
        check(json!({"a": 1}), json!({"a": 2}), false);
        check(json!({}), json!({"a": 1}), false);
        check(json!({}), json!({"a": {}, "b": [], "c": null, "d": ""}), true);
        check(json!({"l": [{"a": 1, "d": 0}]}), json!({"l": [{"a": 1}]}), true);
        check(json!({"l": [1, 2]}), json!({"l": [1]}), false);
        check(json!({"l": [2, 1]}), json!({"l": [1, 2]}), false);
        check(json!({"a": 1.0}), json!({"a": 1}), true);
        check(json!("x"), json!("x"), true);
    }

    #[test]
    fn what_others_added_to_a_list_with_keys_is_theirs() {
        let check = |field: &str, observed: Value, expected: bool| {
            let intended = match field {
                "ports" => json!([{ "port": 1, "protocol": "TCP", "name": "a" }]),
                "volumeMounts" => json!([{ "mountPath": "/a", "name": "a" }]),
                "ownerReferences" => json!([{ "uid": "a", "controller": true }]),
                "tolerations" => json!([{ "key": "a" }]),
                _ => json!([{ "name": "a", "value": "1" }]),
            };
            let pair = (json!({ field: observed }), json!({ field: intended }));
            assert_eq!(covers(&pair.0, &pair.1), expected, "{pair:?}");
        };
        for field in ["containers", "initContainers", "env"] {
            check(field, json!([{ "name": "a", "value": "1" }]), true);
            check(field, json!([{ "name": "b" }, { "name": "a", "value": "1", "default": 7 }]), true);
            check(field, json!([{ "name": "a", "value": "2" }, { "name": "b", "value": "1" }]), false);
            check(field, json!([{ "name": "b", "value": "1" }]), false);
            check(field, json!([]), false);
        }
        check(
            "volumeMounts",
            json!([{ "mountPath": "/b", "name": "a" }, { "mountPath": "/a", "name": "a" }]),
            true,
        );
        check("volumeMounts", json!([{ "mountPath": "/b", "name": "a" }]), false);
        let port = |number: u16, protocol: &str| json!({ "port": number, "protocol": protocol, "name": "a" });
        check("ports", json!([port(1, "UDP"), port(1, "TCP")]), true);
        check("ports", json!([port(1, "UDP"), port(2, "TCP")]), false);
        check(
            "ownerReferences",
            json!([{ "uid": "b", "controller": true }, { "uid": "a", "controller": true }]),
            true,
        );
        check("ownerReferences", json!([{ "uid": "a", "controller": false }]), false);
        check("tolerations", json!([{ "key": "a" }, { "key": "b" }]), false);
    }

    #[test]
    fn what_excludes_ours_is_not_theirs_to_add() {
        let check = |field: &str, observed: &Value, intended: &Value, expected: bool| {
            let pair = (json!({ field: observed }), json!({ field: intended }));
            assert_eq!(covers(&pair.0, &pair.1), expected, "{pair:?}");
        };
        let variable = json!({ "name": "A", "value": "1" });
        let other = json!({ "name": "B", "valueFrom": { "fieldRef": {} } });
        let both = json!({ "name": "A", "value": "1", "valueFrom": { "fieldRef": {} } });
        check("env", &json!([other, variable]), &json!([variable]), true);
        check("env", &json!([both]), &json!([variable]), false);
        let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "c" } });
        let filled =
            json!({ "name": "data", "persistentVolumeClaim": { "claimName": "c", "readOnly": false } });
        check("volumes", &json!([{ "name": "theirs", "emptyDir": {} }, filled]), &json!([claim]), true);
        let mut crowded = claim.clone();
        crowded["emptyDir"] = json!({});
        check("volumes", &json!([crowded]), &json!([claim]), false);
        let ours = json!({ "type": "OnDelete" });
        check("updateStrategy", &ours, &ours, true);
        check("updateStrategy", &json!({ "type": "OnDelete", "rollingUpdate": {} }), &ours, false);
    }

    #[test]
    fn nobody_adds_to_what_lies_in_a_list_without_keys() {
        // The rules of a NetworkPolicy: one port more is one way in more.
        let rules = |ports: Value| json!({ "ingress": [{ "ports": ports, "from": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }] }] });
        let port = |number: u16| json!({ "port": number, "protocol": "TCP" });
        let intended = rules(json!([port(9000)]));
        assert!(covers(&rules(json!([port(9000)])), &intended));
        assert!(!covers(&rules(json!([port(9000), port(22)])), &intended));
        assert!(!covers(&rules(json!([port(22), port(9000)])), &intended));
        let defaulted = rules(json!([{ "port": 9000, "protocol": "TCP", "endPort": null }]));
        assert!(covers(&defaulted, &intended), "a field that the API server adds is no element");
    }
}
