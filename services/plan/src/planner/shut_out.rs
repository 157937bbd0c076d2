//! A pod that finds no place because a taint closes the Node that it is pinned to. By `node.kubernetes.io/out-of-service` Kubernetes even
//! stops QuestDB and takes its disk off, beside a machine that may live.
//!
//! *Invariant:* nothing is made, ended or pinned elsewhere for that. It is told, and people take the taint off, or cordon the Node: then
//! the database moves as from any other.

use k8s_openapi::api::core::v1::{Node, Pod};

use super::joined::STARTING;
use super::machine::is_ready;
use super::reach::is_leaving;
use super::{World, ready};
use crate::State;

/// How it is with a pod that a taint keeps from its Node. One that is cordoned is left, which is told by itself, and so is it that one
/// is not ready, with which taints come and go.
pub(super) fn by_taint(world: &World<'_>, node: &Node) -> Option<State> {
    let pod = world.observed.children.pod.as_deref()?;
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if is_placed || is_leaving(node) {
        return None;
    }
    let key = &ready::repelling(world.validated, node)?.key;
    // That one is somebody's doing: no Node starts with it, and it does not pass by itself.
    let is_meant = key == ready::OUT_OF_SERVICE;
    if !is_meant && !is_ready(node) {
        return None;
    }
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let text = format!("Node {name} has the taint {key}, which keeps QuestDB away");
    if !is_meant && !lasts(world, node, pod) {
        return Some(State::Running(text));
    }
    Some(State::Broken(format!(
        "{text}: {}, or cordon the Node (kubectl cordon {name}) to have the database move to another machine",
        ready::way_out(name, key)
    )))
}

/// Whether a Node has been ready for so long, and the pod there, that what only starts beside them would have started.
fn lasts(world: &World<'_>, node: &Node, pod: &Pod) -> bool {
    let (at, made) = (world.observed.at, pod.metadata.creation_timestamp.as_ref());
    ready::is_ready_for(node, STARTING, at) && made.is_none_or(|made| at.duration_since(made.0) >= STARTING)
}
