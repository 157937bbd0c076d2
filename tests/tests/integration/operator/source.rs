//! What a first disk is made from: a copy of another's, or one that is there already.

use cloud::{ClientToken, NewVolume, Role, Tags, VolumeKind, VolumeSnapshot, key};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::{Phase, SnapshotPhase};
use serde_json::{Value, json};
use testkit::telling::Fate;
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig};
use super::snapshots::{api, copies, operator, settled, take};
use super::stale::kept_back;
use super::subject::Subject;
use crate::front::Front;

/// A database that was there for a while, and what is left of it: a copy whose object is gone.
async fn copied(subject: &mut Subject) -> VolumeSnapshot {
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    subject.wish_run_state("Paused").await;
    subject.carried_out(Phase::Paused).await;
    take(subject, "last", "Retain").await;
    settled(subject, "last", SnapshotPhase::Succeeded).await;
    api(subject).delete("last", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the object to be gone", async || {
        api(subject).get_opt("last").await.unwrap().is_none().then_some(())
    })
    .await;
    copies(subject).await.remove(0)
}

pub(super) async fn wish_from(subject: &mut Subject, source: &Value, size_gib: u32) {
    subject.wish(|spec| spec["storage"] = json!({ "sizeGib": size_gib, "source": source })).await;
}

/// Ends a database: its source stays what it was.
pub(super) async fn purge(subject: &mut Subject, source: &Value, size_gib: u32) {
    let storage = json!({ "sizeGib": size_gib, "source": source, "provisioned": true });
    subject
        .wish(|spec| {
            spec["storage"] = storage;
            spec["runState"] = json!("Purged");
        })
        .await;
    subject.carried_out(Phase::Deleted).await;
}

async fn restores(subject: &Subject) -> bool {
    checkpoint_of(subject).await.is_some()
}

/// Whether what a disk was made from is said to have been held by a checkpoint (`yes`, `no`, `unknown`); nothing for a disk that
/// was made from nothing.
pub(super) async fn checkpoint_of(subject: &Subject) -> Option<String> {
    let set: StatefulSet = subject.sets().get(&subject.name).await.unwrap();
    let containers = set.spec.unwrap().template.spec.unwrap().init_containers?;
    let restore = containers.into_iter().next().filter(|first| first.name == "restore")?;
    restore.env.unwrap().into_iter().find(|variable| variable.name == "HELD")?.value
}

