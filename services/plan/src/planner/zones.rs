//! The zone of a database that has no disk yet: that of the wish, else any in which EC2 has capacity for its machine and for its
//! disk. Once there is a disk, its zone is the database's.
//!
//! *Invariant:* a machine is given up for its zone only while nothing of the database is there or may be: no disk lives, and nothing
//! pins the machine. *Invariant:* it is given up only where another zone is open, so that it is not done again before a zone counts as
//! exhausted no more.

use cloud::Instance;

use super::existing::{living, only};
use super::left::{self, Proof};
use super::{World, home, released};
use crate::{Observed, Part, Plan, Validated};

/// Whether a database may be in a zone that a disk need not be followed to.
pub(super) fn is_open(world: &World<'_>, zone: &str) -> bool {
    let memory = &world.observed.memory;
    let mut exhausted = memory.exhausted_zones.iter().chain(&memory.zones_without_volumes);
    world.settings.zones.contains_key(zone) && !exhausted.any(|exhausted| exhausted == zone)
}

/// The zone of the wish, else one by the database's id, passing over those without capacity.
pub(super) fn choose(world: &World<'_>) -> String {
    if let Some(zone) = &world.validated.zone {
        return zone.clone();
    }
    let zones: Vec<&String> = world.settings.zones.keys().collect();
    let open: Vec<&String> = zones.iter().copied().filter(|zone| is_open(world, zone)).collect();
    let choice = if open.is_empty() { &zones } else { &open };
    let number = world
        .validated
        .subject
        .database
        .bytes()
        .fold(0_usize, |sum, byte| sum * 31 % 65_521 + usize::from(byte));
    choice.get(number % choice.len().max(1)).map(|zone| (*zone).clone()).unwrap_or_default()
}

/// What is said of a disk that is in another zone than the wish names: one that a resource of before left, or that was put in the place of
/// another. What it holds is worth more than the zone, so nothing waits for that.
pub(crate) fn other_than_asked_for(validated: &Validated, observed: &Observed) -> Option<String> {
    let wish = validated.zone.as_ref()?;
    let disk = only(living(&observed.account.volumes)).filter(|disk| disk.zone != *wish)?;
    Some(format!(
        "spec.zone is {wish}, and {} is in {}: no disk leaves its zone, so the database is where its disk is; to have it in {wish} take a \
         QuestDBSnapshot of it, and make another database of that there",
        disk.id, disk.zone
    ))
}

/// Whether a machine is of no use because EC2 has no capacity for the first disk in its zone, while another zone may have it.
pub(super) fn is_given_up(world: &World<'_>, instance: &Instance) -> bool {
    let observed = world.observed;
    observed.memory.zones_without_volumes.contains(&instance.zone)
        && living(&observed.account.volumes).next().is_none()
        && home::pinned(observed).is_none()
        && world.validated.zone.is_none()
        && world.settings.zones.keys().any(|zone| is_open(world, zone))
}

/// Ends a machine that is given up for its zone. Whether it is one, so that no disk is asked for.
pub(super) fn give_up(world: &World<'_>, plan: &mut Plan, instance: &Instance) -> bool {
    if !is_given_up(world, instance) {
        return false;
    }
    let text = format!(
        "EC2 has no capacity for the volume in {} (InsufficientVolumeCapacity): {} is ended, and both are asked for in another zone",
        instance.zone, instance.id
    );
    plan.wait(Part::Volume, text);
    // A disk of an earlier request may show yet: it would be where this machine is.
    if world.observed.account.conclusive {
        let why = "EC2 has no capacity for the volume in its zone";
        let left = left::of(world, instance, Proof::All);
        released::end(world, plan, instance, left, (Part::Volume, why));
    }
    true
}
