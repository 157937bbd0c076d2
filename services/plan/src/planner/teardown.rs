//! The way back: name, pod, disk off the machine, machine, firewall, and, only when it is asked for in so many words, the
//! disk, after a last copy of it where one is to be kept. Each part waits for the one before, so that nothing is pulled from under a QuestDB that still writes.
//!
//! *Invariant:* what EC2 does not show is gone only when the look is conclusive ([`crate::Account::conclusive`]). Until
//! then nothing is called ended and the resource is not let go: nobody would look for a machine that shows up later.
//!
//! *Invariant:* no machine is ended on the word of what was observed: caches may be behind. It is proved by live looks that the
//! database has left it, as on a move ([`left::Left`]).
//!
//! *Invariant:* the resource is not let go before its name is given back, nor is a pause complete, although all else may be done by
//! then ([`release_name`]).
//!
//! *Invariant:* what lost its tags is tagged again before anything is done to it, and before the resource is let go: a disk
//! that stays is found by its tags alone.

use cloud::{Instance, InstanceState, RecordChange, RecordKind, Role, Volume};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::ObjectMeta;
use resources::DnsState;

use super::World;
use super::existing::{self, living};
use super::left;
use super::machine::{is_ready, of_instance};
use super::ready::is_abandoned;
use super::{
    credentials, disk, former, going, held, last_copy, machine, name, network, purge, released, workload,
};
use crate::secrets::{begun_keys, handed_out};
use crate::{Account, Goal, Kind, Part, Plan, State, Step, Target, build};

