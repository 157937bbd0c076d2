//! A machine has to join the cluster as a Node, and that has to become ready, and to take the pod. One that has not in its time is
//! told of, and another takes its place.
//!
//! *Invariant:* only a machine on which nothing of the database is, or may come to be, is given up for that, and it is ended as any
//! other, by live looks. One that something is on has been ready once: it is waited for. *Invariant:* the database is given to no
//! machine before its Node is ready, so that one whose Node never is can be given up.
//!
//! *Invariant:* no more than [`MACHINES`] are made in a row, each with twice the time of the one before, whatever they lack. What
//! keeps one from joining, or its Node from being ready, is most often its image or the network, which the next one has as well; and
//! who closes one Node may close all. Once people have put right what machines are launched with, the next one has not, and is tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::{Instance, InstanceId};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use resources::names::{self, condition, reason};

use super::existing::{living, only};
use super::left::{self, Proof};
use super::machine::{TERMINATE, generation_of, is_ready, of_instance, was_launched_before};
use super::ready::Closed;
use super::released::{self, Released};
use super::{World, former, home, moving, ready};
use crate::{Part, Plan, State, Step, build};

/// How long the first machine of a row has from its launch to join, its Node to be ready again since it says that it is not, and to
/// be opened again since we said that it is closed.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);
/// How long a Node may not be ready before people are told where to look.
const TOLD: SignedDuration = SignedDuration::from_mins(5);
/// How long a Node may be ready before it is told that a taint closes it: what starts with it (its network, the cloud provider, the
/// driver of disks) keeps pods away until it is there.
pub(super) const STARTING: SignedDuration = SignedDuration::from_mins(2);
/// Most machines of a row: the last one is left for people to look at.
const MACHINES: u64 = 3;

/// What a machine lacks to take the database.
#[derive(Clone, Copy)]
enum Lack<'a> {
    /// It is no Node of the cluster.
    Node,
    /// The same, and the database is on it, so that it was one; since when the report says that its Node is not well.
    Gone(Option<Timestamp>),
    /// Its Node is not ready.
    Readiness(&'a Node),
    /// Its Node is ready, and this keeps the pod away, as was said first then.
    Opening(&'a Node, Closed<'a>, Option<Timestamp>),
}

/// The Node of a machine, once it is labelled, and ready or in use already. One that is not ready is told.
pub(super) fn joined<'a>(
    world: &World<'a>,
    plan: &mut Plan,
    part: Part,
    instance: &Instance,
) -> Option<&'a Arc<Node>> {
    let Some(node) = of_instance(world, instance) else {
        let generation = generation_of(instance).unwrap_or_default();
        let was_node = part == Part::Node && is_in_use(world, instance, generation);
        let lack = if was_node { Lack::Gone(unwell_since(world)) } else { Lack::Node };
        wait(world, plan, (part, instance), lack);
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
        plan.act(part, Step::LabelNode { name: name.clone(), uid, labels }, reason);
        plan.wait(part, format!("Node {name} is being labelled"));
        return None;
    }
    if is_ready(node) {
        return Some(node);
    }
    wait(world, plan, (part, instance), Lack::Readiness(node));
    is_in_use(world, instance, generation).then_some(node)
}

