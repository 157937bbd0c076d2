//! The disk: made once, in the machine's zone; grown in place.

use cloud::{
    Instance, InstanceId, ModificationState, Owner, Role, Volume, VolumeChange, VolumeModification,
    VolumeState, key,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use resources::{QuestDB, StepState, names};

use super::existing::Disk;
use super::machine::{generation_of, is_of, was_launched_before};
use super::source::Start;
use super::{World, zones};
use crate::report::resizing;
use crate::{Account, Children, Goal, Observed, Part, Plan, State, Step, Validated, build};

/// The resource of disks and claims whose quantity is a size.
const STORAGE: &str = "storage";
/// Bytes of a GiB.
const GIB: u64 = 1 << 30;
/// After the beginning of a change that EC2 gave up, how long the same is not asked for again: EC2 takes few changes of a disk in a
/// day, and counts this one.
const GIVEN_UP: SignedDuration = SignedDuration::from_hours(1);
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
        Some(volume) => tune(world, plan, volume),
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

/// How it is with a volume that is asked for and does not show. No other is asked for in its place: should it come late, there were
/// two.
fn unshown(world: &World<'_>, instance: &Instance) -> State {
    let zone = &instance.zone;
    let text = format!(
        "EC2 takes the request for a volume in {zone} and shows none: most often the key that it is to be encrypted with, the \
         account's default or that of the copy, may not be used. Cure that; to this request EC2 may give the same answer for a day, so \
         delete the database and make another if it is to be there sooner"
    );
    let mut steps = world.resource.status.iter().flat_map(|status| &status.steps);
    let before = steps.find(|step| step.name == Part::Volume.as_str());
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

/// Whether the state of the volume's last modification decides anything now, or is being told.
pub fn modification_must_be_read(resource: &QuestDB, validated: &Validated, observed: &Observed) -> bool {
    if validated.goal != Goal::Serve {
        return false;
    }
    let decides = |volume: &Volume| {
        let known = persistent_volume_of(&observed.children, volume).and_then(capacity_of);
        !change(validated, volume).is_empty() || known.is_some_and(|size| size < gibibytes(volume.size_gib))
    };
    resizing::is_change_told(resource.status.as_ref())
        || super::existing::living(&observed.account.volumes).any(decides)
}

/// The `PersistentVolume` of a volume.
pub(super) fn persistent_volume_of<'a>(
    children: &'a Children,
    volume: &Volume,
) -> Option<&'a PersistentVolume> {
    let name = names::persistent_volume(volume.id.as_str());
    let mut all = children.persistent_volumes.iter().map(|found| &**found);
    all.find(|found| found.metadata.name.as_ref() == Some(&name))
}

fn capacity_of(found: &PersistentVolume) -> Option<u64> {
    bytes(found.spec.as_ref()?.capacity.as_ref()?.get(STORAGE)?)
}

/// How large the file system is, by the claim's status: the binder writes there what the disk has at first, the kubelet what it
/// grew the file system to. `None` while the claim is not bound.
fn file_system(children: &Children) -> Option<u64> {
    bytes(children.claim.as_deref()?.status.as_ref()?.capacity.as_ref()?.get(STORAGE)?)
}

/// What is waited for while the disk is larger than its file system.
fn ungrown(world: &World<'_>, volume: &Volume) -> Option<String> {
    let found = file_system(&world.observed.children)?;
    (found < gibibytes(volume.size_gib)).then(|| {
        format!(
            "{} has {} GiB, its file system {}: the kubelet of the machine grows it while the pod runs, and says so in the \
             status of claim {}",
            volume.id,
            volume.size_gib,
            found / GIB,
            names::claim(&world.validated.subject.name)
        )
    })
}

/// A size as Kubernetes writes it; `None` for what is none.
fn bytes(quantity: &Quantity) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", GIB), ("Ti", GIB << 10)];
    let text = quantity.0.as_str();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

const fn gibibytes(gib: u32) -> u64 {
    gib as u64 * GIB
}

/// The last change of this volume, where it was read.
pub(super) fn modification_of<'a>(account: &'a Account, volume: &Volume) -> Option<&'a VolumeModification> {
    account.modification.as_ref().filter(|found| found.volume == volume.id)
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

/// What EC2 does with a disk because of its last change, as far as it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// It changes the disk, or does not show yet that it has.
    Changing,
    /// The disk is as asked for, and EC2 still moves what lies on it, for up to a day.
    Optimizing,
    /// The same, and something else is asked for by now, which it takes only afterwards.
    Holding,
    /// It gave up what is asked for, which is asked for again later.
    GivenUp,
    /// It was asked and does not tell, so that nothing is changed.
    Untold,
}

/// What EC2 does with the disk that the database has.
pub fn work(validated: &Validated, observed: &Observed) -> Work {
    let volume = super::existing::living(&observed.account.volumes).next();
    volume.map_or(Work::Nothing, |volume| work_on(validated, observed, volume))
}

