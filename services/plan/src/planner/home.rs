//! Which machine is the database's home: the one that its StatefulSet pins.
//!
//! *Invariant:* the pin is the one commit point of a move. Before it is patched, back means the old machine; after it there
//! is only forward, while the machine that it names lives. A machine that is not pinned is no home, however ready it is.
//!
//! *Invariant:* of several machines with one generation none is taken for the order in which EC2 shows them: who copies a machine
//! by hand copies its tags. One that was launched with a token of somebody else's is never taken for ours, not even when the one
//! that it is a copy of has ended.

use cloud::{Instance, InstanceState, key};
use resources::{QuestDB, names};

use super::World;
use super::existing::only;
use super::machine::{generation_of, generation_of_disk};
use super::released::Released;
use crate::tagged::{is_of_others, is_original};
use crate::{Goal, Observed, Plan, Validated};

/// The generation of the machine that serves, or is to serve next.
pub(super) fn generation(resource: &QuestDB, observed: &Observed) -> Option<u64> {
    let lives = |generation: &u64| lives(resource, observed, *generation);
    let pinned = pinned(observed).and_then(|pinned| names::generation_of_node(&pinned));
    // Somebody took the StatefulSet away, or what it pins ended before QuestDB came there: the database is where its disk is.
    let holder = || holder(observed).filter(lives);
    pinned
        .filter(lives)
        .or_else(holder)
        .or_else(|| given(observed).filter(lives))
        .or_else(|| written(resource))
}

/// The generation of the machine that the disk was given to last. A machine that is made ready for it is given it only right
/// before the pin is moved, so that a disk on no machine is not taken for that one's.
fn given(observed: &Observed) -> Option<u64> {
    only(super::existing::living(&observed.account.volumes)).and_then(generation_of_disk)
}

/// The generation that is written down: of the machine that was asked for last.
pub(super) fn written(resource: &QuestDB) -> Option<u64> {
    resource.metadata.annotations.as_ref()?.get(names::GENERATION)?.parse().ok()
}

/// The highest generation that a resource knows to have been given to a machine.
pub fn number_given(resource: &QuestDB) -> Option<u64> {
    written(resource).max(Released::of(resource).highest())
}

/// The machine that the StatefulSet pins, by the value of its label.
pub(crate) fn pinned(observed: &Observed) -> Option<String> {
    let template = &observed.children.stateful_set.as_ref()?.spec.as_ref()?.template;
    template.spec.as_ref()?.node_selector.as_ref()?.get(names::LABEL_NODE).cloned()
}

/// The generation of the machine that holds the disk.
fn holder(observed: &Observed) -> Option<u64> {
    let disks = super::existing::living(&observed.account.volumes);
    let on = &only(disks.flat_map(cloud::Volume::live_attachments))?.instance;
    observed.account.instances.iter().find(|instance| instance.id == *on).and_then(generation_of)
}

/// Machines that are not on their way out.
fn machines(observed: &Observed) -> impl Iterator<Item = &Instance> {
    observed.account.instances.iter().filter(|instance| !instance.state.is_ending())
}

/// Those that may be the database's own.
pub(super) fn own<'a>(resource: &QuestDB, observed: &'a Observed) -> impl Iterator<Item = &'a Instance> {
    machines(observed).filter(move |found| !is_foreign(resource, found))
}

/// Those of a generation.
fn machines_of<'a>(
    resource: &QuestDB,
    observed: &'a Observed,
    generation: u64,
) -> impl Iterator<Item = &'a Instance> {
    own(resource, observed).filter(move |found| generation_of(found) == Some(generation))
}

/// Whether a machine was launched by somebody else. One that serves by the last report is not told to be that.
pub(super) fn is_foreign(resource: &QuestDB, instance: &Instance) -> bool {
    is_of_others(instance) && named(resource) != Some(instance.id.as_str())
}

/// Whether one of the database's machines is younger than those of a generation: it may have moved there.
pub(super) fn has_younger(world: &World<'_>, generation: Option<u64>) -> bool {
    own(world.resource, world.observed).any(|found| generation_of(found) > generation)
}

