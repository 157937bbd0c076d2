//! A database goes to another machine: the next one is made ready beside the old one, which serves meanwhile; then the
//! StatefulSet is made to pin it, the pod stops and starts there, and the old one is ended.
//!
//! *Invariant:* nothing of what serves is touched before the next machine is ready, so a machine that cannot be had costs
//! nothing. *Invariant:* the pin is moved by one write, and only by [`target`] naming another Node than home's.
//!
//! What makes the move short (pulling the image, warming the disk's cache) has its place where [`prepared`] judges the next
//! machine: it is a home only once everything there is prepared.

use std::sync::Arc;

use cloud::{Instance, InstanceState, SecurityGroup, Volume};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use resources::{ChangeMeans, names};

use super::existing::{living, only};
use super::joined::{self, given_up_before};
use super::machine::{TERMINATE, generation_of, is_ready, launch_beside, of_instance, was_launched_before};
use super::reach::is_leaving;
use super::released::Released;
use super::workload::pod_is_ready;
use super::{World, former, home, ready};
use crate::change::{is_move_told, told};
use crate::{Part, Plan, State, Validated, build, references};

/// Where a database is, and what a machine beside it would need.
pub(super) struct Home<'a, 'b> {
    pub(super) instance: &'b Instance,
    pub(super) node: &'a Arc<Node>,
    pub(super) group: Option<&'b SecurityGroup>,
    pub(super) disk: Option<&'b Volume>,
}

/// Why a database is to leave its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// Field of the resource that says so.
    pub(crate) field: &'static str,
    /// In words.
    pub(crate) why: String,
}

/// Everything for which a database is to leave this machine.
pub(crate) fn reasons(world: &World<'_>, instance: &Instance) -> Vec<Reason> {
    let wish = world.validated;
    let mut reasons = Vec::new();
    let mut add = |field, why: String| reasons.push(Reason { field, why });
    let (found, asked) = (&instance.instance_type, &wish.instance_type.name);
    if found != asked {
        add("/spec/compute/instanceType", format!("{} is a {found}, and {asked} is asked for", instance.id));
    }
    // Another image of the cluster is for machines to come: nobody is moved because the operator was given a newer one.
    if world.resource.spec.compute.node_image.is_some() && instance.image != wish.node_image {
        let (found, asked) = (&instance.image, &wish.node_image);
        let why = format!("{} was made from {found}, and {asked} is asked for", instance.id);
        add("/spec/compute/nodeImage", why);
    }
    if let Some(node) = of_instance(world, instance).filter(|node| is_leaving(node)) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        add("/status/node/name", format!("somebody wants Node {name} empty"));
    }
    if let Some(disk) = disk_elsewhere(world, instance) {
        let text = format!("{} is in {}, and {} in {}", instance.id, instance.zone, disk.id, disk.zone);
        add("/status/volume/id", text);
    }
    reasons
}

/// The disk, if it can never come to a machine: one that somebody has put in the place of another may be in another zone. A pod that
/// is on a Node has the one before, and nothing is done under it.
fn disk_elsewhere<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a Volume> {
    let pod = world.observed.children.pod.as_deref();
    let is_placed = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some();
    only(living(&world.observed.account.volumes)).filter(|disk| !is_placed && disk.zone != instance.zone)
}

/// The machine that a database is to move to, as far as one was asked for: written down, younger than its home, and not
/// given up.
fn candidate<'a>(world: &World<'a>, home: &Instance) -> Option<&'a Instance> {
    let written = home::written(world.resource)?;
    let beside = Some(written) > generation_of(home) && !Released::of(world.resource).contains(written);
    home::living(world.resource, world.observed, written).filter(|_| beside)
}

/// Whether a machine is what the wish asks for, where the disk can follow.
fn fits(wish: &Validated, instance: &Instance, disk: Option<&Volume>) -> bool {
    instance.instance_type == wish.instance_type.name
        && instance.image == wish.node_image
        && disk.is_none_or(|disk| disk.zone == instance.zone)
}

