//! A disk that does not leave a machine where QuestDB runs no more: after a while people are told who has it, and the way out. Nobody
//! takes it by force: what a machine still writes would be lost.

use cloud::{Instance, InstanceId, Volume};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use resources::names;

use super::existing::living;
use super::machine::is_of;
use super::{World, disk, workload};
use crate::{Part, State};

/// How long a disk may take to leave before people are told what to do: some minutes more than Kubernetes itself waits.
const LEAVES_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How it is with disks of which a part waits, in these words, that they are let go.
pub(super) fn awaited(world: &World<'_>, disks: &[&Volume], part: Part, text: String) -> State {
    let mut steps = world.resource.status.iter().flat_map(|status| &status.steps);
    let step = steps.find(|step| step.name == part.as_str() && step.ended_at.is_none());
    let since = step.and_then(|step| step.started_at.as_ref()).map(|since| since.0);
    state(world, disks, since, text)
}

/// The same of a disk that something holds when no machine is left.
pub(super) fn at_the_end(world: &World<'_>, volume: &Volume, part: Part) -> State {
    match disk::on_stranger(world, volume) {
        Some(text) => State::Running(text),
        None => awaited(world, &[volume], part, format!("something still holds {}", volume.id)),
    }
}

/// The same of the disk that a pod on a Node waits for, which may still be where the database was before.
pub(super) fn before_it_comes(world: &World<'_>, node: &Node) -> State {
    let text = "waiting for the volume to be attached to the machine".to_owned();
    let pod = world.observed.children.pod.as_deref().filter(|pod| workload::is_on(pod, node));
    let since = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref()).map(|made| made.0);
    let is_elsewhere = |volume: &&Volume| {
        let mut others = world.observed.account.instances.iter().filter(|other| !is_of(node, other));
        others.any(|other| has(volume, other))
            || disk::is_held_elsewhere(world, volume, node.metadata.name.as_deref())
    };
    let disks: Vec<&Volume> = living(&world.observed.account.volumes).filter(is_elsewhere).collect();
    state(world, &disks, since.filter(|_| !disks.is_empty()), text)
}

fn state(world: &World<'_>, disks: &[&Volume], since: Option<Timestamp>, text: String) -> State {
    let is_late = |since: &Timestamp| world.observed.at.duration_since(*since) >= LEAVES_WITHIN;
    let Some(since) = since.filter(is_late) else { return State::Running(text) };
    let told: Vec<String> = disks.iter().map(|volume| told(world, volume)).collect();
    State::Broken(format!("{text} since {since:.0}: {}", told.join("; ")))
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
    let of_ec2 = volume.live_attachments().map(|found| format!("{} on {}", found.state, found.instance));
    let of_ec2 = of_ec2.reduce(|all, more| format!("{all}, {more}"));
    let of_ec2 = of_ec2.unwrap_or_else(|| volume.state.to_string());
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
    format!("EC2 calls {} {of_ec2}{}{way_out}", volume.id, of_kubernetes.concat())
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
