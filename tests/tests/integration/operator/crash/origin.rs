//! What a first disk is made from, if not from nothing: a copy of somebody else's disk, or a disk that is there already.

use cloud::{NewSnapshot, Tags, VolumeId, key};
use serde_json::{Value, json};
use testkit::eventually;

use super::super::rig::{PATIENCE, Rig, patiently};
use super::super::source::stray;
use super::super::subject::Subject;

/// Where a first disk comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A copy of a disk of somebody else.
    Copy,
    /// A disk that nobody of ours made.
    Disk,
}

/// What there is of it.
#[derive(Default)]
pub(super) struct Origin {
    /// As wishes name it.
    pub(super) source: Option<Value>,
    /// The disk that is to become the database's.
    pub(super) disk: Option<VolumeId>,
    /// One that stays somebody else's.
    other: Option<VolumeId>,
}

impl Origin {
    /// Made for the database of a test; who may write tags in AWS allows it.
    pub(super) async fn of(subject: &Subject, source: Option<Source>) -> Self {
        let Some(source) = source else { return Self::default() };
        let rig = &subject.rig;
        let named = format!("{}/{}/{}", rig.cluster, rig.namespace, subject.name);
        let allowed = || Tags::new().with(key::FOR, named.clone());
        match source {
            Source::Disk => {
                let id = stray(rig, allowed()).await;
                let source = Some(json!({ "volumeId": id }));
                Self { source, disk: Some(VolumeId::new(id)), other: None }
            }
            Source::Copy => {
                let volume = VolumeId::new(stray(rig, Tags::new()).await);
                let description = "somebody else's".to_owned();
                let copy = NewSnapshot { volume: volume.clone(), description, tags: allowed() };
                // Not before the disk is there to be seen.
                let begun = async || rig.aws.create_snapshot(&copy).await.ok();
                let copy = eventually(PATIENCE, "a copy of somebody else's disk", begun).await;
                let source = Some(json!({ "snapshotId": copy.id.as_str() }));
                Self { source, disk: None, other: Some(volume) }
            }
        }
    }

    /// What is nobody's goes.
    pub(super) async fn end(&self, rig: &Rig) {
        if let Some(other) = &self.other {
            patiently(|| rig.aws.delete_volume(other)).await;
        }
    }
}
