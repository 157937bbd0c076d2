//! The one word for how a database is.

use resources::{Phase, QuestDBStatus};

use super::Outcome;
use crate::Goal;

/// The phase after a pass; `status` is otherwise complete.
pub(super) fn phase(status: &QuestDBStatus, outcome: &Outcome<'_>) -> Phase {
    let settled = outcome.is_settled();
    match outcome.validated.goal {
        Goal::Pause if settled => Phase::Paused,
        Goal::Pause => Phase::Pausing,
        Goal::Retire | Goal::Purge if settled => Phase::Deleted,
        Goal::Retire | Goal::Purge => Phase::Deleting,
        Goal::Serve if settled => Phase::Ready,
        Goal::Serve if outcome.first_broken().is_some() || outcome.first_refused().is_some() => {
            Phase::Degraded
        }
        // A version is noted when it first serves, which is before it is known by its name.
        Goal::Serve if status.version.is_some() && status.phase != Some(Phase::Provisioning) => {
            Phase::Updating
        }
        Goal::Serve => Phase::Provisioning,
    }
}
