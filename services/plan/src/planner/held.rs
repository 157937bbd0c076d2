//! A disk that does not leave a machine where QuestDB runs no more, or does not come to the one where it is to run: after a while people
//! are told who has it, and the way out. Nobody takes it by force: what a machine still writes would be lost.

use cloud::{Instance, InstanceId, Volume};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use resources::{StepStatus, names};

use super::existing::living;
use super::machine::is_of;
use super::{World, disk, workload};
use crate::{Part, State, pod};

/// How long a disk may take to leave, or to come, before people are told what to do: some minutes more than Kubernetes itself waits.
const LEAVES_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How it is with disks of which a part waits, in these words, that they are let go.
pub(super) fn awaited(world: &World<'_>, disks: &[&Volume], part: Part, text: String) -> State {
    state(world, disks, begun(world, part), text)
}

/// Since when a part is under way, by the last report.
pub(super) fn begun(world: &World<'_>, part: Part) -> Option<Timestamp> {
    let step = told_of(world, part).filter(|step| step.ended_at.is_none());
    step.and_then(|step| step.started_at.as_ref()).map(|since| since.0)
}

/// Since when a part is done, by the last report.
pub(super) fn ended(world: &World<'_>, part: Part) -> Option<Timestamp> {
    told_of(world, part)?.ended_at.as_ref().map(|since| since.0)
}

/// What the last report says of a part.
pub(super) fn told_of<'a>(world: &World<'a>, part: Part) -> Option<&'a StepStatus> {
    let mut steps = world.resource.status.iter().flat_map(|status| &status.steps);
    steps.find(|step| step.name == part.as_str())
}

/// The same of a disk that something holds when no machine is left.
pub(super) fn at_the_end(world: &World<'_>, volume: &Volume, part: Part) -> State {
    match disk::on_stranger(world, volume) {
        Some(text) => State::Running(text),
        None => awaited(world, &[volume], part, format!("something still holds {}", volume.id)),
    }
}

/// The same of the disk that a pod on a Node waits for, which may still be where the database was before, or come from nowhere.
pub(super) fn before_it_comes(world: &World<'_>, node: &Node) -> State {
    let text = "waiting for the volume to be attached to the machine".to_owned();
    let pod = world.observed.children.pod.as_deref().filter(|pod| workload::is_on(pod, node));
    let since = pod.and_then(placed_at);
    let is_elsewhere = |volume: &&Volume| {
        let mut others = world.observed.account.instances.iter().filter(|other| !is_of(node, other));
        others.any(|other| has(volume, other))
            || disk::is_held_elsewhere(world, volume, node.metadata.name.as_deref())
    };
    let disks: Vec<&Volume> = living(&world.observed.account.volumes).filter(is_elsewhere).collect();
    if disks.is_empty() { not_coming(world, node, since, text) } else { state(world, &disks, since, text) }
}

/// Since when a pod has its machine. It may have waited long for one that was cordoned, or had no room, and no disk is asked for before.
pub(super) fn placed_at(pod: &Pod) -> Option<Timestamp> {
    let placed = pod::condition(pod, "PodScheduled").and_then(|found| found.last_transition_time.as_ref());
    Some(placed.or(pod.metadata.creation_timestamp.as_ref())?.0)
}

/// The same of one that nothing else has. EC2 may refuse it to the machine; or somebody has taken it off there by hand, which Kubernetes
/// does not notice: by its word the machine has it, so that nobody brings it back.
fn not_coming(world: &World<'_>, node: &Node, placed: Option<Timestamp>, text: String) -> State {
    // It may have been there, and the pod be old.
    let since = placed.zip(begun(world, Part::Attachment)).map(|(placed, waits)| placed.max(waits));
    let since = since.filter(|since| is_late(world, *since));
    let disk = living(&world.observed.account.volumes).next();
    let Some((since, disk)) = since.zip(disk) else { return State::Running(text) };
    let on = node.metadata.name.as_deref().unwrap_or_default();
    let name = names::persistent_volume(disk.id.as_str());
    let mut attachments = world.observed.children.attachments.iter();
    let attachment = attachments.find(|found| {
        found.spec.source.persistent_volume_name.as_ref() == Some(&name) && found.spec.node_name == on
    });
    let look = attachment.and_then(|found| found.metadata.name.as_deref()).map_or_else(
        || {
            let (namespace, pod) = (&world.validated.subject.namespace, &world.validated.subject.name);
            format!("nobody has asked for it: see kubectl -n {namespace} describe pod {}", names::pod(pod))
        },
        |name| {
            format!(
                "see kubectl describe volumeattachment {name}, and whether the EBS CSI driver runs; if it is attached by that, somebody \
                 has taken it off in EC2: pause the database and let it run again"
            )
        },
    );
    State::Broken(format!("{text} since {since:.0}: EC2 calls {} {}; {look}", disk.id, by_ec2(disk)))
}

