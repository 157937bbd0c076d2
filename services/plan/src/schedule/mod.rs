//! When a schedule's next snapshot is due, and which of its snapshots are to go.
//!
//! *Invariant:* the name of a snapshot is made of the schedule's and the time it is for, so that one time makes no two.
//! *Invariant:* only snapshots that succeeded and have their copy count as kept, and the newest of them is never removed, nor one
//! that a database is still to begin with ([`is_awaited`]).
//! *Invariant:* a clock that is wrong for a while neither stops a schedule nor makes all copies old: times that lie ahead count
//! for nothing, and ages are measured by what the API server dated, too.

mod clock;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::{self, condition, snapshot};
use resources::{
    QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, QuestDBSnapshotScheduleStatus, QuestDBSnapshotSpec,
    SnapshotPhase, StorageSource,
};

pub use clock::{Clock, Error};

use crate::Goal;
use crate::report::conditions::{Word, no, put, yes};

/// Snapshots that failed are kept for people to look at, and no more than this many.
const FAILED: usize = 3;
/// By how much two clocks may differ. A time that is further ahead was told by one that was wrong.
const SKEW: SignedDuration = SignedDuration::from_hours(1);
/// How long after its time a snapshot may still be begun: its deadline is no longer.
const LATEST_BEGIN: SignedDuration = SignedDuration::from_hours(24);
/// What is said while some that are due to be removed could not be.
const UNREMOVED: &str = "snapshots that retention does not keep could not be removed";

/// What is to be done for a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The time for which a snapshot is to be made now.
    pub create: Option<Timestamp>,
    /// Snapshots to be removed, by name.
    pub remove: Vec<String>,
    /// The latest time that needs no more thought once this has been done.
    pub considered: Option<Timestamp>,
    /// When to look again at the latest.
    pub next: Option<Timestamp>,
    /// Why nothing is made although something is due.
    pub held_back: Option<String>,
    /// That a time was let pass for that, for good.
    pub let_pass: bool,
}

/// Decides. `own` are the snapshots that carry the schedule's label.
pub fn due(
    schedule: &QuestDBSnapshotSchedule,
    clock: &Clock,
    own: &[&QuestDBSnapshot],
    now: Timestamp,
) -> Due {
    let next = clock.after(now);
    let latest = clock.until(now);
    if schedule.spec.suspend {
        // What passes meanwhile is not made up for.
        return Due { considered: latest.max(considered(schedule, own, now)), next, ..Due::default() };
    }
    let mut due = Due { remove: surplus(schedule, own, aged_by(clock, own, now)), next, ..Due::default() };
    due.considered = considered(schedule, own, now);
    // Of many missed times the latest stands for all.
    let Some(time) = latest.filter(|time| Some(*time) > due.considered) else { return due };
    if let Some(limit) = schedule.spec.starting_deadline_seconds
        && now.duration_since(time) > SignedDuration::from_secs(i64::from(limit))
    {
        due.considered = Some(time);
        due.held_back = Some(format!("the time {time} passed more than {limit} s ago and was let pass"));
        due.let_pass = true;
        return due;
    }
    if let Some(busy) = own.iter().find(|one| !is_final(one)) {
        let busy = busy.metadata.name.as_deref().unwrap_or_default();
        due.held_back = Some(format!("QuestDBSnapshot {busy} is not finished; the time {time} waits for it"));
        return due;
    }
    Due { create: Some(time), considered: Some(time), ..due }
}

/// The latest time that was dealt with: told by the status, or else by the snapshots themselves, which a schedule that is made
/// again under its name goes on with; before any, the schedule's own beginning. What lies ahead was not dealt with: a clock was
/// wrong, or somebody wrote it there.
fn considered(
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    now: Timestamp,
) -> Option<Timestamp> {
    let told = schedule.status.as_ref().and_then(|status| status.last_time.as_ref()).map(|time| time.0);
    let made = own.iter().filter_map(|one| scheduled_for(one));
    let begun = schedule.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let dealt_with = told.into_iter().chain(made).filter(|time| time.duration_since(now) <= SKEW);
    dealt_with.max().or(begun)
}

/// The moment at which ages are looked at: now, as far as the API server bears that out. At each of its times a schedule has a
/// snapshot made, which the API server dates; where it is long past that of the next one, our clock is wrong or nothing can be
/// made, and neither makes what there is too old.
fn aged_by(clock: &Clock, own: &[&QuestDBSnapshot], now: Timestamp) -> Timestamp {
    let dated =
        own.iter().filter_map(|one| one.metadata.creation_timestamp.as_ref()).map(|time| time.0).max();
    let next = dated.and_then(|dated| clock.after(dated.checked_add(SKEW).ok()?));
    let borne_out = next.and_then(|next| next.checked_add(LATEST_BEGIN).ok());
    borne_out.map_or(now, |borne_out| borne_out.min(now))
}

/// The time that a snapshot was made for.
fn scheduled_for(one: &QuestDBSnapshot) -> Option<Timestamp> {
    one.metadata.annotations.as_ref()?.get(snapshot::SCHEDULED_FOR)?.parse().ok()
}

