//! The machine and its Node.
//!
//! *Invariant:* the generation of a machine is written down, with a hash of its parameters, before the machine is asked
//! for; a launch whose answer was lost is asked for again under the same token and gives the same machine, and a machine
//! that is gone is followed by the next generation.
//!
//! *Invariant:* a number that the disk carries is given to no other machine: the disk is given the number of each machine before
//! that may write, so that whatever is known of it under one number is known of the last machine that had it.
//!
//! *Invariant:* a machine that serves is protected. Its protection may be off because the wish turned back after it was
//! taken off, so nothing is called settled before it was read.

use std::cmp::Reverse;
use std::sync::Arc;

use cloud::{Instance, InstanceState, Protection, SecurityGroup, Volume, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use resources::names;

use super::existing::Disk;
use super::released::Released;
use super::{World, home, joined, last_copy, zones};
use crate::last_copy::ATTEMPTS;
use crate::{Kind, Part, Plan, State, Step, Target, build};

/// What people are to do with a machine that is to be replaced. EC2 ends none that is protected against either.
pub(super) const TERMINATE: &str =
    "terminate it (its protections, against that and against being stopped, come off first)";

/// The database's home, once it runs.
pub(super) fn instance<'a>(
    world: &World<'a>,
    plan: &mut Plan,
    group: Option<&SecurityGroup>,
    disk: Disk<'_>,
) -> Option<&'a Instance> {
    if let Some(text) = home::undecided(world) {
        plan.say(Part::Instance, State::Broken(text));
        return None;
    }
    let home = home::generation(world.resource, world.observed);
    let living = |generation| home::living(world.resource, world.observed, generation);
    let Some(instance) = home.and_then(living) else {
        launch(world, plan, group, disk.volume());
        return None;
    };
    write_down_again(world, plan, group, instance);
    judge(world, plan, instance)
}

/// The Node of the database's home, once it is labelled and ready.
pub(super) fn node<'a>(
    world: &World<'a>,
    plan: &mut Plan,
    instance: Option<&Instance>,
) -> Option<&'a Arc<Node>> {
    let Some(instance) = instance else {
        joined::remember(world, plan);
        plan.say(Part::Node, State::Pending);
        return None;
    };
    let node = joined::joined(world, plan, Part::Node, instance)?;
    plan.say(Part::Node, State::Done);
    Some(node)
}

/// Whether a machine was launched so long ago.
pub(super) fn was_launched_before(world: &World<'_>, instance: &Instance, ago: SignedDuration) -> bool {
    let launched = instance.launched_at.and_then(|launched| Timestamp::try_from(launched).ok());
    launched.is_some_and(|launched| world.observed.at.duration_since(launched) >= ago)
}

/// Removes a Node whose machine is proved to be gone.
pub(super) fn delete_node(plan: &mut Plan, node: &Node, part: Part) {
    plan.act(part, Step::Delete(Target::of(Kind::Node, &node.metadata)), "its machine is terminated");
}

/// Which generation an instance is.
pub(crate) fn generation_of(instance: &Instance) -> Option<u64> {
    instance.tags.get(key::GENERATION)?.parse().ok()
}

/// Whether a Node's provider id names an instance. The label alone is only a kubelet's word.
pub(super) fn is_of(node: &Node, instance: &Instance) -> bool {
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    provider == Some(format!("aws:///{}/{}", instance.zone, instance.id).as_str())
}

pub(super) fn of_instance<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a Arc<Node>> {
    world.observed.children.nodes.iter().find(|node| is_of(node, instance))
}

/// Whether a Node is said to be ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn judge<'a>(world: &World<'a>, plan: &mut Plan, instance: &'a Instance) -> Option<&'a Instance> {
    protect(world, plan, instance);
    match &instance.state {
        InstanceState::Pending => {
            plan.wait(Part::Instance, format!("waiting for {} to run", instance.id));
            return None;
        }
        InstanceState::Running if instance.private_ip.is_some() => {}
        other => {
            let text = format!("{} is {other}: start it, or {TERMINATE} to have it replaced", instance.id);
            plan.say(Part::Instance, State::Broken(text));
            return None;
        }
    }
    plan.say(Part::Instance, State::Done);
    Some(instance)
}

