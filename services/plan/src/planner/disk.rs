//! The disk: made once, in the machine's zone.

use cloud::{Instance, InstanceId, Owner, Role, Volume, VolumeState, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use resources::{StepState, names};

use super::existing::Disk;
use super::machine::{generation_of, is_of, was_launched_before};
use super::source::Start;
use super::{World, held, tuning, zones};
use crate::{Part, Plan, State, Step, build};

/// How long after the launch of the machine that a new disk is for it may not show, before people are told.
const UNSHOWN: SignedDuration = SignedDuration::from_mins(15);

/// The disk, once it can be attached. How large and fast it is nobody waits for.
pub(super) fn volume<'a>(
    world: &World<'_>,
    plan: &mut Plan,
    disk: Disk<'a>,
    instance: Option<&Instance>,
) -> Option<&'a Volume> {
    let found = usable(world, plan, disk, instance);
    match found {
        Some(volume) => tuning::tune(world, plan, volume),
        None => plan.say(Part::Tuning, State::Pending),
    }
    found
}

fn usable<'a>(
    world: &World<'_>,
    plan: &mut Plan,
    disk: Disk<'a>,
    instance: Option<&Instance>,
) -> Option<&'a Volume> {
    let volume = match (disk, instance) {
        (Disk::Found(volume), _) => volume,
        (Disk::Never(_), None) => {
            plan.say(Part::Volume, State::Pending);
            return None;
        }
        (Disk::Never(start), Some(instance)) => {
            if zones::give_up(world, plan, instance) {
                return None;
            }
            let (copy, reason) = match start {
                Start::Empty => {
                    let why = "the database is new: no volume carries its tags and nothing says that there ever was one";
                    (None, why.to_owned())
                }
                Start::Copy(copy) => {
                    (Some(copy), format!("the database is new and starts with the content of {}", copy.id))
                }
            };
            let volume = build::new_volume(world.validated, &instance.zone, copy);
            plan.act(Part::Volume, Step::CreateVolume(volume), reason);
            plan.say(Part::Volume, unshown(world, instance));
            return None;
        }
    };
    mirror_generation(world, plan, volume, instance);
    match &volume.state {
        VolumeState::Creating => {
            plan.wait(Part::Volume, format!("waiting for {} to become available", volume.id));
            return None;
        }
        VolumeState::Error => {
            let text = format!("EC2 reports {} as failed: ask AWS, or restore from a snapshot", volume.id);
            plan.say(Part::Volume, State::Broken(text));
            return None;
        }
        _ => {}
    }
    plan.say(Part::Volume, State::Done);
    Some(volume)
}

/// How it is with a volume that is asked for and does not show. No other is asked for in its place, unless EC2 says that it is gone:
/// should it come late, there were two.
fn unshown(world: &World<'_>, instance: &Instance) -> State {
    let zone = &instance.zone;
    let text = format!(
        "EC2 takes the request for a volume in {zone} and shows none: most often the key that it is to be encrypted with, the \
         account's default or that of the copy, may not be used. Cure that; to this request EC2 may give the same answer for a day, so \
         delete the database and make another if it is to be there sooner"
    );
    let before = held::told_of(world, Part::Volume);
    // A request that is refused says why by itself.
    let is_refused = before.is_some_and(|step| {
        step.state == StepState::Failed && step.message.as_deref() != Some(text.as_str())
    });
    if !is_refused && was_launched_before(world, instance, UNSHOWN) {
        State::Broken(text)
    } else {
        State::Running(format!("the volume is being created in {zone}"))
    }
}

/// The disk tells which machine it goes to, before the database is pinned to that: whatever is done there is done to a disk that
/// says so, and a copy of before is known as one.
pub(super) fn goes_to(world: &World<'_>, plan: &mut Plan, volume: Option<&Volume>, node: &Node) {
    let next = world.observed.account.instances.iter().find(|instance| is_of(node, instance));
    if let Some(volume) = volume {
        mirror_generation(world, plan, volume, next);
    }
}

/// The disk tells which machine it serves, so that the number survives the loss of the cluster.
fn mirror_generation(world: &World<'_>, plan: &mut Plan, volume: &Volume, instance: Option<&Instance>) {
    let Some(generation) = instance.and_then(generation_of) else { return };
    let subject = &world.validated.subject;
    let owner = Owner { generation: Some(generation), ..subject.owner(Role::Volume) };
    let missing = owner.tags().missing_from(&volume.tags);
    let shown = volume.tags.get(key::GENERATION).and_then(|text| text.parse::<u64>().ok());
    if !missing.is_empty() && shown.is_none_or(|shown| shown < generation) {
        let step = Step::Tag { resource: volume.id.to_string(), tags: missing };
        plan.act(Part::Volume, step, format!("generation {generation} is to be known from the disk alone"));
    }
}

/// What is said of a disk that another machine has than those of the database: whoever attached it there takes it off, and nobody
/// else. Nothing of one that none has.
pub(super) fn on_stranger(world: &World<'_>, volume: &Volume) -> Option<String> {
    let machines = &world.observed.account.instances;
    let is_strange = |id: &&InstanceId| machines.iter().all(|machine| machine.id != **id);
    let machine = volume.live_attachments().map(|found| &found.instance).find(is_strange)?;
    Some(format!("{} is on {machine}, which is no machine of this database: detach it there", volume.id))
}

/// Whether an attachment of ours holds the volume on this node.
pub(super) fn is_held_on(world: &World<'_>, volume: &Volume, node: Option<&String>) -> bool {
    let name = names::persistent_volume(volume.id.as_str());
    world.observed.children.attachments.iter().any(|attachment| {
        attachment.spec.source.persistent_volume_name.as_ref() == Some(&name)
            && Some(&attachment.spec.node_name) == node
    })
}

/// Whether an attachment of ours holds the volume on another node than this one.
pub(super) fn is_held_elsewhere(world: &World<'_>, volume: &Volume, node: Option<&str>) -> bool {
    let name = names::persistent_volume(volume.id.as_str());
    world.observed.children.attachments.iter().any(|attachment| {
        attachment.spec.source.persistent_volume_name.as_ref() == Some(&name)
            && Some(attachment.spec.node_name.as_str()) != node
    })
}
