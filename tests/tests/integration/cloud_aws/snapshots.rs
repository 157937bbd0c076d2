//! Snapshots: they hold a moment, take time, have no token, and disks are made from whole ones only.

use cloud::{
    ClientToken, Error, NewSnapshot, NewVolume, Role, Select, SnapshotId, SnapshotState, TagFilter, VolumeId,
    VolumeSnapshot, key,
};
use serde_json::json;
use testkit::eventually;

use super::{Corner, DEADLINE, Fault, once_visible};

/// How often a test may be too late for a refusal that comes only for a second, on a busy machine.
const ATTEMPTS: u64 = 5;

/// A disk that was asked for before its snapshot was whole.
struct Early {
    snapshot: VolumeSnapshot,
    from: NewVolume,
    token: ClientToken,
    refusal: Error,
}

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

    /// A snapshot that is begun as soon as the moment after the one before is over.
    async fn begun(&self, volume: &VolumeId, name: &str) -> VolumeSnapshot {
        eventually(DEADLINE, "a snapshot", async || {
            let begun = self.aws.create_snapshot(&self.new_snapshot(volume, name)).await;
            if begun.as_ref().is_err_and(|error| error.category() == "too_soon") {
                return None;
            }
            Some(begun.unwrap())
        })
        .await
    }

    /// Takes back what came too late to be refused.
    async fn undo(&self, snapshots: &[&SnapshotId]) {
        for id in snapshots {
            self.until_completed(id).await;
            self.remove(id).await;
        }
        eventually(DEADLINE, "nothing of it", async || {
            (self.of_name("s1").await.is_empty() && self.of_name("s2").await.is_empty()).then_some(())
        })
        .await;
    }

    /// A snapshot, and how a disk of it was refused before it was whole.
    async fn early(&self, volume: &VolumeId) -> Early {
        for attempt in 1..=ATTEMPTS {
            let snapshot = self.begun(volume, "s1").await;
            let from = NewVolume {
                snapshot: Some(snapshot.id.to_string()),
                size_gib: 12,
                tags: self.tags("db2", Role::Volume),
                ..self.new_volume()
            };
            let token = ClientToken::new(&self.cluster, "db2", Role::Volume, attempt);
            match once_visible(async || self.aws.create_volume(&from, &token).await).await {
                Err(refusal) => return Early { snapshot, from, token, refusal },
                Ok(late) => {
                    self.until_volume(&late.id, cloud::Volume::is_detached).await;
                    self.aws.delete_volume(&late.id).await.unwrap();
                    self.undo(&[&snapshot.id]).await;
                }
            }
        }
        panic!("{ATTEMPTS} times a disk was made of a snapshot that had just begun");
    }

    /// A snapshot, and how another one right after it was refused.
    async fn too_soon(&self, volume: &VolumeId) -> (VolumeSnapshot, Error) {
        for _ in 0..ATTEMPTS {
            let first = self.begun(volume, "s1").await;
            match self.aws.create_snapshot(&self.new_snapshot(volume, "s2")).await {
                Err(error) => return (first, error),
                Ok(late) => self.undo(&[&first.id, &late.id]).await,
            }
        }
        panic!("{ATTEMPTS} times no moment had to lie between two snapshots");
    }
}

#[tokio::test]
async fn a_snapshot_is_pending_then_whole_and_only_then_a_source() {
    let corner = Corner::new().await;
    let volume = corner.create_volume().await;
    let Early { snapshot: begun, from, token, refusal } = corner.early(&volume).await;
    assert_eq!((&begun.volume, begun.size_gib, &begun.state), (&volume, 10, &SnapshotState::Pending));
    assert_eq!(begun.tags, corner.new_snapshot(&volume, "s1").tags);
    assert_eq!(refusal.category(), "incorrect_state", "{refusal:?}");

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
    let (first, error) = corner.too_soon(&volume).await;
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
