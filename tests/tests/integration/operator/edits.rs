//! Other hands in our objects: one that is not ours is never taken over, and who writes a field of ours again and again is
//! told and not fought, or, where an object is taken away as a whole, told.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use resources::names::{self, condition};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::subject::Subject;
use crate::front::Front;

/// Objects of a database by kind and what follows its resource's name.
pub(super) const OBJECTS: [(&str, &str, &str, &str); 8] = [
    ("", "v1", "ConfigMap", "-config"),
    ("", "v1", "Service", ""),
    ("", "v1", "Service", "-pods"),
    ("", "v1", "PersistentVolumeClaim", "data-"),
    ("", "v1", "Secret", "-credentials"),
    ("apps", "v1", "StatefulSet", ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "-questdb"),
    ("policy", "v1", "PodDisruptionBudget", "-questdb"),
];

pub(super) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(super) fn name(of: &str, affix: &str) -> String {
    if affix == "data-" { names::claim(of) } else { format!("{of}{affix}") }
}

pub(super) fn api(rig: &Rig, (group, version, kind, _): (&str, &str, &str, &str)) -> Api<DynamicObject> {
    Api::namespaced_with(rig.admin.clone(), &rig.namespace, &resource(group, version, kind))
}

/// An operator behind a front that looks at each database every second.
pub(super) async fn behind(rig: &Rig) -> (Spawned, Front) {
    let lease = rig.lease().await;
    let front = Front::before(&rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    (rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]), front)
}

/// Waits for so many more passes.
async fn passes(operator: &Spawned, more: f64) {
    let passes = async || operator.metric("controller_runtime_reconcile_total", "").await;
    let wanted = passes().await + more;
    eventually(PATIENCE, "passes", async || (passes().await >= wanted).then_some(())).await;
}

/// Writes of an object that came from the operator so far; one that may only make it, and was refused, is none.
fn writes(front: &Front, api: &Api<DynamicObject>, name: &str) -> usize {
    let about = format!("{}/{name}", api.resource_url());
    front
        .seen(|seen| {
            let makes = seen.body.contains("\"resourceVersion\":");
            seen.is_write() && seen.about() == about && !makes
        })
        .len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_of_somebody_else_is_taken_over() {
    let rig = Arc::new(Rig::new().await);
    let others = Others::of(&rig);
    let _operator = rig.start().await;
    let taken = join_all(OBJECTS.iter().map(|object| taken(&rig, *object))).await;
    assert!(taken.iter().all(|told| told.contains("is not ours")), "{taken:?}");
    drop(others);
    rig.end().await;
}

/// A database of which one object is there already, and what it says of it.
async fn taken(rig: &Rig, object: (&str, &str, &str, &str)) -> String {
    let (group, version, kind, affix) = object;
    let (of, api) = (unique("taken"), api(rig, object));
    let name = name(&of, affix);
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let body = json!({
        "apiVersion": group_version, "kind": kind, "metadata": { "name": name, "namespace": rig.namespace },
        "spec": foreign_spec(kind),
    });
    let theirs: DynamicObject = serde_json::from_value(body).unwrap();
    let theirs = api.create(&PostParams::default(), &theirs).await.unwrap();
    let mut plain = rig.managed(&of, 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    apply(&rig.as_admin(), &plain).await.unwrap();
    let told = conflict(rig, &of, &format!("{kind} {name}")).await;
    let now = api.get(&name).await.unwrap();
    assert_eq!(now.metadata.resource_version, theirs.metadata.resource_version, "{kind} was written");
    told
}

/// What a database says of what it needs and somebody else has.
async fn conflict(rig: &Rig, of: &str, theirs: &str) -> String {
    eventually(2 * PATIENCE, &format!("a word about {theirs}"), async || {
        let status = rig.as_admin().get(of).await.unwrap().status?;
        let found = status.conditions.into_iter().find(|found| found.type_ == condition::DEGRADED)?;
        (found.status == "True").then_some(found.message)
    })
    .await
}

fn foreign_spec(kind: &str) -> Value {
    let labels = json!({ "app": "theirs" });
    match kind {
        "Service" => json!({ "ports": [{ "port": 80 }] }),
        "PersistentVolumeClaim" => json!({
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        }),
        "StatefulSet" => json!({
            "serviceName": "theirs", "selector": { "matchLabels": labels }, "replicas": 0,
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "a", "image": "a" }] } },
        }),
        "NetworkPolicy" => json!({ "podSelector": { "matchLabels": labels } }),
        "PodDisruptionBudget" => json!({ "minAvailable": 0, "selector": { "matchLabels": labels } }),
        _ => Value::Null,
    }
}