fn state(world: &World<'_>, disks: &[&Volume], since: Option<Timestamp>, text: String) -> State {
    let Some(since) = since.filter(|since| is_late(world, *since)) else { return State::Running(text) };
    let told: Vec<String> = disks.iter().map(|volume| told(world, volume)).collect();
    State::Broken(format!("{text} since {since:.0}: {}", told.join("; ")))
}

/// Whether what waits since then should be done by now.
pub(super) fn is_late(world: &World<'_>, since: Timestamp) -> bool {
    world.observed.at.duration_since(since) >= LEAVES_WITHIN
}

/// What EC2 says of a disk, and where it has it.
fn by_ec2(volume: &Volume) -> String {
    let held = volume.live_attachments().map(|found| format!("{} on {}", found.state, found.instance));
    held.reduce(|all, more| format!("{all}, {more}")).unwrap_or_else(|| volume.state.to_string())
}

/// Who has a disk, and what people can do.
fn told(world: &World<'_>, volume: &Volume) -> String {
    let children = &world.observed.children;
    let serving = children.pod.as_deref().and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
    let name = names::persistent_volume(volume.id.as_str());
    let is_left = |found: &&VolumeAttachment| {
        found.spec.source.persistent_volume_name.as_ref() == Some(&name)
            && Some(found.spec.node_name.as_str()) != serving
    };
    let attachments: Vec<&VolumeAttachment> =
        children.attachments.iter().map(|found| &**found).filter(is_left).collect();
    let of_kubernetes = attachments.iter().map(|found| {
        let (name, node) = (found.metadata.name.as_deref().unwrap_or_default(), &found.spec.node_name);
        format!(
            ", and VolumeAttachment {name} has it on Node {node} (see kubectl describe volumeattachment {name}, and whether the EBS CSI \
             driver runs)"
        )
    });
    let of_kubernetes: Vec<String> = of_kubernetes.collect();
    let mut machines = world.observed.account.instances.iter().filter(|instance| {
        let mut nodes = children.nodes.iter().filter(|node| is_of(node, instance));
        let node = nodes.next().and_then(|node| node.metadata.name.as_deref());
        let holds = has(volume, instance)
            || attachments.iter().any(|found| Some(found.spec.node_name.as_str()) == node);
        let runs = !instance.state.is_confirmed_down() && !instance.state.is_ending();
        holds && runs && (serving.is_none() || node != serving)
    });
    let way_out = machines.next().map_or_else(String::new, |machine| give_up(&machine.id));
    format!("EC2 calls {} {}{}{way_out}", volume.id, by_ec2(volume), of_kubernetes.concat())
}

/// How to do without a machine that does not let go: a stopped one is ended by the operator, who takes the other protection off.
fn give_up(id: &InstanceId) -> String {
    format!(
        ". QuestDB does not run on {id} any more: unmount the disk there or, to do without the machine, stop it, and the operator ends \
         it, which frees the disk: {}",
        stop(id)
    )
}

/// How people stop a machine that is protected.
pub(super) fn stop(id: &InstanceId) -> String {
    format!(
        "aws ec2 modify-instance-attribute --instance-id {id} --no-disable-api-stop && aws ec2 stop-instances --instance-ids {id}"
    )
}

fn has(volume: &Volume, instance: &Instance) -> bool {
    volume.live_attachments().any(|attachment| attachment.instance == instance.id)
}
