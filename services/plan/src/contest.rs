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
    /// Managers other than us that own it now; none when it was taken away, or changed on its way to what is stored.
    pub others: Vec<String>,
    /// Whether there is anything of it.
    pub is_there: bool,
}

/// The fields of an object, as it is on the server, that are not as intended, or that exclude what is.
pub fn contests(observed: &Value, intended: &Manifest) -> Vec<Contest> {
    let (found, managers) = (Found::of(observed, intended), managers(observed));
    let contest = |(path, is_there): (&Path, bool)| Contest {
        field: text(path),
        others: owners(managers, path),
        is_there,
    };
    let excluding = found.excluding.iter().map(|path| (path, true));
    let differing = found.differing.iter().map(|(path, is_there)| (path, *is_there));
    excluding.chain(differing).map(contest).collect()
}

/// Whether something of an object, as it is on the server, excludes a field of ours and would stay beside it. What nobody but an
/// apply of ours has written, for an earlier wish, goes by the next one.
pub fn crowds_out(observed: &Value, intended: &Manifest) -> bool {
    let (found, managers) = (Found::of(observed, intended), managers(observed));
    found.excluding.iter().any(|path| !is_only_applied(managers, path))
}

/// Whether something of an object, as observed, excludes a field of ours.
pub(crate) fn leaves_no_place(observed: &Value, intended: &Manifest) -> bool {
    !Found::of(observed, intended).excluding.is_empty()
}

/// Steps to a field, as `managedFields` spells them: `f:` and a name, `k:` and the keys of an element.
type Path = Vec<String>;

/// Where something is not as it should be.
#[derive(Default)]
struct Found {
    /// What excludes a field of ours.
    excluding: Vec<Path>,
    /// What is not as intended, and whether there is anything of it.
    differing: Vec<(Path, bool)>,
}

impl Found {
    fn of(observed: &Value, intended: &Manifest) -> Self {
        let mut found = Self::default();
        walk(observed, &intended.body, &mut Path::new(), &mut found);
        found
    }
}

fn walk(observed: &Value, intended: &Value, path: &mut Path, found: &mut Found) {
    let (Value::Object(seen), Value::Object(wanted)) = (observed, intended) else {
        if !covers(observed, intended) {
            found.differing.push((path.clone(), !observed.is_null()));
        }
        return;
    };
    for (field, wanted) in wanted {
        path.push(format!("f:{field}"));
        match seen.get(field) {
            Some(seen) => walk_list(seen, wanted, field, path, found),
            None if is_empty(wanted) => {}
            None => found.differing.push((path.clone(), false)),
        }
        path.pop();
    }
}

/// The elements of a list with keys each by itself; anything else as it is.
fn walk_list(observed: &Value, intended: &Value, field: &str, path: &mut Path, found: &mut Found) {
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
            None => found.differing.push((path.clone(), false)),
        }
        path.pop();
    }
}

fn walk_part(observed: &Value, intended: &Value, field: &str, path: &mut Path, found: &mut Found) {
    for other in excluding(field, observed, intended) {
        let mut path = path.clone();
        path.push(format!("f:{other}"));
        found.excluding.push(path);
    }
    walk(observed, intended, path, found);
}

/// What is known of who wrote which fields.
fn managers(observed: &Value) -> &[Value] {
    let managers = observed.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.map(Vec::as_slice).unwrap_or_default()
}

