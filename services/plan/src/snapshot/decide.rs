//! The one place that decides what is done next for a snapshot.

use cloud::{SnapshotState, VolumeSnapshot, key};
use jiff::Timestamp;
use resources::{CopyPolicy, QuestDBSnapshot, SnapshotPhase};

use super::asked::new;
use super::debt::{Debt, debt, is_late};
use super::lost::{COPY_LOST, told_copy};
use super::{
    COPY_GONE, Checkpoint, Disk, Ground, Held, Plan, Seen, Step, begun, gone_text, is_gone, is_held,
    is_made_for, is_of_before, lost, owes, refused, surplus, told_begun, whole,
};

/// Whether what is done next rests on the database, so that it has to be looked at. Nothing does while a copy that is
/// trusted is only seen through, nor at the end of an object that owes nothing.
pub fn rests_on_database(resource: &QuestDBSnapshot, copies: &[VolumeSnapshot]) -> bool {
    let ends = resource.metadata.deletion_timestamp.is_some();
    let begins = trusted(resource, copies).is_none() && !has_succeeded(resource);
    owes(resource) || (!ends && is_held(resource) && begins)
}

/// Whether the last report says that the copy was whole.
fn has_succeeded(resource: &QuestDBSnapshot) -> bool {
    resource.status.as_ref().and_then(|status| status.phase) == Some(SnapshotPhase::Succeeded)
}

/// What to do next. One step at a time: each is followed by another look. What others made of a copy is neither destroyed nor taken
/// for one.
pub fn plan(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    let mut seen = seen.clone();
    seen.copies.retain(|copy| is_made_for(resource, copy));
    decide(resource, &seen)
}

fn decide(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    if resource.metadata.deletion_timestamp.is_some() {
        return end(resource, seen);
    }
    if !is_held(resource) {
        return act(Step::Hold, SnapshotPhase::Pending, "Accepted", "it is being taken in hand");
    }
    if trusted(resource, &seen.copies).is_none() && has_succeeded(resource) && !owes(resource) {
        return miss(resource, seen);
    }
    if trusted(resource, &seen.copies).is_none() && lost::may_show_again(resource, seen) {
        return wait(
            SnapshotPhase::Copying,
            "Looking",
            "EC2 does not show now the copy that it showed before",
        );
    }
    let plan = match trusted(resource, &seen.copies) {
        Some(copy) => follow(resource, seen, copy),
        None => begin(resource, seen),
    };
    let copy = trusted(resource, &seen.copies).or_else(|| provable(seen)).or_else(|| seen.copies.first());
    Plan { copy: copy.cloned(), ..plan }
}

pub(super) fn act(step: Step, phase: SnapshotPhase, reason: &'static str, message: &str) -> Plan {
    Plan { step: Some(step), ..wait(phase, reason, message) }
}

pub(super) fn wait(phase: SnapshotPhase, reason: &'static str, message: impl Into<String>) -> Plan {
    Plan { step: None, phase, reason, message: message.into(), copy: None, settled: false }
}

fn rest(phase: SnapshotPhase, reason: &'static str, message: impl Into<String>) -> Plan {
    Plan { settled: true, ..wait(phase, reason, message) }
}

/// The copy that the report told of as trusted, as tags can be taken off by anybody; else the earliest that is marked as trusted. One that
/// EC2 gave up counts where there is no other.
fn trusted<'a>(resource: &QuestDBSnapshot, copies: &'a [VolumeSnapshot]) -> Option<&'a VolumeSnapshot> {
    let told = told_copy(resource);
    let is_told = |copy: &&VolumeSnapshot| told.as_ref() == Some(&copy.id);
    let is_marked =
        |copy: &VolumeSnapshot| copy.tags.get(key::CONSISTENT).is_some() && is_made_for(resource, copy);
    let is_sound = |copy: &&VolumeSnapshot| copy.state != SnapshotState::Error;
    let told = copies.iter().find(is_told);
    let sound = || earliest(copies, |copy| is_sound(&copy) && is_marked(copy));
    told.filter(is_sound).or_else(sound).or(told).or_else(|| earliest(copies, is_marked))
}

