//! What the first disk is made from: nothing, a copy of another database's disk, or a disk that is there already.
//!
//! *Invariant:* whoever may write a resource in a namespace gets at no data of others by it: a copy was taken of a database of
//! the same namespace and cluster, as its tags say that only we write, or somebody who may write tags in AWS has named this
//! very resource on it.

use cloud::{Owner, Role, SnapshotState, Tags, Volume, VolumeSnapshot, VolumeState, key};
use domain::catalogue::is_downgrade;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use resources::{DeletionPolicy, QuestDB, StorageSource};

use super::World;
use super::existing::{living, trace_of_a_disk};
use crate::identity::{is_for, not_allowed};
use crate::upgrade::{too_old_by_tag, version_on};
use crate::{Goal, Observed, Part, Plan, State, Step, Subject, Unseen, Validated, build, pod};

/// What EC2 shows of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Copies that it may mean.
    Copies(Vec<VolumeSnapshot>),
    /// The snapshot of that name is still being taken, or failed: what is said of it.
    Unfinished(String),
    /// It is not known which snapshots there are.
    Unseen(Unseen),
    /// The volume of that id.
    Volume(Option<Box<Volume>>),
}

/// The source that has to be looked at before anything is made: only a database that never had a disk needs it, and one that may have
/// been left another one's.
pub fn source_to_look_at<'a>(
    resource: &QuestDB,
    validated: &'a Validated,
    observed: &Observed,
) -> Option<&'a StorageSource> {
    let source = validated.storage.source.as_ref()?;
    let looks = match living(&observed.account.volumes).next() {
        Some(disk) => is_inherited(resource, validated, observed, disk),
        None => trace_of_a_disk(resource, validated, observed).is_none(),
    };
    (validated.goal == Goal::Serve && looks).then_some(source)
}

/// Whether a disk was there before its resource, which names a copy and has started nothing so far: what a namesake left may be a copy
/// of something else.
fn is_inherited(resource: &QuestDB, validated: &Validated, observed: &Observed, disk: &Volume) -> bool {
    let storage = &validated.storage;
    let is_named = storage.source.as_ref().is_some_and(|source| source.snapshot.is_some());
    let is_older = is_older_than(resource, disk) == Some(true);
    let is_unused = !has_served(resource) && observed.children.stateful_set.is_none();
    // Of one that is known to have a disk people may have put another in its place.
    is_named && is_older && is_unused && !storage.provisioned
}

/// Whether a disk was there before its resource; `None` where either does not say when it was made.
pub(crate) fn is_older_than(resource: &QuestDB, disk: &Volume) -> Option<bool> {
    let made = resource.metadata.creation_timestamp.as_ref()?.0;
    let begun = Timestamp::try_from(disk.created_at?).ok()?;
    Some(begun < made)
}

pub(crate) fn has_served(resource: &QuestDB) -> bool {
    resource.status.as_ref().is_some_and(|status| status.version.is_some())
}

/// The disk, if it was made from a copy, which QuestDB has to restore before it serves: for this database, or for one that was there
/// before it and may have left it before anything was started on it. The source of that one is known no more; a tag that the disk was
/// made with tells of the copy, and whether it was restored is found on the disk itself. Pods begin as they began for as long as their
/// StatefulSet is there, whatever became of the report: what runs without that has taken rows since, which a restore would undo.
pub(super) fn copied(world: &World<'_>) -> Option<build::Copied> {
    let disk = living(&world.observed.account.volumes).next()?;
    let is_own = world.validated.storage.source.as_ref().is_some_and(StorageSource::is_copy);
    let set = world.observed.children.stateful_set.as_deref();
    let may_be_untouched = || set.map_or_else(|| !has_served(world.resource), restores);
    let is_inherited = disk.tags.get(key::BASIS).is_some() && may_be_untouched();
    (is_own || is_inherited).then(|| build::Copied::of(disk)).flatten()
}

/// Whether pods begin with having a copy restored.
fn restores(set: &StatefulSet) -> bool {
    let pod = set.spec.as_ref().and_then(|set| set.template.spec.as_ref());
    let mut first = pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten());
    first.any(|container| container.name == pod::RESTORE)
}

/// What a database that never had a disk starts with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a> {
    Empty,
    Copy(&'a VolumeSnapshot),
}

