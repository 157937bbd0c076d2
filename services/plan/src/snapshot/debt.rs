//! What becomes of a release that is owed.

use jiff::{SignedDuration, Timestamp};
use resources::QuestDBSnapshot;

use super::{Checkpoint, Ground};

/// What has to be done about a release that is owed, by what is seen of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Debt {
    /// A checkpoint that may be ours holds the database: CHECKPOINT RELEASE.
    Due,
    /// Nothing of ours holds it.
    Void,
    /// It does not tell; what is waited for.
    Unclear(String),
}

/// What has to be done about it.
pub fn debt(ground: &Ground, checkpoint: Checkpoint) -> Debt {
    match ground {
        Ground::Serving { held_since: Some(since), .. } if checkpoint.may_be(*since) => Debt::Due,
        // A checkpoint lives in the process: without one there is none. Another one's is not ours to release.
        Ground::Serving { .. } | Ground::Stopped { .. } | Ground::Ended { .. } | Ground::Absent => Debt::Void,
        Ground::Unclear(what) => Debt::Unclear(what.clone()),
    }
}

/// Whether a database may not be held any longer for a snapshot of which nothing else is known, because it cannot be read in whole:
/// its deadline has passed, which is the usual one where even that cannot be read, or it is being deleted. Until then whoever can
/// read it may go on with it.
pub fn is_overdue(resource: &QuestDBSnapshot, now: Timestamp) -> bool {
    resource.metadata.deletion_timestamp.is_some() || is_late(resource, now)
}

/// Whether its deadline has passed.
pub(super) fn is_late(resource: &QuestDBSnapshot, now: Timestamp) -> bool {
    let Some(made) = &resource.metadata.creation_timestamp else { return false };
    now.duration_since(made.0) > SignedDuration::from_secs(i64::from(resource.spec.deadline_seconds))
}
