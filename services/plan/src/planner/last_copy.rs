//! The last copy of a disk, between the end of the machine and the end of the disk. A `QuestDBSnapshot` orders it, so that it
//! is made and shown as any other; whether it is there, EC2 alone says ([`crate::Evidence`]).
//!
//! *Invariant:* an order that is not heeded in time, fails or is of another time of the disk is followed by the next, under the
//! next name; none of them decides anything. *Invariant:* while it is not known which orders there are, none is given and no
//! disk is destroyed: one that is being deleted may take its copy with it.

use cloud::{InstanceId, InstanceState, SnapshotId, Tags, Volume, VolumeSnapshot, VolumeState, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{CopyPolicy, LastCopyStatus, QuestDBSnapshot, RunState, SnapshotPhase, names};
use serde_json::json;

use super::World;
use super::existing::living;
use super::home::number_given;
use super::machine::{generation_of_disk, next_generation};
use super::teardown::{is_held, is_mistagged, target};
use crate::last_copy::{attempts, number, number_of_order};
use crate::snapshot::identity;
use crate::{Evidence, Goal, Kind, Manifest, Part, Plan, State, Step, Unseen};

/// How long a copy may take to begin, in seconds.
const WITHIN: u32 = 900;
/// How much later than its deadline an order counts as not heeded by anybody.
const GRACE: SignedDuration = SignedDuration::from_mins(2);
/// How long EC2 may take to show a copy as complete that its order calls so.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_mins(1);
/// Between an order that failed and the next, at first and at last.
const PAUSE: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));

/// Whether what the disk holds is copied, or there is no disk.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan) -> bool {
    let volumes: Vec<&Volume> = living(&world.observed.account.volumes).collect();
    let volume = match volumes.as_slice() {
        [] => {
            take_back(world, plan, "there is no disk that could be copied");
            return true;
        }
        [volume] => volume,
        several => {
            let ids: Vec<&str> = several.iter().map(|volume| volume.id.as_str()).collect();
            let text = format!(
                "volumes {} all carry this database's tags, and none is destroyed: take the tags off all but one",
                ids.join(", ")
            );
            plan.say(Part::LastCopy, State::Broken(text));
            return false;
        }
    };
    if is_lent(world, volume) && is_ordered(world, volume) {
        let step = numbered(world, volume);
        plan.act(
            Part::LastCopy,
            step,
            "a machine that is none of ours has the disk: what was copied before may lack something",
        );
    }
    if let Some(state) = obstacle(world, volume) {
        plan.say(Part::LastCopy, state);
        return false;
    }
    if number(&world.validated.subject, volume).is_none() || is_behind(world, volume) {
        number_disk(world, plan, volume);
        return false;
    }
    let Some(copy) = proven(world, volume) else {
        order(world, plan, volume);
        return false;
    };
    note(world, plan, copy)
}

/// A disk that no machine was ever given, that lost its number, or that has one which is not the last that was given, gets one
/// that no machine had.
fn number_disk(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
    let found = volume.tags.get(key::GENERATION).filter(|_| !is_behind(world, volume));
    if found.is_some() && found == generation_of_disk(volume).map(|found| found.to_string()).as_deref() {
        let text = format!(
            "{} has tags {} that nobody of us wrote: put them right, or take them off",
            volume.id,
            [key::SEQ, key::ROLE].join(" or ")
        );
        return plan.say(Part::LastCopy, State::Broken(text));
    }
    plan.act(
        Part::LastCopy,
        numbered(world, volume),
        "a copy is known by the number of the disk that it is of",
    );
    plan.wait(Part::LastCopy, format!("{} is being numbered", volume.id));
}

fn numbered(world: &World<'_>, volume: &Volume) -> Step {
    let next = next_generation(world, volume).to_string();
    Step::Tag { resource: volume.id.to_string(), tags: Tags::new().with(key::GENERATION, next) }
}

/// Whether a disk carries a lower number than one that was given out: a machine was made that never had the disk, or a leader that
/// woke late wrote what it had decided long before. Nobody can tell them apart.
fn is_behind(world: &World<'_>, volume: &Volume) -> bool {
    generation_of_disk(volume).is_some_and(|number| number.saturating_add(1) < next_generation(world, volume))
}