/// Whether a machine of a generation is not on its way out.
pub(super) fn lives(resource: &QuestDB, observed: &Observed, generation: u64) -> bool {
    machines_of(resource, observed, generation).next().is_some()
}

/// The machine of a generation, unless it is on its way out. Of several it is the one that was launched under it, else the one that
/// the last report names; else nobody knows ([`undecided`]).
pub(super) fn living<'a>(
    resource: &QuestDB,
    observed: &'a Observed,
    generation: u64,
) -> Option<&'a Instance> {
    let named = named(resource);
    let found = || machines_of(resource, observed, generation);
    only(found())
        .or_else(|| only(found().filter(|one| is_original(one))))
        .or_else(|| only(found().filter(|one| named == Some(one.id.as_str()))))
}

/// The machine that the last report names.
fn named(resource: &QuestDB) -> Option<&str> {
    resource.status.as_ref()?.node.as_ref()?.instance_id.as_deref()
}

/// Why no machine is used, made or ended: nobody knows which of several is that of their generation.
pub(super) fn undecided(world: &World<'_>) -> Option<String> {
    let of = |generation| living(world.resource, world.observed, generation);
    let unknown = |one: &&Instance| generation_of(one).is_some_and(|generation| of(generation).is_none());
    let own = own(world.resource, world.observed);
    let ids: Vec<&str> = own.filter(unknown).map(|one| one.id.as_str()).collect();
    (!ids.is_empty()).then(|| {
        format!(
            "machines {} all carry this database's tags and one generation, and nobody knows which of them was launched under it: \
             terminate all but one, or take the tag {} off them",
            ids.join(", "),
            key::DATABASE
        )
    })
}

/// The machine whose generation another one carries, too.
pub(super) fn twin<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a Instance> {
    let one = living(world.resource, world.observed, generation_of(instance)?)?;
    (one.id != instance.id).then_some(one)
}

/// Whether a machine was not launched for the database, or nobody knows what for.
pub(super) fn is_stranger(world: &World<'_>, instance: &Instance) -> bool {
    let is_known = generation_of(instance).is_some()
        && twin(world, instance).is_none()
        && !is_foreign(world.resource, instance);
    !instance.state.is_ending() && !is_known
}

/// What is said of every machine that is a stranger, and of one that has the disk beside ours: only one with Multi-Attach can be on two,
/// and what both write is lost.
pub(super) fn strangers(world: &World<'_>) -> Vec<String> {
    let told = |one: &Instance| {
        let why = match (twin(world, one), generation_of(one)) {
            (Some(twin), _) => format!("and the generation of {}, which was launched under it", twin.id),
            (None, None) => "and no generation, so that nobody knows what it was launched for".to_owned(),
            (None, Some(_)) => "and was launched by somebody else".to_owned(),
        };
        let (id, key) = (&one.id, key::DATABASE);
        format!(
            "{id} carries this database's tags {why}: it is not ended; terminate it, or take the tag {key} off it"
        )
    };
    let disks = super::existing::living(&world.observed.account.volumes);
    let shared = disks.filter(|disk| disk.live_attachments().count() > 1);
    let shared = shared.filter_map(|disk| super::disk::on_stranger(world, disk));
    machines(world.observed).filter(|one| is_stranger(world, one)).map(told).chain(shared).collect()
}

/// The instance that is the database's home, if it runs: what the name has to answer with.
pub fn serving<'a>(resource: &QuestDB, observed: &'a Observed) -> Option<&'a Instance> {
    let home = generation(resource, observed)?;
    living(resource, observed, home).filter(|found| found.state == InstanceState::Running)
}

/// The instance whose protection is to be read before a plan is carried out: one that serves and was to be taken down once,
/// or one of which the plan says that nothing is left to do. With what was read the plan is made again.
pub fn machine_to_check<'a>(
    resource: &QuestDB,
    validated: &Validated,
    observed: &'a Observed,
    plan: &Plan,
) -> Option<&'a Instance> {
    if validated.goal != Goal::Serve || observed.account.protection.is_some() {
        return None;
    }
    let home = generation(resource, observed)?;
    let was_released = Released::of(resource).contains(home);
    living(resource, observed, home).filter(|_| was_released || plan.is_settled())
}