/// What is said of the disk, once it has to do with this.
pub(super) async fn is_told(subject: &Subject, text: &str) {
    eventually(PATIENCE, &format!("a word about {text}"), async || {
        let status = subject.rig.as_admin().get(&subject.name).await.ok()?.status?;
        let disk = status.steps.into_iter().find(|step| step.name == "volume")?;
        disk.message.filter(|message| message.contains(text)).map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_database_begins_with_a_snapshot_of_its_namespace_and_with_no_other() {
    let mut old = Subject::new(&unique("old")).await;
    let others = Others::of(&old.rig);
    let _operator = operator(&old, &[]).await;
    let copy = copied(&mut old).await;

    // Larger, and in another zone than the disk that was copied: a copy is of the region.
    let first = old.volume().await.zone;
    let zone = old.rig.zones().into_iter().find(|zone| *zone != first).unwrap();
    let mut new = Subject::within(&old.rig, &unique("new"));
    let storage = json!({ "sizeGib": copy.size_gib + 10, "source": { "snapshot": "last" } });
    new.wish(|spec| {
        spec["storage"] = storage.clone();
        spec["zone"] = json!(zone);
    })
    .await;
    new.carried_out(Phase::Ready).await;
    let disk = new.volume().await;
    assert_eq!((disk.snapshot.as_deref(), disk.size_gib), (Some(copy.id.as_str()), copy.size_gib + 10));
    assert_eq!(disk.zone, zone);
    assert_eq!(disk.tags.get(key::QUESTDB), Some(domain::catalogue::DEFAULT_VERSION));
    assert!(restores(&new).await);
    let change = json!({ "spec": { "storage": { "source": null } } });
    let refused = old.rig.as_admin().patch(&new.name, &PatchParams::default(), &Patch::Merge(&change)).await;
    assert!(refused.unwrap_err().to_string().contains("spec.storage.source is immutable"));

    // The same copy, as if another namespace's database had been copied: only who may write tags in AWS may allow it.
    let theirs = Tags::new().with(key::NAMESPACE, "somebody-elses");
    old.rig.aws.create_tags(&[copy.id.as_str()], &theirs).await.unwrap();
    let mut third = Subject::within(&old.rig, &unique("third"));
    let by_id = json!({ "snapshotId": copy.id.as_str() });
    wish_from(&mut third, &by_id, copy.size_gib).await;
    is_told(&third, "create-tags").await;
    let named = format!("{}/{}/{}", third.rig.cluster, third.rig.namespace, third.name);
    old.rig.aws.create_tags(&[copy.id.as_str()], &Tags::new().with(key::FOR, named)).await.unwrap();
    third.carried_out(Phase::Ready).await;
    assert_eq!(third.volume().await.snapshot.as_deref(), Some(copy.id.as_str()));

    new.wish(|spec| {
        spec["storage"] = storage;
        spec["storage"]["provisioned"] = json!(true);
        spec["zone"] = json!(zone);
        spec["runState"] = json!("Purged");
    })
    .await;
    new.carried_out(Phase::Deleted).await;
    purge(&mut third, &by_id, copy.size_gib).await;
    old.purge_with_others().await;
    drop(others);
}

/// A snapshot was made again under the name of one whose copy stayed, and a database of it right after: the watch of databases may
/// be sooner than that of snapshots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_no_watch_shows_yet_is_not_taken_for_the_one_before_it() {
    let mut old = Subject::new(&unique("old")).await;
    let others = Others::of(&old.rig);
    let lease = old.rig.lease().await;
    let front = Front::before(&old.rig.rights(&lease).await).await;
    let kubeconfig = front.kubeconfig(&testkit::scratch());
    let _operator = old.rig.spawn((&lease, &kubeconfig), &[], &[]);
    let before = copied(&mut old).await;

    front.set_fate(Fate::Late, &["questdbsnapshots"], 1);
    take(&old, "last", "Retain").await;
    kept_back(&front, "questdbsnapshots", 0).await;
    let mut new = Subject::within(&old.rig, &unique("new"));
    let by_name = json!({ "snapshot": "last" });
    wish_from(&mut new, &by_name, before.size_gib).await;
    is_told(&new, "waiting for snapshot last").await;

    front.set_fate(Fate::Told, &[], 1);
    let again = settled(&old, "last", SnapshotPhase::Succeeded).await.status.unwrap().snapshot_id.unwrap();
    assert_ne!(again, before.id.as_str());
    new.carried_out(Phase::Ready).await;
    assert_eq!(new.volume().await.snapshot, Some(again), "it began with an older copy");
    purge(&mut new, &by_name, before.size_gib).await;
    old.purge_with_others().await;
    drop(others);
}

/// A volume that nobody of ours made.
pub(super) async fn stray(rig: &Rig, tags: Tags) -> String {
    let zone = rig.zones().pop().unwrap();
    let token = ClientToken::new("somebody-elses", &unique("stray"), Role::Volume, 1);
    let new = NewVolume {
        zone,
        size_gib: 12,
        kind: VolumeKind::Gp3,
        iops: Some(3_000),
        throughput: Some(125),
        encrypted: true,
        snapshot: None,
        tags,
    };
    rig.aws.create_volume(&new, &token).await.unwrap().id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_becomes_the_disk_of_the_database_that_its_tag_names() {
    let mut subject = Subject::new(&unique("adopts")).await;
    let others = Others::of(&subject.rig);
    let _operator = operator(&subject, &[]).await;
    let id = stray(&subject.rig, Tags::new().with("team", "data")).await;
    let source = json!({ "volumeId": id });
    wish_from(&mut subject, &source, 12).await;
    is_told(&subject, "create-tags").await;
    assert!(subject.rig.instances().await.is_empty(), "no machine for a disk that is not to be had");

    let named = format!("{}/{}/{}", subject.rig.cluster, subject.rig.namespace, subject.name);
    subject.rig.aws.create_tags(&[&id], &Tags::new().with(key::FOR, named)).await.unwrap();
    let served = subject.carried_out(Phase::Ready).await;
    let disk = subject.volume().await;
    assert_eq!((disk.id.as_str(), disk.tags.get("team")), (id.as_str(), Some("data")));
    assert_eq!(disk.tags.get(key::QUESTDB), Some(domain::catalogue::DEFAULT_VERSION), "it is started on it");
    assert_eq!(served.status.unwrap().volume.unwrap().id, id);
    assert!(!restores(&subject).await);
    purge(&mut subject, &source, 12).await;
    assert!(
        subject.rig.volumes().await.iter().all(|found| found.id.as_str() != id),
        "it is the database's own"
    );
    subject.rig.end().await;
    drop(others);
}