/// The earliest copy that can be marked now: what held the database when it was begun still does.
fn provable(seen: &Seen) -> Option<&VolumeSnapshot> {
    let basis = seen.ground.basis()?;
    earliest(&seen.copies, |copy| {
        copy.state != SnapshotState::Error && copy.tags.get(key::BASIS) == Some(basis.as_str())
    })
}

/// The copy that EC2 gave up, where there is no other. It is not begun again while the database waits: who wants another
/// one asks for it, and reads until then why there is none.
fn broken(seen: &Seen) -> Option<&VolumeSnapshot> {
    // Another copy may have begun that does not show yet. No database stands still for a last one.
    let is_seen = seen.conclusive || matches!(seen.ground, Ground::Ended { .. });
    let none_is_left = seen.copies.iter().all(|copy| copy.state == SnapshotState::Error);
    if is_seen && none_is_left { earliest(&seen.copies, |_| true) } else { None }
}

/// One that EC2 gave up goes last: it says why there is none.
fn next_to_discard(seen: &Seen) -> Option<&VolumeSnapshot> {
    seen.copies.iter().min_by_key(|copy| copy.state == SnapshotState::Error)
}

fn earliest(copies: &[VolumeSnapshot], counts: impl Fn(&VolumeSnapshot) -> bool) -> Option<&VolumeSnapshot> {
    let found = copies.iter().filter(|copy| counts(copy));
    found.min_by_key(|copy| (copy.started_at, copy.id.clone()))
}

/// There is a copy that can be trusted: let the database go, and see the copy through.
fn follow(resource: &QuestDBSnapshot, seen: &Seen, copy: &VolumeSnapshot) -> Plan {
    if owes(resource) {
        return pay(resource, seen, SnapshotPhase::Releasing, "Releasing", "the copy has begun");
    }
    if let Some(surplus) = seen.copies.iter().find(|other| other.id != copy.id) {
        return surplus::remove(copy, surplus, seen);
    }
    match &copy.state {
        SnapshotState::Completed => {
            let (reason, message) = whole(resource, begun(copy));
            rest(SnapshotPhase::Succeeded, reason, message)
        }
        SnapshotState::Error => unfinished(copy),
        SnapshotState::Pending => {
            wait(SnapshotPhase::Copying, "Copying", "EBS copies in its own time; the database is free")
        }
        other => wait(SnapshotPhase::Copying, "Copying", format!("EC2 says that the copy is {other}")),
    }
}

/// The copy was whole, and is not there any more. Another one would be of another moment: it is for people to ask for.
fn miss(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    if !seen.conclusive && !is_gone(resource) {
        let (reason, message) = whole(resource, told_begun(resource));
        return wait(SnapshotPhase::Succeeded, reason, message);
    }
    Plan { settled: seen.conclusive, ..rest(SnapshotPhase::Succeeded, COPY_GONE, gone_text(resource)) }
}

fn unfinished(copy: &VolumeSnapshot) -> Plan {
    let words = copy.message.as_deref().unwrap_or("it gives no reason");
    rest(SnapshotPhase::Failed, "CopyFailed", format!("EC2 could not finish the copy: {words}"))
}

