//! How the database is reached within its cluster: who may come in, that nobody drains it by the way, who scrapes it,
//! and the routes of Traefik.
//!
//! *Invariant:* a kind that the cluster does not know, or does not let us see, holds nothing up: it is told, and made once the
//! kind is there. *Invariant:* what cannot be seen is neither made nor taken away. *Invariant:* no route is made to a host that
//! another database has.

use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::core::ObjectMeta;
use resources::{QuestDB, names};
use serde::Serialize;

use super::child::ensure;
use super::home::serving;
use super::machine::is_of;
use super::{World, network};
use crate::rivals::contested;
use crate::{
    Children, Kind, Manifest, Observed, Part, Plan, State, Step, Subject, Target, Unseen, Validated, build,
};

/// Taints by which those who end machines say that they are about to.
const LEAVING: [&str; 4] = [
    "node.kubernetes.io/unschedulable",
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/scheduled-maintenance",
];

/// Who may come in; whether there are rules under which QuestDB may be started: those that are asked for, or the ones of before for as long
/// as they have to stay.
pub(super) fn isolation(world: &World<'_>, plan: &mut Plan) -> bool {
    let found = world.observed.children.network_policy.as_deref();
    let is_open = plan.state(Part::SecurityGroup) == Some(&State::Done);
    if !is_open && found.is_some() && network::awaits_answer(world) {
        // Those of before, who are still let in there, would be kept out here.
        plan.wait(
            Part::Isolation,
            "the policy waits for the rules of the security group, which AWS may refuse",
        );
        return true;
    }
    let wanted =
        world.validated.reach.isolated.then(|| build::network_policy(world.validated, world.settings));
    let done = keep(world, plan, Part::Isolation, wanted, (Kind::NetworkPolicy, found));
    if done {
        plan.say(Part::Isolation, State::Done);
    } else {
        plan.wait(Part::Isolation, "the rules about who may come in are being written");
    }
    done
}

/// What nobody waits for: the budget, monitors and routes.
pub(super) fn beside(world: &World<'_>, plan: &mut Plan) {
    let done = [budget(world, plan), others(world, plan)];
    if done == [true; 2] {
        plan.say(Part::Reach, State::Done);
    } else {
        plan.wait(Part::Reach, "disruption budget, monitors and routes are being written");
    }
}

fn budget(world: &World<'_>, plan: &mut Plan) -> bool {
    let found = world.observed.children.disruption_budget.as_deref();
    let wanted = world.validated.reach.budgeted.then(|| build::disruption_budget(&world.validated.subject));
    keep(world, plan, Part::Reach, wanted, (Kind::PodDisruptionBudget, found))
}

/// Objects of the kinds that a cluster may lack.
fn others(world: &World<'_>, plan: &mut Plan) -> bool {
    let children = &world.observed.children;
    let mut done = true;
    let wanted = wanted(world.validated);
    for (kind, found) in &children.others {
        let name = found.metadata.name.as_ref();
        if !wanted.iter().any(|wanted| wanted.kind == *kind && Some(&wanted.name) == name) {
            done &= keep(world, plan, Part::Reach, None, (*kind, Some(&**found)));
        }
    }
    for manifest in wanted.into_iter().filter(|manifest| children.served.contains(&manifest.kind)) {
        let same = |kind: Kind, metadata: &ObjectMeta| {
            kind == manifest.kind && metadata.name.as_ref() == Some(&manifest.name)
        };
        let found = children.others.iter().find(|(kind, found)| same(*kind, &found.metadata));
        let there = found.map(|(_, found)| &**found);
        let asked = (&manifest, field(&manifest, &world.validated.subject));
        if let Some(contested) = contested(asked, there, &world.observed.rivals) {
            plan.hosts_taken.push(contested.text);
            if contested.yields {
                continue;
            }
        }
        done &= ensure(&world.observed.memory.agreed, plan, Part::Reach, manifest, there);
    }
    done
}

fn wanted(validated: &Validated) -> Vec<Manifest> {
    let (subject, reach) = (&validated.subject, &validated.reach);
    let routes = reach
        .ingress
        .iter()
        .flat_map(|(host, wish)| build::routes(subject, host, wish, validated.keyring.open));
    routes.chain(reach.monitor.iter().map(|wish| build::monitor(subject, wish))).collect()
}

/// The field that asks for a route.
fn field(manifest: &Manifest, subject: &Subject) -> &'static str {
    if manifest.kind == Kind::IngressRoute {
        "spec.network.ingress.http"
    } else if manifest.name == names::route_pg(&subject.name) {
        "spec.network.ingress.pg"
    } else {
        "spec.network.ingress.ilp"
    }
}

/// An object that is there when it is wanted, and not when it is not; whether that is so.
fn keep<K: Resource + Serialize>(
    world: &World<'_>,
    plan: &mut Plan,
    part: Part,
    wanted: Option<Manifest>,
    (kind, observed): (Kind, Option<&K>),
) -> bool {
    match (wanted, observed) {
        (Some(wanted), _) => ensure(&world.observed.memory.agreed, plan, part, wanted, observed),
        (None, None) => true,
        (None, Some(observed)) => {
            let metadata = observed.meta();
            if metadata.deletion_timestamp.is_none() {
                plan.act(part, Step::Delete(Target::of(kind, metadata)), "it is not asked for any more");
            }
            false
        }
    }
}

/// Kinds that are asked for and of which nothing can be made, with the field that asks, and why nothing is seen of the kind;
/// the cluster does not know it where there is no reason.
pub(crate) fn missing_kinds<'a>(
    validated: &Validated,
    observed: &'a Observed,
) -> Vec<(Kind, &'static str, Option<&'a Unseen>)> {
    let Children { served, unseen, .. } = &observed.children;
    let wanted = validated.reach.kinds().into_iter().filter(|(kind, _)| !served.contains(kind));
    wanted.map(|(kind, field)| (kind, field, unseen.get(&kind))).collect()
}

/// The Node of the machine that serves, when somebody wants it empty.
pub(crate) fn leaving_node<'a>(resource: &QuestDB, observed: &'a Observed) -> Option<&'a str> {
    let instance = serving(resource, observed)?;
    let node = observed.children.nodes.iter().find(|node| is_of(node, instance))?;
    is_leaving(node).then_some(node.metadata.name.as_deref()?)
}

/// Whether somebody wants a Node empty: no pod would be started on it.
pub(super) fn is_leaving(node: &Node) -> bool {
    let Some(spec) = &node.spec else { return false };
    let mut taints = spec.taints.iter().flatten();
    spec.unschedulable == Some(true) || taints.any(|taint| LEAVING.contains(&taint.key.as_str()))
}
