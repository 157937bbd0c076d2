//! Databases that a resource of another namespace names: nothing of them is changed, shown or handed out, until somebody who may
//! write tags in AWS allows it.

use std::sync::Arc;

use cloud::{Instance, SecurityGroup, Tags, Volume, key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use resources::{Phase, QuestDB, RunState, names};
use serde_json::{Value, json};
use testkit::{Spawned, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::rights;
use super::subject::Subject;
use super::truth::{identity, made, no_disk, plain, removed};

/// An operator of both namespaces, whose pictures of EC2 are a second old at most.
pub(super) async fn operator(rig: &Rig, beside: &Rig) -> Spawned {
    let lease = rig.lease().await;
    let namespaces = [rig.namespace.as_str(), beside.namespace.as_str()];
    let kubeconfig = rights::grant(&rig.admin, &namespaces, &lease).await;
    let more = [("SLIPWAY_WATCH_NAMESPACE", &*namespaces.join(",")), ("SLIPWAY_RESYNC", "1s")];
    let operator = rig.spawn((&lease, &kubeconfig), &[], &more);
    operator.ready().await;
    operator
}

/// A resource that names a database in its annotation alone.
fn annotated(rig: &Rig, name: &str, database: &str, policy: &str) -> Value {
    let mut object = plain(rig, name, policy);
    object["metadata"]["annotations"] = json!({ names::ADOPTED_ID: database });
    object
}

/// Waits until a resource is told that it is not clear which database it is, in words that name all of this, and nothing else.
async fn is_refused(rig: &Rig, name: &str, parts: &[&str]) {
    eventually(PATIENCE, &format!("{name} to be refused for {parts:?}"), async || {
        let status = rig.as_admin().get(name).await.ok()?.status?;
        assert_eq!(status.database_id, None, "believed");
        assert!(status.node.is_none() && status.volume.is_none() && status.dns.is_none(), "{status:?}");
        let mut conditions = status.conditions.iter();
        let conflict = conditions.find(|found| found.type_ == names::condition::CONFLICT)?;
        let told = conflict.status == "True" && parts.iter().all(|part| conflict.message.contains(part));
        told.then_some(())
    })
    .await;
    let found = rig.as_admin().get(name).await.unwrap();
    assert_eq!(found.metadata.finalizers, None, "nothing is to be cleaned up after it");
}

/// What a cluster has in EC2, while no machine runs in it.
pub(super) async fn owned(rig: &Rig) -> (Vec<Instance>, Vec<Volume>, Vec<SecurityGroup>) {
    let (mut volumes, mut groups) = (rig.volumes().await, rig.groups().await);
    for volume in &mut volumes {
        assert!(volume.is_detached(), "{volume:?}");
        volume.attachments.clear();
    }
    volumes.sort_by(|one, other| one.id.cmp(&other.id));
    groups.sort_by(|one, other| one.id.cmp(&other.id));
    (rig.instances().await, volumes, groups)
}

/// Deletes a resource and waits until it is let go.
async fn deleted(rig: &Rig, name: &str) {
    let (api, patch) = (rig.as_admin(), PatchParams::default());
    // A policy of this cluster lets a managed one be removed only then; the operator says again that it is not so.
    let phase = Patch::Merge(json!({ "status": { "phase": "Deleted" } }));
    eventually(PATIENCE, &format!("{name} to be let go"), async || {
        let _ = api.patch_status(name, &patch, &phase).await;
        let _ = api.delete(name, &DeleteParams::default()).await;
        api.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_at_a_database_by_naming_it_in_another_namespace() {
    let mut subject = Subject::new(&unique("owner")).await;
    let others = Others::of(&subject.rig);
    let beside = subject.rig.beside().await;
    let _operator = operator(&subject.rig, &beside).await;
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    subject.wish_run_state("Paused").await;
    subject.carried_out(Phase::Paused).await;
    subject.no_machine().await;
    let before = owned(&subject.rig).await;
    assert_eq!((before.1.len(), before.2.len()), (1, 1), "{before:?}");
    let hostname = subject.rig.hostname(&subject.name);
    let records = subject.rig.records(&hostname).await;

    let mut purges = beside.unique("purges", &subject.database, 1);
    purges["spec"]["runState"] = json!("Purged");
    beside.provision(&purges).await.unwrap();
    let mut runs = beside.unique("runs", &subject.database, 1);
    runs["spec"]["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] });
    beside.provision(&runs).await.unwrap();
    let mut adopts = annotated(&beside, "adopts", &subject.database, "Delete");
    adopts["spec"]["runState"] = json!("Purged");
    apply(&beside.as_admin(), &adopts).await.unwrap();

    let owner =
        format!("{}/{} stands for database {}", subject.rig.namespace, subject.name, subject.database);
    for name in ["purges", "runs", "adopts"] {
        is_refused(&beside, name, &[&owner]).await;
        assert_eq!(owned(&subject.rig).await, before, "{name} changed what is another's");
    }
    for name in ["purges", "runs", "adopts"] {
        deleted(&beside, name).await;
        assert_eq!(owned(&subject.rig).await, before, "the end of {name} changed what is another's");
    }
    assert_eq!(subject.rig.records(&hostname).await, records);
    let kept = subject.rig.as_admin().get(&subject.name).await.unwrap();
    assert_eq!(kept.spec.run_state, RunState::Paused);
    assert_eq!(kept.status.unwrap().phase, Some(Phase::Paused));

    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(subject.volume().await.id, before.1[0].id);
    subject.purge_with_others().await;
    beside.end().await;
    drop(others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_was_kept_goes_to_another_namespace_only_if_its_tag_says_so() {
    let rig = Arc::new(Rig::new().await);
    let beside = rig.beside().await;
    let _operator = operator(&rig, &beside).await;
    apply(&rig.as_admin(), &plain(&rig, "kept", "Retain")).await.unwrap();
    let (database, (_, disk)) = (identity(&rig, "kept").await, made(&rig).await);
    removed(&rig, "kept").await;
    let before = owned(&rig).await;
    assert_eq!(before.1.len(), 1, "its policy is to keep the disk");

    apply(&beside.as_admin(), &annotated(&beside, "heir", &database, "Delete")).await.unwrap();
    let named = format!("{}/{}/heir", rig.cluster, beside.namespace);
    is_refused(&beside, "heir", &[&disk, "create-tags", &named]).await;
    let mut purges = beside.unique("purges", &database, 1);
    purges["spec"]["runState"] = json!("Purged");
    beside.provision(&purges).await.unwrap();
    is_refused(&beside, "purges", &[&format!("stands for database {database}")]).await;
    assert_eq!(owned(&rig).await, before);
    deleted(&beside, "purges").await;
    assert_eq!(owned(&rig).await, before);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(beside.admin.clone(), &beside.namespace);
    assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 0);

    rig.aws.create_tags(&[disk.as_str()], &Tags::new().with(key::FOR, named)).await.unwrap();
    assert_eq!(identity(&beside, "heir").await, database);
    assert_eq!(made(&beside).await.1, disk);
    removed(&beside, "heir").await;
    no_disk(&rig).await;
    beside.end().await;
    rig.end().await;
}

/// Many accounts have rules for what the console shows; the resource that is made again would be another, empty database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_whose_name_in_ec2_was_changed_is_not_passed_over_for_an_empty_one() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, "renamed", "Retain")).await.unwrap();
    let (database, (_, disk)) = (identity(&rig, "renamed").await, made(&rig).await);
    removed(&rig, "renamed").await;
    rig.aws.create_tags(&[disk.as_str()], &Tags::new().named("by-the-rules")).await.unwrap();

    apply(&rig.as_admin(), &plain(&rig, "renamed", "Delete")).await.unwrap();
    let named = format!("{}/{}/renamed", rig.cluster, rig.namespace);
    is_refused(&rig, "renamed", &[&disk, "create-tags", &named]).await;
    rig.aws.create_tags(&[disk.as_str()], &Tags::new().with(key::FOR, named)).await.unwrap();
    assert_eq!(identity(&rig, "renamed").await, database);
    assert_eq!(made(&rig).await.1, disk);
    removed(&rig, "renamed").await;
    no_disk(&rig).await;
    rig.end().await;
}

/// A database that served and is paused.
async fn paused(rig: &Rig, name: &str) -> QuestDB {
    let mut wish = plain(rig, name, "Delete");
    apply(&rig.as_admin(), &wish).await.unwrap();
    in_phase(rig, name, Phase::Ready).await;
    wish["spec"]["runState"] = json!("Paused");
    apply(&rig.as_admin(), &wish).await.unwrap();
    let found = in_phase(rig, name, Phase::Paused).await;
    eventually(PATIENCE, "the end of its machine", async || rig.instances().await.is_empty().then_some(()))
        .await;
    found
}

async fn in_phase(rig: &Rig, name: &str, phase: Phase) -> QuestDB {
    eventually(PATIENCE, &format!("{name} to be {phase:?}"), async || {
        let found = rig.as_admin().get(name).await.unwrap();
        (found.status.as_ref()?.phase == Some(phase)).then_some(found)
    })
    .await
}

/// What a backup of a resource brings into another namespace, with its status, while no operator is there.
async fn brought_back(original: &QuestDB, into: &Rig) {
    let metadata = &original.metadata;
    let copy = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "metadata": {
            "name": metadata.name, "namespace": into.namespace, "annotations": metadata.annotations,
            "finalizers": metadata.finalizers,
        },
        "spec": original.spec,
    });
    let (api, copy) = (into.as_admin(), serde_json::from_value(copy).unwrap());
    api.create(&PostParams::default(), &copy).await.unwrap();
    let status = Patch::Merge(json!({ "status": original.status }));
    api.patch_status(metadata.name.as_deref().unwrap(), &PatchParams::default(), &status).await.unwrap();
}

/// Waits until a condition of a resource is True in words that have this part.
async fn says(rig: &Rig, name: &str, (condition, part): (&str, &str)) {
    eventually(PATIENCE, &format!("{condition} of {name} to say {part}"), async || {
        let status = rig.as_admin().get(name).await.unwrap().status?;
        let found = status.conditions.into_iter().find(|found| found.type_ == condition)?;
        (found.status == "True" && found.message.contains(part)).then_some(())
    })
    .await;
}

/// The disk of a database that rests.
fn disk_of(resource: &QuestDB) -> String {
    resource.status.as_ref().unwrap().volume.as_ref().unwrap().id.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_came_with_the_status_of_its_original_takes_nothing_of_it_when_it_goes() {
    let rig = Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let (beside, name) = (rig.beside().await, unique("original"));
    let first = operator(&rig, &beside).await;
    let original = paused(&rig, &name).await;
    first.kill().await.unwrap();
    let hostname = rig.hostname(&name);
    let (before, records) = (owned(&rig).await, rig.records(&hostname).await);
    assert_eq!((before.1.len(), before.2.len(), records.len()), (1, 1, 1), "{before:?} {records:?}");
    brought_back(&original, &beside).await;

    let _second = operator(&rig, &beside).await;
    let stands = format!("{}/{name} stands for database", rig.namespace);
    says(&beside, &name, (names::condition::CONFLICT, &stands)).await;
    assert_eq!(owned(&rig).await, before);
    beside.as_admin().delete(&name, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the copy to be let go", async || {
        beside.as_admin().get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!((owned(&rig).await, rig.records(&hostname).await), (before, records));
    let kept = rig.as_admin().get(&name).await.unwrap().status.unwrap();
    assert_eq!(kept.phase, Some(Phase::Paused));
    assert!(kept.conditions.iter().all(|found| found.type_ != names::condition::CONFLICT), "{kept:?}");

    // Nor is the original taken for a copy once nothing but the tags of its disk tells whose that is.
    let objects: Api<PersistentVolume> = Api::all(rig.admin.clone());
    let object = names::persistent_volume(&disk_of(&original));
    objects.delete(&object, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the end of the disk's object", async || {
        objects.get_opt(&object).await.unwrap().is_none().then_some(())
    })
    .await;
    removed(&rig, &name).await;
    no_disk(&rig).await;
    beside.end().await;
    rig.end().await;
}

/// Of the resource that the disk was made for its operator sees nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_disk_is_destroyed_with_a_copy_where_only_its_object_tells_that_there_is_another_one() {
    let rig = Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let (beside, name) = (rig.beside().await, unique("unseen"));
    let mut first = rig.start().await;
    let original = paused(&rig, &name).await;
    first.kill().await.unwrap();
    brought_back(&original, &beside).await;

    let _alone = beside.start().await;
    beside.as_admin().delete(&name, &DeleteParams::default()).await.unwrap();
    let made_for = format!("{} was made for {}/{name}", disk_of(&original), rig.namespace);
    says(&beside, &name, (names::condition::DEGRADED, &made_for)).await;
    let retain = Patch::Merge(json!({ "spec": { "storage": { "deletionPolicy": "Retain" } } }));
    beside.as_admin().patch(&name, &PatchParams::default(), &retain).await.unwrap();
    eventually(PATIENCE, "the copy to be let go", async || {
        beside.as_admin().get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    let left = rig.volumes().await;
    assert_eq!((left.len(), left[0].id.as_str()), (1, &*disk_of(&original)), "{left:?}");
    rig.aws.delete_volume(&left[0].id).await.unwrap();
    beside.end().await;
    rig.end().await;
}
