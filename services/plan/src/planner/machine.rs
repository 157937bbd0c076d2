//! The machine and its Node.
//!
//! *Invariant:* the generation of a machine is written down, with a hash of its parameters, before the machine is asked
//! for; a launch whose answer was lost is asked for again under the same token and gives the same machine, and a machine
//! that is gone is followed by the next generation.
//!
//! *Invariant:* a machine that serves is protected. Its protection may be off because the wish turned back after it was
//! taken off, so nothing is called settled before it was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::{Instance, InstanceState, Protection, SecurityGroup, Volume, key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use resources::{QuestDB, names};

use super::World;
use super::existing::Disk;
use crate::{Goal, Kind, Observed, Part, Plan, State, Step, Target, Validated, build};

/// The serving instance, once it runs.
pub(super) fn instance<'a>(
    world: &World<'a>,
    plan: &mut Plan,
    group: Option<&SecurityGroup>,
    disk: Disk<'_>,
) -> Option<&'a Instance> {
    let written = world.number(names::GENERATION);
    let serving = written.and_then(|generation| living(world, generation));
    if let Some(instance) = serving {
        return judge(world, plan, instance);
    }
    launch(world, plan, group, disk.volume());
    None
}

/// The Node of the serving instance, once it is labelled and ready.
pub(super) fn node<'a>(
    world: &World<'a>,
    plan: &mut Plan,
    instance: Option<&Instance>,
) -> Option<&'a Arc<Node>> {
    let Some(instance) = instance else {
        plan.say(Part::Node, State::Pending);
        return None;
    };
    let Some(node) = of_instance(world, instance) else {
        plan.wait(Part::Node, format!("waiting for {} to join the cluster as a Node", instance.id));
        return None;
    };
    let name = node.metadata.name.clone().unwrap_or_default();
    let generation = generation_of(instance).unwrap_or_default();
    let labels = node_labels(world, generation);
    let has = |(key, value): (&String, &String)| {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
    };
    if !labels.iter().all(has) {
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let reason = format!("its provider id shows that it is {}", instance.id);
        plan.act(Part::Node, Step::LabelNode { name: name.clone(), uid, labels }, reason);
        plan.wait(Part::Node, format!("Node {name} is being labelled"));
        return None;
    }
    if is_ready(node) {
        plan.say(Part::Node, State::Done);
    } else {
        plan.wait(Part::Node, format!("waiting for Node {name} to become ready"));
    }
    Some(node)
}

/// What a Node of ours is found by, and what only we may give it.
fn node_labels(world: &World<'_>, generation: u64) -> BTreeMap<String, String> {
    let subject = &world.validated.subject;
    let own = build::node_labels(subject).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.chain([(names::LABEL_NODE.to_owned(), build::node_value(subject, generation))]).collect()
}

/// Machines that serve nobody: of another generation than the one written down, and not pinned by the StatefulSet.
pub(super) fn surplus(world: &World<'_>, plan: &mut Plan, serving: Option<&Instance>) {
    let Some(serving) = serving else { return };
    let Some(generation) = generation_of(serving) else { return };
    let pinned = super::workload::pinned(world);
    for instance in &world.observed.account.instances {
        let other = generation_of(instance).is_some_and(|other| other < generation);
        let value = generation_of(instance).map(|other| build::node_value(&world.validated.subject, other));
        if !other || instance.state.is_ending() || value == pinned || is_in_use(world, instance) {
            continue;
        }
        super::teardown::end(world, plan, instance, Part::Instance, "a newer machine has taken over");
    }
    for node in &world.observed.children.nodes {
        let ended = world.observed.account.instances.iter().any(|instance| {
            instance.state == InstanceState::Terminated && is_of(node, instance) && instance.id != serving.id
        });
        if ended {
            delete_node(plan, node, Part::Node);
        }
    }
}

