//! Values for unit tests.

use cloud::{Tags, Volume, VolumeId, VolumeKind, VolumeState};

/// A disk that nothing holds.
pub(crate) fn disk(tags: Tags) -> Volume {
    Volume {
        id: VolumeId::new("vol-1"),
        state: VolumeState::Available,
        zone: "eu-west-1a".to_owned(),
        size_gib: 50,
        kind: VolumeKind::Gp3,
        iops: None,
        throughput: None,
        encrypted: true,
        snapshot: None,
        attachments: Vec::new(),
        tags,
        created_at: None,
    }
}
