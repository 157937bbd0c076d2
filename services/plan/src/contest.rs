//! Fields of ours that somebody else writes as well: which, and who. Two who write one field have no end, and each write of
//! theirs is somebody's wish, so it is for people to say whose field it is.

use resources::names;
use serde_json::{Map, Value};

use crate::Manifest;
use crate::exclusive::excluding;
use crate::matches::{covers, is_empty, keys};

/// A field that is not as intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// Where it is.
    pub field: String,
    /// Managers other than us that own it now; none when it was taken away.
    pub others: Vec<String>,
}

/// The fields of an object, as it is on the server, that are not as intended, or that exclude what is.
pub fn contests(observed: &Value, intended: &Manifest) -> Vec<Contest> {
    let (mut paths, mut path) = (Vec::new(), Vec::new());
    walk(observed, &intended.body, &mut path, &mut paths);
    let managers = observed.pointer("/metadata/managedFields").and_then(Value::as_array);
    let managers = managers.map(Vec::as_slice).unwrap_or_default();
    let contest = |path: &Vec<String>| Contest { field: text(path), others: owners(managers, path) };
    paths.iter().map(contest).collect()
}

/// Steps to a field, as `managedFields` spells them: `f:` and a name, `k:` and the keys of an element.
type Path = Vec<String>;

fn walk(observed: &Value, intended: &Value, path: &mut Path, found: &mut Vec<Path>) {
    let (Value::Object(seen), Value::Object(wanted)) = (observed, intended) else {
        if !covers(observed, intended) {
            found.push(path.clone());
        }
        return;
    };
    for (field, wanted) in wanted {
        path.push(format!("f:{field}"));
        match seen.get(field) {
            Some(seen) => walk_list(seen, wanted, field, path, found),
            None if is_empty(wanted) => {}
            None => found.push(path.clone()),
        }
        path.pop();
    }
}

/// The elements of a list with keys each by itself; anything else as it is.
fn walk_list(observed: &Value, intended: &Value, field: &str, path: &mut Path, found: &mut Vec<Path>) {
    let keys = keys(field);
    let (Value::Array(seen), Value::Array(wanted), [_, ..]) = (observed, intended, keys) else {
        return walk_part(observed, intended, field, path, found);
    };
    for wanted in wanted {
        let named = keys.iter().filter_map(|key| Some(((*key).to_owned(), wanted.get(*key)?.clone())));
        path.push(format!("k:{}", Value::Object(named.collect::<Map<_, _>>())));
        let same = |seen: &&Value| keys.iter().all(|key| seen.get(key) == wanted.get(key));
        match seen.iter().find(same) {
            Some(seen) => walk_part(seen, wanted, field, path, found),
            None => found.push(path.clone()),
        }
        path.pop();
    }
}

fn walk_part(observed: &Value, intended: &Value, field: &str, path: &mut Path, found: &mut Vec<Path>) {
    for other in excluding(field, observed, intended) {
        let mut path = path.clone();
        path.push(format!("f:{other}"));
        found.push(path);
    }
    walk(observed, intended, path, found);
}

fn owners(managers: &[Value], path: &Path) -> Vec<String> {
    let others = managers.iter().filter(|entry| owns(&entry["fieldsV1"], path));
    let mut names: Vec<String> =
        others.filter_map(|entry| entry["manager"].as_str()).map(str::to_owned).collect();
    names.retain(|name| name != names::OPERATOR);
    names.sort();
    names.dedup();
    names
}

/// Whether a manager's fields hold this one, or something around it as a whole.
fn owns(fields: &Value, path: &Path) -> bool {
    let mut at = fields;
    for (depth, step) in path.iter().enumerate() {
        match at.get(step) {
            Some(next) => at = next,
            None => return depth > 0 && at.as_object().is_some_and(Map::is_empty),
        }
    }
    true
}

fn text(path: &Path) -> String {
    let step = |step: &String| match step.split_once(':') {
        Some(("k", keys)) => format!("[{keys}]"),
        Some((_, field)) => format!("/{field}"),
        None => String::new(),
    };
    path.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind;

    fn intended(body: Value) -> Manifest {
        Manifest { kind: Kind::StatefulSet, namespace: None, name: "a".to_owned(), body, uid: None }
    }

    #[test]
    fn a_field_is_named_with_those_who_write_it() {
        let wanted = intended(json!({ "spec": {
            "replicas": 1,
            "containers": [{ "name": "questdb", "image": "a", "env": [{ "name": "A", "value": "1" }] }],
            "tolerations": [{ "key": "a" }],
            "paused": false,
        } }));
        let by = |manager: &str, fields: Value| json!({ "manager": manager, "fieldsV1": fields });
        let observed = json!({
            "metadata": { "managedFields": [
                by(names::OPERATOR, json!({ "f:spec": { "f:replicas": {}, "f:paused": {} } })),
                by("kubectl", json!({ "f:spec": { "f:replicas": {}, "f:tolerations": {} } })),
                by("hand", json!({ "f:spec": { "f:containers": {
                    "k:{\"name\":\"questdb\"}": { "f:image": {} },
                } } })),
            ] },
            "spec": {
                "replicas": 0,
                "containers": [{ "name": "questdb", "image": "b", "env": [] }],
                "tolerations": [{ "key": "b" }],
                "paused": false,
            },
        });
        let found = contests(&observed, &wanted);
        let contest = |field: &str, others: &[&str]| Contest {
            field: field.to_owned(),
            others: others.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            found,
            [
                contest("/spec/containers[{\"name\":\"questdb\"}]/env[{\"name\":\"A\"}]", &[]),
                contest("/spec/containers[{\"name\":\"questdb\"}]/image", &["hand"]),
                contest("/spec/replicas", &["kubectl"]),
                contest("/spec/tolerations", &["kubectl"]),
            ]
        );
    }

    #[test]
    fn what_excludes_a_field_of_ours_is_named_with_who_wrote_it() {
        let element = "k:{\"name\":\"A\"}";
        let by = |manager: &str, field: &str| {
            let fields = json!({ "f:spec": { "f:env": { element: { field: {} } } } });
            json!({ "manager": manager, "fieldsV1": fields })
        };
        let from = json!({ "fieldRef": { "fieldPath": "a" } });
        let observed = json!({
            "metadata": { "managedFields": [by(names::OPERATOR, "f:valueFrom"), by("hand", "f:value")] },
            "spec": { "env": [{ "name": "A", "value": "theirs", "valueFrom": from }] },
        });
        let wanted = intended(json!({ "spec": { "env": [{ "name": "A", "valueFrom": from }] } }));
        let field = "/spec/env[{\"name\":\"A\"}]/value".to_owned();
        assert_eq!(contests(&observed, &wanted), [Contest { field, others: vec!["hand".to_owned()] }]);
    }

    #[test]
    fn what_is_as_intended_is_nobodys_contest() {
        let wanted = intended(json!({ "spec": { "replicas": 1, "none": [], "ports": [{ "port": 1 }] } }));
        let observed =
            json!({ "spec": { "replicas": 1, "more": 2, "ports": [{ "port": 2 }, { "port": 1, "a": 1 }] } });
        assert_eq!(contests(&observed, &wanted), []);
    }
}