/// Whether a pod of ours still runs on a machine, or the disk is still on it.
fn is_in_use(world: &World<'_>, instance: &Instance) -> bool {
    let node = of_instance(world, instance).and_then(|node| node.metadata.name.clone());
    let pod = world.observed.children.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    let holds =
        |volume: &Volume| volume.live_attachments().any(|attachment| attachment.instance == instance.id);
    (pod.is_some() && pod == node) || world.observed.account.volumes.iter().any(holds)
}

/// The instance of the written generation, if it runs: what the name has to answer with.
pub fn serving<'a>(resource: &QuestDB, observed: &'a Observed) -> Option<&'a Instance> {
    let written = resource.metadata.annotations.as_ref()?.get(names::GENERATION)?.parse().ok();
    let mut running = observed.account.instances.iter().filter(|found| found.state == InstanceState::Running);
    running.find(|found| written.is_some() && generation_of(found) == written)
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
    let number = |key| resource.metadata.annotations.as_ref()?.get(key)?.parse::<u64>().ok();
    let written = number(names::GENERATION)?;
    let was_released = number(names::RELEASED).is_some_and(|released| released >= written);
    let mut living = observed.account.instances.iter().filter(|instance| !instance.state.is_ending());
    living
        .find(|instance| generation_of(instance) == Some(written))
        .filter(|_| was_released || plan.is_settled())
}

/// Removes a Node whose machine is proved to be gone.
pub(super) fn delete_node(plan: &mut Plan, node: &Node, part: Part) {
    plan.act(part, Step::Delete(Target::of(Kind::Node, &node.metadata)), "its machine is terminated");
}

/// Which generation an instance is.
pub(super) fn generation_of(instance: &Instance) -> Option<u64> {
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

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Since when a Node is not ready; `None` while it is.
pub(super) fn not_ready_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    if ready.is_some_and(|condition| condition.status == "True") {
        return None;
    }
    let changed = ready.and_then(|condition| condition.last_transition_time.as_ref());
    changed.or(node.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

fn living<'a>(world: &World<'a>, generation: u64) -> Option<&'a Instance> {
    let instances = world.observed.account.instances.iter();
    instances
        .filter(|instance| !instance.state.is_ending())
        .find(|found| generation_of(found) == Some(generation))
}

fn judge<'a>(world: &World<'a>, plan: &mut Plan, instance: &'a Instance) -> Option<&'a Instance> {
    let wish = world.validated;
    protect(world, plan, instance);
    match &instance.state {
        InstanceState::Pending => {
            plan.wait(Part::Instance, format!("waiting for {} to run", instance.id));
            return None;
        }
        InstanceState::Running if instance.private_ip.is_some() => {}
        other => {
            let text = format!("{} is {other}: start it, or terminate it to have it replaced", instance.id);
            plan.say(Part::Instance, State::Broken(text));
            return None;
        }
    }
    if instance.instance_type != wish.instance_type.name || instance.image != wish.node_image {
        let text = format!(
            "{} is a {} of {}: another machine for a living database needs a move, which is not supported yet; the \
             database goes on as it is",
            instance.id, instance.instance_type, instance.image
        );
        plan.say(Part::Instance, State::Refused(text));
    } else {
        plan.say(Part::Instance, State::Done);
    }
    Some(instance)
}

/// The wish turned back after the protection was taken off, or somebody took it off.
fn protect(world: &World<'_>, plan: &mut Plan, instance: &Instance) {
    let found = world.observed.account.protection;
    if found.is_some_and(|found| found != Protection::ON) {
        let reason = "a machine that serves is not to be ended by whoever comes late";
        plan.act(Part::Instance, Step::Protect { instance: instance.id.clone() }, reason);
        plan.wait(Part::Instance, format!("{} is being protected", instance.id));
    }
}