fn phase(one: &QuestDBSnapshot) -> Option<SnapshotPhase> {
    one.status.as_ref()?.phase
}

/// One that is on its way out is finished: whoever removed it does not want it waited for. Nor is one waited for that cannot be
/// read in whole: it says so itself, and would hold up all that come after it.
fn is_final(one: &QuestDBSnapshot) -> bool {
    phase(one).is_some_and(SnapshotPhase::is_final)
        || one.metadata.deletion_timestamp.is_some()
        || is_unread(one)
}

/// What is not known in whole, or has lost its copy, neither counts as kept nor is it removed.
fn counts_for_nothing(one: &QuestDBSnapshot) -> bool {
    is_unread(one) || crate::snapshot::is_gone(one)
}

fn is_unread(one: &QuestDBSnapshot) -> bool {
    resources::unread(&one.metadata).is_some()
}

/// How old a snapshot's content is; the time it was made for stands in for one that has none.
fn moment(one: &QuestDBSnapshot) -> Option<Timestamp> {
    let begun = one.status.as_ref().and_then(|status| status.started_at.as_ref()).map(|time| time.0);
    begun
        .or_else(|| scheduled_for(one))
        .or_else(|| one.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// Those of a phase that are not on their way out, newest first.
fn newest_first<'a>(own: &[&'a QuestDBSnapshot], wanted: SnapshotPhase) -> Vec<&'a QuestDBSnapshot> {
    let of_phase = |one: &&&QuestDBSnapshot| {
        phase(one) == Some(wanted) && one.metadata.deletion_timestamp.is_none() && !counts_for_nothing(one)
    };
    let mut found: Vec<_> = own.iter().filter(of_phase).copied().collect();
    found.sort_by(|one, other| (moment(other), &other.metadata.name).cmp(&(moment(one), &one.metadata.name)));
    found
}

fn surplus(schedule: &QuestDBSnapshotSchedule, own: &[&QuestDBSnapshot], now: Timestamp) -> Vec<String> {
    let retention = &schedule.spec.retention;
    let oldest = retention.max_age_hours.map(|hours| SignedDuration::from_hours(i64::from(hours)));
    let is_old = |one: &QuestDBSnapshot| {
        oldest.is_some_and(|oldest| moment(one).is_some_and(|moment| now.duration_since(moment) > oldest))
    };
    let keep = usize::from(retention.keep_last).max(1);
    // A database that was made again under its name is another one, with copies of its own.
    let mut by_database: BTreeMap<Option<&str>, Vec<&QuestDBSnapshot>> = BTreeMap::new();
    for one in newest_first(own, SnapshotPhase::Succeeded) {
        let database = one.status.as_ref().and_then(|status| status.database_id.as_deref());
        by_database.entry(database).or_default().push(one);
    }
    // The newest of each is beyond every rule.
    let succeeded = by_database.values().flat_map(|copies| copies.iter().enumerate().skip(1));
    let succeeded = succeeded.filter(|(place, one)| *place >= keep || is_old(one)).map(|(_, one)| *one);
    let failed = newest_first(own, SnapshotPhase::Failed).into_iter().skip(FAILED);
    succeeded.chain(failed).filter_map(|one| one.metadata.name.clone()).collect()
}

/// Whether a database is to begin with a copy and has no disk yet.
pub fn awaits_copy(database: &QuestDB) -> bool {
    let storage = &database.spec.storage;
    let has_disk =
        storage.provisioned || database.status.as_ref().is_some_and(|status| status.volume.is_some());
    let comes = matches!(Goal::of(database), Goal::Serve | Goal::Pause);
    comes && !has_disk && storage.source.as_ref().is_some_and(StorageSource::is_copy)
}

/// Whether a database is still to begin with the copy of a snapshot: whatever retention says, that stays until it has its disk.
pub fn is_awaited(one: &QuestDBSnapshot, database: &QuestDB) -> bool {
    let Some(source) = database.spec.storage.source.as_ref().filter(|_| awaits_copy(database)) else {
        return false;
    };
    let is_beside = one.metadata.namespace == database.metadata.namespace;
    let by_name = source.snapshot.is_some() && source.snapshot == one.metadata.name && is_beside;
    // Who may write tags in AWS may give a copy to a database of another namespace.
    let copy = one.status.as_ref().and_then(|status| status.snapshot_id.as_ref());
    by_name || source.snapshot_id.is_some() && source.snapshot_id.as_ref() == copy
}