/// Whether EC2 says that a machine has the disk which is none of ours, or not ended.
fn is_lent(world: &World<'_>, volume: &Volume) -> bool {
    let machines = &world.observed.account.instances;
    let has_ended = |id: &InstanceId| {
        machines.iter().any(|machine| machine.id == *id && machine.state == InstanceState::Terminated)
    };
    volume.live_attachments().any(|attachment| !has_ended(&attachment.instance))
}

/// Whether a copy may have the number that the disk has.
fn is_ordered(world: &World<'_>, volume: &Volume) -> bool {
    let number = generation_of_disk(volume);
    number.is_some() && (number == number_ordered(world) || !world.observed.account.copies.is_empty())
}

/// The number of the disk as the latest order for a last copy has it.
pub(super) fn number_ordered(world: &World<'_>) -> Option<u64> {
    let order = world.observed.children.last_copy.as_deref()?;
    number_of_order(order).filter(|_| order.spec.database == world.validated.subject.name)
}

/// The copy in EC2 that holds all that was ever written to a volume, where one is to be kept.
pub(super) fn proven<'a>(world: &World<'a>, volume: &Volume) -> Option<&'a VolumeSnapshot> {
    let account = &world.observed.account;
    let holds_all = |copy: &&VolumeSnapshot| evidence(world, volume, copy).judge().is_ok();
    let is_seen = world.observed.children.copies_unseen.is_none();
    let mut copies = account.copies.iter().filter(|_| world.validated.keeps_copy() && is_seen);
    copies.find(|copy| holds_all(copy) && !is_going(world, copy))
}

fn evidence<'a>(world: &World<'a>, disk: &'a Volume, copy: &'a VolumeSnapshot) -> Evidence<'a> {
    let (subject, machines) = (&world.validated.subject, &*world.observed.account.instances);
    Evidence { subject, disk, machines, given: number_given(world.resource), copy }
}

/// Whether the order for a copy is being deleted, and takes the copy with it.
fn is_going(world: &World<'_>, copy: &VolumeSnapshot) -> bool {
    let order = world.observed.children.last_copy.as_ref();
    order.is_some_and(|order| {
        order.metadata.name.as_deref() == copy.tags.get(key::OBJECT)
            && order.metadata.deletion_timestamp.is_some()
            && order.spec.deletion_policy == CopyPolicy::Delete
    })
}

/// A copy in words.
pub(super) fn told(copy: &VolumeSnapshot) -> String {
    words(copy.tags.get(key::OBJECT), &copy.id)
}

fn words(snapshot: Option<&str>, id: &SnapshotId) -> String {
    snapshot.map_or_else(|| id.to_string(), |name| format!("QuestDBSnapshot {name} ({id})"))
}

/// What is known of the copy of a disk that is gone.
pub(super) fn remember(world: &World<'_>, plan: &mut Plan) {
    let gone = living(&world.observed.account.volumes).next().is_none();
    if world.validated.keeps_copy() && gone {
        let status = world.resource.status.as_ref();
        plan.last_copy = status.and_then(|status| status.last_copy.clone());
    }
}

/// Which copy was kept is written down before the disk is destroyed: afterwards nobody looks for it.
fn note(world: &World<'_>, plan: &mut Plan, copy: &VolumeSnapshot) -> bool {
    let found = LastCopyStatus {
        snapshot: copy.tags.get(key::OBJECT).map(str::to_owned),
        snapshot_id: copy.id.to_string(),
        volume_id: copy.volume.to_string(),
        started_at: copy.started_at.and_then(|at| Timestamp::try_from(at).ok()).map(Time),
    };
    let noted = world.resource.status.as_ref().and_then(|status| status.last_copy.as_ref());
    // By what names it: a time comes back from the API server in whole seconds.
    let known = noted.is_some_and(|noted| {
        (&noted.snapshot_id, &noted.volume_id) == (&found.snapshot_id, &found.volume_id)
    });
    plan.last_copy = Some(found);
    if !known {
        plan.wait(Part::LastCopy, format!("{} is complete and is being written down", told(copy)));
    }
    known
}

/// Why a volume cannot be copied now.
fn obstacle(world: &World<'_>, volume: &Volume) -> Option<State> {
    let id = &volume.id;
    match &volume.state {
        VolumeState::Creating => Some(State::Running(format!("waiting for {id} to become available"))),
        VolumeState::Error => Some(State::Broken(format!(
            "EC2 reports {id} as failed, so that it cannot be copied: ask AWS; {}",
            without(world)
        ))),
        _ if is_held(world, volume) => Some(State::Running(format!("something still holds {id}"))),
        _ if is_mistagged(world, volume) => Some(State::Running(format!("{id} is being tagged again"))),
        _ => None,
    }
}

