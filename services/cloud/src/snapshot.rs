//! EBS snapshots: what is asked for and what is seen.

use std::time::SystemTime;

use crate::word::words;
use crate::{SnapshotId, Tags, VolumeId};

words! {
    /// How far a snapshot has come.
    SnapshotState {
        /// Begun: it holds the volume as it was at that moment, and its blocks are still being copied away.
        Pending = "pending",
        /// Whole: volumes can be made from it.
        Completed = "completed",
        /// EC2 could not finish it, and never will.
        Error = "error",
        /// In the recycle bin: it can be brought back, and nothing can be made from it.
        Recoverable = "recoverable",
        /// On its way out of the recycle bin.
        Recovering = "recovering",
    } else
    /// A word that EC2 did not have when this was written. Counts as neither whole nor failed.
    Unknown
}

/// A snapshot as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Its id.
    pub id: SnapshotId,
    /// How far it has come.
    pub state: SnapshotState,
    /// The volume it was taken of, which may be gone since.
    pub volume: VolumeId,
    /// Size of that volume in GiB: the least that a volume made from it has.
    pub size_gib: u32,
    /// 0 to 100.
    pub progress: Option<u8>,
    /// Words of EC2, of a failure above all.
    pub message: Option<String>,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Tags.
    pub tags: Tags,
    /// The moment whose content it holds.
    pub started_at: Option<SystemTime>,
}

/// What to take a snapshot of. EC2 has no client token for it: the tags are all the identity there is, so they are written
/// in the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSnapshot {
    /// The volume.
    pub volume: VolumeId,
    /// What the AWS console shows beside the name.
    pub description: String,
    /// Tags.
    pub tags: Tags,
}