fn work_on(validated: &Validated, observed: &Observed, volume: &Volume) -> Work {
    if observed.account.modification_untold.is_some() {
        return Work::Untold;
    }
    let Some(modification) = modification_of(&observed.account, volume) else { return Work::Nothing };
    let change = change(validated, volume);
    match &modification.state {
        ModificationState::Modifying | ModificationState::Unknown(_) => Work::Changing,
        ModificationState::Optimizing if change.is_empty() => Work::Optimizing,
        // The volume was looked at before its modification.
        ModificationState::Optimizing if modification.leads_to(&change) => Work::Changing,
        ModificationState::Optimizing => Work::Holding,
        ModificationState::Failed if rests_until(modification, &change, observed.at).is_some() => {
            Work::GivenUp
        }
        ModificationState::Completed | ModificationState::Failed => Work::Nothing,
    }
}

/// Until when a change that EC2 gave up is not asked for again; nothing where something else is asked for by now.
fn rests_until(
    modification: &VolumeModification,
    change: &VolumeChange,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_same = !change.is_empty() && modification.leads_to(change);
    let begun = modification.started_at.filter(|_| is_same)?;
    let until = Timestamp::try_from(begun).ok()?.checked_add(GIVEN_UP).ok()?;
    (now < until).then_some(until)
}

/// What EC2 says of a change that it gave up.
fn given_up(modification: Option<&VolumeModification>) -> String {
    let given_up = modification.filter(|found| found.state == ModificationState::Failed);
    given_up.map_or_else(String::new, |found| {
        let words = found.message.as_deref().unwrap_or("it does not say why");
        format!("; EC2 gave up the last change: {words}")
    })
}

/// How far EC2 is with the last change of the disk, in tens: each text is a write of the status.
pub(crate) fn progress(account: &Account) -> String {
    let percent = account.modification.as_ref().and_then(|modification| modification.progress);
    percent.map_or_else(String::new, |percent| format!(", {} % done", percent / 10 * 10))
}

fn tune(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
    let account = &world.observed.account;
    let change = change(world.validated, volume);
    let modification = modification_of(account, volume);
    let (id, progress) = (&volume.id, progress(account));
    match work_on(world.validated, world.observed, volume) {
        Work::Changing if modification.is_none_or(|found| found.leads_to(&change)) => {
            plan.wait(Part::Tuning, format!("EC2 is changing {id}{progress}"));
        }
        Work::Changing => {
            plan.wait(Part::Tuning, format!("EC2 is still working on the last change of {id}{progress}"));
        }
        Work::Holding => {
            let wish = words(&change);
            let text = format!(
                "{id} is to have {wish} as soon as EC2 has optimized it after its last change{progress}: it takes no other before"
            );
            plan.wait(Part::Tuning, text);
        }
        Work::GivenUp => {
            let until = modification.and_then(|found| rests_until(found, &change, world.observed.at));
            let until = until.map_or_else(String::new, |until| format!("; tried again after {until}"));
            let text = format!("{id} is to have {}{}{until}", words(&change), given_up(modification));
            plan.wait(Part::Tuning, text);
        }
        Work::Untold if change.is_empty() && ungrown(world, volume).is_none() => {
            // Nobody waits for what is left of it.
            plan.say(Part::Tuning, State::Done);
        }
        Work::Untold => {
            let why = account.modification_untold.as_deref().unwrap_or_default();
            let text = format!("how far EC2 is with the last change of {id} is not known: {why}");
            plan.wait(Part::Tuning, text);
        }
        Work::Nothing if !change.is_empty() => {
            let given_up = given_up(modification);
            let reason = format!("{id} is not as large or as fast as asked for{given_up}");
            let text = format!("{id} is to have {}{given_up}", words(&change));
            plan.act(Part::Tuning, Step::ModifyVolume { volume: id.clone(), change }, reason);
            plan.wait(Part::Tuning, text);
        }
        Work::Nothing | Work::Optimizing => match ungrown(world, volume) {
            Some(text) => plan.wait(Part::Tuning, text),
            None => plan.say(Part::Tuning, State::Done),
        },
    }
}

/// A change for people.
fn words(change: &VolumeChange) -> String {
    let VolumeChange { size_gib, kind, iops, throughput } = change;
    let words = [
        size_gib.map(|size| format!("{size} GiB")),
        kind.as_ref().map(|kind| format!("type {kind}")),
        iops.map(|iops| format!("{iops} IOPS")),
        throughput.map(|throughput| format!("{throughput} MiB/s")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What is left to change of a volume.
pub(crate) fn change(validated: &Validated, volume: &Volume) -> VolumeChange {
    let storage = &validated.storage;
    let (kind, throughput) = build::kind_of(storage);
    let differs = |found: Option<u32>| found.is_some() && found != throughput;
    // A type is asked for with all that it has: EC2 would choose the rest, and take the next change only hours later.
    let becomes = volume.kind != kind;
    VolumeChange {
        // Never smaller: what EC2 has is the floor.
        size_gib: (volume.size_gib < storage.size_gib).then_some(storage.size_gib),
        kind: becomes.then_some(kind),
        iops: (becomes || volume.iops.is_some_and(|iops| iops != storage.iops)).then_some(storage.iops),
        throughput: throughput.filter(|_| becomes || differs(volume.throughput)),
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
