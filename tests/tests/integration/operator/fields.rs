//! Every field that the operator owns in the objects of a database, by the API server's own account of who owns what: whoever
//! changes it or takes it away by hand, it comes back, and that is counted. Nothing else is written for it. So is an object that
//! somebody deletes, and the label by which one is found.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::edits::{OBJECTS, resource};
use super::exact::is_of_object;
use super::leader::working;
use super::others::Others;
use super::rig::PATIENCE;
use super::subject::Subject;
use crate::front::Front;

/// How often a hand comes to an object until one of its changes is counted.
const TRIES: usize = 3;
/// For longer than the operator waits for what it made to show: it does not make it again meanwhile.
const MADE: Duration = Duration::from_secs(4);

/// Where a field is, as a JSON pointer.
type Pointer = String;

/// The fields that the operator owns. What tells one element of a list from another is left out: with another key it would be
/// another element, which is its maker's.
fn owned(object: &DynamicObject) -> Vec<Pointer> {
    let entries = object.metadata.managed_fields.iter().flatten();
    // Its own Secret is written value by value, and never applied.
    let is_secret = object.types.as_ref().is_some_and(|types| types.kind == "Secret");
    let how = if is_secret { "Update" } else { "Apply" };
    let ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(names::OPERATOR) && entry.operation.as_deref() == Some(how)
    });
    let value = serde_json::to_value(object).unwrap();
    let mut found = Vec::new();
    for fields in ours.filter_map(|entry| entry.fields_v1.as_ref()) {
        walk(&fields.0, &value, (&json!({}), ""), &mut found);
    }
    found
}

fn walk(fields: &Value, value: &Value, (keys, at): (&Value, &str), found: &mut Vec<Pointer>) {
    let Some(fields) = fields.as_object().filter(|fields| fields.keys().any(|field| field != ".")) else {
        found.push(at.to_owned());
        return;
    };
    for (field, inner) in fields {
        if let Some(name) = field.strip_prefix("f:").filter(|name| keys.get(name).is_none()) {
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            walk(inner, &value[name], (&json!({}), &at), found);
        } else if let Some(keys) = field.strip_prefix("k:") {
            let keys: Value = serde_json::from_str(keys).unwrap();
            let has = |element: &Value| keys.as_object().unwrap().iter().all(|(key, of)| element[key] == *of);
            let place = value.as_array().unwrap().iter().position(has).unwrap();
            walk(inner, &value[place], (&keys, &format!("{at}/{place}")), found);
        }
    }
}

/// Other values of the same kind, of which the API server may take one.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => {
            vec![json!(format!("{text}x")), json!("x"), json!("1"), json!("1Gi"), json!("eA==")]
        }
        Value::Number(number) => {
            let number = number.as_i64().unwrap();
            vec![json!(number + 1), json!(number - 1)]
        }
        Value::Bool(is) => vec![json!(!is)],
        Value::Array(_) => vec![json!([])],
        Value::Object(_) | Value::Null => vec![json!({})],
    }
}

/// What a hand does to a field.
fn acts(pointer: &Pointer, value: &Value) -> Vec<Vec<Value>> {
    let replace = |value: Value| json!({ "op": "replace", "path": pointer, "value": value });
    vec![others(value).into_iter().map(replace).collect(), vec![json!({ "op": "remove", "path": pointer })]]
}

/// One hand after the other on each field of an object; how many of them the API server let do it.
pub(super) async fn meddle(client: &Client, api: &Api<DynamicObject>, name: &str) -> usize {
    let read = async || serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    let before = read().await;
    let mut done = 0;
    let all = owned(&api.get(name).await.unwrap());
    assert!(all.len() > 5, "{name}: {all:?}");
    // By its labels an object is found: who takes those off is looked for in another way.
    for pointer in all.iter().filter(|pointer| !pointer.starts_with("/metadata/labels/")) {
        // What is empty is owned and not shown.
        let Some(value) = before.pointer(pointer) else { continue };
        let is_back = async || (read().await.pointer(pointer) == Some(value)).then_some(());
        for tries in acts(pointer, value) {
            if hand((client, api), name, (pointer, value), tries).await {
                // Who changes the note of what was applied makes it another intention: put right, and not counted.
                done += usize::from(!pointer.ends_with("~1applied"));
                eventually(PATIENCE, &format!("{pointer} of {name} to come back"), is_back).await;
            }
        }
    }
    done
}

