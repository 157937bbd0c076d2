//! The last copy of a disk, and protection from deletion, on a real API server and against the AWS endpoint.

use cloud::{Select, SnapshotState, TagFilter, VolumeSnapshot, VolumeState, key};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::names::condition;
use resources::{CopyPolicy, Phase, QuestDB, QuestDBSnapshot, SnapshotPhase, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply, patiently};
use super::source::{checkpoint_of, purge, wish_from};
use super::subject::Subject;
use crate::endpoint::{control, serial};

/// Calls of EC2 that name a volume, since then: action and serial.
async fn calls_of(volume: &str, since: u64) -> Vec<(String, u64)> {
    let answer = control("GET", &format!("/journal?since={since}"), &Value::Null).await;
    let calls = answer["calls"].as_array().unwrap().iter();
    let of_volume = calls.filter(|call| call["result"] == "ok" && call["params"]["VolumeId"] == volume);
    of_volume
        .map(|call| (call["action"].as_str().unwrap().to_owned(), call["serial"].as_u64().unwrap()))
        .collect()
}

async fn living_volumes(rig: &Rig) -> usize {
    let ended = |state: &VolumeState| matches!(state, VolumeState::Deleting | VolumeState::Deleted);
    rig.volumes().await.iter().filter(|volume| !ended(&volume.state)).count()
}

async fn copies(rig: &Rig, database: &str) -> Vec<VolumeSnapshot> {
    let filter = TagFilter::cluster(&rig.cluster).database(database);
    let ours = Select::Tags(filter);
    patiently(|| rig.aws.describe_snapshots(&ours)).await
}

