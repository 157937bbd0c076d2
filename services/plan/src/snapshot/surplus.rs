//! More copies than one for a snapshot: two processes led at once, or EC2 carried out a request that it had seemed to lose.

use cloud::{SnapshotId, VolumeSnapshot};
use resources::{QuestDBSnapshot, SnapshotPhase};

use super::decide::{act, wait};
use super::{Plan, Seen, Step, is_made_for, is_of_before};

/// A copy beside the one that the report of a settled snapshot tells of, by a look that shows all: another process has begun its own when
/// that one had been seen through. None where one that had succeeded does not show the copy that it tells of: the other may be all that is
/// left.
pub fn surplus(resource: &QuestDBSnapshot, copies: &[VolumeSnapshot]) -> Option<SnapshotId> {
    let status = resource.status.as_ref()?;
    let told = status.snapshot_id.as_deref();
    let is_told = |copy: &VolumeSnapshot| told == Some(copy.id.as_str());
    let may_go = match status.phase? {
        SnapshotPhase::Succeeded => copies.iter().any(is_told),
        SnapshotPhase::Failed => true,
        SnapshotPhase::Pending
        | SnapshotPhase::Checkpointing
        | SnapshotPhase::Releasing
        | SnapshotPhase::Copying => false,
    };
    let is_ours = |copy: &&VolumeSnapshot| {
        is_made_for(resource, copy) && !is_of_before(resource, copy) && !is_told(copy)
    };
    copies.iter().filter(|_| may_go).find(is_ours).map(|copy| copy.id.clone())
}

/// EC2 made more than one copy. Nobody looks for one of a snapshot that is settled, so none is before the surplus is gone.
pub(super) fn remove(copy: &VolumeSnapshot, surplus: &VolumeSnapshot, seen: &Seen) -> Plan {
    let message = format!("EC2 made more than one copy: {} counts, and {} is removed", copy.id, surplus.id);
    if seen.conclusive {
        return act(Step::Discard(surplus.id.clone()), SnapshotPhase::Copying, "Copying", &message);
    }
    wait(SnapshotPhase::Copying, "Copying", format!("{message} once EC2 shows all that there are"))
}
