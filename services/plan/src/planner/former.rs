//! Machines that serve nobody: those that a database has left, and one that it was to move to and does not need any more.
//!
//! *Invariant:* a machine that is not pinned is ended only when neither the pod nor the disk is on it, which is proved by
//! live looks, and nobody is sent to it by the database's name. One whose kubelet is silent cannot prove it: it is ended
//! first, and then its pod is forgotten. One that is stopped lets go of no disk and answers nobody: once its pod is forgotten, that
//! it is down is enough, as Kubernetes takes the disk off its Node only after minutes, or never.
//!
//! *Invariant:* a machine that EC2 does not know is not taken for gone while its Node is ready: an answer of EC2 may lack what runs.

use std::sync::Arc;

use cloud::{Instance, InstanceId, InstanceState, Volume};
use k8s_openapi::api::core::v1::{Node, Pod};
use resources::names;

use super::left::{self, Left, Proof};
use super::machine::{delete_node, generation_of, is_of, is_ready, of_instance};
use super::{World, disk, going, held, home, moving, released, teardown, workload};
use crate::{Kind, Part, Plan, Step, Target, build};

/// Ends every machine but the database's home and the one that it moves to.
pub(super) fn end_all(world: &World<'_>, plan: &mut Plan, home: Option<&Instance>, disk: Option<&Volume>) {
    let Some(home) = home else { return };
    for instance in world.observed.account.instances.iter().filter(|other| other.id != home.id) {
        forget_pod(world, plan, instance);
        match instance.state {
            // The Node says where a pod is that has to be forgotten first.
            InstanceState::Terminated if pod_on(world, instance).is_some() => {}
            InstanceState::Terminated => {
                for node in world.observed.children.nodes.iter().filter(|node| is_of(node, instance)) {
                    forget_node(world, plan, node, &instance.id);
                }
            }
            InstanceState::ShuttingDown => {
                plan.wait(Part::Former, format!("waiting for {} to end", instance.id));
            }
            // People are told, who may need it.
            _ if home::is_stranger(world, instance) => {}
            _ if moving::next(world, home, disk).is_some_and(|next| next.id == instance.id) => {}
            _ => {
                // Nothing is known yet of what was written down later.
                let known = |generation: &u64| home::written(world.resource) >= Some(*generation);
                if let Some(generation) = generation_of(instance).filter(known) {
                    end(world, plan, instance, generation);
                }
            }
        }
    }
    forget_gone(world, plan);
}

fn end(world: &World<'_>, plan: &mut Plan, instance: &Instance, generation: u64) {
    let pin = build::node_value(&world.validated.subject, generation);
    if home::pinned(world.observed).as_ref() == Some(&pin) {
        return;
    }
    let silent = is_silent(world, instance);
    let holds_on =
        instance.state.is_confirmed_down() && pod_on(world, instance).is_none() && is_in_use(world, instance);
    let is_awaited = !silent && !holds_on;
    if is_awaited && is_in_use(world, instance) {
        plan.wait(Part::Former, format!("waiting for QuestDB and its disk to leave {}", instance.id));
        return;
    }
    if is_awaited && is_answer(world, instance) {
        plan.wait(Part::Former, format!("waiting for the name to lead elsewhere than to {}", instance.id));
        return;
    }
    let (proof, why) = if silent {
        (Proof::Silent, "its Node has been silent for too long, and QuestDB is to run elsewhere")
    } else if holds_on {
        (Proof::Down, "it is stopped and keeps the disk, and QuestDB is to run elsewhere")
    } else {
        (Proof::All, "the database does not need it any more")
    };
    released::end(world, plan, instance, left::of(world, instance, proof), (Part::Former, why));
    plan.wait(Part::Former, format!("{} is being ended", instance.id));
}

/// Whether a machine still has the pod, which was told to stop, and nobody there to stop it.
pub(super) fn is_silent(world: &World<'_>, instance: &Instance) -> bool {
    pod_on(world, instance).is_some_and(|pod| teardown::silent_node(world, pod).is_some())
}

/// Whether the database's name answers with the address of a machine, by the last report.
pub(super) fn is_answer(world: &World<'_>, instance: &Instance) -> bool {
    let status = world.resource.status.as_ref().and_then(|status| status.dns.as_ref());
    let address = status.and_then(|dns| dns.address.clone());
    address.is_some() && address == instance.private_ip.map(|address| address.to_string())
}

/// Nobody is left to confirm the end of a pod whose machine is proved to be down.
fn forget_pod(world: &World<'_>, plan: &mut Plan, instance: &Instance) {
    if instance.state.is_confirmed_down()
        && let Some(pod) = pod_on(world, instance)
    {
        forget(plan, pod, left::down(world, instance));
    }
}

fn forget(plan: &mut Plan, pod: &Pod, down: Option<Left>) {
    if pod.metadata.deletion_grace_period_seconds == Some(0) {
        return;
    }
    let why = "its machine is down, and nobody is left to stop it";
    if let Some(down) = down {
        plan.act(Part::Former, Step::ProveLeft(down), why);
    }
    let target = Target { at_once: true, ..workload::target(pod) };
    plan.act(Part::Former, Step::Delete(target), why);
    plan.wait(Part::Former, "the pod of a machine that is gone is being removed");
}

