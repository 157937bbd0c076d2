//! EBS volumes: what is asked for and what is seen.

use std::time::SystemTime;

use crate::word::words;
use crate::{Fingerprint, InstanceId, Tags, VolumeId};

impl VolumeState {
    /// Whether it is destroyed, or about to be.
    pub const fn is_ending(&self) -> bool {
        match self {
            Self::Deleting | Self::Deleted => true,
            Self::Creating | Self::Available | Self::InUse | Self::Error | Self::Unknown(_) => false,
        }
    }
}

words! {
    /// Where a volume is in its life.
    VolumeState {
        /// Being created.
        Creating = "creating",
        /// Attached to nothing.
        Available = "available",
        /// Attached, or about to be, or about not to be.
        InUse = "in-use",
        /// Being destroyed.
        Deleting = "deleting",
        /// Destroyed; rarely shown.
        Deleted = "deleted",
        /// EC2 could not create it, or lost it.
        Error = "error",
    } else
    /// A word that EC2 did not have when this was written.
    Unknown
}

words! {
    /// Where an attachment is. Anything but `Detached` counts as attached.
    AttachmentState {
        /// On its way; may be stuck here.
        Attaching = "attaching",
        /// The device is there.
        Attached = "attached",
        /// Leaving; waits for the guest to let go.
        Detaching = "detaching",
        /// Gone.
        Detached = "detached",
        /// The instance holds on to the device.
        Busy = "busy",
    } else
    /// A word that EC2 did not have when this was written.
    Unknown
}

words! {
    /// Kind of disk.
    VolumeKind {
        /// General purpose, performance chosen apart from size.
        Gp3 = "gp3",
        /// General purpose, performance by size.
        Gp2 = "gp2",
        /// Provisioned performance.
        Io1 = "io1",
        /// Provisioned performance, durable.
        Io2 = "io2",
    } else
    /// Another kind, by EC2's word.
    Other
}

words! {
    /// How far a modification has come.
    ModificationState {
        /// The new size is not usable yet.
        Modifying = "modifying",
        /// The new size is usable; performance is on its way, and a further change is refused.
        Optimizing = "optimizing",
        /// Done.
        Completed = "completed",
        /// Not done.
        Failed = "failed",
    } else
    /// A word that EC2 did not have when this was written. Counts as not usable yet.
    Unknown
}

/// A volume on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The volume.
    pub volume: VolumeId,
    /// The instance.
    pub instance: InstanceId,
    /// The device name that was asked for, like `/dev/sdf`.
    pub device: String,
    /// Where it is.
    pub state: AttachmentState,
    /// Whether EC2 destroys the volume when the instance is terminated. Nobody of us asks for that.
    pub goes_with_machine: bool,
}

/// A volume as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Availability zone; a volume never leaves it.
    pub zone: String,
    /// Size in GiB.
    pub size_gib: u32,
    /// Kind of disk.
    pub kind: VolumeKind,
    /// Provisioned operations per second, where the kind has them.
    pub iops: Option<u32>,
    /// Provisioned MiB per second, where the kind has them.
    pub throughput: Option<u32>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// The snapshot it came from.
    pub snapshot: Option<String>,
    /// Where it is attached, or was a moment ago.
    pub attachments: Vec<Attachment>,
    /// Tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Option<SystemTime>,
}

impl Volume {
    /// The attachments that still count: everything that is not `Detached`.
    pub fn live_attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments.iter().filter(|attachment| attachment.state != AttachmentState::Detached)
    }

    /// Whether EC2 says that nothing holds this volume: `available`, and no attachment but detached ones.
    pub fn is_detached(&self) -> bool {
        self.state == VolumeState::Available && self.live_attachments().next().is_none()
    }
}