/// The wish turned back after the protection was taken off, or somebody took it off.
fn protect(world: &World<'_>, plan: &mut Plan, instance: &Instance) {
    let is_given_up = joined::is_given_up(world, instance) || zones::is_given_up(world, instance);
    let found = world.observed.account.protection.filter(|_| !is_given_up);
    if found.is_some_and(|found| found != Protection::ON) {
        let reason = "a machine that serves is not to be ended by whoever comes late";
        plan.act(Part::Instance, Step::Protect { instance: instance.id.clone() }, reason);
        plan.wait(Part::Instance, format!("{} is being protected", instance.id));
    }
}

/// The annotation was lost, or is behind; the machines are not, and the home serves on beside the youngest.
fn write_down_again(world: &World<'_>, plan: &mut Plan, group: Option<&SecurityGroup>, home: &Instance) {
    let own = home::own(world.resource, world.observed);
    let numbered = own.filter_map(|instance| Some((generation_of(instance)?, instance)));
    let Some((generation, instance)) = numbered.max_by_key(|(generation, _)| *generation) else { return };
    if home::written(world.resource) < Some(generation)
        && let Some(group) = group
    {
        write_down(
            world,
            plan,
            Part::Instance,
            group,
            &Place { generation, zone: &instance.zone, beside: Some(home) },
        );
    }
}

/// No machine of the written generation lives: ask for it, or write down the next.
fn launch(world: &World<'_>, plan: &mut Plan, group: Option<&SecurityGroup>, disk: Option<&Volume>) {
    let Some(group) = group else {
        plan.say(Part::Instance, State::Pending);
        return;
    };
    let written = home::written(world.resource);
    let highest = highest_seen(world, disk);
    let adopted = highest
        .filter(|highest| written < Some(*highest))
        .and_then(|highest| home::living(world.resource, world.observed, highest));
    if let (None, Some(written)) = (adopted, written)
        && was_given(written, disk)
        && !is_known_spent(world, written, highest)
        && !world.observed.account.conclusive
    {
        let text =
            format!("waiting until EC2 is sure to show the machine of generation {written}, if it lives");
        plan.wait(Part::Instance, text);
        return;
    }
    if let Some(ended) = ended_unused(world, disk).filter(|_| adopted.is_none()) {
        let text = format!(
            "{} ended by itself before the database was given to it, as the one before it did ({}): what ends them has to be cured, \
             and another is asked for five minutes after its launch",
            ended.id,
            reason_of(ended)
        );
        plan.say(Part::Instance, State::Broken(text));
        return;
    }
    let generation = match (adopted, written) {
        // The annotation was lost; the machine was not.
        (Some(instance), _) => generation_of(instance).unwrap_or_default(),
        (None, Some(written)) if !is_spent(world, written, highest, disk) => written,
        (None, _) => written.max(highest).unwrap_or(0).saturating_add(1),
    };
    let current = (written == Some(generation)).then(|| world.annotation(names::LAUNCH_ZONE)).flatten();
    let zone = match (adopted, disk, current) {
        (Some(instance), ..) => instance.zone.clone(),
        (None, Some(disk), _) => disk.zone.clone(),
        (None, None, Some(zone)) if zones::is_open(world, zone) => zone.to_owned(),
        (None, None, _) => zones::choose(world),
    };
    let place = Place { generation, zone: &zone, beside: None };
    if adopted.is_some() {
        write_down(world, plan, Part::Instance, group, &place);
    } else {
        ask(world, plan, Part::Instance, group, place);
    }
}