/// How to do without a copy.
fn without(world: &World<'_>) -> &'static str {
    if world.validated.instruction.is_some() {
        "to do without a copy, destroy the volume in EC2 by hand"
    } else if world.resource.spec.run_state == RunState::Purged {
        "to have the disk destroyed without a copy, set spec.storage.deletionPolicy to Delete"
    } else {
        "to have the disk destroyed without a copy, set spec.storage.deletionPolicy to Delete; to keep the disk, to Retain"
    }
}

/// A copy is asked for, waited for, or asked for again.
fn order(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
    if let Some(unseen) = &world.observed.children.copies_unseen {
        return plan.say(Part::LastCopy, hidden(unseen));
    }
    let mut all = attempts(&world.validated.subject).enumerate();
    let last = world.observed.children.last_copy.as_deref();
    let known = last.and_then(|order| {
        let (count, name) = all.find(|(_, name)| order.metadata.name.as_ref() == Some(name))?;
        Some((count, name, order))
    });
    let next = all.next().map(|(_, name)| name);
    let Some((count, name, order)) = known else { return request(world, plan, volume, next) };
    if order.metadata.deletion_timestamp.is_some() {
        let text = format!("QuestDBSnapshot {name} is being deleted: the copy is asked for again then");
        return plan.wait(Part::LastCopy, text);
    }
    if !is_of(world, volume, order) {
        return request(world, plan, volume, next);
    }
    let Some((since, why)) = trouble(world, volume, order) else {
        let phase = phase(order).as_str();
        let text = format!("waiting for QuestDBSnapshot {name} of {}: {phase}", volume.id);
        return plan.wait(Part::LastCopy, text);
    };
    let again = since.checked_add(pause(count)).unwrap_or(since);
    if world.observed.at >= again {
        return request(world, plan, volume, next);
    }
    let again = again.round(jiff::Unit::Second).unwrap_or(again);
    let text = format!(
        "the last copy of {} failed: {why}; another one is asked for after {again}, and the disk stays until one is complete: \
         {}",
        volume.id,
        without(world)
    );
    plan.say(Part::LastCopy, State::Broken(text));
}

/// One that is there and cannot be seen would be asked for a second time, and one that is being deleted would count.
fn hidden(unseen: &Unseen) -> State {
    let unknown =
        |why: &str| format!("the disk stays while it is not known which copies of it were asked for: {why}");
    match unseen {
        Unseen::Yet => State::Running("waiting to see which copies of the disk were asked for".to_owned()),
        Unseen::Broken(why) => State::Running(unknown(why)),
        Unseen::Refused(why) => State::Broken(unknown(why)),
    }
}

fn request(world: &World<'_>, plan: &mut Plan, volume: &Volume, name: Option<String>) {
    let Some(name) = name else {
        let text =
            format!("{} could not be copied however often it was tried: {}", volume.id, without(world));
        return plan.say(Part::LastCopy, State::Broken(text));
    };
    plan.wait(Part::LastCopy, format!("QuestDBSnapshot {name} of {} is being asked for", volume.id));
    let reason = "the disk is destroyed only once a last copy of it is complete";
    plan.act(Part::LastCopy, Step::Apply(manifest(world, volume, &name)), reason);
}

/// Whether an order is for a copy of this very disk, as it is now.
fn is_of(world: &World<'_>, volume: &Volume, order: &QuestDBSnapshot) -> bool {
    let subject = &world.validated.subject;
    let status = order.status.as_ref();
    let database = status.and_then(|status| status.database_id.as_ref());
    let copied = status.and_then(|status| status.volume_id.as_deref());
    let number = number(subject, volume);
    number.is_some()
        && number_of_order(order) == number
        && order.spec.database == subject.name
        && database.is_none_or(|database| *database == subject.database)
        && copied.is_none_or(|copied| copied == volume.id.as_str())
}

fn phase(order: &QuestDBSnapshot) -> SnapshotPhase {
    order.status.as_ref().and_then(|status| status.phase).unwrap_or(SnapshotPhase::Pending)
}

/// Since when nothing more comes of an order, and why; nothing while it may still be carried out.
fn trouble(world: &World<'_>, volume: &Volume, order: &QuestDBSnapshot) -> Option<(Timestamp, String)> {
    let (now, status) = (world.observed.at, order.status.as_ref());
    let made = order.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0);
    let ended = status.and_then(|status| status.ended_at.as_ref()).map_or(made, |ended| ended.0);
    match phase(order) {
        SnapshotPhase::Failed => Some((ended, message(order))),
        SnapshotPhase::Succeeded if now.duration_since(ended) > SHOWN_WITHIN => {
            Some((ended, against(world, volume, status.and_then(|status| status.snapshot_id.as_deref()))))
        }
        // EBS takes its time.
        SnapshotPhase::Succeeded | SnapshotPhase::Copying | SnapshotPhase::Releasing => None,
        SnapshotPhase::Pending | SnapshotPhase::Checkpointing => {
            let within = SignedDuration::from_secs(i64::from(order.spec.deadline_seconds));
            let due = made.checked_add(within + GRACE).ok()?;
            (now > due).then(|| (due, format!("it was not begun within {} s", within.as_secs())))
        }
    }
}

