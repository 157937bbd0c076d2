//! What others wrote so that our fields have no place beside it: where one of several ways is chosen (`rollingUpdate` of an
//! update strategy, the source of a volume), an apply adds ours to theirs, and the API server refuses both together. There the
//! smallest part that holds such a field is written as we intend it, whole.

use resources::names;
use serde_json::{Map, Value};

use crate::exclusive::excluding;
use crate::matches::{covers, is_empty, keys};
use crate::{Kind, Manifest};

/// Parts that are nobody's alone: what differs in them is written by itself.
const SHARED: [&str; 7] =
    ["", "/metadata", "/spec", "/spec/template", "/spec/template/metadata", "/spec/template/spec", "/data"];
/// The same wherever they are, and of these lists each element.
const SHARED_FIELDS: [&str; 6] =
    ["labels", "annotations", "nodeSelector", "containers", "initContainers", "ports"];

/// The merge patch by which each part of an object, as it is on the server, that holds a field of ours which is not as intended
/// becomes as intended: of the very object that was seen, at its version. Nothing where all of it is.
///
/// It takes nothing away that we wrote once and intend no more, so it does not say that what is intended was applied: an apply
/// has to follow.
pub fn overwriting(observed: &Value, intended: &Manifest) -> Option<Value> {
    let mut patch = difference(observed, &overwritten(observed, intended))?;
    for field in ["uid", "resourceVersion"] {
        patch["metadata"][field] = observed["metadata"][field].clone();
    }
    Some(patch)
}

fn overwritten(observed: &Value, intended: &Manifest) -> Value {
    let (mut body, mut wanted) = (observed.clone(), intended.body.clone());
    if let Some(annotations) = wanted.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(names::APPLIED);
    }
    // All of its spec is ours, and two fields of it exclude each other.
    let whole = (intended.kind == Kind::PodDisruptionBudget).then_some("/spec");
    Overwriting { whole }.part(&mut body, &wanted, "");
    body
}

struct Overwriting {
    /// A part that would be shared in another kind of object.
    whole: Option<&'static str>,
}

