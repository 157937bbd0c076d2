//! Whether QuestDB answers, and where.

use cloud::InstanceState;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::workload::{is_on, pod_serves};
use super::{World, machine, name};
use crate::{Elsewhere, Kind, Plan, Step};

/// Whether QuestDB serves on a Node and is left alone, be it under an older wish.
pub(super) fn serves(world: &World<'_>, plan: &Plan, node: &Node) -> bool {
    left_alone(world, plan).is_some_and(|pod| is_on(pod, node) && pod_serves(pod))
}

/// Where it serves on another Node than the one that it is to be on from now on, which nobody may be able to tell, and where its name,
/// if it is to have one, leads to still.
pub(super) fn elsewhere(world: &World<'_>, plan: &Plan, node: Option<&Node>) -> Option<Elsewhere> {
    let pod = left_alone(world, plan);
    let pod = pod.filter(|pod| node.is_none_or(|node| !is_on(pod, node)) && pod_serves(pod))?;
    let on = world.observed.children.nodes.iter().find(|other| is_on(pod, other));
    // The word of a kubelet that is silent is old.
    let on = on.filter(|on| machine::is_ready(on))?;
    let mut instances = world.observed.account.instances.iter();
    let machine = instances.find(|instance| machine::is_of(on, instance));
    // EC2 tells of an end before its kubelet is silent.
    let machine = machine.filter(|machine| machine.state == InstanceState::Running)?;
    let named = name::is_named(world.validated, &world.observed.children);
    let answers = !named || name::leads_to(world, machine);
    answers.then_some(if node.is_some() { Elsewhere::Leaving } else { Elsewhere::Untold })
}

/// The pod, unless it ends or this plan ends it.
fn left_alone<'a>(world: &World<'a>, plan: &Plan) -> Option<&'a Pod> {
    let ends = |step: &Step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod);
    let pod = world.observed.children.pod.as_deref();
    pod.filter(|pod| {
        pod.metadata.deletion_timestamp.is_none() && !plan.actions.iter().any(|action| ends(&action.step))
    })
}