fn forget_node(world: &World<'_>, plan: &mut Plan, node: &Node, instance: &InstanceId) {
    delete_node(plan, node, Part::Former);
    let text = format!("the Node of {instance} is being removed");
    plan.say(Part::Former, going::state(world.observed.at, &[(Kind::Node, &node.metadata)], text));
}

/// EC2 forgets a machine about an hour after its end. What Kubernetes has of it goes all the same.
fn forget_gone(world: &World<'_>, plan: &mut Plan) {
    let account = &world.observed.account;
    for id in account.gone.iter().filter(|_| account.conclusive) {
        let mut nodes = world.observed.children.nodes.iter();
        let of_machine = |node: &&Arc<Node>| {
            crate::tagged::machine_of(&world.validated.subject, node).as_ref() == Some(id)
        };
        let Some(node) = nodes.find(of_machine) else { continue };
        if is_ready(node) {
            plan.wait(Part::Former, unknown(node));
            continue;
        }
        match node.metadata.name.as_ref().and_then(|name| pod_on_node(world, name)) {
            Some(pod) => forget(plan, pod, None),
            None => forget_node(world, plan, node, id),
        }
    }
}

/// A Node that is ready although EC2 does not know its machine.
pub(super) fn belied<'a>(world: &World<'a>) -> Option<&'a Arc<Node>> {
    let (subject, gone) = (&world.validated.subject, &world.observed.account.gone);
    let is_gone = |node: &Node| crate::tagged::machine_of(subject, node).is_some_and(|id| gone.contains(&id));
    world.observed.children.nodes.iter().find(|node| is_ready(node) && is_gone(node))
}

/// What is said of one.
pub(super) fn unknown(node: &Node) -> String {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    format!(
        "Node {name} is ready, and EC2 does not know its machine: nothing there is taken for gone until EC2 shows it, or the Node is not \
         ready any more"
    )
}

/// What is said of a machine that another cluster of the same name serves the database on, and that is not ended: it has the disk, which
/// nobody here gave it, is no Node here, and has a number that this resource never gave.
pub(super) fn elsewhere(world: &World<'_>, instance: &Instance) -> Option<String> {
    let is_on = |disk: &&Volume| disk.live_attachments().any(|found| found.instance == instance.id);
    let disk = super::existing::living(&world.observed.account.volumes).find(is_on)?;
    let is_known = home::written(world.resource) >= generation_of(instance)
        || of_instance(world, instance).is_some()
        || disk::is_held_elsewhere(world, disk, None);
    let (id, cluster) = (&instance.id, &world.validated.subject.cluster);
    (!is_known && !instance.state.is_confirmed_down()).then(|| {
        format!(
            "{id} has {}, was not launched for this resource and is no Node here: another cluster of the name {cluster} serves the database \
             there, so the machine is not ended, and no two clusters may have one name; where none has it, stop the machine, and the \
             operator ends it: {}",
            disk.id,
            held::stop(id)
        )
    })
}

/// The Node of a machine: the one that joined, else the one that it was launched to become. One that only carries the generation of
/// another was not, nor one that somebody else launched.
pub(super) fn node_name(world: &World<'_>, instance: &Instance) -> Option<String> {
    let joined = of_instance(world, instance).and_then(|node| node.metadata.name.clone());
    let launched = |generation| build::node_value(&world.validated.subject, generation);
    let is_own = || home::twin(world, instance).is_none() && !home::is_foreign(world.resource, instance);
    let own = || generation_of(instance).filter(|_| is_own());
    joined.or_else(|| own().map(launched))
}

fn pod_on<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a Pod> {
    pod_on_node(world, &node_name(world, instance)?)
}

fn pod_on_node<'a>(world: &World<'a>, node: &str) -> Option<&'a Pod> {
    let pod = world.observed.children.pod.as_deref()?;
    (pod.spec.as_ref()?.node_name.as_deref() == Some(node)).then_some(pod)
}

/// Whether a pod of ours still runs on a machine, or the disk is still on it by anybody's word.
pub(super) fn is_in_use(world: &World<'_>, instance: &Instance) -> bool {
    let attached =
        |volume: &Volume| volume.live_attachments().any(|attachment| attachment.instance == instance.id);
    pod_on(world, instance).is_some()
        || world.observed.account.volumes.iter().any(attached)
        || node_name(world, instance).is_some_and(|node| holds(world, &node))
}

/// Whether Kubernetes says that a Node has the disk.
fn holds(world: &World<'_>, node: &str) -> bool {
    let disks: Vec<String> = super::existing::living(&world.observed.account.volumes)
        .map(|volume| names::persistent_volume(volume.id.as_str()))
        .collect();
    world.observed.children.attachments.iter().any(|attachment| {
        let disk = attachment.spec.source.persistent_volume_name.as_ref();
        attachment.spec.node_name == node && disk.is_some_and(|disk| disks.contains(disk))
    })
}
