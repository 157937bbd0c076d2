//! Databases that a resource of another namespace names: nothing of them is changed, shown or handed out, until somebody who may
//! write tags in AWS allows it.

use std::sync::Arc;

use cloud::{Instance, SecurityGroup, Tags, Volume, key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resources::{Phase, RunState, names};
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
