//! What becomes of a release that is owed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use resources::QuestDBSnapshot;

use super::{Checkpoint, Ground, Known, Requests, is_copying, is_settled};

/// How long a checkpoint is waited for at least.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long after the last moment at which anything may be asked of QuestDB under a debt its checkpoint may still begin: one is waited for
/// for two minutes then, and may come of a request that was given up.
const LATEST: SignedDuration = SignedDuration::from_mins(5);

/// What has to be done about a release that is owed, by what is seen of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Debt {
    /// A checkpoint that may be ours holds the database: CHECKPOINT RELEASE.
    Due,
    /// Nothing of ours holds it, nor will.
    Void,
    /// Nothing of ours holds it, and one that was asked for may begin yet.
    Early,
    /// It does not tell; what is waited for.
    Unclear(String),
}

/// What has to be done about the one of a snapshot.
pub fn debt(resource: &QuestDBSnapshot, ground: &Ground, known: Known, now: Timestamp) -> Debt {
    match ground {
        Ground::Serving { held: Some(held), .. }
            if known.may_be_ours(held.since) && !is_too_young(resource, known, held.age, now) =>
        {
            Debt::Due
        }
        Ground::Serving { .. } if may_begin(resource, known.requests, now) => Debt::Early,
        // A checkpoint lives in the process: without one there is none. Another one's is not ours to release.
        Ground::Serving { .. } | Ground::Stopped { .. } | Ground::Ended { .. } | Ground::Absent => Debt::Void,
        Ground::Unclear(what) => Debt::Unclear(what.clone()),
    }
}

/// The same of the checkpoint that this process made and that began then, where no release is owed any more: another process that led
/// beside this one has struck the debt, of a checkpoint of its own, and nobody but this one knows whose the later one is.
pub fn debt_struck(ground: &Ground, made: Timestamp) -> Debt {
    match ground {
        Ground::Serving { held: Some(held), .. } if held.since == made => Debt::Due,
        Ground::Serving { .. } | Ground::Stopped { .. } | Ground::Ended { .. } | Ground::Absent => Debt::Void,
        Ground::Unclear(what) => Debt::Unclear(what.clone()),
    }
}

/// How long a checkpoint is waited for that is asked for now. QuestDB comes to a stand table by table, and one that is given up is begun
/// anew: so it has half of what is left until the deadline, and the copy has the other half to begin.
pub fn patience(resource: &QuestDBSnapshot, now: Timestamp) -> Duration {
    let left = late_for(resource, now).map_or(SignedDuration::ZERO, |late| -late);
    (Duration::try_from(left).unwrap_or_default() / 2).max(PATIENCE)
}

/// Whether a database may not be held any longer for a snapshot of which nothing else is known, because it cannot be read in whole:
/// its deadline has passed, which is the usual one where even that cannot be read, or it is being deleted. Until then whoever can
/// read it may go on with it.
pub fn is_overdue(resource: &QuestDBSnapshot, now: Timestamp) -> bool {
    resource.metadata.deletion_timestamp.is_some() || is_late(resource, now)
}

/// Whether its deadline has passed.
pub(super) fn is_late(resource: &QuestDBSnapshot, now: Timestamp) -> bool {
    late_for(resource, now).is_some_and(|late| late > SignedDuration::ZERO)
}

/// How long it is until its deadline has passed; none once it has, and where nothing is done then: for one that is whole or has failed,
/// or is only copied by EBS, and for one that is being deleted.
pub fn until_late(resource: &QuestDBSnapshot, now: Timestamp) -> Option<SignedDuration> {
    if resource.metadata.deletion_timestamp.is_some() || is_settled(resource) || is_copying(resource) {
        return None;
    }
    late_for(resource, now).filter(|late| *late <= SignedDuration::ZERO).map(|late| -late)
}

/// How long ago its deadline was; below zero before it.
fn late_for(resource: &QuestDBSnapshot, now: Timestamp) -> Option<SignedDuration> {
    let made = resource.metadata.creation_timestamp.as_ref()?;
    Some(now.duration_since(made.0) - SignedDuration::from_secs(i64::from(resource.spec.deadline_seconds)))
}

/// For how long nobody has asked for anything under the debt any more: nobody does past the deadline, nor once the object is being
/// deleted. Below zero while somebody may.
fn over_for(resource: &QuestDBSnapshot, now: Timestamp) -> Option<SignedDuration> {
    let deleted = resource.metadata.deletion_timestamp.as_ref().map(|at| now.duration_since(at.0));
    deleted.max(late_for(resource, now))
}

/// Whether a checkpoint of which nothing is known began when nobody asked for one under the debt any more. Ages are compared, each by the
/// clock that dated its beginning.
fn is_too_young(resource: &QuestDBSnapshot, known: Known, held_for: SignedDuration, now: Timestamp) -> bool {
    // Of a request without an answer it is known that it may come however late.
    let is_unknown = known.checkpoint == Checkpoint::Unknown && known.requests != Requests::Unanswered;
    // One that is to begin yet, by a clock that was set back meanwhile, has no age that says anything.
    let is_aged = !held_for.is_negative();
    is_unknown && is_aged && over_for(resource, now).is_some_and(|over| over - held_for > LATEST)
}

/// Whether a checkpoint may begin yet that was asked for under the debt.
fn may_begin(resource: &QuestDBSnapshot, requests: Requests, now: Timestamp) -> bool {
    match requests {
        Requests::Unanswered => true,
        Requests::Unknown => over_for(resource, now).is_none_or(|over| over <= LATEST),
        Requests::Answered => false,
    }
}
