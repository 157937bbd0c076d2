//! The last copy of a disk, between the end of the machine and the end of the disk. A `QuestDBSnapshot` orders it, so that it
//! is made and shown as any other; whether it is there, EC2 alone says ([`crate::Evidence`]).
//!
//! *Invariant:* an order that is not heeded in time, fails or is of another time of the disk is followed by the next, under the
//! next name; none of them decides anything. *Invariant:* while it is not known which orders there are, none is given and no
//! disk is destroyed: one that is being deleted may take its copy with it.

mod order;

use cloud::{InstanceId, InstanceState, SnapshotId, Tags, Volume, VolumeSnapshot, VolumeState, key};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{LastCopyStatus, RunState, SnapshotPhase};

use super::existing::{another, living, several, spared};
use super::home::number_given;
use super::machine::{generation_of_disk, next_generation};
use super::teardown::{is_held, is_mistagged, target};
use super::{World, held};
use crate::last_copy::{number, number_of_order, takes_copy};
use crate::snapshot::identity;
use crate::{Evidence, Goal, Kind, Part, Plan, State, Step};

/// Whether what the disk holds is copied, or there is no disk.
pub(super) fn keep(world: &World<'_>, plan: &mut Plan) -> bool {
    let volumes: Vec<&Volume> = living(&world.observed.account.volumes).collect();
    let volume = match volumes.as_slice() {
        [] => {
            plan.copies_outdated = false;
            take_back(world, plan, "there is no disk that could be copied");
            return true;
        }
        [volume] => volume,
        volumes => {
            plan.say(Part::LastCopy, State::Broken(several(volumes)));
            return false;
        }
    };
    if let Some(text) = spared(world, volume) {
        plan.say(Part::LastCopy, State::Broken(text));
        return false;
    }
    if is_renumbered(world, plan, volume) {
        return false;
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
        order::order(world, plan, volume);
        return false;
    };
    note(world, plan, copy)
}

/// Whether the disk is given another number before anything else is done, because nobody of us knows what became of it since it
/// was copied; one that a strange machine has by now gets one too.
fn is_renumbered(world: &World<'_>, plan: &mut Plan, volume: &Volume) -> bool {
    let is_lent = is_lent(world, volume);
    let anew = plan.copies_outdated && is_ordered(world, volume);
    if anew || is_lent && is_ordered(world, volume) {
        let why = if is_lent {
            "a machine that is none of ours has the disk: what was copied before may lack something"
        } else {
            "nobody looked after the disk since it was copied: what was copied before may lack something"
        };
        plan.act(Part::LastCopy, numbered(world, volume), why);
    }
    if anew {
        plan.wait(Part::LastCopy, format!("{} is being numbered anew", volume.id));
    }
    plan.copies_outdated = anew;
    anew
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
    let copies = account.copies.iter().filter(|_| world.validated.keeps_copy() && is_seen);
    let proofs = copies.filter(|copy| holds_all(copy) && !is_going(world, copy));
    // Each holds all; the same is chosen in whatever order EC2 tells of them.
    proofs.max_by_key(|copy| (copy.started_at, copy.id.clone()))
}

fn evidence<'a>(world: &World<'a>, disk: &'a Volume, copy: &'a VolumeSnapshot) -> Evidence<'a> {
    let (subject, machines) = (&world.validated.subject, &*world.observed.account.instances);
    Evidence { subject, disk, machines, given: number_given(world.resource), copy }
}

/// Whether the order for a copy is being deleted, and takes the copy with it. That is asked for once more, live, before the disk
/// is destroyed: only the latest order is known here.
fn is_going(world: &World<'_>, copy: &VolumeSnapshot) -> bool {
    let order = world.observed.children.last_copy.as_deref();
    order.is_some_and(|order| takes_copy(order, copy))
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
    let gone = living(&world.observed.account.volumes).all(|volume| another(world, volume).is_some());
    if world.validated.keeps_copy() && gone {
        let status = world.resource.status.as_ref();
        let noted = status.and_then(|status| status.last_copy.clone());
        let is_lost = status.is_none_or(|status| status.conditions.is_empty() && status.steps.is_empty());
        // Who reports and knows of no copy never accepted one.
        match of_order(world).filter(|_| noted.is_none()) {
            Some(copy) if !is_lost => plan.copy_reported = Some(copy),
            copy => plan.last_copy = noted.or(copy),
        }
    }
}

/// The copy of the latest order, as its own report has it: a report of the database that was lost is told again by it. It is no
/// proof: the disk may have been written to since.
fn of_order(world: &World<'_>) -> Option<LastCopyStatus> {
    let order = world.observed.children.last_copy.as_deref().filter(|_| world.observed.account.conclusive)?;
    let (subject, status) = (&world.validated.subject, order.status.as_ref()?);
    let is_kept = status.phase == Some(SnapshotPhase::Succeeded)
        && number_ordered(world).is_some()
        && status.database_id.as_ref() == Some(&subject.database)
        && order.metadata.deletion_timestamp.is_none();
    let copy = is_kept.then(|| status.snapshot_id.clone().zip(status.volume_id.clone())).flatten();
    copy.map(|(snapshot_id, volume_id)| LastCopyStatus {
        snapshot: order.metadata.name.clone(),
        snapshot_id,
        volume_id,
        started_at: status.started_at.clone(),
    })
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
        _ if is_held(world, volume) => Some(held::at_the_end(world, volume, Part::LastCopy)),
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