pub(super) fn plan(world: &World<'_>, plan: &mut Plan) {
    let order: [fn(&World<'_>, &mut Plan) -> bool; 7] =
        [release_name, stop_pod, detach, stop_instance, remove_group, last_copy::keep, purge::plan];
    let parts = [
        Part::DnsRelease,
        Part::PodStop,
        Part::Detachment,
        Part::InstanceStop,
        Part::SecurityGroupRemoval,
        Part::LastCopy,
        Part::VolumeRemoval,
    ];
    let goal = world.validated.goal;
    last_copy::remember(world, plan);
    super::retag(world, plan, ending_part);
    // Before all else: it may go any moment.
    let freed = credentials::free(world, plan);
    let mut go_on = true;
    for (step, part) in order.into_iter().zip(parts) {
        let skipped = match part {
            Part::LastCopy => !world.validated.keeps_copy(),
            Part::VolumeRemoval => goal != Goal::Purge,
            Part::SecurityGroupRemoval => goal == Goal::Pause,
            _ => false,
        };
        if skipped {
            continue;
        }
        if !go_on {
            plan.say(part, State::Pending);
            continue;
        }
        go_on = step(world, plan);
        if go_on {
            plan.say(part, State::Done);
        }
    }
    if goal != Goal::Pause {
        let released = plan.state(Part::DnsRelease) == Some(&State::Done);
        clean_up(world, plan, go_on && released && !freed);
    }
}

/// The part of the way back that deals with something in EC2.
const fn ending_part(role: Role) -> Part {
    match role {
        Role::Instance => Part::InstanceStop,
        Role::SecurityGroup => Part::SecurityGroupRemoval,
        Role::Volume | Role::Snapshot => Part::VolumeRemoval,
    }
}

/// Whether a disk is only now being tagged again: it is destroyed by what its tags say, asked anew.
pub(super) fn is_mistagged(world: &World<'_>, volume: &Volume) -> bool {
    let mut mistagged = world.observed.account.mistagged.iter();
    mistagged.any(|found| found.id == volume.id.as_str() && super::is_missed(&found.missing))
}

/// Whether no name leads to the database any more, or nothing else is to wait for that: a zone that is gone leads nobody anywhere and
/// may never be seen again, and a machine that nobody needs would run until then. Only the end of the resource waits for it. One that
/// may only not be read holds all up: its name goes on leading to an address that EC2 gives to another machine once this one ends.
pub(super) fn release_name(world: &World<'_>, plan: &mut Plan) -> bool {
    let is_told = name::noted(world.resource).is_none_or(|dns| dns.state == DnsState::Releasing);
    if let Some(why) = &world.observed.dns.withheld {
        let effect = if why.is_gone {
            "all else goes on, and only the end waits for the name"
        } else {
            "nothing goes on before the name is out of service, because EC2 may give its address to another machine"
        };
        plan.say(Part::DnsRelease, State::Broken(format!("{}; {effect}", why.why)));
        return is_told && why.is_gone;
    }
    // Nobody asked where status says that the name was released.
    let records = world.observed.dns.records.as_deref();
    let mut changes = records.map(|records| name::releases(world, records)).unwrap_or_default();
    let is_answer = |change: &RecordChange| change.record().kind == RecordKind::A;
    let left = name::withdrawn(&world.observed.dns.left, &world.validated.subject);
    if changes.iter().chain(&left).any(is_answer)
        && let Some(text) = served_elsewhere(world)
    {
        plan.say(Part::DnsRelease, State::Broken(format!("the name is left as it is: {text}")));
        return false;
    }
    // All else that is done about a name takes records away.
    let puts_back = changes.iter().any(|change| matches!(change, RecordChange::Create(_)));
    if !is_told && changes.iter().any(is_answer) {
        // A database that is to serve again before the next report must not think that its name still leads to it.
        plan.wait(Part::DnsRelease, "the name is about to be taken out of service");
        return false;
    }
    changes.extend(left);
    if changes.is_empty() {
        return true;
    }
    let reason = match world.validated.goal {
        Goal::Serve => "nobody is to be sent to a machine of which the pod takes no ports",
        Goal::Pause | Goal::Retire | Goal::Purge => "nobody is to be sent to a database that stops",
    };
    let step = Step::ChangeRecords { changes, led: None };
    let (part, reason) = (Part::DnsRelease, reason.to_owned());
    plan.push(step, part, reason, puts_back);
    plan.wait(Part::DnsRelease, "the name is being taken out of service");
    false
}

/// What is said of a machine that is not ended, because another cluster serves the database there, while this one's is to stop.
fn served_elsewhere(world: &World<'_>) -> Option<String> {
    if world.validated.goal == Goal::Serve {
        return None;
    }
    world.observed.account.instances.iter().find_map(|instance| former::elsewhere(world, instance))
}

fn stop_pod(world: &World<'_>, plan: &mut Plan) -> bool {
    let children = &world.observed.children;
    if let Some(found) = &children.stateful_set {
        if found.metadata.deletion_timestamp.is_none() {
            super::version::take_back(world, plan, Part::PodStop);
            // With its pod goes what that could have told of another image.
            let pod = world.upgrade.rests_on_pod(children.pod.as_deref());
            let target = Target { pod, ..target(Kind::StatefulSet, &found.metadata) };
            plan.act(Part::PodStop, Step::Delete(target), "the pod would be made again");
        }
        let set = [(Kind::StatefulSet, &found.metadata)];
        plan.say(Part::PodStop, going::state(world.observed.at, &set, "the StatefulSet is being removed"));
        return false;
    }
    let Some(pod) = &children.pod else { return true };
    let Account { instances, conclusive, .. } = &world.observed.account;
    let are_down = instances.iter().all(|instance| instance.state.is_confirmed_down());
    let is_told = *conclusive && former::belied(world).is_none();
    if is_told && are_down && !instances.is_empty() {
        // Nobody is left to confirm the end of the pod, whichever of them it is on.
        if pod.metadata.deletion_grace_period_seconds != Some(0) || pod.metadata.deletion_timestamp.is_none()
        {
            let why = "its machine is down, and nobody is left to stop it";
            for left in instances.iter().filter_map(|instance| left::down(world, instance)) {
                plan.act(Part::PodStop, Step::ProveLeft(left), why);
            }
            let target = Target { at_once: true, ..workload::target(pod) };
            plan.act(Part::PodStop, Step::Delete(target), why);
        }
        return true;
    }
    if pod.metadata.deletion_timestamp.is_none() {
        plan.act(Part::PodStop, Step::Delete(workload::target(pod)), "QuestDB is to stop");
    }
    if let Some(node) = silent_node(world, pod) {
        // Ending the machine stops QuestDB for sure; only then its pod is removed.
        plan.wait(
            Part::PodStop,
            format!("Node {node} has been silent for too long: its machine is ended first"),
        );
        return true;
    }
    let pod = [(Kind::Pod, &pod.metadata)];
    plan.say(Part::PodStop, going::state(world.observed.at, &pod, "waiting for QuestDB to stop"));
    false
}

/// The Node of a pod that was told to stop, when nobody there is expected to stop it any more.
pub(super) fn silent_node(world: &World<'_>, pod: &Pod) -> Option<String> {
    let mut nodes = world.observed.children.nodes.iter();
    let node = nodes.find(|node| is_abandoned(pod, node, world.observed.at))?;
    node.metadata.name.clone()
}

/// Each disk that is held is judged by itself: beside one that only the end of its machine frees, another may have a machine that
/// still lets go of it.
fn detach(world: &World<'_>, plan: &mut Plan) -> bool {
    let is_awaited = |disk: &&Volume| is_held(world, disk) && is_to_be_let_go(world, disk);
    let disks: Vec<&Volume> = living(&world.observed.account.volumes).filter(is_awaited).collect();
    if !disks.is_empty() {
        let ids = disks.iter().map(|disk| disk.id.as_str()).collect::<Vec<_>>().join(" and ");
        let text = format!("waiting for {ids} to leave the machine");
        plan.say(Part::Detachment, held::awaited(world, &disks, Part::Detachment, text));
    }
    // Where nobody is there to let go of one, ending the machine does.
    disks.is_empty()
}

/// Whether somebody is there who lets go of a disk: the kubelet of a machine that has it.
fn is_to_be_let_go(world: &World<'_>, held: &Volume) -> bool {
    let pod = world.observed.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
    // Not of a machine that never had it.
    let holds = |instance: &Instance, node: &Node| {
        let name = node.metadata.name.as_ref();
        held.live_attachments().any(|attachment| attachment.instance == instance.id)
            || (name.is_some() && (pod == name || disk::is_held_on(world, held, name)))
    };
    world.observed.account.instances.iter().any(|instance| {
        let node = of_instance(world, instance).filter(|node| is_ready(node));
        !instance.state.is_confirmed_down() && node.is_some_and(|node| holds(instance, node))
    })
}

fn stop_instance(world: &World<'_>, plan: &mut Plan) -> bool {
    let mut ended = true;
    for instance in &world.observed.account.instances {
        match instance.state {
            InstanceState::Terminated => {}
            InstanceState::ShuttingDown => {
                ended = false;
                plan.wait(Part::InstanceStop, format!("waiting for {} to end", instance.id));
            }
            _ => {
                ended = false;
                end(world, plan, instance);
            }
        }
    }
    if !ended {
        return false;
    }
    // Firewall and disk are judged by the same look: this wait is theirs too.
    if !existing::is_all_shown(world, plan, Part::InstanceStop) {
        return false;
    }
    if let Some(node) = former::belied(world) {
        plan.wait(Part::InstanceStop, former::unknown(node));
        return false;
    }
    for node in &world.observed.children.nodes {
        machine::delete_node(plan, node, Part::InstanceStop);
    }
    true
}

fn end(world: &World<'_>, plan: &mut Plan, instance: &Instance) {
    if let Some(text) = former::elsewhere(world, instance) {
        plan.say(Part::InstanceStop, State::Broken(text));
        return;
    }
    let left = left::at_the_end(world, instance);
    let why = "the database is not to run any more";
    released::end(world, plan, instance, left, (Part::InstanceStop, why));
    plan.wait(Part::InstanceStop, format!("{} is being ended", instance.id));
}

fn remove_group(world: &World<'_>, plan: &mut Plan) -> bool {
    let groups = &world.observed.account.groups;
    for group in groups {
        let step = Step::DeleteSecurityGroup { group: group.id.clone() };
        plan.act(Part::SecurityGroupRemoval, step, "no machine is left behind it");
        plan.say(Part::SecurityGroupRemoval, network::going(world, group));
    }
    groups.is_empty()
}

/// Whether anything may still be using a volume: EC2 or a `VolumeAttachment` on any node says so.
pub(super) fn is_held(world: &World<'_>, volume: &Volume) -> bool {
    !volume.is_detached() || disk::is_held_elsewhere(world, volume, None)
}

/// Kubernetes objects that no longer mean anything. What lets a retired database come back stays while its resource does.
fn clean_up(world: &World<'_>, plan: &mut Plan, reached: bool) {
    if !reached {
        plan.say(Part::Cleanup, State::Pending);
        return;
    }
    let mut left = transient(world);
    if world.validated.goal == Goal::Purge || world.validated.removing {
        // Nobody but our own Secret knows of them: first they go, then it.
        revoke_keys(world, plan);
        left.extend(lasting(world));
    }
    if credentials::stay(world) {
        left.retain(|(kind, _)| *kind != Kind::Secret);
        if let Some(step) = credentials::disown(world) {
            plan.act(Part::Cleanup, step, "the disk stays, and with it the credentials that open it");
            plan.wait(Part::Cleanup, "the credentials are being kept beside the disk");
            return;
        }
    }
    if !left.is_empty() {
        for (kind, metadata) in &left {
            // One that is going already is waited for: finalizers hold it, most often of Kubernetes.
            if metadata.deletion_timestamp.is_none() {
                plan.act(Part::Cleanup, Step::Delete(target(*kind, metadata)), "its database is gone");
            }
        }
        let text = "what remains in Kubernetes is being removed";
        plan.say(Part::Cleanup, going::state(world.observed.at, &left, text));
        return;
    }
    if world.validated.removing {
        plan.act(Part::Cleanup, Step::RemoveFinalizer, "nothing is left to clean up");
        plan.wait(Part::Cleanup, "the resource is being let go");
        return;
    }
    plan.say(Part::Cleanup, State::Done);
}

/// The private halves of keys go that were handed out, and of those that may have been without anybody having noted where.
fn revoke_keys(world: &World<'_>, plan: &mut Plan) {
    let (subject, children) = (&world.validated.subject, &world.observed.children);
    let reason = "the private half of a key that was handed out goes";
    for secret in handed_out(subject, children) {
        plan.act(Part::Cleanup, Step::Delete(secret), reason);
    }
    for id in begun_keys(world.observed) {
        plan.act(Part::Cleanup, Step::RevokeKey(build::drawn_key(subject, &id)), reason);
    }
}

fn transient<'a>(world: &World<'a>) -> Vec<(Kind, &'a ObjectMeta)> {
    let children = &world.observed.children;
    let config = children.config.iter().map(|found| (Kind::ConfigMap, &found.metadata));
    let services = children.service.iter().chain(&children.headless);
    let policy = children.network_policy.iter().map(|found| (Kind::NetworkPolicy, &found.metadata));
    let budget = children.disruption_budget.iter().map(|found| (Kind::PodDisruptionBudget, &found.metadata));
    let others = children.others.iter().map(|(kind, found)| (*kind, &found.metadata));
    let services = services.map(|found| (Kind::Service, &found.metadata));
    config.chain(services).chain(policy).chain(budget).chain(others).collect()
}

fn lasting<'a>(world: &World<'a>) -> Vec<(Kind, &'a ObjectMeta)> {
    let children = &world.observed.children;
    let claim = children.claim.iter().map(|found| (Kind::PersistentVolumeClaim, &found.metadata));
    let volumes = children.persistent_volumes.iter().map(|found| (Kind::PersistentVolume, &found.metadata));
    let secret = children.secret.iter().map(|found| (Kind::Secret, &found.metadata));
    claim.chain(volumes).chain(secret).collect()
}

pub(super) fn target(kind: Kind, metadata: &ObjectMeta) -> Target {
    Target { resource_version: metadata.resource_version.clone(), ..Target::of(kind, metadata) }
}
