//! Whose copies are: what people make of one by hand has its tags, and is neither destroyed with it nor taken for one of ours; and what
//! another account does not show is not gone.

use cloud::{SnapshotId, VolumeSnapshot, key};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use resources::SnapshotPhase;
use serde_json::json;
use testkit::{Spawned, ec2_by_hand, eventually};

use super::super::quiet::idle;
use super::super::rig::{PATIENCE, Rig};
use super::super::subject::Subject;
use super::{Stage, api, copies, settled, take};

/// How many snapshots go until it is told of one what stays.
const TRIES: usize = 3;

/// Copies a copy within its region, with these of its tags: EC2 gives it no others.
async fn copied(rig: &Rig, copy: &VolumeSnapshot, tagged: impl Fn(&str) -> bool) -> SnapshotId {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut parameters = vec![
        text("SourceRegion", rig.region()),
        text("SourceSnapshotId", copy.id.as_str()),
        text("TagSpecification.1.ResourceType", "snapshot"),
    ];
    for (number, (key, value)) in (1..).zip(copy.tags.iter().filter(|&(key, _)| tagged(key))) {
        let tag = format!("TagSpecification.1.Tag.{number}");
        parameters.extend([text(&format!("{tag}.Key"), key), text(&format!("{tag}.Value"), value)]);
    }
    let answer = ec2_by_hand(rig.region(), "CopySnapshot", &parameters).await.unwrap();
    let id = answer.split_once("<snapshotId>").and_then(|(_, rest)| rest.split_once("</snapshotId>"));
    SnapshotId::new(id.unwrap_or_else(|| panic!("no id: {answer}")).0)
}

async fn ids(subject: &Subject) -> Vec<SnapshotId> {
    let mut ids: Vec<_> = copies(subject).await.into_iter().map(|copy| copy.id).collect();
    ids.sort();
    ids
}

/// What is told of the copies of a snapshot that stay.
async fn told(rig: &Rig, name: &str) -> Option<String> {
    let events: Api<Event> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let is_it = |event: &Event| {
        let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
        event.reason.as_deref() == Some("LeftToOthers") && about == Some(name)
    };
    all.into_iter().find(is_it)?.note
}

/// A snapshot that goes after people have made copies of its copy, which stay; what is told of those. It is nothing where the API server
/// took too long for that.
async fn outlived(subject: &Subject, operator: &Spawned, name: &str) -> Option<String> {
    take(subject, name, "Delete").await;
    settled(subject, name, SnapshotPhase::Succeeded).await;
    let mut found = copies(subject).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let ours = found.remove(0);
    let all = copied(&subject.rig, &ours, |_| true).await;
    // As from an operator that did not yet say of which volume it is.
    let without = copied(&subject.rig, &ours, |tag| tag != key::VOLUME).await;
    let mut theirs = vec![all, without];
    theirs.sort();
    eventually(PATIENCE, "copies of the copy", async || (copies(subject).await.len() == 3).then_some(()))
        .await;
    let of_nothing = |copy: &&VolumeSnapshot| copy.volume.as_str() == "vol-ffffffff";
    assert_eq!(copies(subject).await.iter().filter(of_nothing).count(), 2);

    api(subject).delete(name, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the snapshot gone", async || {
        api(subject).get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(ids(subject).await, theirs);
    idle(operator, "questdbsnapshot").await;
    let note = told(&subject.rig, name).await;
    if let Some(note) = &note {
        assert!(theirs.iter().all(|id| note.contains(id.as_str())), "{note}");
        assert!(!note.contains(ours.id.as_str()), "{note}");
    }
    for id in &theirs {
        subject.rig.aws.delete_snapshot(id).await.unwrap();
    }
    note
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_made_of_a_copy_outlives_it_and_is_told() {
    let stage = Stage::new().await;
    let operator = stage.operator(&[]).await;
    let mut tries = 1;
    while outlived(&stage.subject, &operator, &format!("copied-{tries}")).await.is_none() {
        assert!(tries < TRIES, "it is told of none of {tries}");
        tries += 1;
    }
    stage.end(operator).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_copy_is_taken_for_gone_where_ec2_is_another() {
    let stage = Stage::new().await;
    let subject = &stage.subject;
    let first = stage.operator(&[]).await;
    for (name, policy) in [("first", "Delete"), ("second", "Retain")] {
        take(subject, name, policy).await;
        settled(subject, name, SnapshotPhase::Succeeded).await;
    }
    drop(first);
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let wrong = subject.rig.spawn((&lease, &kubeconfig), &[], &subject.rig.elsewhere());
    api(subject).delete("first", &DeleteParams::default()).await.unwrap();
    // Another wish for it has it looked at.
    let delete = Patch::Merge(json!({ "spec": { "deletionPolicy": "Delete" } }));
    api(subject).patch("second", &PatchParams::default(), &delete).await.unwrap();
    for name in ["first", "second"] {
        eventually(2 * PATIENCE, "a word about what to put right", async || {
            let conditions = api(subject).get(name).await.ok()?.status?.conditions;
            assert!(conditions.iter().all(|found| found.reason != "CopyGone"), "{conditions:?}");
            conditions.iter().any(|found| found.message.contains("SLIPWAY_VPC_ID")).then_some(())
        })
        .await;
    }
    drop(wrong);
    assert_eq!(copies(subject).await.len(), 2);
    let operator = stage.operator(&[]).await;
    api(subject).delete("second", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the snapshots gone, and their copies", async || {
        let objects = api(subject).list(&ListParams::default()).await.unwrap().items;
        (objects.is_empty() && copies(subject).await.is_empty()).then_some(())
    })
    .await;
    stage.end(operator).await;
}
