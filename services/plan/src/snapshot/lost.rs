//! A copy that was told of as trusted, and that is not among those that EC2 shows.

use cloud::{SnapshotId, VolumeSnapshot};
use resources::{QuestDBSnapshot, SnapshotPhase};

use super::{Seen, is_copying, is_unready_for};

/// Reason of condition `Ready` of a snapshot whose copy went before it was whole, when it was too late for another.
pub(super) const COPY_LOST: &str = "CopyLost";

/// The copy that the report told of as trusted.
pub fn told_copy(resource: &QuestDBSnapshot) -> Option<SnapshotId> {
    let status = resource.status.as_ref()?;
    let is_told = match status.phase? {
        SnapshotPhase::Copying | SnapshotPhase::Succeeded => true,
        SnapshotPhase::Pending
        | SnapshotPhase::Checkpointing
        | SnapshotPhase::Releasing
        | SnapshotPhase::Failed => false,
    };
    status.snapshot_id.as_ref().filter(|_| is_told).map(SnapshotId::new)
}

/// The copy to be asked for by its id, because it was told of as trusted and is not among those that were found by their tags, which
/// anybody can take off. Of one that is being deleted none is: nothing is destroyed that has no tags.
pub fn left_out(resource: &QuestDBSnapshot, found: &[VolumeSnapshot]) -> Option<SnapshotId> {
    let told = told_copy(resource).filter(|_| resource.metadata.deletion_timestamp.is_none())?;
    found.iter().all(|copy| copy.id != told).then_some(told)
}

/// Whether the copy that EBS was making may only not show now.
pub(super) fn may_show_again(resource: &QuestDBSnapshot, seen: &Seen) -> bool {
    is_copying(resource) && !seen.conclusive && left_out(resource, &seen.copies).is_some()
}

/// What is said of one whose copy had begun, and went before it was whole.
pub(super) fn text(resource: &QuestDBSnapshot) -> Option<String> {
    let status = resource.status.as_ref()?;
    let had_begun = status.phase == Some(SnapshotPhase::Copying) || is_unready_for(resource, COPY_LOST);
    let lost = status.snapshot_id.as_ref().filter(|_| had_begun)?;
    Some(format!(
        "EC2 does not show {lost} any more, which had begun and was not complete: somebody destroyed it, or it lies in the Recycle \
         Bin. It is too late for another: make another QuestDBSnapshot"
    ))
}