/// Whether a field is there by our applies and by nothing else. What a merge of ours wrote stays.
fn is_only_applied(managers: &[Value], path: &Path) -> bool {
    let by_apply = |entry: &Value| entry["manager"] == names::OPERATOR && entry["operation"] == "Apply";
    let mut owning = managers.iter().filter(|entry| owns(&entry["fieldsV1"], path)).peekable();
    owning.peek().is_some() && owning.all(by_apply)
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
        let contest = |field: &str, others: &[&str], is_there: bool| Contest {
            field: field.to_owned(),
            others: others.iter().map(|name| (*name).to_owned()).collect(),
            is_there,
        };
        assert_eq!(
            found,
            [
                contest("/spec/containers[{\"name\":\"questdb\"}]/env[{\"name\":\"A\"}]", &[], false),
                contest("/spec/containers[{\"name\":\"questdb\"}]/image", &["hand"], true),
                contest("/spec/replicas", &["kubectl"], true),
                contest("/spec/tolerations", &["kubectl"], true),
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
        let others = vec!["hand".to_owned()];
        assert_eq!(contests(&observed, &wanted), [Contest { field, others, is_there: true }]);
    }

    #[test]
    fn what_is_changed_on_its_way_is_there_and_is_nobodys() {
        let wanted = intended(json!({ "spec": { "image": "questdb:1", "paused": false } }));
        let fields = json!({ "f:spec": { "f:image": {}, "f:paused": {} } });
        let ours = json!({ "manager": names::OPERATOR, "operation": "Apply", "fieldsV1": fields });
        let check = |spec: Value, name: &str, is_there: bool| {
            let observed = json!({ "metadata": { "managedFields": [ours] }, "spec": spec });
            let contest = Contest { field: format!("/spec/{name}"), others: Vec::new(), is_there };
            assert_eq!(contests(&observed, &wanted), [contest], "{observed}");
        };
        check(json!({ "image": "mirror/questdb:1", "paused": false }), "image", true);
        check(json!({ "paused": false }), "image", false);
        check(json!({ "image": "questdb:1", "paused": true }), "paused", true);
    }

    #[test]
    fn what_only_an_apply_of_ours_wrote_crowds_nothing_out() {
        let by = |manager: &str, operation: &str, field: &str| {
            let fields = json!({ "f:spec": { "f:env": { "k:{\"name\":\"A\"}": { field: {} } } } });
            json!({ "manager": manager, "operation": operation, "fieldsV1": fields })
        };
        let ours = by(names::OPERATOR, "Apply", "f:value");
        let merged = by(names::OPERATOR, "Update", "f:value");
        let [theirs, beside] = ["f:value", "f:name"].map(|field| by("hand", "Apply", field));
        let from = json!({ "fieldRef": { "fieldPath": "a" } });
        let wanted = intended(json!({ "spec": { "env": [{ "name": "A", "valueFrom": from }] } }));
        let check = |managers: &[&Value], variable: Value, expected: bool| {
            let observed =
                json!({ "metadata": { "managedFields": managers }, "spec": { "env": [variable] } });
            assert_eq!(crowds_out(&observed, &wanted), expected, "{observed}");
        };
        let value = json!({ "name": "A", "value": "1" });
        check(&[&ours], value.clone(), false);
        check(&[&ours, &beside], value.clone(), false);
        check(&[&theirs], value.clone(), true);
        check(&[&ours, &theirs], value.clone(), true);
        check(&[&merged], value.clone(), true);
        check(&[&ours, &merged], value.clone(), true);
        check(&[&beside], value, true);
        check(&[&theirs], json!({ "name": "A" }), false);
        check(&[&theirs], json!({ "name": "A", "valueFrom": from }), false);
    }

    #[test]
    fn what_leaves_no_place_is_found_wherever_ours_is() {
        let set = |env: Value, volumes: Value| {
            let containers = json!([{ "name": "beside", "env": [] }, { "name": "questdb", "env": env }]);
            json!({ "spec": { "template": { "spec": { "containers": containers, "volumes": volumes } } } })
        };
        let ours = json!([{ "name": "A", "valueFrom": { "secretKeyRef": { "key": "a" } } }]);
        let claim = json!([{ "name": "data", "persistentVolumeClaim": {} }]);
        let wanted = intended(set(ours.clone(), claim.clone()));
        let more = json!([{ "name": "B", "value": "1" }, ours[0]]);
        for (env, volumes, expected) in [
            (ours.clone(), claim.clone(), false),
            (more, json!([{ "name": "theirs", "emptyDir": {} }, claim[0]]), false),
            (json!([]), json!([]), false),
            // Before it is applied as well as after that.
            (json!([{ "name": "A", "value": "1" }]), claim.clone(), true),
            (json!([{ "name": "A", "value": "1", "valueFrom": ours[0]["valueFrom"] }]), claim.clone(), true),
            (json!([{ "name": "A", "valueFrom": { "fieldRef": {} } }]), claim, true),
            (ours, json!([{ "name": "data", "emptyDir": {} }]), true),
        ] {
            let observed = set(env, volumes);
            assert_eq!(leaves_no_place(&observed, &wanted), expected, "{observed}");
        }
    }

    #[test]
    fn what_is_as_intended_is_nobodys_contest() {
        let wanted = intended(json!({ "spec": { "replicas": 1, "none": [], "ports": [{ "port": 1 }] } }));
        let observed =
            json!({ "spec": { "replicas": 1, "more": 2, "ports": [{ "port": 2 }, { "port": 1, "a": 1 }] } });
        assert_eq!(contests(&observed, &wanted), []);
    }
}