/// Whether the API server took one of these changes and stored another value.
async fn hand(
    (client, api): (&Client, &Api<DynamicObject>),
    name: &str,
    (pointer, value): (&str, &Value),
    tries: Vec<Value>,
) -> bool {
    for change in tries {
        let url = format!("{}/{name}?fieldManager=somebody", api.resource_url());
        let request = axum::http::Request::patch(url)
            .header("content-type", "application/json-patch+json")
            .body(serde_json::to_vec(&json!([change])).unwrap());
        let Ok(found) = client.request::<Value>(request.unwrap()).await else { continue };
        return found.pointer(pointer) != Some(value);
    }
    false
}

/// Waits until no pass is under way, and the last one found nothing to do: what is put right before is not counted.
pub(super) async fn at_rest(subject: &Subject, operator: &Spawned) {
    eventually(PATIENCE, "a database at rest", async || {
        let metrics = operator.metrics().await;
        let passes = testkit::spawned::sum(&metrics, "controller_runtime_active_workers", "");
        let is_idle = !metrics.is_empty() && passes < 1.0;
        (is_idle && subject.is_carried_out(Phase::Ready).await).then_some(())
    })
    .await;
}

/// How often something of this kind was put right so far.
async fn corrections(operator: &Spawned, kind: &str) -> f64 {
    let metrics = eventually(PATIENCE, "metrics", async || {
        // Who does not answer in time has counted all the same.
        Some(operator.metrics().await).filter(|metrics| !metrics.is_empty())
    })
    .await;
    testkit::spawned::sum(&metrics, "slipway_drift_corrections_total", &format!("kind=\"{kind}\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_of_ours_comes_back_whoever_changes_it() {
    let mut subject = Subject::new(&unique("fields")).await;
    let _others = Others::of(&subject.rig);
    let lease = subject.rig.lease().await;
    let front = Front::before(&subject.rig.rights(&lease).await).await;
    // What is back is not written again because of a watch that tells late of it, when the next object's turn has come.
    front.tell_before_answers();
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let mut operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[]);
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let mut all = Vec::new();
    for (group, version, kind, affix) in OBJECTS {
        let kind_of = resource(group, version, kind);
        let api = Api::namespaced_with(subject.rig.admin.clone(), &subject.rig.namespace, &kind_of);
        let name = super::edits::name(&subject.name, affix);
        let mut tries = 1;
        let mut done = put_right(&subject, &operator, &front, (&api, kind, &name)).await;
        while done.is_none() {
            assert!(tries < TRIES, "of the changes of {kind} {name} none was counted, {TRIES} times");
            tries += 1;
            operator = anew(operator, &subject, (&lease, &kubeconfig)).await;
            done = put_right(&subject, &operator, &front, (&api, kind, &name)).await;
        }
        all.extend(done.map(|done| (kind, affix, done)));
    }
    println!("changed by hand and put right: {all:?}");
    let done =
        |kind: &str| all.iter().filter(|(found, ..)| *found == kind).map(|(.., done)| done).sum::<usize>();
    assert!(done("StatefulSet") > 60 && done("Service") > 10 && done("ConfigMap") > 0, "{all:?}");
    assert!(done("Secret") > 10, "{all:?}");
    take_away(&subject, &operator).await;
    subject.carried_out(Phase::Ready).await;
    subject.purge_with_others().await;
}

/// Another operator in the place of one: what that one has put right twice after somebody it leaves as it is the next time.
async fn anew(operator: Spawned, subject: &Subject, access: (&str, &Path)) -> Spawned {
    operator.terminate(PATIENCE).await.unwrap();
    let next = subject.rig.spawn(access, &[], &[]);
    eventually(PATIENCE, "the next one to lead and work", async || working(&next).await.then_some(())).await;
    next
}

/// One hand after the other on the fields of an object, each of which comes back by itself; how many there were. Nothing is counted of a
/// database that is not at rest: there is no answer where it was looked after for another reason just then, and nothing was counted.
async fn put_right(
    subject: &Subject,
    operator: &Spawned,
    front: &Front,
    (api, kind, name): (&Api<DynamicObject>, &str, &str),
) -> Option<usize> {
    let edited = format!("{}/{name}", api.resource_url());
    at_rest(subject, operator).await;
    let (before, written) = (corrections(operator, kind).await, front.seen(is_of_object).len());
    let done = meddle(&subject.rig.admin, api, name).await;
    at_rest(subject, operator).await;
    let written = front.seen(is_of_object).split_off(written);
    let beside: Vec<_> = written.iter().filter(|seen| seen.about() != edited).collect();
    assert!(beside.is_empty(), "written for what was changed of {kind} {name} alone: {beside:?}");
    assert!(written.len() >= done, "{done} changes of {kind} {name} came back by {written:?}");
    (done == 0 || corrections(operator, kind).await - before >= 1.0).then_some(done)
}

/// What a hand takes away as a whole, or has the operator see no more, comes back and is counted as well.
async fn take_away(subject: &Subject, operator: &Spawned) {
    let bare = json!({ "metadata": { "labels": { names::LABEL_DATABASE: null } } });
    for (kind, hides) in [("ConfigMap", true), ("Secret", true), ("NetworkPolicy", false)] {
        let object = OBJECTS.into_iter().find(|(_, _, found, _)| *found == kind).unwrap();
        let (api, name) =
            (super::edits::api(&subject.rig, object), super::edits::name(&subject.name, object.3));
        counted(subject, operator, kind, async || {
            let there = api.get(&name).await.unwrap();
            if hides {
                let hidden = api.patch(&name, &PatchParams::default(), &Patch::Merge(&bare)).await.unwrap();
                assert_ne!(hidden.labels(), there.labels(), "{kind} {name}");
            } else {
                api.delete(&name, &DeleteParams::default()).await.unwrap();
            }
            eventually(PATIENCE, &format!("{kind} {name} to come back"), async || {
                let found = api.get_opt(&name).await.unwrap()?;
                assert!(!hides || found.uid() == there.uid(), "{kind} {name} was made anew");
                (found.labels() == there.labels() && (hides || found.uid() != there.uid())).then_some(())
            })
            .await;
        })
        .await;
    }
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_DATABASE, subject.database));
    let node = nodes.list(&ours).await.unwrap().items.remove(0).name_any();
    counted(subject, operator, "Node", async || {
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&bare)).await.unwrap();
        eventually(PATIENCE, "the Node's label to come back", async || {
            nodes.get(&node).await.unwrap().labels().contains_key(names::LABEL_DATABASE).then_some(())
        })
        .await;
    })
    .await;
}

/// A hand takes something of a kind, which comes back and is counted. It comes once more where it was not, because the database was
/// not at rest just then, or what came back was not written at the first try.
async fn counted(subject: &Subject, operator: &Spawned, kind: &str, hand: impl AsyncFn()) {
    for _ in 0..TRIES {
        at_rest(subject, operator).await;
        let before = corrections(operator, kind).await;
        hand().await;
        at_rest(subject, operator).await;
        if corrections(operator, kind).await > before {
            return;
        }
        testkit::lasting(MADE).await;
    }
    panic!("of what was taken of a {kind} none was counted, {TRIES} times");
}