/// `None` while nothing must be made, which the plan tells.
pub(super) fn start<'a>(world: &World<'a>, plan: &mut Plan) -> Option<Start<'a>> {
    let Some(source) = &world.validated.storage.source else { return Some(Start::Empty) };
    let verdict = match &world.observed.account.source {
        None => Verdict::Wait("the source of the disk is being looked for".to_owned()),
        Some(Source::Copies(copies)) => copy(world, source, copies),
        Some(Source::Unfinished(text)) => Verdict::Wait(text.clone()),
        Some(Source::Unseen(unseen)) => {
            // An earlier one of that name may have left its copy, which would be taken for it.
            plan.say(Part::Volume, hidden(unseen));
            return None;
        }
        Some(Source::Volume(volume)) => adopt(world, source, volume.as_deref()),
    };
    match verdict {
        Verdict::Copy(copy) => return Some(Start::Copy(copy)),
        Verdict::Adopt(volume, missing) => {
            let step = Step::Tag { resource: volume.id.to_string(), tags: missing };
            plan.act(Part::Volume, step, "the spec names it as the database's disk, and its tag allows that");
            plan.wait(Part::Volume, format!("{} becomes the disk of this database", volume.id));
        }
        Verdict::Wait(text) => plan.wait(Part::Volume, text),
        Verdict::No(text) => plan.say(Part::Volume, State::Broken(text)),
    }
    None
}

/// Why the disk that is there is not what the spec asked to start with, or what is waited for before that is known. An operator that
/// does not know the field makes an empty one; whoever serves that would be taken for the database it was to be.
pub(super) fn missed(world: &World<'_>, volume: &Volume) -> Option<State> {
    let storage = &world.validated.storage;
    let source = storage.source.as_ref()?;
    // What has served is what people have seen and may have put right by hand.
    if has_served(world.resource) {
        return None;
    }
    let is_other = match (&source.volume_id, &source.snapshot_id) {
        (Some(id), _) => volume.id.as_str() != id,
        (None, Some(id)) if !storage.provisioned => volume.snapshot.as_ref() != Some(id),
        (None, _) if volume.snapshot.is_none() => true,
        (None, _) => match is_of_another(world, volume) {
            Ok(is_other) => is_other,
            Err(state) => return Some(state),
        },
    };
    // Whoever deletes it must not lose what another one left.
    let keep = match storage.deletion_policy {
        DeletionPolicy::Retain => "",
        DeletionPolicy::Snapshot | DeletionPolicy::Delete => {
            "; before that, set spec.storage.deletionPolicy to Retain, or that disk goes with it"
        }
    };
    is_other.then(|| {
        State::Broken(format!(
            "{} does not come from spec.storage.source, perhaps because an older operator made it, or a database of this name left \
             it: delete this database, and make it again under another name or, to go on with that disk, without a source{keep}",
            volume.id
        ))
    })
}

/// Whether a disk that a namesake left was made of another copy than those that the name means now; what is waited for before that is
/// known. Once there is none any more, nobody can tell.
fn is_of_another(world: &World<'_>, volume: &Volume) -> Result<bool, State> {
    if !is_inherited(world.resource, world.validated, world.observed, volume) {
        return Ok(false);
    }
    match &world.observed.account.source {
        Some(Source::Copies(copies)) => {
            let is_it = |copy: &VolumeSnapshot| Some(copy.id.as_str()) == volume.snapshot.as_deref();
            Ok(!copies.is_empty() && !copies.iter().any(is_it))
        }
        Some(Source::Unfinished(text)) => Err(State::Running(text.clone())),
        Some(Source::Unseen(unseen)) => Err(hidden(unseen)),
        None | Some(Source::Volume(_)) => {
            Err(State::Running("the source of the disk is being looked for".to_owned()))
        }
    }
}

enum Verdict<'a> {
    Copy(&'a VolumeSnapshot),
    /// A volume, and the tags of ours that it lacks.
    Adopt(&'a Volume, Tags),
    Wait(String),
    No(String),
}

fn hidden(unseen: &Unseen) -> State {
    let unknown = |why: &str| format!("it is not known which snapshots there are in this namespace: {why}");
    match unseen {
        Unseen::Yet => {
            State::Running("waiting to see which snapshots there are in this namespace".to_owned())
        }
        Unseen::Broken(why) => State::Running(unknown(why)),
        Unseen::Refused(why) => State::Broken(unknown(why)),
    }
}

fn copy<'a>(world: &World<'_>, source: &StorageSource, copies: &'a [VolumeSnapshot]) -> Verdict<'a> {
    let subject = &world.validated.subject;
    let by_name = source.snapshot.as_deref();
    let what = by_name
        .map_or_else(|| source.snapshot_id.clone().unwrap_or_default(), |name| format!("snapshot {name}"));
    let copy = match copies {
        [copy] => copy,
        [] => {
            let hint = if by_name.is_some() {
                "EC2 has no copy that was made for a QuestDBSnapshot of that name in this namespace"
            } else {
                "EC2 has none of that id in this account and region"
            };
            return Verdict::No(format!("{what} is not there: {hint}"));
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|copy| copy.id.as_str()).collect();
            let ids = ids.join(", ");
            return Verdict::No(format!(
                "{what} may mean {ids}: make a database with one of them as spec.storage.source.snapshotId"
            ));
        }
    };
    if !is_for(subject, &copy.tags) {
        if !is_of_namespace(subject, &copy.tags) {
            return Verdict::No(not_allowed(copy.id.as_str(), subject));
        }
        if copy.tags.get(key::CONSISTENT).is_none() {
            return Verdict::No(format!(
                "{} was begun, and never confirmed to be whole and at rest: take another snapshot",
                copy.id
            ));
        }
    }
    judge_copy(world.validated, copy)
}