/// Asks for the machine that a database moves to: beside its home, in the zone of its disk.
pub(super) fn launch_beside(
    world: &World<'_>,
    plan: &mut Plan,
    group: &SecurityGroup,
    (home, disk): (&Instance, &Volume),
) {
    if let Some(ended) = ended_at_once(world, home) {
        let text = format!(
            "{} ended right after it was launched ({}): another is asked for five minutes after that",
            ended.id,
            reason_of(ended)
        );
        plan.wait(Part::Candidate, text);
        return;
    }
    let written = home::written(world.resource);
    let highest = highest_seen(world, Some(disk));
    let unspent = written.filter(|written| {
        Some(*written) > generation_of(home) && !is_spent(world, *written, highest, Some(disk))
    });
    let generation = unspent.unwrap_or_else(|| written.max(highest).unwrap_or(0).saturating_add(1));
    ask(world, plan, Part::Candidate, group, Place { generation, zone: &disk.zone, beside: Some(home) });
}

/// How long it takes from the launch of a machine that ended by itself until another is asked for in its place.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);

/// The last machine beside the home, if it ended by itself a moment after its launch: the next may do so too.
fn ended_at_once<'a>(world: &World<'a>, home: &Instance) -> Option<&'a Instance> {
    let released = Released::of(world.resource);
    let beside =
        world.observed.account.instances.iter().filter(|other| generation_of(other) > generation_of(home));
    let last = beside.max_by_key(|other| generation_of(other))?;
    let by_itself = last.state.is_ending() && !released.contains(generation_of(last)?);
    let launched = Timestamp::try_from(last.launched_at?).ok()?;
    (by_itself && world.observed.at.duration_since(launched) < PAUSE).then_some(last)
}

/// How the reason begins for which a machine ended that somebody ended, we among them.
const BY_HAND: &str = "Client.UserInitiated";

/// The last machine, if it was launched a moment ago, and it and the one before ended by themselves before the database was given
/// to either: what ends both (a limit of the account, a key that may not be used) ends the next one, too. One alone is replaced at
/// once, and whoever ends them by hand is not kept waiting.
fn ended_unused<'a>(world: &World<'a>, disk: Option<&Volume>) -> Option<&'a Instance> {
    let released = Released::of(world.resource);
    let is_unused = |machine: &Instance| {
        let is_by_hand = machine.state_reason.as_ref().is_some_and(|reason| reason.starts_with(BY_HAND));
        let number = generation_of(machine).filter(|number| !released.contains(*number));
        machine.state.is_ending() && !is_by_hand && number.is_some_and(|number| !was_given(number, disk))
    };
    let mut machines: Vec<&'a Instance> = world.observed.account.instances.iter().collect();
    machines.sort_by_key(|machine| Reverse(generation_of(machine)));
    let (&last, &before) = (machines.first()?, machines.get(1)?);
    let is_recent = last.launched_at.is_some() && !was_launched_before(world, last, PAUSE);
    (is_recent && is_unused(last) && is_unused(before)).then_some(last)
}

fn reason_of(ended: &Instance) -> &str {
    ended.state_reason.as_deref().unwrap_or("EC2 does not say why")
}

/// Where a machine is to be, and under which number.
struct Place<'a> {
    generation: u64,
    zone: &'a str,
    /// The machine that serves on beside it.
    beside: Option<&'a Instance>,
}