/// Waits until the Node of a next machine, which is ready, takes the pod. That it does not is told, once it is more than a start.
pub(super) fn wait_for_opening(
    world: &World<'_>,
    plan: &mut Plan,
    next: &Instance,
    (node, by): (&Node, Closed<'_>),
) {
    wait(world, plan, (Part::Candidate, next), Lack::Opening(node, by, closed_since(world, node)));
}

/// Since when the report says that the Node of the next machine is closed: nobody else writes down since when it is. It may have
/// been said of the machine before first, so that no time counts in which this Node was not ready.
fn closed_since(world: &World<'_>, node: &Node) -> Option<Timestamp> {
    let mut conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.find(|found| found.type_ == condition::MOVING)?;
    let is_told = told.status == "False" && told.reason == reason::NODE_CLOSED;
    let since = is_told.then_some(told.last_transition_time.0)?;
    Some(ready::since(node).map_or(since, |ready| ready.max(since)))
}

/// Since when the report says that the Node of the home is not well: of one that is gone nothing else does.
fn unwell_since(world: &World<'_>) -> Option<Timestamp> {
    let mut conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.find(|found| found.type_ == condition::NODE_HEALTHY)?;
    (told.status == "False").then_some(told.last_transition_time.0)
}

/// What a Node of ours is found by, and what only we may give it.
fn node_labels(world: &World<'_>, generation: u64) -> BTreeMap<String, String> {
    let subject = &world.validated.subject;
    let own = build::node_labels(subject).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.chain([(names::LABEL_NODE.to_owned(), build::node_value(subject, generation))]).collect()
}

/// How many machines right before one of this generation did not join.
pub(super) fn given_up_before(world: &World<'_>, generation: u64) -> u64 {
    let unjoined = Released::unjoined(world.resource);
    // The one that is pinned has joined: whatever was before it is of another row.
    let pinned = home::pinned(world.observed).as_deref().and_then(names::generation_of_node);
    let least = pinned.unwrap_or_default().saturating_add(1);
    let mut first = generation;
    while first > least && unjoined.contains(first - 1) {
        first -= 1;
    }
    generation - first
}

/// The text of the annotation once this one did not join either.
pub(super) fn noted(world: &World<'_>, generation: u64) -> String {
    let first = generation - given_up_before(world, generation);
    Released::unjoined(world.resource).with(generation, |one| (first..generation).contains(&one))
}

/// Whether a machine is about to be ended because it did not join, or its Node was not ready in its time: its protection stays off,
/// unless it is of use after all.
pub(super) fn is_given_up(world: &World<'_>, instance: &Instance) -> bool {
    let is_noted = |generation| {
        Released::of(world.resource).contains(generation)
            && Released::unjoined(world.resource).contains(generation)
            && is_needless(world, instance, generation)
    };
    generation_of(instance).is_some_and(is_noted)
        && of_instance(world, instance).is_none_or(|node| !is_ready(node))
}

/// What became of the machines before, while the next one is being made.
pub(super) fn remember(world: &World<'_>, plan: &mut Plan) {
    let Some(written) = home::written(world.resource) else { return };
    let is_unjoined = Released::unjoined(world.resource).contains(written);
    let before = given_up_before(world, if is_unjoined { written.saturating_add(1) } else { written });
    if before > 0 && (is_unjoined || home::lives(world.resource, world.observed, written)) {
        plan.unjoined = Some(Part::Node);
        plan.wait(Part::Node, format!("waiting for another machine: {}", before_it(before)));
    }
}

/// Waits for what a machine lacks for as long as it has time for that, and gives it up then.
fn wait(world: &World<'_>, plan: &mut Plan, (part, instance): (Part, &Instance), lack: Lack<'_>) {
    let (id, generation) = (&instance.id, generation_of(instance).unwrap_or_default());
    let before = given_up_before(world, generation);
    let is_needless = is_needless(world, instance, generation);
    let is_late = is_needless && lack.lasts(world, instance, patience(before));
    let is_told = lack.is_told(world, instance);
    // For how long a Node is closed hangs on when that is told, and not on the machines before.
    if is_late || is_told || before > 0 && !matches!(lack, Lack::Opening(..)) {
        lack.tell(plan, part);
    }
    let look = lack.look_at(id);
    if !is_late {
        let text = if is_told { format!("{}; {look}", lack.overdue(id, TOLD)) } else { lack.awaited(id) };
        let text = match (is_told, is_needless, before) {
            (true, false, _) => format!("{text}; what the database has may be on it, so it is not ended"),
            (_, _, 0) => text,
            _ => format!("{text}: {}", before_it(before)),
        };
        plan.wait(part, text);
        return;
    }
    let text = lack.overdue(id, patience(before));
    if before.saturating_add(1) >= MACHINES && !is_given_up(world, instance) && !is_outdated(world, instance)
    {
        let text = format!(
            "{text}: {}; it is left as it is: {look}; {TERMINATE} to have others tried, which is done by itself once machines are \
             launched otherwise (another type, image, subnet or instance profile)",
            before_it(before)
        );
        plan.say(part, State::Broken(text));
        return;
    }
    plan.wait(part, format!("{text}: it is ended and another one takes its place; {look}"));
    released::end(world, plan, instance, left::of(world, instance, lack.proof()), (part, lack.why()));
}

/// Whether there can be a next machine, and it would not be like this one: where the database has to be none may be launched any more.
fn is_outdated(world: &World<'_>, instance: &Instance) -> bool {
    let disk = only(living(&world.observed.account.volumes));
    let zone = disk.map(|disk| &disk.zone).or(world.validated.zone.as_ref());
    let can_be_launched = zone.is_none_or(|zone| world.settings.zones.contains_key(zone));
    can_be_launched && moving::is_outdated(world, instance, disk)
}

impl Lack<'_> {
    /// Whether a machine has lacked it for so long, as far as is known: since its launch, or since its Node says so.
    fn lasts(self, world: &World<'_>, instance: &Instance, least: SignedDuration) -> bool {
        let lasts = match self {
            Self::Node => true,
            Self::Readiness(node) => ready::is_unready_for(node, least, world.observed.at),
            Self::Gone(since) | Self::Opening(.., since) => {
                since.is_some_and(|since| world.observed.at.duration_since(since) >= least)
            }
        };
        lasts && was_launched_before(world, instance, least)
    }

    /// Whether people are told where to look before its time is over.
    fn is_told(self, world: &World<'_>, instance: &Instance) -> bool {
        match self {
            Self::Node => false,
            Self::Gone(_) | Self::Readiness(_) => self.lasts(world, instance, TOLD),
            // It is somebody's doing, and does not pass by itself.
            Self::Opening(_, Closed::Cordoned, _) => true,
            Self::Opening(node, Closed::Tainted(_), since) => {
                since.is_some() || ready::is_ready_for(node, STARTING, world.observed.at)
            }
        }
    }

    fn tell(self, plan: &mut Plan, part: Part) {
        match self {
            Self::Node | Self::Gone(_) => plan.unjoined = Some(part),
            Self::Readiness(_) => plan.unready.push(part),
            Self::Opening(..) => plan.closed = Some(part),
        }
    }

    fn awaited(self, instance: &InstanceId) -> String {
        match self {
            Self::Node | Self::Gone(_) => format!("waiting for {instance} to join the cluster as a Node"),
            Self::Readiness(node) => format!("waiting for Node {} to become ready", name_of(node)),
            Self::Opening(node, ..) => format!("waiting for Node {} to take QuestDB", name_of(node)),
        }
    }

    fn overdue(self, instance: &InstanceId, after: SignedDuration) -> String {
        let minutes = after.as_mins();
        match self {
            Self::Node => format!("{instance} has not joined the cluster as a Node within {minutes} minutes"),
            Self::Gone(since) => {
                let since = since.map_or_else(String::new, |since| format!(" since {since}"));
                format!("{instance} is no Node of the cluster any more, and has had none that is well{since}")
            }
            Self::Readiness(node) => {
                let name = name_of(node);
                let reason = ready::word(node).and_then(|word| word.reason.as_deref());
                let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                format!(
                    "{instance} joined as Node {name}, which has not been ready for {minutes} minutes{reason}"
                )
            }
            Self::Opening(node, by, since) => {
                let name = name_of(node);
                let since = since.map_or_else(String::new, |since| format!(" since {since}"));
                match by {
                    Closed::Cordoned => format!("Node {name} of the next machine is cordoned{since}"),
                    Closed::Tainted(taint) => format!(
                        "Node {name} of the next machine has the taint {}, which keeps QuestDB away{since}",
                        taint.key
                    ),
                }
            }
        }
    }

    /// Where people find out why.
    fn look_at(self, instance: &InstanceId) -> String {
        match self {
            Self::Node => format!(
                "look at what its image says while it starts (aws ec2 get-console-output --instance-id {instance}), and whether it \
                 reaches the API server, may join, and gives its Node the provider id of the machine"
            ),
            Self::Gone(_) => format!(
                "QuestDB may still run there; a kubelet joins again only when it starts: restart it, or the machine \
                 (aws ec2 reboot-instances --instance-ids {instance}), or terminate the machine to have another take its place"
            ),
            Self::Readiness(node) => format!(
                "look at what it says of itself (kubectl describe node {}), and at its kubelet and the network of its pods",
                name_of(node)
            ),
            Self::Opening(node, Closed::Cordoned, _) => {
                format!("uncordon it (kubectl uncordon {})", name_of(node))
            }
            Self::Opening(node, Closed::Tainted(taint), _) => ready::way_out(name_of(node), &taint.key),
        }
    }

    const fn proof(self) -> Proof {
        match self {
            Self::Node | Self::Gone(_) => Proof::Unjoined,
            Self::Readiness(_) => Proof::Unready,
            Self::Opening(..) => Proof::Closed,
        }
    }

    const fn why(self) -> &'static str {
        match self {
            Self::Node | Self::Gone(_) => "it did not join the cluster as a Node in its time",
            Self::Readiness(_) => "its Node was not ready in its time",
            Self::Opening(..) => "its Node was closed for too long",
        }
    }
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// What became of those before. What each of them lacked is not written down.
fn before_it(before: u64) -> String {
    match before {
        1 => "the one before it could not take the database in its time and was ended".to_owned(),
        _ => format!("the {before} before it could not take the database in their time and were ended"),
    }
}

fn patience(before: u64) -> SignedDuration {
    PATIENCE * (1_i32 << before.min(MACHINES - 1))
}

/// Whether nothing of the database is on a machine, as far as is seen, or comes there without our doing.
fn is_needless(world: &World<'_>, instance: &Instance, generation: u64) -> bool {
    // Nothing is known yet of what was written down later.
    let is_known = generation > 0 && home::written(world.resource) >= Some(generation);
    is_known && !is_in_use(world, instance, generation)
}

/// Whether the database was given to a machine, or something of it is there.
fn is_in_use(world: &World<'_>, instance: &Instance, generation: u64) -> bool {
    let pin = build::node_value(&world.validated.subject, generation);
    home::pinned(world.observed).as_ref() == Some(&pin)
        || former::is_in_use(world, instance)
        || former::is_answer(world, instance)
}