/// There is none yet.
fn begin(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    // Said before it is late too: what EC2 says of its copy explains more than a deadline.
    if let Some(copy) = broken(seen) {
        let failed = unfinished(copy);
        return if owes(resource) {
            pay(resource, seen, failed.phase, failed.reason, &failed.message)
        } else {
            failed
        };
    }
    if is_late(resource, seen.now) && (seen.conclusive || owes(resource)) {
        return fail(resource, seen);
    }
    if let Some(message) = refused::for_now(resource, seen) {
        return if owes(resource) {
            pay(resource, seen, under_way(resource), "CopyRefused", &message)
        } else {
            wait(under_way(resource), "CopyRefused", message)
        };
    }
    if let Some(copy) = provable(seen) {
        let message = "the copy has begun while the database stood still";
        return act(Step::Trust(copy.id.clone()), SnapshotPhase::Checkpointing, "Beginning", message);
    }
    if let Ground::Unclear(what) = &seen.ground {
        return wait(under_way(resource), "DatabaseUnclear", what);
    }
    // A look that may be behind shows neither all copies nor all of their tags.
    if !seen.conclusive {
        let message = "EC2 may still show what was asked of it before";
        return wait(under_way(resource), "Looking", message);
    }
    if let Some(copy) = next_to_discard(seen) {
        let message = "the database did not stand still until the copy had begun, which is removed";
        return act(Step::Discard(copy.id.clone()), SnapshotPhase::Checkpointing, "Torn", message);
    }
    copy_now(resource, seen)
}

/// Nothing is there and nothing is on its way.
fn copy_now(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    let checkpointing = SnapshotPhase::Checkpointing;
    // No QuestDB is left that another snapshot could hold.
    let ended = matches!(seen.ground, Ground::Ended { .. });
    if let (Some(other), false) = (&seen.before, owes(resource) || ended) {
        let message = format!("waits for QuestDBSnapshot {other} of the same database");
        return wait(SnapshotPhase::Pending, "Waiting", message);
    }
    match &seen.ground {
        Ground::Unclear(what) => wait(under_way(resource), "DatabaseUnclear", what),
        Ground::Absent if owes(resource) => {
            act(Step::Strike, checkpointing, "NoDatabase", "the database is gone")
        }
        Ground::Absent => {
            let message = format!("there is no QuestDB {}", resource.spec.database);
            wait(SnapshotPhase::Pending, "NoDatabase", message)
        }
        Ground::Stopped { .. } | Ground::Ended { .. } if owes(resource) => {
            act(Step::Strike, checkpointing, "Stopped", "the database was stopped: nothing holds it any more")
        }
        Ground::Stopped { disk, .. } => {
            let message = "the database is stopped: its disk is copied as it lies";
            act(Step::Begin(new(resource, seen, disk)), checkpointing, "Beginning", message)
        }
        Ground::Ended { disk, .. } => {
            let message = "no machine is left: the disk is copied a last time";
            act(Step::Begin(new(resource, seen, disk)), checkpointing, "Beginning", message)
        }
        Ground::Serving { disk, held } if owes(resource) => hold(resource, seen, disk, *held),
        Ground::Serving { held: Some(held), .. } => {
            wait(SnapshotPhase::Pending, "HeldByOthers", held_by_others(held.since))
        }
        Ground::Serving { held: None, .. } => {
            act(Step::Owe, checkpointing, "Holding", "the database is about to be held still")
        }
    }
}

/// The debt is written down: the database stands still for this snapshot, or is made to.
fn hold(resource: &QuestDBSnapshot, seen: &Seen, disk: &Disk, held: Option<Held>) -> Plan {
    let phase = SnapshotPhase::Checkpointing;
    let Some(Held { since, .. }) = held else {
        return act(Step::Checkpoint, phase, "Holding", "the database is held still");
    };
    if seen.known.checkpoint == Checkpoint::Made(since) {
        return act(Step::Begin(new(resource, seen, disk)), phase, "Beginning", "the database stands still");
    }
    if seen.known.may_be_ours(since) {
        let message = "a checkpoint of before is released: what it holds is old";
        return act(Step::Release, phase, "Holding", message);
    }
    act(Step::Strike, SnapshotPhase::Pending, "HeldByOthers", &held_by_others(since))
}

fn held_by_others(since: Timestamp) -> String {
    format!(
        "since {since} QuestDB is held by a checkpoint that no QuestDBSnapshot owes the release of, so it is left alone: a \
         person's, or that of a QuestDBSnapshot whose finalizer was taken off; once nobody needs it, say CHECKPOINT RELEASE"
    )
}