/// What a StatefulSet has of its own: it, its claim and its pod, which has these labels. The pod as it was made.
async fn foreign_set(rig: &Rig, of: &str, labels: &Value) -> DynamicObject {
    let made = async |group: &str, version: &str, kind: &str, body: Value| {
        let api = api(rig, (group, version, kind, ""));
        let object: DynamicObject = serde_json::from_value(body).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    };
    let object = |version: &str, kind: &str, name: &str| {
        let metadata = json!({ "name": name, "namespace": rig.namespace });
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": foreign_spec(kind) })
    };
    let set = made("apps", "v1", "StatefulSet", object("apps/v1", "StatefulSet", of)).await;
    let claim = names::claim(of);
    made("", "v1", "PersistentVolumeClaim", object("v1", "PersistentVolumeClaim", &claim)).await;
    let mut pod = object("v1", "Pod", &names::pod(of));
    pod["metadata"]["labels"] = labels.clone();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": of, "uid": set.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod["spec"] = json!({
        "containers": [{ "name": "a", "image": "a" }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
    });
    made("", "v1", "Pod", pod).await
}

/// The pod of somebody else's with these labels, beside a database of its name that was paused and has no machine any more.
async fn beside_foreign(rig: &Arc<Rig>, labels: &Value) -> DynamicObject {
    let mut subject = Subject::within(rig, &unique("outlived"));
    let pod = foreign_set(rig, &subject.name, labels).await;
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    let told = conflict(rig, &subject.name, "the claim").await;
    assert!(told.contains("is not ours"), "{told}");
    subject.wish_run_state("Paused").await;
    subject.carried_out(resources::Phase::Paused).await;
    let (nodes, node): (Api<Node>, _) = (Api::all(rig.admin.clone()), subject.node(1));
    eventually(PATIENCE, "the end of its Node", async || {
        nodes.get_opt(&node).await.unwrap().is_none().then_some(())
    })
    .await;
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_somebody_elses_stateful_set_is_not_taken_for_that_of_a_database() {
    let rig = Arc::new(Rig::new().await);
    let (operator, _front) = behind(&rig).await;
    let another = json!({
        names::LABEL_DATABASE: uuid::Uuid::now_v7().hyphenated().to_string(),
        names::LABEL_NAME: "another", names::LABEL_NAMESPACE: rig.namespace,
    });
    let labels = [json!({ "app": "theirs" }), another];
    let before = join_all(labels.iter().map(|labels| beside_foreign(&rig, labels))).await;
    // Something has left a watch with each Node: what may be missing of the database is looked for.
    passes(&operator, 8.0).await;
    let pods = api(&rig, ("", "v1", "Pod", ""));
    for pod in before {
        let after = pods.get_opt(&pod.name_any()).await.unwrap().map(|found| found.metadata);
        let after = after.map(|found| (found.uid, found.resource_version));
        assert_eq!(after, Some((pod.metadata.uid, pod.metadata.resource_version)));
    }
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_a_field_of_ours_again_and_again_is_told_and_not_fought() {
    let mut subject = Subject::new(&unique("fought")).await;
    let _others = Others::of(&subject.rig);
    let (operator, front) = behind(&subject.rig).await;
    // Who is told late of a repair makes it once more, as often as it looks meanwhile.
    front.tell_before_answers();
    subject.wish_run_state("Running").await;
    subject.carried_out(resources::Phase::Ready).await;
    let set = api(&subject.rig, ("apps", "v1", "StatefulSet", ""));
    let writes = |front: &Front| writes(front, &set, &subject.name);
    let before = writes(&front);
    let scaler = tokio::spawn(scale(subject.sets(), subject.name.clone()));
    let (api, name) = (subject.rig.as_admin(), subject.name.clone());
    let told = async |what: &str, status: &str| {
        eventually(PATIENCE, what, async || {
            let found = api.get(&name).await.unwrap().status?;
            let found = found.conditions.into_iter().find(|found| found.type_ == condition::CONTENDED)?;
            (found.status == status).then_some(found.message)
        })
        .await
    };
    let text = told("a word about the other", "True").await;
    assert!(text.contains("/spec/replicas") && text.contains("scaler"), "{text}");
    let fought = writes(&front) - before;
    // Three, and those that came because the operator, or the other one, looked late all the same.
    assert!((1..=8).contains(&fought), "{fought} writes");
    eventually(PATIENCE, "what is fought over to be counted", async || {
        (operator.metric("slipway_contended_objects", "StatefulSet").await > 0.0).then_some(())
    })
    .await;
    passes(&operator, 1.0).await;
    assert_eq!(writes(&front) - before, fought, "it is fought on");
    // Once the other has gone, and with another wish, it is ours again.
    scaler.abort();
    assert!(scaler.await.unwrap_err().is_cancelled());
    subject.wish(|spec| spec["restartNonce"] = json!("once")).await;
    subject.carried_out(resources::Phase::Ready).await;
    told("that nobody else writes", "False").await;
    // What the other one had asked for when it ended may be done only now, and is put right like all else.
    eventually(PATIENCE, "its replica", async || {
        let set = subject.sets().get(&subject.name).await.unwrap();
        (set.spec.unwrap().replicas == Some(1)).then_some(())
    })
    .await;
    subject.purge_with_others().await;
}

/// Somebody who wants no replica, whatever it takes.
async fn scale(sets: Api<k8s_openapi::api::apps::v1::StatefulSet>, name: String) {
    let scaler = PatchParams { field_manager: Some("scaler".to_owned()), ..PatchParams::default() };
    let none = json!({ "spec": { "replicas": 0 } });
    loop {
        let found = sets.get(&name).await.unwrap();
        if found.spec.and_then(|spec| spec.replicas) != Some(0) {
            sets.patch(&name, &scaler, &Patch::Merge(&none)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_deletes_an_object_again_and_again_is_told_and_it_is_made_again_all_the_same() {
    let mut subject = Subject::new(&unique("pruned")).await;
    let _others = Others::of(&subject.rig);
    let (operator, _front) = behind(&subject.rig).await;
    subject.wish_run_state("Running").await;
    subject.carried_out(resources::Phase::Ready).await;
    let object = OBJECTS.into_iter().find(|(_, _, kind, _)| *kind == "PodDisruptionBudget").unwrap();
    let (budgets, budget) = (api(&subject.rig, object), name(&subject.name, object.3));
    let pruner = tokio::spawn(prune(budgets.clone(), budget.clone()));
    let text = eventually(PATIENCE, "a word about the other", async || {
        let found = subject.rig.as_admin().get(&subject.name).await.unwrap().status?;
        let found = found.conditions.into_iter().find(|found| found.type_ == condition::CONTENDED)?;
        (found.status == "True").then_some(found.message)
    })
    .await;
    assert!(text.contains(&format!("deletes PodDisruptionBudget {budget} again")), "{text}");
    eventually(PATIENCE, "it to be counted", async || {
        (operator.metric("slipway_contended_objects", "PodDisruptionBudget").await > 0.0).then_some(())
    })
    .await;
    pruner.abort();
    assert!(pruner.await.unwrap_err().is_cancelled());
    eventually(PATIENCE, "the budget to come back", async || budgets.get_opt(&budget).await.unwrap()).await;
    subject.carried_out(resources::Phase::Ready).await;
    subject.purge_with_others().await;
}

/// Somebody who wants no such object, whatever it takes.
async fn prune(api: Api<DynamicObject>, name: String) {
    loop {
        let _ = api.delete(&name, &DeleteParams::default()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