/// Asks for a machine under a generation that is written down with these very parameters, or writes it down.
fn ask(world: &World<'_>, plan: &mut Plan, part: Part, group: &SecurityGroup, mut place: Place<'_>) {
    let Place { generation, zone, .. } = place;
    if !world.settings.zones.contains_key(zone) {
        let text = format!(
            "no machine can be launched in {zone:?}, where the database has to be: the operator knows no subnet there; add \
             one to its SLIPWAY_ZONES"
        );
        plan.say(part, State::Broken(text));
        return;
    }
    let parameters = build::launch(world.validated, world.settings, &group.id, generation, zone);
    if home::written(world.resource) == Some(generation) {
        if world.annotation(names::LAUNCH) == Some(parameters.fingerprint().as_str()) {
            let step = Step::RunInstance { generation, zone: zone.to_owned(), launch: Box::new(parameters) };
            plan.act(
                part,
                step,
                format!("generation {generation} is written down and no machine of it is seen"),
            );
            plan.wait(part, format!("launching generation {generation} in {zone}"));
            return;
        }
        // Other parameters under a written generation would be refused by its token, if a machine was made with it already.
        place.generation = generation.saturating_add(1);
    }
    write_down(world, plan, part, group, &place);
}

fn write_down(world: &World<'_>, plan: &mut Plan, part: Part, group: &SecurityGroup, place: &Place<'_>) {
    let Place { generation, zone, beside } = *place;
    let parameters = build::launch(world.validated, world.settings, &group.id, generation, zone);
    let launch = parameters.fingerprint().to_string();
    let beside = beside.map(|home| home.id.clone());
    let step = Step::WriteGeneration { generation, launch, zone: zone.to_owned(), beside };
    plan.act(part, step, "a machine is asked for only under a generation that is written down");
    plan.wait(part, format!("writing down generation {generation}"));
}

/// The generation that a disk carries: of the last machine that it was given to.
pub(super) fn generation_of_disk(disk: &Volume) -> Option<u64> {
    disk.tags.get(key::GENERATION)?.parse().ok()
}

/// The number after all that were ever given to a machine, as far as anything shows.
pub(super) fn next_generation(world: &World<'_>, disk: &Volume) -> u64 {
    home::number_given(world.resource).max(highest_seen(world, Some(disk))).unwrap_or(0).saturating_add(1)
}

/// How far the number of an order may be above all others: by each order the disk is numbered anew once.
const FURTHEST: u64 = ATTEMPTS as u64;

/// The highest generation that anything shows beside the resource: in AWS, or an order for a copy of the disk, which outlives a
/// number that somebody wrote over.
fn highest_seen(world: &World<'_>, disk: Option<&Volume>) -> Option<u64> {
    let of_disk = disk.and_then(generation_of_disk);
    let shown = world.observed.account.instances.iter().filter_map(generation_of).chain(of_disk).max();
    let of_order = last_copy::number_ordered(world).filter(|_| disk.is_some());
    // People may write to an order: a number that ours cannot have come to is none.
    let most = home::number_given(world.resource).max(shown).unwrap_or(0).saturating_add(FURTHEST);
    shown.max(of_order.filter(|number| *number <= most))
}

/// Whether the disk was given to a machine of this number, or a later one.
fn was_given(written: u64, disk: Option<&Volume>) -> bool {
    disk.and_then(generation_of_disk).is_some_and(|given| given >= written)
}

/// Whether a written generation is not to be asked for again: its token gives no new machine, or the disk has had one of that
/// number, which is gone, and whose token may give another one a day later.
fn is_spent(world: &World<'_>, written: u64, highest: Option<u64>, disk: Option<&Volume>) -> bool {
    is_known_spent(world, written, highest) || was_given(written, disk)
}

/// Whether the token of a written generation gives no new machine: its machine ended, served and is gone, or the token
/// was found to be used up.
fn is_known_spent(world: &World<'_>, written: u64, highest: Option<u64>) -> bool {
    let ended = world.observed.account.instances.iter();
    let mut ended = ended.filter(|instance| instance.state.is_ending()).filter_map(generation_of);
    let name = build::node_value(&world.validated.subject, written);
    let served = world.resource.status.as_ref().and_then(|status| status.node.as_ref()?.name.as_deref())
        == Some(&name);
    served
        || ended.any(|generation| generation == written)
        || highest.is_some_and(|highest| highest > written)
        || Released::of(world.resource).contains(written)
        || world.observed.memory.spent == Some(written)
}