/// Why a copy that its order calls complete does not count.
fn against(world: &World<'_>, volume: &Volume, id: Option<&str>) -> String {
    let account = &world.observed.account;
    let Some(copy) = account.copies.iter().find(|copy| Some(copy.id.as_str()) == id) else {
        let id = id.unwrap_or("the copy");
        return format!("EC2 does not show {id} with the tags of a last copy of the disk");
    };
    evidence(world, volume, copy).judge().err().unwrap_or_default()
}

fn message(order: &QuestDBSnapshot) -> String {
    let conditions = order.status.iter().flat_map(|status| &status.conditions);
    let mut words = conditions.filter(|found| found.type_ == condition::READY);
    words.next().map(|found| found.message.clone()).unwrap_or_default()
}

/// Between the failure of the order with this number, from 0 on, and the next.
fn pause(count: usize) -> SignedDuration {
    let (first, last) = PAUSE;
    let times = u32::try_from(count).ok().and_then(|count| 2_i32.checked_pow(count));
    times.and_then(|times| first.checked_mul(times)).map_or(last, |pause| pause.min(last))
}

/// An order that nobody needs any more goes, unless it is in hand: what EC2 was asked for by then is not left without its object,
/// which stays what it is, and the report tells of it.
pub(super) fn withdraw(world: &World<'_>, plan: &mut Plan) {
    if !world.validated.keeps_copy() {
        take_back(world, plan, "the database is not to be copied and destroyed any more");
        outdate(world, plan);
    }
}

/// A copy that was begun before the wish turned round never counts, should the disk be destroyed one day: until then it may be
/// anybody's. One that serves again gets the number of its next machine.
fn outdate(world: &World<'_>, plan: &mut Plan) {
    let rests = matches!(world.validated.goal, Goal::Pause | Goal::Retire);
    let mut disks = living(&world.observed.account.volumes).filter(|_| rests);
    if let Some(volume) = disks.find(|volume| is_ordered(world, volume)) {
        plan.act(
            Part::LastCopy,
            numbered(world, volume),
            "what was copied is not the last of the disk any more",
        );
    }
}

fn take_back(world: &World<'_>, plan: &mut Plan, why: &str) {
    let Some(order) = world.observed.children.last_copy.as_deref() else { return };
    let ours = order.spec.database == world.validated.subject.name && number_of_order(order).is_some();
    if identity(order).is_some() || !ours || order.metadata.deletion_timestamp.is_some() {
        return;
    }
    let name = order.metadata.name.as_deref().unwrap_or_default();
    plan.act(Part::LastCopy, Step::Delete(target(Kind::Snapshot, &order.metadata)), why);
    plan.wait(Part::LastCopy, format!("QuestDBSnapshot {name} is being withdrawn: {why}"));
}

/// The order for a copy.
fn manifest(world: &World<'_>, volume: &Volume, name: &str) -> Manifest {
    let subject = &world.validated.subject;
    let number = number(subject, volume).unwrap_or_default();
    let mut metadata = subject.unowned(name);
    metadata["annotations"] = json!({ names::snapshot::LAST_COPY: number.to_string() });
    Manifest {
        kind: Kind::Snapshot,
        namespace: Some(subject.namespace.clone()),
        name: name.to_owned(),
        uid: None,
        body: json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "QuestDBSnapshot",
            "metadata": metadata,
            "spec": { "database": subject.name, "deadlineSeconds": WITHIN, "deletionPolicy": "Retain" },
        }),
    }
}