fn judge_copy<'a>(validated: &Validated, copy: &'a VolumeSnapshot) -> Verdict<'a> {
    let size = validated.storage.size_gib;
    if copy.size_gib > size {
        return Verdict::No(format!(
            "{} is of a disk of {} GiB, and spec.storage.sizeGib is {size}: ask for as much at least",
            copy.id, copy.size_gib
        ));
    }
    let (old, new) = (copy.tags.get(key::QUESTDB), validated.version.as_str());
    if let Some(old) = old.filter(|old| major(old) != major(new)) {
        return Verdict::No(format!(
            "{} holds the data of QuestDB {old}, which {new} cannot restore: ask for version {}.x",
            copy.id,
            major(old)
        ));
    }
    match copy.state {
        SnapshotState::Completed => Verdict::Copy(copy),
        SnapshotState::Pending => {
            // In tens: each text is a write of the status.
            let progress = copy.progress.map(|percent| percent / 10 * 10);
            let progress = progress.map_or_else(String::new, |percent| format!(" ({percent} %)"));
            Verdict::Wait(format!("waiting for {} to be copied{progress}", copy.id))
        }
        ref other => Verdict::No(format!("EC2 reports {} as {other}: nothing can be made from it", copy.id)),
    }
}

fn adopt<'a>(world: &World<'_>, source: &StorageSource, volume: Option<&'a Volume>) -> Verdict<'a> {
    let (validated, subject) = (world.validated, &world.validated.subject);
    let Some(volume) = volume else {
        let id = source.volume_id.as_deref().unwrap_or_default();
        return Verdict::No(format!(
            "{id} is not there: EC2 has no volume of that id in this account and region"
        ));
    };
    let id = &volume.id;
    let missing = subject.owner(Role::Volume).tags().named(subject.display()).missing_from(&volume.tags);
    let owner = Owner::parse(&volume.tags);
    if let Ok(Some(owner)) = &owner
        && owner.cluster == subject.cluster
        && owner.database == subject.database
    {
        return Verdict::Wait(format!("waiting for EC2 to show {id} among what is this database's"));
    }
    if !is_for(subject, &volume.tags) {
        return Verdict::No(not_allowed(id.as_str(), subject));
    }
    // Ours on it, in part or whole, are another's: two databases would write to one disk.
    if let Some(database) = volume.tags.get(key::DATABASE) {
        return Verdict::No(format!(
            "{id} is the disk of database {database}: when that one is gone for good, take the tag {} off the volume",
            key::DATABASE
        ));
    }
    if !world.settings.zones.contains_key(&volume.zone) {
        return Verdict::No(format!("{id} is in {}, where this cluster has no machines", volume.zone));
    }
    if let Some(zone) = validated.zone.as_ref().filter(|zone| **zone != volume.zone) {
        return Verdict::No(format!("{id} is in {}, and spec.zone is {zone}", volume.zone));
    }
    if let Some(written) = version_on(volume, None)
        && is_downgrade(written, &validated.version)
    {
        return Verdict::No(format!("{id}: {}", too_old_by_tag(written, &validated.version)));
    }
    match volume.state {
        VolumeState::Available => Verdict::Adopt(volume, missing),
        VolumeState::Creating | VolumeState::InUse => {
            Verdict::Wait(format!("waiting for {id} to be free: EC2 calls it {}", volume.state))
        }
        ref other => Verdict::No(format!("EC2 calls {id} {other}: it can be nobody's disk")),
    }
}

/// Whether it was taken by us of a database of this namespace in this cluster.
fn is_of_namespace(subject: &Subject, tags: &Tags) -> bool {
    tags.get(key::CLUSTER) == Some(&subject.cluster) && tags.get(key::NAMESPACE) == Some(&subject.namespace)
}

/// QuestDB restores what another minor or patch version wrote, and nothing of another major one.
fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or(version)
}