/// Whether a machine was launched with the very parameters that the wish has now, where the disk is: another would be no other.
fn is_as_asked(world: &World<'_>, instance: &Instance, disk: Option<&Volume>) -> bool {
    let (Some(asked), Some(zone)) = (world.annotation(names::LAUNCH), world.annotation(names::LAUNCH_ZONE))
    else {
        return false;
    };
    if disk.is_some_and(|disk| disk.zone != zone) {
        return false;
    }
    let Some(generation) = generation_of(instance) else { return false };
    let launch =
        |group: &SecurityGroup| build::launch(world.validated, world.settings, &group.id, generation, zone);
    let same = |group: &SecurityGroup| launch(group).fingerprint().as_str() == asked;
    home::written(world.resource) == Some(generation) && world.observed.account.groups.iter().any(same)
}

/// Whether a machine is known to have been launched with other parameters than the wish has now.
pub(super) fn is_outdated(world: &World<'_>, instance: &Instance, disk: Option<&Volume>) -> bool {
    let is_known = world.annotation(names::LAUNCH).is_some() && !world.observed.account.groups.is_empty();
    let is_written = home::written(world.resource) == generation_of(instance);
    is_known && is_written && !is_as_asked(world, instance, disk)
}

/// Whether a move is wanted: a database that is pinned to its machine is to leave it.
fn is_wanted(world: &World<'_>, instance: &Instance) -> bool {
    let pinned = home::pinned(world.observed).as_deref().and_then(names::generation_of_node);
    pinned.is_some() && pinned == generation_of(instance) && !reasons(world, instance).is_empty()
}

/// The machine that is kept for a database to move to, whatever pins that now: its StatefulSet may have been taken away, or not
/// be seen, and is there again soon; and what is not seen of a Node may be that somebody wants it empty. One that was launched
/// for this very wish and is of no use is kept too: the next would be like it.
pub(super) fn next<'a>(world: &World<'a>, home: &Instance, disk: Option<&Volume>) -> Option<&'a Instance> {
    let is_left = of_instance(world, home).is_none() || !reasons(world, home).is_empty();
    let is_of_use = |next: &&Instance| fits(world.validated, next, disk) || is_as_asked(world, next, disk);
    candidate(world, home).filter(|_| is_left).filter(is_of_use)
}

/// The Node that QuestDB is to be on now: that of its home, or of the machine that takes its place from here on.
pub(super) fn target<'a>(world: &World<'a>, plan: &mut Plan, home: &Home<'a, '_>) -> &'a Arc<Node> {
    if !is_wanted(world, home.instance) {
        if let Some(kept) = next(world, home.instance, home.disk) {
            let text = format!(
                "{} is kept until the StatefulSet is seen to pin {} again",
                kept.id, home.instance.id
            );
            plan.wait(Part::Candidate, text);
        }
        return home.node;
    }
    let (Some(group), Some(disk)) = (home.group, home.disk) else { return home.node };
    match candidate(world, home.instance) {
        Some(next) if fits(world.validated, next, home.disk) => {
            prepared(world, plan, next).unwrap_or(home.node)
        }
        Some(next) if is_as_asked(world, next, home.disk) => {
            let text = format!(
                "{} was launched for this very wish and is not what is asked for: {TERMINATE} to have it replaced",
                next.id
            );
            plan.say(Part::Candidate, State::Broken(text));
            home.node
        }
        Some(next) => {
            plan.wait(
                Part::Candidate,
                format!("{} is not what is asked for by now: it is given up", next.id),
            );
            home.node
        }
        None => {
            let others = world.observed.account.instances.iter().filter(|other| other.id != home.instance.id);
            // Where the name leads is not left before QuestDB serves elsewhere, and where it still runs not before there is a
            // machine that takes it, where home does not: who waited for their end would wait for the move itself.
            let closed = is_leaving(home.node) || !is_ready(home.node);
            let stays = |other: &Instance| {
                home::is_stranger(world, other)
                    || former::is_answer(world, other)
                    || closed && former::is_in_use(world, other)
            };
            match others.into_iter().find(|other| !other.state.is_ending() && !stays(other)) {
                Some(other) => {
                    plan.wait(Part::Candidate, format!("waiting for {} to be ended first", other.id));
                }
                None => launch_beside(world, plan, group, (home.instance, disk)),
            }
            home.node
        }
    }
}

