//! What follows when an operation does not succeed. Pure: who asks holds the rows.
//!
//! A failed create is taken back, a failed change goes back to the last good state; both are new desired states with
//! operations of their own. *Invariant:* what takes back is never taken back itself, so nothing here can go in a circle.
//! *Invariant:* a volume that was ever seen is destroyed only where the deletion policy says so, and never where the database was
//! protected from deletion.

use std::time::Duration;

use crate::catalogue;
use crate::desired::{DeletionPolicy, Desired, Exposure, RunState, VolumeType, words};
use crate::disk::Disk;
use crate::operation::{OperationKind, OperationState};

/// The code of an operation whose time ran out. Every other code means that its state was refused.
pub const DEADLINE: &str = "deadline";

words!(
    /// What to do with a change that fails for good.
    OnFailure {
        /// Take it back: a new database goes, a changed one goes back to its last good state.
        Revert => "revert",
        /// Leave it as it was asked for and keep trying.
        Keep => "keep",
    }
);

/// How long an operation may take, by what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// A new database, and one whose machine is made again: resumed or undeleted.
    pub create: Duration,
    /// A change, a pause or a restart.
    pub update: Duration,
    /// A deletion, or the purge of what it kept.
    pub delete: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            create: Duration::from_mins(30),
            update: Duration::from_mins(30),
            delete: Duration::from_hours(1),
        }
    }
}

impl Deadlines {
    /// How long an operation of this kind may take.
    pub const fn of(&self, kind: OperationKind) -> Duration {
        match kind {
            OperationKind::Create | OperationKind::Resume | OperationKind::Undelete => self.create,
            OperationKind::Update | OperationKind::Pause | OperationKind::Restart => self.update,
            OperationKind::Delete | OperationKind::Purge => self.delete,
        }
    }
}

/// What decisions about an operation look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// What was asked for.
    pub kind: OperationKind,
    /// How far it came.
    pub state: OperationState,
    /// What its asker wants on failure.
    pub on_failure: OnFailure,
    /// Whether it takes back another operation.
    pub reverts: bool,
    /// Whether nothing newer was minted for its database.
    pub newest: bool,
}

/// What an operation's deadline means for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtDeadline {
    /// It reached its end before: nothing.
    Nothing,
    /// It failed.
    Fail,
    /// It is late, which somebody must hear of, and goes on.
    Overdue,
}

/// What the deadline means: what has no way back, or should not go back, is never given up.
pub const fn at_deadline(subject: Subject) -> AtDeadline {
    if subject.state.is_terminal() {
        return AtDeadline::Nothing;
    }
    if subject.reverts {
        return AtDeadline::Overdue;
    }
    match (way_back(subject.kind), subject.on_failure) {
        (None, _) | (_, OnFailure::Keep) => AtDeadline::Overdue,
        (Some(_), OnFailure::Revert) => AtDeadline::Fail,
    }
}

/// The way back from an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayBack {
    /// The database goes.
    TakeBack,
    /// The database returns to its last good state.
    GoBack,
}

/// The way back from what an operation of this kind asks for; a deletion or a purge has none.
const fn way_back(kind: OperationKind) -> Option<WayBack> {
    match kind {
        OperationKind::Create => Some(WayBack::TakeBack),
        OperationKind::Update
        | OperationKind::Pause
        | OperationKind::Resume
        | OperationKind::Restart
        | OperationKind::Undelete => Some(WayBack::GoBack),
        OperationKind::Delete | OperationKind::Purge => None,
    }
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// Nothing: it should stay so, or somebody asked for something newer.
    Nothing,
    /// A new state is minted.
    Revert(WayBack),
    /// Nothing can be done from here: somebody must look.
    Alarm,
}

/// What follows from an operation that failed.
pub const fn aftermath(subject: Subject) -> Aftermath {
    match subject.state {
        OperationState::Failed => {}
        OperationState::Pending
        | OperationState::Running
        | OperationState::Succeeded
        | OperationState::Superseded => return Aftermath::Nothing,
    }
    if !subject.newest {
        return Aftermath::Nothing;
    }
    if subject.reverts {
        return Aftermath::Alarm;
    }
    match (way_back(subject.kind), subject.on_failure) {
        (None, _) => Aftermath::Alarm,
        (Some(_), OnFailure::Keep) => Aftermath::Nothing,
        (Some(way), OnFailure::Revert) => Aftermath::Revert(way),
    }
}