/// The copy of a database that is kept, as EC2, its object and the report have it.
async fn kept(rig: &Rig, name: &str, database: &str) -> VolumeSnapshot {
    let [copy] = &copies(rig, database).await[..] else { panic!("not one copy") };
    assert_eq!(copy.state, SnapshotState::Completed);
    assert_eq!((copy.tags.get(key::GENERATION), copy.tags.get(key::CONSISTENT)), (Some("1"), Some("true")));
    let orders: Api<QuestDBSnapshot> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let order = orders.get(&names::last_copy(name, &database[28..])).await.unwrap();
    assert_eq!(order.spec.deletion_policy, CopyPolicy::Retain);
    let status = order.status.unwrap();
    assert_eq!(status.phase, Some(SnapshotPhase::Succeeded));
    assert_eq!(status.snapshot_id.as_deref(), Some(copy.id.as_str()));
    copy.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_goes_only_when_its_last_copy_is_complete_and_another_begins_with_it() {
    let mut subject = Subject::new(&unique("last")).await;
    let _others = Others::of(&subject.rig);
    let _operator = subject.rig.start().await;
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let disk = subject.volume().await;
    let since = serial().await;
    subject
        .wish(|spec| {
            spec["runState"] = json!("Purged");
            spec["storage"]["deletionPolicy"] = json!("Snapshot");
        })
        .await;
    let gone = subject.carried_out(Phase::Deleted).await;

    let calls = calls_of(disk.id.as_str(), since).await;
    let at = |action: &str| -> Vec<u64> {
        calls.iter().filter(|(found, _)| found == action).map(|(_, serial)| *serial).collect()
    };
    let [begun] = at("CreateSnapshot")[..] else { panic!("{calls:?}") };
    let destroyed = at("DeleteVolume").into_iter().min().expect("the disk was never destroyed");
    assert!(begun < destroyed, "{calls:?}");
    assert_eq!(living_volumes(&subject.rig).await, 0);
    let copy = kept(&subject.rig, &subject.name, &subject.database).await;
    assert_eq!(copy.volume, disk.id);
    let told = gone.status.unwrap().last_copy.unwrap();
    assert_eq!((told.snapshot_id.as_str(), told.volume_id.as_str()), (copy.id.as_str(), disk.id.as_str()));

    let mut new = Subject::within(&subject.rig, &unique("again"));
    let source = json!({ "snapshot": told.snapshot.unwrap() });
    wish_from(&mut new, &source, disk.size_gib).await;
    new.carried_out(Phase::Ready).await;
    assert_eq!(new.volume().await.snapshot.as_deref(), Some(copy.id.as_str()));
    assert_eq!(checkpoint_of(&new).await.as_deref(), Some("no"), "QuestDB was stopped");
    purge(&mut new, &source, disk.size_gib).await;
    assert_eq!(copies(&subject.rig, &subject.database).await.len(), 1, "the copy is nobody's part");
    subject.rig.end().await;
}

/// A resource that somebody wrote by hand.
fn plain(rig: &Rig, name: &str) -> Value {
    let mut plain = rig.managed(name, 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    plain["spec"]["storage"]["deletionPolicy"] = json!("Snapshot");
    plain
}

async fn protect(rig: &Rig, name: &str, protection: bool) {
    let change = json!({ "spec": { "deletionProtection": protection } });
    rig.as_admin().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

fn is_held_back(resource: &QuestDB) -> bool {
    let conditions = resource.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|found| found.type_ == condition::DELETION_HELD && found.status == "True")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_protected_after_its_deletion_was_asked_for_serves_on_until_it_is_not() {
    let rig = std::sync::Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let name = &unique("shielded");
    let mut operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, name)).await.unwrap();
    let ready = eventually(PATIENCE, "a database that serves", async || {
        let found = rig.as_admin().get(name).await.ok()?;
        (found.status.as_ref()?.phase == Some(Phase::Ready)).then_some(found)
    })
    .await;
    let database = ready.status.unwrap().database_id.unwrap();
    // The policy refuses the deletion of what is protected already: here nobody looks while both are written.
    operator.kill().await.unwrap();
    rig.as_admin().delete(name, &DeleteParams::foreground()).await.unwrap();
    protect(&rig, name, true).await;
    let again = rig.as_admin().delete(name, &DeleteParams::default()).await;
    assert!(again.unwrap_err().to_string().contains("slipway-protected-delete"));
    let before = serial().await;
    let _operator = rig.start().await;
    eventually(PATIENCE, "word of the protection", async || {
        let found = rig.as_admin().get(name).await.ok()?;
        (is_held_back(&found) && found.status.as_ref()?.phase == Some(Phase::Ready)).then_some(())
    })
    .await;
    let disk = rig.volumes().await.remove(0);
    assert_eq!((rig.instances().await.len(), living_volumes(&rig).await), (1, 1));
    assert_eq!(calls_of(disk.id.as_str(), before).await, [], "something was done to the disk");

    protect(&rig, name, false).await;
    // No garbage collector runs here: its own finalizer stays.
    eventually(2 * PATIENCE, "the end of the database", async || {
        let found = rig.as_admin().get_opt(name).await.unwrap();
        let held = found.and_then(|found| found.metadata.finalizers).unwrap_or_default();
        (!held.iter().any(|finalizer| finalizer == names::FINALIZER)).then_some(())
    })
    .await;
    assert_eq!((rig.instances().await.len(), living_volumes(&rig).await), (0, 0));
    assert_eq!(kept(&rig, name, &database).await.volume, disk.id);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_an_ending_namespace_keeps_from_being_copied_is_told_with_the_way_out() {
    let rig = std::sync::Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let name = &unique("ending");
    let _operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, name)).await.unwrap();
    eventually(PATIENCE, "a database that serves", async || {
        let found = rig.as_admin().get(name).await.ok()?;
        (found.status?.phase == Some(Phase::Ready)).then_some(())
    })
    .await;
    // Nobody here deletes what is in it, as Kubernetes does.
    rig.end().await;
    rig.as_admin().delete(name, &DeleteParams::default()).await.unwrap();
    eventually(2 * PATIENCE, "word of the copy that cannot be asked for", async || {
        let status = rig.as_admin().get(name).await.ok()?.status?;
        let step = status.steps.iter().find(|step| step.name == "last-copy")?;
        let degraded = status.conditions.iter().find(|found| found.type_ == condition::DEGRADED)?;
        let is_told = step.message.as_ref()?.contains(r#""deletionPolicy":"Retain""#);
        (is_told && degraded.status == "True").then_some(())
    })
    .await;
    assert_eq!((rig.instances().await.len(), living_volumes(&rig).await), (0, 1));

    let change = json!({ "spec": { "storage": { "deletionPolicy": "Retain" } } });
    rig.as_admin().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    eventually(2 * PATIENCE, "the end of the database", async || {
        rig.as_admin().get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(living_volumes(&rig).await, 1, "the disk is kept");
}