/// What makes one value of another as a merge patch does: fields one by one, lists whole, and null for what goes.
fn difference(observed: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(seen), Value::Object(fields)) = (observed, wanted) else {
        return (observed != wanted).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for field in seen.keys().filter(|field| !fields.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, wanted) in fields {
        let change = seen.get(field).map_or_else(|| Some(wanted.clone()), |seen| difference(seen, wanted));
        patch.extend(change.map(|change| (field.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

impl Overwriting {
    fn part(&self, observed: &mut Value, intended: &Value, path: &str) {
        let is_excluded = !excluding(last(path), observed, intended).is_empty();
        let (Value::Object(seen), Value::Object(wanted)) = (&mut *observed, intended) else {
            observed.clone_from(intended);
            return;
        };
        let is_whole = || is_excluded || wanted.iter().any(|(field, wanted)| is_lacking(seen, field, wanted));
        if !self.is_shared(path) && is_whole() {
            observed.clone_from(intended);
            return;
        }
        for (field, wanted) in wanted {
            let path = format!("{path}/{field}");
            match seen.get_mut(field) {
                Some(found) => self.field(found, wanted, (field, &path)),
                None if is_empty(wanted) => {}
                None => drop(seen.insert(field.clone(), wanted.clone())),
            }
        }
    }

    fn field(&self, found: &mut Value, wanted: &Value, (field, path): (&str, &str)) {
        let (Value::Array(found), Value::Array(wanted), [_, ..]) = (&mut *found, wanted, keys(field)) else {
            if found.is_object() && wanted.is_object() {
                self.part(found, wanted, path);
            } else if !covers(found, wanted) {
                found.clone_from(wanted);
            }
            return;
        };
        for wanted in wanted {
            let same = |found: &&mut Value| keys(field).iter().all(|key| found.get(key) == wanted.get(key));
            if let Some(found) = found.iter_mut().find(same) {
                self.part(found, wanted, path);
                continue;
            }
            if let Some(name) = wanted.get("name").filter(|_| field == "ports") {
                // Of ports the name is a key, too.
                found.retain(|other| other.get("name") != Some(name));
            }
            found.push(wanted.clone());
        }
    }

    fn is_shared(&self, path: &str) -> bool {
        self.whole != Some(path) && (SHARED.contains(&path) || SHARED_FIELDS.contains(&last(path)))
    }
}

/// The field to which a path leads.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Whether a field of ours is not there, or is a plain value and another.
fn is_lacking(seen: &Map<String, Value>, field: &str, wanted: &Value) -> bool {
    let plain = !wanted.is_object() && !wanted.is_array();
    match seen.get(field) {
        Some(found) => plain && !covers(found, wanted),
        None => !is_empty(wanted),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(body: Value) -> Manifest {
        Manifest { kind: Kind::StatefulSet, namespace: None, name: "a".to_owned(), body, uid: None }
    }

    /// Checks what becomes of a part of a pod, or of the whole object.
    fn check(seen: &Value, intended: Value, expected: &Value) {
        let manifest = manifest(intended);
        let found = overwritten(seen, &manifest);
        assert_eq!(found, *expected);
        assert_eq!(overwritten(&found, &manifest), found, "once is enough");
        assert_eq!(overwriting(&found, &manifest), None);
    }

    #[test]
    fn the_smallest_part_that_differs_is_ours_whole() {
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
        let seen = json!({ "spec": { "replicas": 0, "updateStrategy": strategy, "other": 1 } });
        let ours = json!({ "spec": { "replicas": 1, "updateStrategy": { "type": "OnDelete" } } });
        check(
            &seen,
            ours,
            &json!({ "spec": { "replicas": 1, "updateStrategy": { "type": "OnDelete" }, "other": 1 } }),
        );
        let pod = |volumes: Value| json!({ "spec": { "template": { "spec": { "volumes": volumes } } } });
        let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "c" } });
        check(
            &pod(json!([{ "name": "theirs", "emptyDir": {} }, { "name": "data", "emptyDir": {} }])),
            pod(json!([claim])),
            &pod(json!([{ "name": "theirs", "emptyDir": {} }, claim])),
        );
    }

    #[test]
    fn what_an_older_server_took_beside_ours_goes() {
        let set = |strategy: Value, foo: Value, probe: Value, volume: Value| {
            let env = json!([foo, { "name": "THEIRS", "value": "1" }]);
            let container = json!({ "name": "questdb", "env": env, "startupProbe": probe });
            let pod = json!({ "containers": [container], "volumes": [volume] });
            json!({ "spec": { "updateStrategy": strategy, "template": { "spec": pod } } })
        };
        let from = json!({ "configMapKeyRef": { "name": "keys", "key": "a" } });
        let (strategy, foo) = (json!({ "type": "OnDelete" }), json!({ "name": "FOO", "valueFrom": from }));
        let (probe, volume) =
            (json!({ "httpGet": {} }), json!({ "name": "a", "configMap": { "name": "b" } }));
        let with = |ours: &Value, other: &str| {
            let mut both = ours.clone();
            both[other] = json!({ "a": 1 });
            both
        };
        let seen = set(
            with(&strategy, "rollingUpdate"),
            json!({ "name": "FOO", "value": "theirs", "valueFrom": with(&from, "fieldRef") }),
            with(&probe, "tcpSocket"),
            with(&volume, "emptyDir"),
        );
        let ours = set(strategy, foo, probe, volume);
        check(&seen, ours.clone(), &ours);
        assert!(covers(&ours, &ours) && !covers(&seen, &ours));
    }

    #[test]
    fn what_stands_beside_it_stays() {
        let pod = |env: Value| {
            let container = json!({ "name": "questdb", "imagePullPolicy": "Always", "env": env });
            json!({ "spec": { "template": { "spec": { "containers": [container], "schedulerName": "s" } } } })
        };
        let intended = json!({ "spec": { "template": { "spec": { "containers": [{
            "name": "questdb", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }],
        }] } } } });
        check(
            &pod(
                json!([{ "name": "A", "valueFrom": {} }, { "name": "B", "value": "2", "x": 1 }, { "name": "C" }]),
            ),
            intended,
            &pod(
                json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2", "x": 1 }, { "name": "C" }]),
            ),
        );
        let labels = json!({ "metadata": { "labels": { "a": "2", "team": "x" } } });
        let ours = json!({ "metadata": { "labels": { "a": "1" } } });
        check(&labels, ours, &json!({ "metadata": { "labels": { "a": "1", "team": "x" } } }));
    }

    #[test]
    fn a_container_is_shared_and_its_ports_have_names() {
        let set = |image: &str, env: Value| {
            let container = json!({ "name": "questdb", "image": image, "env": env });
            json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
        };
        let theirs = json!([{ "name": "A", "value": "1" }, { "name": "THEIRS", "value": "2" }]);
        let ours = json!([{ "name": "A", "value": "1" }]);
        check(&set("old", theirs.clone()), set("new", ours), &set("new", theirs));
        let service = |ports: Value| json!({ "spec": { "ports": ports, "clusterIP": "10.0.0.1" } });
        let port = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP" });
        check(
            &service(json!([port("http", 9001), port("extra", 7)])),
            json!({ "spec": { "ports": [port("http", 9000)] } }),
            &service(json!([port("extra", 7), port("http", 9000)])),
        );
    }

    #[test]
    fn of_a_disruption_budget_all_is_ours() {
        let selector = json!({ "matchLabels": { "a": "1" } });
        let seen = json!({ "metadata": {}, "spec": { "minAvailable": 0, "selector": selector } });
        let ours = json!({ "spec": { "maxUnavailable": 0, "selector": selector } });
        let budget = Manifest { kind: Kind::PodDisruptionBudget, ..manifest(ours.clone()) };
        assert_eq!(overwritten(&seen, &budget), json!({ "metadata": {}, "spec": ours["spec"] }));
    }

    #[test]
    fn it_does_not_say_that_all_was_applied() {
        let of = |hash: &str, replicas: u8| {
            let metadata = json!({ "annotations": { names::APPLIED: hash } });
            json!({ "metadata": metadata, "spec": { "replicas": replicas, "nothing": [] } })
        };
        let mut seen = of("1", 0);
        seen["spec"].as_object_mut().unwrap().remove("nothing");
        let patch = overwriting(&seen, &manifest(of("2", 1))).unwrap();
        let nothing = Value::Null;
        let expected =
            json!({ "metadata": { "uid": nothing, "resourceVersion": nothing }, "spec": { "replicas": 1 } });
        assert_eq!(patch, expected);
        assert_eq!(overwriting(&seen, &manifest(of("2", 0))), None);
    }

    #[test]
    fn it_is_told_as_a_merge_of_the_object_that_was_seen() {
        let seen = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" },
            "spec": { "replicas": 1, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": {} } },
        });
        let ours = json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } });
        let expected = json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } },
        });
        assert_eq!(overwriting(&seen, &manifest(ours)), Some(expected));
    }
}