/// What is said of a move that is wanted while nobody can go on with it: it is not done.
pub(super) fn waits(world: &World<'_>, plan: &mut Plan) {
    if home::serving(world.resource, world.observed).is_some_and(|home| is_wanted(world, home)) {
        plan.wait(Part::Candidate, "first comes what the database needs where it is");
    }
}

/// The Node of the next machine, once nothing is left to prepare and the move stands in status.
fn prepared<'a>(world: &World<'a>, plan: &mut Plan, next: &Instance) -> Option<&'a Arc<Node>> {
    match &next.state {
        InstanceState::Running if next.private_ip.is_some() => {}
        InstanceState::Pending | InstanceState::Running => {
            plan.wait(Part::Candidate, format!("waiting for {} to run", next.id));
            return None;
        }
        other => {
            plan.wait(Part::Candidate, format!("{} is {other}: {TERMINATE} to have it replaced", next.id));
            return None;
        }
    }
    let node = joined::joined(world, plan, Part::Candidate, next)?;
    if !is_ready(node) {
        return None;
    }
    if let Some(by) = ready::closed(world.validated, node) {
        joined::wait_for_opening(world, plan, next, (node, by));
        return None;
    }
    // Before the other version is prepared: a copy of the disk for nothing would be followed by another.
    if let Some(obstacle) = references::obstacle(world) {
        plan.wait(Part::Candidate, format!("the next machine is ready; {obstacle}"));
        return None;
    }
    // One that does not serve cannot be copied where it is: it moves first.
    if world.upgrade.waits() && pod_is_ready(world.observed) {
        plan.wait(Part::Candidate, AWAITS_VERSION);
        return None;
    }
    if !is_move_told(world) {
        plan.wait(Part::Candidate, "the move is being announced in status");
        return None;
    }
    plan.say(Part::Candidate, State::Done);
    Some(node)
}

/// What is said of a next machine that waits for nothing else any more.
const AWAITS_VERSION: &str = "the next machine is ready; the other version that is asked for is prepared";

/// Whether the move waits for nothing but the other version that it takes along.
pub(super) fn awaits_version(plan: &Plan) -> bool {
    matches!(plan.state(Part::Candidate), Some(State::Running(text)) if text == AWAITS_VERSION)
}

/// How long a restart waits for a machine that was launched, or for one to be launched, until it is made without the move.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// Whether a restart is left to the move, so that QuestDB stops once and not twice. One that cannot begin, or whose machine
/// does not become ready, holds nothing up.
pub(super) fn takes_along(world: &World<'_>, plan: &Plan, instance: &Instance) -> bool {
    let broken = matches!(plan.state(Part::Candidate), Some(State::Broken(_)));
    let late = match candidate(world, instance) {
        // The next in a row that did not join is waited for no more than the first.
        Some(next) => {
            let is_next_in_row = generation_of(next).is_some_and(|next| given_up_before(world, next) > 0);
            (was_launched_before(world, next, PATIENCE) || is_next_in_row) && !awaits_version(plan)
        }
        None => is_overdue(world, instance),
    };
    is_wanted(world, instance)
        && !broken
        && !late
        && !world.observed.memory.resting.contains(&Part::Candidate)
}

/// Whether the move has been told for so long that no machine is expected to be there soon: each that is launched ends by
/// itself, or something before the launch does not come to an end.
fn is_overdue(world: &World<'_>, instance: &Instance) -> bool {
    let since = |reason: &Reason| Some(told(world.resource, reason.field, ChangeMeans::Move)?.since.0);
    // By the youngest of its reasons.
    let since: Option<Vec<Timestamp>> = reasons(world, instance).iter().map(since).collect();
    let youngest = since.and_then(|since| since.into_iter().max());
    youngest.is_some_and(|since| world.observed.at.duration_since(since) >= PATIENCE)
}