/// What to create. Everything in it is covered by the client token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Availability zone.
    pub zone: String,
    /// Size in GiB.
    pub size_gib: u32,
    /// Kind of disk.
    pub kind: VolumeKind,
    /// Operations per second, where the kind has them.
    pub iops: Option<u32>,
    /// MiB per second, where the kind has them.
    pub throughput: Option<u32>,
    /// Encrypt with the account's key.
    pub encrypted: bool,
    /// Snapshot to start from.
    pub snapshot: Option<String>,
    /// Tags.
    pub tags: Tags,
}

impl NewVolume {
    /// A hash of all parameters that the token covers; see [`crate::ClientToken`].
    pub fn fingerprint(&self) -> Fingerprint {
        let Self { zone, size_gib, kind, iops, throughput, encrypted, snapshot, tags } = self;
        let number = |value: &Option<u32>| value.map_or_else(String::new, |value| value.to_string());
        let (size, iops, throughput) = (size_gib.to_string(), number(iops), number(throughput));
        let mut parts = vec!["volume/1", zone, &size, kind.as_str(), &iops, &throughput];
        parts.push(if *encrypted { "encrypted" } else { "" });
        parts.push(snapshot.as_deref().unwrap_or_default());
        parts.extend(tags.iter().flat_map(|(key, value)| [key, value]));
        Fingerprint::of(&parts)
    }
}

/// What to change of a volume; `None` leaves it as it is. A size never shrinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// New size in GiB.
    pub size_gib: Option<u32>,
    /// New kind.
    pub kind: Option<VolumeKind>,
    /// New operations per second.
    pub iops: Option<u32>,
    /// New MiB per second.
    pub throughput: Option<u32>,
}

impl VolumeChange {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl VolumeModification {
    /// Whether it leads to all of this.
    pub fn leads_to(&self, change: &VolumeChange) -> bool {
        let VolumeChange { size_gib, kind, iops, throughput } = change;
        let number = |wanted: &Option<u32>, target: Option<u32>| wanted.is_none() || *wanted == target;
        number(size_gib, self.target.size_gib)
            && (kind.is_none() || *kind == self.target.kind)
            && number(iops, self.target.iops)
            && number(throughput, self.target.throughput)
    }
}

impl ModificationState {
    /// Whether EC2 works on it and what it asks for cannot be used yet, whatever the volume shows already.
    pub fn is_under_way(&self) -> bool {
        match self {
            Self::Modifying | Self::Unknown(_) => true,
            Self::Optimizing | Self::Completed | Self::Failed => false,
        }
    }
}

/// The latest modification of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeModification {
    /// The volume.
    pub volume: VolumeId,
    /// How far it has come.
    pub state: ModificationState,
    /// 0 to 100.
    pub progress: Option<u8>,
    /// What the volume will be, as far as it was asked.
    pub target: VolumeChange,
    /// Words of EC2, of a failure above all.
    pub message: Option<String>,
    /// When it began.
    pub started_at: Option<SystemTime>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modification_leads_to_a_change_when_it_has_all_of_it() {
        let none = VolumeChange::default();
        let target = VolumeChange {
            size_gib: Some(80),
            kind: Some(VolumeKind::Gp3),
            iops: Some(6_000),
            throughput: Some(250),
        };
        let modification = VolumeModification {
            volume: "vol-1".into(),
            state: ModificationState::Optimizing,
            progress: None,
            target: target.clone(),
            message: None,
            started_at: None,
        };
        for (change, expected) in [
            (none.clone(), true),
            (target.clone(), true),
            (VolumeChange { iops: Some(6_000), ..none }, true),
            (VolumeChange { size_gib: Some(90), ..target.clone() }, false),
            (VolumeChange { kind: Some(VolumeKind::Io2), ..target.clone() }, false),
            (VolumeChange { iops: Some(7_000), ..target.clone() }, false),
            (VolumeChange { throughput: Some(500), ..target }, false),
        ] {
            assert_eq!(modification.leads_to(&change), expected, "{change:?}");
        }
    }
}
