//! The disk tells which QuestDB may open it, before that can: whoever finds the disk alone knows which versions cannot read it.

use cloud::{Tags, Volume, key};
use domain::catalogue;
use resources::{UpgradeResult, UpgradeStatus};

use super::World;
use super::existing::{living, only};
use super::source::has_served;
use crate::change::{image_of_pod, image_of_template};
use crate::upgrade::{ONCE, has_begun, newer, says_unserved, serves_as, start_of, understates, version_of};
use crate::{Part, Plan, Step};

/// Has the version in force written on the disk, unless it is there. `starts` says that what starts it is about to be written;
/// otherwise it counts only where that is there already.
pub(super) fn note(world: &World<'_>, plan: &mut Plan, starts: bool) {
    let children = &world.observed.children;
    let (set, pod) = (children.stateful_set.as_deref(), children.pod.as_deref());
    if !starts && image_of_template(set).as_ref() != Some(&world.validated.image) {
        return;
    }
    let Some(disk) = living(&world.observed.account.volumes).next() else { return };
    // What was taken back may begin all the same, while its pod is there.
    let image = pod.and_then(image_of_pod);
    let version = newer(Some(world.validated.version.as_str()), image.as_deref().map(version_of));
    let Some(version) = version.filter(|version| catalogue::is_comparable(version)) else { return };
    let is_start = |record: &&UpgradeStatus| {
        record.result == UpgradeResult::Running && version_of(&record.to) == version
    };
    let start = world.upgrade.record.as_ref().filter(is_start).map(start_of);
    let says_start = start.as_deref().is_none_or(|start| disk.tags.get(key::START) == Some(start));
    let is_told = disk.tags.get(key::QUESTDB) == Some(version) && says_start;
    if is_told || (understates(disk, version) && !serves_as(version, disk, set, pod)) {
        return;
    }
    let tags = Tags::new().with(key::QUESTDB, version);
    let tags = start.iter().fold(tags, |tags, start| tags.with(key::START, start));
    let reason =
        format!("that QuestDB {version} may have opened {} is to be known from the disk alone", disk.id);
    plan.act(Part::Volume, Step::Tag { resource: disk.id.to_string(), tags }, reason);
}

/// Has a disk that says that QuestDB has never begun on it say that it has: from here on it may answer, whether or not anybody looks.
/// Not before the StatefulSet has what has begun: until then it is known by the disk alone that this is in force, and not what was to be
/// started in its place.
pub(super) fn note_begun(world: &World<'_>, plan: &mut Plan) {
    let children = &world.observed.children;
    let (set, pod) = (children.stateful_set.as_deref(), children.pod.as_deref());
    let has_begun = has_served(world.resource) || pod.is_some_and(has_begun);
    let is_kept = image_of_template(set).as_ref() == Some(&world.validated.image);
    let Some(disk) = unserved(world).filter(|_| has_begun && is_kept) else { return };
    let tags = Tags::new().with(key::SERVED, ONCE);
    let reason =
        format!("that QuestDB may have answered from {} is to be known from the disk alone", disk.id);
    plan.act(Part::Volume, Step::Tag { resource: disk.id.to_string(), tags }, reason);
}

/// The disk, if it says that QuestDB has never begun on it.
pub(super) fn unserved<'a>(world: &World<'a>) -> Option<&'a Volume> {
    only(living(&world.observed.account.volumes)).filter(|disk| says_unserved(disk))
}

/// Before QuestDB stops: what was said for a start that never came to be is taken back, while the version before still serves alone.
/// Afterwards nobody knows any more that nothing has begun.
pub(super) fn take_back(world: &World<'_>, plan: &mut Plan, part: Part) {
    let children = &world.observed.children;
    let (set, pod) = (children.stateful_set.as_deref(), children.pod.as_deref());
    let Some(disk) = living(&world.observed.account.volumes).next() else { return };
    let Some(image) = image_of_template(set) else { return };
    let version = version_of(&image);
    if understates(disk, version) && serves_as(version, disk, set, pod) {
        let tags = Tags::new().with(key::QUESTDB, version);
        let reason = format!("QuestDB {version} serves on {}, and no later one has begun", disk.id);
        plan.act(part, Step::Tag { resource: disk.id.to_string(), tags }, reason);
    }
}