/// Its time is over and there is nothing to trust, by what is shown.
fn fail(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    if owes(resource) && !seen.conclusive {
        // One that can be trusted may be there all the same: nothing has failed before EC2 shows that there is none.
        let message = "its time is over, and EC2 may not show all of its copies now";
        return pay(resource, seen, under_way(resource), "DeadlineExceeded", message);
    }
    let failed = SnapshotPhase::Failed;
    let (reason, message) = match lost::text(resource) {
        Some(text) => (COPY_LOST, text),
        None => ("DeadlineExceeded", late_text(resource, seen)),
    };
    if owes(resource) {
        return pay(resource, seen, failed, reason, &message);
    }
    match next_to_discard(seen) {
        Some(copy) => act(Step::Discard(copy.id.clone()), failed, reason, &message),
        None => rest(failed, reason, message),
    }
}

fn late_text(resource: &QuestDBSnapshot, seen: &Seen) -> String {
    let why = obstacle(resource, seen);
    format!("no copy could be begun within {} s: {why}", resource.spec.deadline_seconds)
}

fn obstacle(resource: &QuestDBSnapshot, seen: &Seen) -> String {
    match (&seen.before, &seen.ground) {
        (_, Ground::Absent) => format!("there is no QuestDB {}", resource.spec.database),
        (_, Ground::Unclear(what)) => what.clone(),
        // Nothing else holds it up.
        (_, Ground::Ended { .. }) => {
            refused::obstacle(seen).unwrap_or_else(|| "EC2 did not show that it had begun".to_owned())
        }
        (Some(other), _) => format!("QuestDBSnapshot {other} of the same database came first"),
        (None, Ground::Serving { held: Some(held), .. })
            if !owes(resource) || !seen.known.may_be_ours(held.since) =>
        {
            held_by_others(held.since)
        }
        (None, _) => refused::obstacle(seen)
            .unwrap_or_else(|| "the database did not stand still for long enough".to_owned()),
    }
}

/// Frees the database, or strikes the debt when nothing of ours holds it.
fn pay(
    resource: &QuestDBSnapshot,
    seen: &Seen,
    phase: SnapshotPhase,
    reason: &'static str,
    message: &str,
) -> Plan {
    match debt(resource, &seen.ground, seen.known, seen.now) {
        Debt::Due => act(Step::Release, phase, reason, message),
        Debt::Void => act(Step::Strike, phase, reason, message),
        Debt::Early => wait(
            phase,
            reason,
            format!(
                "{message}; a checkpoint that was asked for may begin yet, and is waited for until it is too late for that"
            ),
        ),
        Debt::Unclear(what) => wait(
            phase,
            reason,
            format!("{message}; the database may still be held, and is freed once it answers: {what}"),
        ),
    }
}

/// The object is being deleted.
fn end(resource: &QuestDBSnapshot, seen: &Seen) -> Plan {
    let phase = resource.status.as_ref().and_then(|status| status.phase).unwrap_or(SnapshotPhase::Pending);
    if owes(resource) {
        return pay(resource, seen, phase, "Deleting", "it is being deleted");
    }
    if !is_held(resource) {
        return act(Step::LetGo, phase, "Deleting", "nothing was made for it");
    }
    let kept = match resource.spec.deletion_policy {
        CopyPolicy::Retain => trusted(resource, &seen.copies),
        CopyPolicy::Delete => None,
    };
    if !seen.conclusive {
        return wait(phase, "Deleting", "EC2 may still show what was asked of it before");
    }
    let stays =
        |copy: &VolumeSnapshot| kept.is_some_and(|kept| kept.id == copy.id) || is_of_before(resource, copy);
    match seen.copies.iter().find(|copy| !stays(copy)) {
        Some(copy) => act(Step::Discard(copy.id.clone()), phase, "Deleting", "its copy is being destroyed"),
        None => act(Step::LetGo, phase, "Deleting", "nothing is left to be done for it"),
    }
}

fn under_way(resource: &QuestDBSnapshot) -> SnapshotPhase {
    if owes(resource) { SnapshotPhase::Checkpointing } else { SnapshotPhase::Pending }
}
