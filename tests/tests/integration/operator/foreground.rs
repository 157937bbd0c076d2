//! Resources that somebody deletes in the foreground, as Argo CD does: Kubernetes' garbage collector takes away at once whatever
//! refers to its resource. It does not run here; the test does its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope, verbs};
use kube::{Api, ResourceExt as _};
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::truth::plain;

/// The finalizer of who deletes in the foreground.
const FOREGROUND: &str = "foregroundDeletion";
/// Who writes what an older operator did.
const OLDER: &str = "older-operator";

type Object = (ApiResource, DynamicObject);

/// Everything in the namespace.
async fn all(rig: &Rig) -> Vec<Object> {
    let kinds = eventually(PATIENCE, "all kinds that there are", async || {
        Discovery::new(rig.admin.clone()).run().await.ok()
    })
    .await;
    let mut all = Vec::new();
    for (resource, capabilities) in kinds.groups().flat_map(ApiGroup::recommended_resources) {
        if matches!(capabilities.scope, Scope::Cluster) || !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let found = of_kind(rig, &resource).await;
        all.extend(found.into_iter().map(|object| (resource.clone(), object)));
    }
    all
}

/// Everything of a kind in the namespace; nothing where another test has taken the kind away meanwhile.
async fn of_kind(rig: &Rig, resource: &ApiResource) -> Vec<DynamicObject> {
    eventually(PATIENCE, &format!("all of {}", resource.kind), async || {
        match api(rig, resource).list(&ListParams::default()).await {
            Ok(found) => Some(found.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
            // Of what is not answered nobody knows whether there is any.
            Err(_) => None,
        }
    })
    .await
}

fn api(rig: &Rig, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(rig.admin.clone(), &rig.namespace, resource)
}

fn text((resource, object): &Object) -> String {
    format!("{} {}", resource.kind, object.name_any())
}

fn refers(object: &DynamicObject, owner: &QuestDB) -> bool {
    object.owner_references().iter().any(|reference| Some(&reference.uid) == owner.metadata.uid.as_ref())
}

/// What the database has beside its resource, each with its uid.
async fn had(rig: &Rig, database: &str) -> BTreeMap<String, Option<String>> {
    let mut all = all(rig).await;
    all.retain(|(resource, object)| {
        let labelled = object.labels().get(names::LABEL_DATABASE).is_some_and(|found| found == database);
        resource.kind != names::KIND && (labelled || object.annotations().contains_key(names::RESOURCE))
    });
    all.iter().map(|object| (text(object), object.1.uid())).collect()
}

/// The garbage collector's part; what it took away.
async fn collect(rig: &Rig, name: &str) -> Vec<String> {
    let owner = rig.as_admin().get(name).await.unwrap();
    assert!(owner.metadata.deletion_timestamp.is_some());
    assert!(owner.finalizers().iter().any(|finalizer| finalizer == FOREGROUND), "{:?}", owner.finalizers());
    let mut all = all(rig).await;
    all.retain(|(_, object)| refers(object, &owner));
    for (resource, object) in &all {
        api(rig, resource).delete(&object.name_any(), &DeleteParams::background()).await.unwrap();
    }
    all.iter().map(text).collect()
}

/// Nothing refers to the resource any more: the garbage collector lets it go.
async fn let_go(rig: &Rig, name: &str) {
    eventually(PATIENCE, "the garbage collector's finalizer to go", async || {
        let found = rig.as_admin().get(name).await.ok()?;
        let others: Vec<_> = found.finalizers().iter().filter(|finalizer| *finalizer != FOREGROUND).collect();
        let version = found.metadata.resource_version.as_ref();
        let body = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
        rig.as_admin().patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.ok()
    })
    .await;
}

async fn serves(rig: &Rig, name: &str) -> QuestDB {
    eventually(PATIENCE, "a database that serves", async || {
        let found = rig.as_admin().get(name).await.ok()?;
        (found.status.as_ref()?.phase == Some(Phase::Ready)).then_some(found)
    })
    .await
}

async fn protect(rig: &Rig, name: &str, protection: bool) {
    let change = json!({ "spec": { "deletionProtection": protection } });
    rig.as_admin().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

/// The resource goes; of what its database had, only the credentials stay beside the disk, as they were.
async fn ends(rig: &Rig, name: &str, before: &BTreeMap<String, Option<String>>, database: &str) {
    let_go(rig, name).await;
    eventually(2 * PATIENCE, "the end of the resource", async || {
        rig.as_admin().get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    let secret = format!("Secret {}", names::credentials(name));
    let uid = before[&secret].clone();
    assert_eq!(had(rig, database).await, BTreeMap::from([(secret, uid)]));
    assert_eq!((rig.instances().await.len(), rig.volumes().await.len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_protected_database_serves_on_whoever_deletes_it_in_the_foreground() {
    let rig = Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let name = &unique("foreground");
    let mut operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, name, "Retain")).await.unwrap();
    let database = serves(&rig, name).await.status.unwrap().database_id.unwrap();
    let before = had(&rig, &database).await;
    for kind in ["Secret", "ConfigMap", "Service", "StatefulSet", "NetworkPolicy", "PodDisruptionBudget"] {
        assert!(before.keys().any(|found| found.starts_with(kind)), "{kind}: {before:?}");
    }
    // The policy refuses the deletion of what is protected already: here nobody looks while both are written.
    operator.kill().await.unwrap();
    rig.as_admin().delete(name, &DeleteParams::foreground()).await.unwrap();
    protect(&rig, name, true).await;
    assert_eq!(collect(&rig, name).await, Vec::<String>::new());
    let _operator = rig.start().await;
    eventually(PATIENCE, "word of the protection", async || {
        let status = rig.as_admin().get(name).await.ok()?.status?;
        let is_held = status.conditions.iter().any(is_held_back);
        (is_held && status.phase == Some(Phase::Ready)).then_some(())
    })
    .await;
    assert_eq!(collect(&rig, name).await, Vec::<String>::new());
    assert_eq!(had(&rig, &database).await, before);

    protect(&rig, name, false).await;
    ends(&rig, name, &before, &database).await;
    rig.end().await;
}

fn is_held_back(found: &Condition) -> bool {
    found.type_ == condition::DELETION_HELD && found.status == "True"
}

/// What bears our mark refers to its resource instead, by the hand of the operator that applied it.
async fn refer(rig: &Rig, owner: &QuestDB) {
    let uid = owner.uid().unwrap();
    let reference = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": names::KIND, "name": owner.name_any(),
        "uid": uid, "controller": true, "blockOwnerDeletion": false,
    });
    let marked = all(rig).await.into_iter();
    for (resource, object) in marked.filter(|(_, object)| object.annotations().contains_key(names::RESOURCE))
    {
        let (api, name) = (api(rig, &resource), object.name_any());
        let annotations = json!({ names::RESOURCE: null, names::APPLIED: "older" });
        let body = json!({ "metadata": { "ownerReferences": [reference], "annotations": annotations } });
        let older = PatchParams { field_manager: Some(OLDER.to_owned()), ..PatchParams::default() };
        let written = api.patch(&name, &older, &Patch::Merge(&body)).await.unwrap();
        let mut managers = json!(written.metadata.managed_fields);
        let managers = managers.as_array_mut().unwrap();
        managers.retain(|manager| manager["manager"] != OLDER);
        let applied =
            |manager: &&mut Value| manager["manager"] == names::OPERATOR && manager["operation"] == "Apply";
        if let Some(manager) = managers.iter_mut().find(applied) {
            let key = format!("k:{}", json!({ "uid": uid }));
            manager["fieldsV1"]["f:metadata"]["f:ownerReferences"] = json!({ key: {} });
        }
        let version = &written.metadata.resource_version;
        let body = json!({ "metadata": { "managedFields": managers, "resourceVersion": version } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_older_operators_left_to_the_collector_is_taken_from_it_and_credentials_outlive_their_resource()
{
    let rig = Arc::new(Rig::new().await);
    let others = Others::of(&rig);
    let name = &unique("older");
    let mut operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, name, "Retain")).await.unwrap();
    let owner = serves(&rig, name).await;
    let database = owner.status.as_ref().unwrap().database_id.clone().unwrap();
    let before = had(&rig, &database).await;
    operator.kill().await.unwrap();
    // Nobody else writes to what is made as it was.
    drop(others);
    refer(&rig, &owner).await;
    assert!(all(&rig).await.iter().filter(|(_, object)| refers(object, &owner)).count() > 5);
    let _others = Others::of(&rig);
    let _operator = rig.start().await;
    eventually(PATIENCE, "nothing to refer to the resource", async || {
        all(&rig).await.iter().all(|(_, object)| !refers(object, &owner)).then_some(())
    })
    .await;
    serves(&rig, name).await;
    assert_eq!(had(&rig, &database).await, before, "made again or restarted");

    rig.as_admin().delete(name, &DeleteParams::foreground()).await.unwrap();
    assert_eq!(collect(&rig, name).await, Vec::<String>::new());
    ends(&rig, name, &before, &database).await;
    rig.end().await;
}
