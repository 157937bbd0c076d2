//! Which machine is the database's home: the one that its StatefulSet pins.
//!
//! *Invariant:* the pin is the one commit point of a move. Before it is patched, back means the old machine; after it there
//! is only forward, while the machine that it names lives. A machine that is not pinned is no home, however ready it is.

use cloud::{Instance, InstanceState};
use resources::{QuestDB, names};

use super::machine::{generation_of, generation_of_disk};
use super::released::Released;
use crate::{Goal, Observed, Plan, Validated};

/// The generation of the machine that serves, or is to serve next.
pub(super) fn generation(resource: &QuestDB, observed: &Observed) -> Option<u64> {
    let lives = |generation: &u64| living(observed, *generation).is_some();
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
    super::existing::living(&observed.account.volumes).next().and_then(generation_of_disk)
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
    let mut attachments =
        super::existing::living(&observed.account.volumes).flat_map(cloud::Volume::live_attachments);
    let on = &attachments.next()?.instance;
    observed.account.instances.iter().find(|instance| instance.id == *on).and_then(generation_of)
}

/// The machine of a generation, unless it is on its way out.
pub(super) fn living(observed: &Observed, generation: u64) -> Option<&Instance> {
    let mut living = observed.account.instances.iter().filter(|instance| !instance.state.is_ending());
    living.find(|found| generation_of(found) == Some(generation))
}

/// The instance that is the database's home, if it runs: what the name has to answer with.
pub fn serving<'a>(resource: &QuestDB, observed: &'a Observed) -> Option<&'a Instance> {
    let home = generation(resource, observed)?;
    living(observed, home).filter(|found| found.state == InstanceState::Running)
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
    living(observed, home).filter(|_| was_released || plan.is_settled())
}
