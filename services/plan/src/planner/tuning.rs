//! How large and fast the disk is, and its file system: changed in place, while the database goes on.

use cloud::{ModificationState, Volume, VolumeChange, VolumeModification};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use resources::{QuestDB, names};

use super::World;
use crate::report::resizing;
use crate::{Account, Children, Goal, Observed, Part, Plan, State, Step, Validated, build};

/// The resource of disks and claims whose quantity is a size.
const STORAGE: &str = "storage";
/// Bytes of a GiB.
const GIB: u64 = 1 << 30;
/// After the beginning of a change that EC2 gave up, how long the same is not asked for again: EC2 takes few changes of a disk in a
/// day, and counts this one.
const GIVEN_UP: SignedDuration = SignedDuration::from_hours(1);

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

/// Makes the disk what is asked for. Nobody waits for it.
pub(super) fn tune(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
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

/// What a change makes of the disk: a field of `spec.storage`, and its value in words.
pub(crate) fn told(change: &VolumeChange) -> impl Iterator<Item = (&'static str, String)> {
    let VolumeChange { size_gib, kind, iops, throughput } = change;
    let fields = [
        ("sizeGib", size_gib.map(|size| format!("{size} GiB"))),
        ("type", kind.as_ref().map(|kind| format!("type {kind}"))),
        ("iops", iops.map(|iops| format!("{iops} IOPS"))),
        ("throughput", throughput.map(|throughput| format!("{throughput} MiB/s"))),
    ];
    fields.into_iter().filter_map(|(field, words)| Some((field, words?)))
}

/// A change for people.
fn words(change: &VolumeChange) -> String {
    told(change).map(|(_, words)| words).collect::<Vec<_>>().join(", ")
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