/// The snapshot that a schedule makes for a time.
pub fn snapshot(schedule: &QuestDBSnapshotSchedule, time: Timestamp) -> QuestDBSnapshot {
    let spec = &schedule.spec;
    let name = schedule.metadata.name.as_deref().unwrap_or_default();
    let mut made = QuestDBSnapshot::new(
        &name_for(name, time),
        QuestDBSnapshotSpec {
            database: spec.database.clone(),
            deadline_seconds: spec.snapshot_template.deadline_seconds,
            deletion_policy: spec.snapshot_template.deletion_policy,
        },
    );
    made.metadata.namespace.clone_from(&schedule.metadata.namespace);
    // No owner: removing a schedule removes no copy of anything.
    made.metadata.labels = Some(
        [(snapshot::LABEL_SCHEDULE, name), (names::LABEL_MANAGED_BY, names::OPERATOR)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    made.metadata.annotations = Some([(snapshot::SCHEDULED_FOR.to_owned(), time.to_string())].into());
    made
}

/// A schedule's name and a time to the minute, of UTC: in order of time, and the same whoever makes it.
fn name_for(schedule: &str, time: Timestamp) -> String {
    format!("{schedule}-{}", time.strftime("%Y%m%d%H%M"))
}

/// The latest time that needs no more thought, for the status. The schedule's own beginning is no time of it.
fn noted(schedule: &QuestDBSnapshotSchedule, due: &Due) -> Option<Time> {
    let begun = schedule.metadata.creation_timestamp.as_ref().map(|time| time.0);
    due.considered.filter(|time| Some(*time) != begun).map(Time)
}

/// The snapshot of that time, if there is one or it is being made: who made it may have ended before it said so.
fn last_made(schedule: &QuestDBSnapshotSchedule, own: &[&QuestDBSnapshot], due: &Due) -> Option<String> {
    let name = schedule.metadata.name.as_deref().unwrap_or_default();
    let last = name_for(name, due.considered?);
    let is_there = own.iter().any(|one| one.metadata.name.as_ref() == Some(&last));
    (due.create.is_some() || is_there).then_some(last)
}

/// Notes the latest time that was dealt with, and the snapshot of it.
fn note(
    status: &mut QuestDBSnapshotScheduleStatus,
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    due: &Due,
) {
    status.last_time = noted(schedule, due).or_else(|| status.last_time.take());
    status.last_snapshot = last_made(schedule, own, due).or_else(|| status.last_snapshot.take());
}

/// What is said of a schedule after a pass that could not do what was due, of which what was done is left out: everything else stays
/// as it was, so that a time whose snapshot could not be made is not let pass. A pass that can takes it back.
pub fn failed(
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    due: &Due,
    failure: &str,
    now: Timestamp,
) -> QuestDBSnapshotScheduleStatus {
    let generation = schedule.metadata.generation.unwrap_or_default();
    let mut status = schedule.status.clone().unwrap_or_default();
    status.observed_generation = Some(generation);
    status.next_time = due.next.map(Time);
    let what = match due.create {
        Some(time) => format!("the snapshot for {time} could not be made or what it replaces removed"),
        None => UNREMOVED.to_owned(),
    };
    // One that was let pass is told by who notes it.
    if due.create.is_none() && !due.let_pass {
        note(&mut status, schedule, own, due);
    }
    let word = no("Failed", &format!("{what}, and it is tried again: {failure}"));
    put(&mut status.conditions, condition::READY, word, (generation, now));
    status
}

/// What is said of a schedule after a pass that did what was due, but for snapshots that could not be removed: of each of these it is
/// remembered elsewhere when it is tried again.
pub fn unremoved(
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    due: &Due,
    failure: &str,
    now: Timestamp,
) -> QuestDBSnapshotScheduleStatus {
    let text = format!("{UNREMOVED}, and it is tried again: {failure}");
    told(schedule, own, Some(due), no("Failed", &text), now)
}

/// What is said of a schedule after a pass.
pub fn status(
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    due: Result<&Due, &Error>,
    now: Timestamp,
) -> QuestDBSnapshotScheduleStatus {
    let word = match due {
        Err(error) => no("Invalid", &format!("{error}. Nothing is taken: correct the spec")),
        Ok(_) if schedule.spec.suspend => no("Suspended", "nothing is taken and nothing removed"),
        Ok(Due { held_back: Some(why), .. }) => yes("HeldBack", why),
        Ok(_) => yes("Scheduled", "snapshots are taken by the clock"),
    };
    told(schedule, own, due.ok(), word, now)
}

fn told(
    schedule: &QuestDBSnapshotSchedule,
    own: &[&QuestDBSnapshot],
    due: Option<&Due>,
    word: Word,
    now: Timestamp,
) -> QuestDBSnapshotScheduleStatus {
    let generation = schedule.metadata.generation.unwrap_or_default();
    let mut status = schedule.status.clone().unwrap_or_default();
    status.observed_generation = Some(generation);
    put(&mut status.conditions, condition::READY, word, (generation, now));
    let next = due.filter(|_| !schedule.spec.suspend).and_then(|due| due.next);
    status.next_time = next.map(Time);
    if let Some(due) = due {
        note(&mut status, schedule, own, due);
        let kept = newest_first(own, SnapshotPhase::Succeeded);
        let kept =
            kept.iter().filter(|one| !due.remove.iter().any(|name| Some(name) == one.metadata.name.as_ref()));
        status.kept = u32::try_from(kept.count()).ok();
    }
    status
}
