//! Snapshots: they hold a moment, take time, have no token, and disks are made from whole ones only.

use cloud::{
    NewSnapshot, NewVolume, Role, Select, SnapshotId, SnapshotState, TagFilter, VolumeId, VolumeSnapshot, key,
};
use serde_json::json;
use testkit::eventually;

use super::{Corner, DEADLINE, Fault, once_visible};

impl Corner {
    fn new_snapshot(&self, volume: &VolumeId, name: &str) -> NewSnapshot {
        NewSnapshot {
            volume: volume.clone(),
            description: format!("{}/{name}", self.cluster),
            tags: self.tags("db1", Role::Snapshot).with(key::SNAPSHOT, name),
        }
    }

    async fn of_name(&self, name: &str) -> Vec<VolumeSnapshot> {
        let filter = TagFilter::cluster(&self.cluster).and(key::SNAPSHOT, &[name]);
        self.aws.describe_snapshots(&Select::Tags(filter)).await.unwrap()
    }

    async fn until_completed(&self, id: &SnapshotId) -> VolumeSnapshot {
        eventually(DEADLINE, &format!("{id} completed"), async || {
            let found = self.aws.describe_snapshots(&Select::one(id.clone())).await.unwrap().pop()?;
            (found.state == SnapshotState::Completed).then_some(found)
        })
        .await
    }

    async fn remove(&self, id: &SnapshotId) {
        once_visible(async || self.aws.delete_snapshot(id).await).await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_is_pending_then_whole_and_only_then_a_source() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let begun = corner.aws.create_snapshot(&corner.new_snapshot(&volume, "s1")).await.unwrap();
    assert_eq!((&begun.volume, begun.size_gib, &begun.state), (&volume, 10, &SnapshotState::Pending));
    assert_eq!(begun.tags, corner.new_snapshot(&volume, "s1").tags);
    let from = NewVolume {
        snapshot: Some(begun.id.to_string()),
        size_gib: 12,
        tags: corner.tags("db2", Role::Volume),
        ..corner.new_volume()
    };
    let token = cloud::ClientToken::new(&corner.cluster, "db2", Role::Volume, 1);
    let early = once_visible(async || corner.aws.create_volume(&from, &token).await).await.unwrap_err();
    assert_eq!(early.category(), "incorrect_state", "{early:?}");

    let whole = corner.until_completed(&begun.id).await;
    assert_eq!((whole.progress, whole.started_at.is_some()), (Some(100), true));
    let smaller = NewVolume { size_gib: 9, ..from.clone() };
    let error = corner.aws.create_volume(&smaller, &token).await.unwrap_err();
    assert_eq!(error.category(), "invalid", "{error:?}");
    let made = corner.aws.create_volume(&from, &token).await.unwrap();
    corner.until_volume(&made.id, cloud::Volume::is_detached).await;
    assert_eq!((made.size_gib, made.snapshot.as_deref()), (12, Some(begun.id.as_str())));

    corner.remove(&begun.id).await;
    eventually(DEADLINE, "the snapshot gone", async || corner.of_name("s1").await.is_empty().then_some(()))
        .await;
    let error = corner.aws.delete_snapshot(&begun.id).await.unwrap_err();
    assert!(error.is_not_found(cloud::ResourceKind::Snapshot), "{error:?}");
    for volume in [&made.id, &volume] {
        once_visible(async || corner.aws.delete_volume(volume).await).await.unwrap();
    }
}

#[tokio::test]
async fn two_snapshots_of_a_volume_have_a_moment_between_them() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let first = corner.aws.create_snapshot(&corner.new_snapshot(&volume, "s1")).await.unwrap();
    let error = corner.aws.create_snapshot(&corner.new_snapshot(&volume, "s2")).await.unwrap_err();
    assert_eq!((error.category(), error.outcome_unknown()), ("too_soon", false), "{error:?}");
    let second = eventually(DEADLINE, "the moment over", async || {
        corner.aws.create_snapshot(&corner.new_snapshot(&volume, "s2")).await.ok()
    });
    let second = second.await;
    corner.until_completed(&second.id).await;
    assert_eq!(corner.of_name("s2").await.iter().map(|one| &one.id).collect::<Vec<_>>(), [&second.id]);
    corner.remove(&first.id).await;
    corner.remove(&second.id).await;
    corner.aws.delete_volume(&volume).await.unwrap();
}

/// Without a token, a repetition would be a second snapshot: so an attempt whose answer was lost is the only one, and a
/// look tells what it did.
#[tokio::test]
async fn a_lost_answer_is_never_sent_again() {
    for (kind, made) in [("drop_reply", 1), ("drop_request", 0)] {
        let corner = Corner::new().await;
        let volume = corner.create_volume().await;
        let fault =
            json!({ "kind": kind, "action": "CreateSnapshot", "contains": volume.as_str(), "times": 1 });
        let fault = Fault::new(fault).await;
        let error = corner.aws.create_snapshot(&corner.new_snapshot(&volume, "s1")).await.unwrap_err();
        fault.end().await;
        assert!(error.outcome_unknown(), "{error:?}");
        // The endpoint shows what there is after a moment: a marker begun later is shown later.
        let marker = eventually(DEADLINE, "a marker", async || {
            corner.aws.create_snapshot(&corner.new_snapshot(&volume, "marker")).await.ok()
        });
        let marker = marker.await;
        corner.until_completed(&marker.id).await;
        let found = corner.of_name("s1").await;
        assert_eq!(found.len(), made, "{kind}: {found:?}");
        for id in found.iter().map(|one| &one.id).chain([&marker.id]) {
            corner.remove(id).await;
        }
        corner.aws.delete_volume(&volume).await.unwrap();
    }
}
