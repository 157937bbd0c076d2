//! Machines that serve nobody: those that a database has left, and one that it was to move to and does not need any more.
//!
//! *Invariant:* a machine that is not pinned is ended only when neither the pod nor the disk is on it, which is proved by
//! live looks. One whose kubelet is silent cannot prove it: it is ended first, and then its pod is forgotten.

use cloud::{Instance, InstanceState, Volume};
use k8s_openapi::api::core::v1::Pod;
use resources::names;

use super::machine::{delete_node, generation_of, is_of, of_instance};
use super::{World, home, moving, teardown, workload};
use crate::{Part, Plan, Step, Target, build};

/// Ends every machine but the database's home and the one that it moves to.
pub(super) fn end_all(world: &World<'_>, plan: &mut Plan, home: Option<&Instance>, disk: Option<&Volume>) {
    let Some(home) = home else { return };
    for instance in world.observed.account.instances.iter().filter(|other| other.id != home.id) {
        let Some(generation) = generation_of(instance) else { continue };
        forget_pod(world, plan, instance);
        match instance.state {
            // The Node says where a pod is that has to be forgotten first.
            InstanceState::Terminated if pod_on(world, instance).is_some() => {}
            InstanceState::Terminated => {
                for node in world.observed.children.nodes.iter().filter(|node| is_of(node, instance)) {
                    delete_node(plan, node, Part::Former);
                    plan.wait(Part::Former, format!("the Node of {} is being removed", instance.id));
                }
            }
            InstanceState::ShuttingDown => {
                plan.wait(Part::Former, format!("waiting for {} to end", instance.id));
            }
            _ if is_next(world, home, instance, disk) => {}
            // Nothing is known yet of what was written down later.
            _ if home::written(world.resource) < Some(generation) => {}
            _ => end(world, plan, instance, generation),
        }
    }
}

/// Whether a database is about to move to a machine.
fn is_next(world: &World<'_>, home: &Instance, instance: &Instance, disk: Option<&Volume>) -> bool {
    let next = moving::candidate(world, home).filter(|next| moving::fits(world.validated, next, disk));
    moving::is_wanted(world, home) && next.is_some_and(|next| next.id == instance.id)
}

fn end(world: &World<'_>, plan: &mut Plan, instance: &Instance, generation: u64) {
    let pin = build::node_value(&world.validated.subject, generation);
    if home::pinned(world.observed).as_ref() == Some(&pin) {
        return;
    }
    let silent = is_silent(world, instance);
    if !silent && is_in_use(world, instance) {
        plan.wait(Part::Former, format!("waiting for QuestDB and its disk to leave {}", instance.id));
        return;
    }
    let node = node_name(world, instance);
    let why = if silent {
        "its Node has been silent for too long, and QuestDB is to run elsewhere"
    } else {
        "the database does not need it any more"
    };
    plan.act(Part::Former, Step::ProveLeft { instance: instance.id.clone(), pin, node, silent }, why);
    teardown::end(world, plan, instance, Part::Former, why);
    plan.wait(Part::Former, format!("{} is being ended", instance.id));
}

/// Whether a machine still has the pod, which was told to stop, and nobody there to stop it.
fn is_silent(world: &World<'_>, instance: &Instance) -> bool {
    pod_on(world, instance).is_some_and(|pod| {
        pod.metadata.deletion_timestamp.is_some() && teardown::silent_node(world, pod).is_some()
    })
}

/// Nobody is left to confirm the end of a pod whose machine is proved to be down.
fn forget_pod(world: &World<'_>, plan: &mut Plan, instance: &Instance) {
    let Some(pod) = pod_on(world, instance).filter(|_| instance.state.is_confirmed_down()) else { return };
    if pod.metadata.deletion_grace_period_seconds == Some(0) {
        return;
    }
    let target = Target { at_once: true, ..workload::target(pod) };
    plan.act(Part::Former, Step::Delete(target), "its machine is down, and nobody is left to stop it");
    plan.wait(Part::Former, "the pod of a machine that is gone is being removed");
}

fn node_name(world: &World<'_>, instance: &Instance) -> Option<String> {
    of_instance(world, instance).and_then(|node| node.metadata.name.clone())
}

fn pod_on<'a>(world: &World<'a>, instance: &Instance) -> Option<&'a Pod> {
    let pod = world.observed.children.pod.as_deref()?;
    let on = pod.spec.as_ref()?.node_name.as_ref()?;
    (node_name(world, instance).as_ref() == Some(on)).then_some(pod)
}

/// Whether a pod of ours still runs on a machine, or the disk is still on it by anybody's word.
fn is_in_use(world: &World<'_>, instance: &Instance) -> bool {
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