/// Why an operation cannot be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncancellable {
    /// It reached its end.
    Ended,
    /// Something newer takes its place anyway.
    NotNewest,
    /// A deletion, a purge, a restart, or what takes another operation back: there is no good state to return to.
    NoWayBack,
}

/// The way back from an operation that its user does not want any more.
pub const fn cancel(subject: Subject) -> Result<WayBack, Uncancellable> {
    if subject.state.is_terminal() {
        return Err(Uncancellable::Ended);
    }
    if !subject.newest {
        return Err(Uncancellable::NotNewest);
    }
    match (way_back(subject.kind), subject.kind, subject.reverts) {
        // What was stopped for a restart is not stopped again by taking that back.
        (_, OperationKind::Restart, _) | (_, _, true) | (None, _, false) => Err(Uncancellable::NoWayBack),
        (Some(way), _, false) => Ok(way),
    }
}

/// What is known of a database that is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// A volume was seen at some time.
    pub provisioned: bool,
    /// Its cluster told of it as it was asked for: a volume would have been seen.
    pub seen: bool,
    /// No cluster ever took it.
    pub refused: bool,
}

/// The state in which nothing of a new database keeps running or billing.
///
/// Only where it is certain that no volume was ever there, or where the policy says so, does a volume that may be
/// appearing just now go too: silence is no proof.
pub fn take_back(asked: &Desired, evidence: Evidence) -> Desired {
    let never_there = !evidence.provisioned && (evidence.seen || evidence.refused);
    let stays = match asked.storage.deletion_policy {
        DeletionPolicy::Retain => true,
        DeletionPolicy::Snapshot | DeletionPolicy::Delete => asked.deletion_protection,
    };
    let run_state = if stays && !never_there { RunState::Deleted } else { RunState::Purged };
    // Nobody deletes it: it never came to be. Beside an end there is no protection.
    let mut next = Desired { run_state, deletion_protection: false, ..asked.clone() };
    if evidence.refused {
        // Whatever was refused must not be in the way of its own end; there is no object that could mind.
        catalogue::DEFAULT_VERSION.clone_into(&mut next.version);
        catalogue::DEFAULT_INSTANCE_TYPE.clone_into(&mut next.compute.instance_type);
        next.compute.node_image = None;
        next.storage.size_gib = catalogue::DEFAULT_SIZE_GIB;
        next.storage.volume_type = VolumeType::Gp3;
        next.storage.iops = catalogue::DEFAULT_IOPS;
        next.storage.throughput = catalogue::DEFAULT_THROUGHPUT;
        next.config.clear();
        next.network.allowed_cidrs.clear();
        // Whoever is public has to name somebody: what is brought back later would be refused.
        next.network.exposure = Exposure::Internal;
        next.restart_nonce = None;
    }
    next
}

/// The state after a change that failed where no good state is known to go back to: the database goes, but for a change
/// that failed no volume is destroyed that was ever seen.
pub fn without_good_state(asked: &Desired, evidence: Evidence) -> Desired {
    let mut next = take_back(asked, evidence);
    if evidence.provisioned {
        next.run_state = RunState::Deleted;
    }
    next
}

/// The last good state again, but for what cannot go back of `held`, the newest state that was not refused: a volume that
/// may have grown to its size stays so large, as far as is told of the `disk`, and a restart that may have been done is not
/// followed by another one. Nor does anything go back by which data is safer than it was, be it of `asked`, the state that
/// failed: of the deletion policies the most careful one stays, and a protection stays on while there is something to protect.
/// Of the run state only what failed itself changed is taken back: it is that of `before`, the newest state before `asked` that
/// was not refused. A verb that was passed by was asked for all the same.
pub fn go_back(good: &Desired, held: &Desired, (before, asked): (&Desired, &Desired), disk: Disk) -> Desired {
    let mut next = good.clone();
    next.run_state = before.run_state;
    next.restart_nonce.clone_from(&held.restart_nonce);
    next.storage.size_gib = good.storage.size_gib.max(disk.least(held.storage.size_gib));
    next.as_careful_as(held).as_careful_as(asked)
}

/// What an operation does that leads to a state.
pub const fn kind_of(desired: &Desired) -> OperationKind {
    match desired.run_state {
        RunState::Running | RunState::Paused => OperationKind::Update,
        RunState::Deleted | RunState::Purged => OperationKind::Delete,
    }
}

#[cfg(test)]
mod tests;