/// No machine of the written generation lives: ask for it, or write down the next.
fn launch(world: &World<'_>, plan: &mut Plan, group: Option<&SecurityGroup>, disk: Option<&Volume>) {
    let Some(group) = group else {
        plan.say(Part::Instance, State::Pending);
        return;
    };
    let written = world.number(names::GENERATION);
    let highest = highest_seen(world, disk);
    let adopted =
        highest.filter(|highest| written < Some(*highest)).and_then(|highest| living(world, highest));
    let generation = match (adopted, written) {
        // The annotation was lost; the machine was not.
        (Some(instance), _) => generation_of(instance).unwrap_or_default(),
        (None, Some(written)) if !is_spent(world, written, highest) => written,
        (None, _) => written.max(highest).unwrap_or(0) + 1,
    };
    let current = (written == Some(generation)).then(|| world.annotation(names::LAUNCH_ZONE)).flatten();
    let zone = match (adopted, disk, current) {
        (Some(instance), ..) => instance.zone.clone(),
        (None, Some(disk), _) => disk.zone.clone(),
        (None, None, Some(zone)) if !world.observed.memory.exhausted_zones.iter().any(|z| z == zone) => {
            zone.to_owned()
        }
        (None, None, _) => choose_zone(world),
    };
    let parameters = build::launch(world.validated, world.settings, &group.id, generation, &zone);
    let fingerprint = parameters.fingerprint();
    if written == Some(generation) && world.annotation(names::LAUNCH) == Some(fingerprint.as_str()) {
        let step = Step::RunInstance { generation, zone: zone.clone(), launch: Box::new(parameters) };
        plan.act(
            Part::Instance,
            step,
            format!("generation {generation} is written down and no machine of it is seen"),
        );
        plan.wait(Part::Instance, format!("launching generation {generation} in {zone}"));
        return;
    }
    // Other parameters under a written generation would be refused by its token, if a machine was made with it already.
    let changed = adopted.is_none() && written == Some(generation);
    let generation = if changed { generation + 1 } else { generation };
    let parameters = build::launch(world.validated, world.settings, &group.id, generation, &zone);
    let launch = parameters.fingerprint().to_string();
    let step = Step::WriteGeneration { generation, launch, zone };
    plan.act(Part::Instance, step, "a machine is asked for only under a generation that is written down");
    plan.wait(Part::Instance, format!("writing down generation {generation}"));
}

/// The highest generation that anything in AWS shows.
fn highest_seen(world: &World<'_>, disk: Option<&Volume>) -> Option<u64> {
    let of_disk = disk.and_then(|volume| volume.tags.get(key::GENERATION)?.parse().ok());
    world.observed.account.instances.iter().filter_map(generation_of).chain(of_disk).max()
}

/// Whether the token of a written generation gives no new machine: its machine ended, served and is gone, or the token
/// was found to be used up.
fn is_spent(world: &World<'_>, written: u64, highest: Option<u64>) -> bool {
    let ended = world.observed.account.instances.iter();
    let mut ended = ended.filter(|instance| instance.state.is_ending()).filter_map(generation_of);
    let name = build::node_value(&world.validated.subject, written);
    let served = world.resource.status.as_ref().and_then(|status| status.node.as_ref()?.name.as_deref())
        == Some(&name);
    served
        || ended.any(|generation| generation == written)
        || highest.is_some_and(|highest| highest > written)
        || world.number(names::RELEASED).is_some_and(|released| released >= written)
        || world.observed.memory.spent == Some(written)
}

/// The zone of the wish, else one by the database's id, passing over those without capacity.
fn choose_zone(world: &World<'_>) -> String {
    if let Some(zone) = &world.validated.zone {
        return zone.clone();
    }
    let zones: Vec<&String> = world.settings.zones.keys().collect();
    let exhausted = &world.observed.memory.exhausted_zones;
    let open: Vec<&String> = zones.iter().copied().filter(|zone| !exhausted.contains(zone)).collect();
    let choice = if open.is_empty() { &zones } else { &open };
    let number = world
        .validated
        .subject
        .database
        .bytes()
        .fold(0_usize, |sum, byte| sum * 31 % 65_521 + usize::from(byte));
    choice.get(number % choice.len().max(1)).map(|zone| (*zone).clone()).unwrap_or_default()
}
