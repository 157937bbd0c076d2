//! What a disk says, by its tag, of the QuestDB that may have opened it: known when nothing else is left of a database.
//!
//! *Invariant:* it never says an older major version than one that has opened the disk. It is written before another version
//! can open it, so that a crash in between only says too much; and an older one than it says only while that serves on the disk
//! and nothing starts another ([`serves_as`]). What it was said for is said beside it: a start that was taken back before it had
//! begun explains what was said for it, and for no other ([`is_of_given_up`]).
//!
//! Of a version that cannot be compared ([`catalogue::is_comparable`]) nothing is written, and such a tag says nothing.

use cloud::{Volume, key};
use domain::catalogue;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use resources::{QuestDB, UpgradeResult, UpgradeStatus};

use super::{Look, ran_last, version_of};
use crate::change::{image_of_pod, image_of_template};
use crate::pod_serves;

/// The version that a disk carries.
pub(crate) fn version_of_disk(disk: &Volume) -> Option<&str> {
    disk.tags.get(key::QUESTDB).filter(|version| catalogue::is_comparable(version))
}

/// The first of two versions that may both have written, or the other where that is of a later major one.
pub(crate) fn newer<'a>(first: Option<&'a str>, other: Option<&'a str>) -> Option<&'a str> {
    match (first, other) {
        (Some(first), Some(other)) if catalogue::is_downgrade(other, first) => Some(other),
        _ => first.or(other),
    }
}

/// The version that may have opened the disk of a database at rest, as far as its report tells.
pub(crate) fn reported_version(resource: &QuestDB) -> Option<&str> {
    let status = resource.status.as_ref()?;
    let started = status.last_upgrade.as_ref().map(|record| version_of(ran_last(record)));
    newer(started, status.version.as_deref()).filter(|version| catalogue::is_comparable(version))
}

/// The version whose data a disk holds, by what was reported and by what the disk says.
pub fn version_on<'a>(disk: &'a Volume, reported: Option<&'a str>) -> Option<&'a str> {
    newer(reported, version_of_disk(disk))
}

/// Whether a disk that carries this version from now on says less than it does.
pub fn understates(disk: &Volume, version: &str) -> bool {
    version_of_disk(disk).is_some_and(|shown| catalogue::is_downgrade(shown, version))
}

/// What is said to who asks for a version that cannot read the data, where nothing but the tag of the disk tells that there is such.
pub(crate) fn too_old_by_tag(written: &str, wished: &str) -> String {
    format!(
        "QuestDB {wished} cannot read what {written} may have written, of which tag {} of the disk alone tells: ask for {written} or a \
         later one; whoever knows that {written} has never begun on it takes that tag off while nothing runs",
        key::QUESTDB
    )
}

impl Look<'_> {
    /// Whether nothing but the tag of the disk tells of a version whose data the one that is asked for may not read: the tag was written
    /// before that could begin, and nothing that would have started it may have been.
    pub(super) fn is_told_by_tag_alone(&self) -> bool {
        let children = &self.observed.children;
        let template = image_of_template(children.stateful_set.as_deref());
        let pod = children.pod.as_deref().and_then(image_of_pod);
        let record = self.record().map(|record| ran_last(&record).to_owned());
        let images = [template, pod, record].into_iter().flatten();
        let reported = self.resource.status.as_ref().and_then(|status| status.version.clone());
        let mut told = images.map(|image| version_of(&image).to_owned()).chain(reported);
        !told.any(|told| catalogue::is_downgrade(&told, &self.validated.version))
    }
}

/// How a disk says which start of another version its own is said for.
pub(crate) fn start_of(record: &UpgradeStatus) -> String {
    record.started_at.0.as_second().to_string()
}

/// Whether a disk says what it does for this start alone, which was taken back: one of another major version is so only before it
/// has begun.
pub(super) fn is_of_given_up(disk: &Volume, record: &UpgradeStatus) -> bool {
    record.result == UpgradeResult::RolledBack
        && disk.tags.get(key::QUESTDB) == Some(version_of(&record.to))
        && disk.tags.get(key::START) == Some(start_of(record).as_str())
}

/// Whether QuestDB of this version serves on the disk, and nothing starts another: then no other has opened it since, for an older
/// one could not serve on what that wrote. The word of a pod counts only while EC2 has the disk on a machine.
pub fn serves_as(version: &str, disk: &Volume, set: Option<&StatefulSet>, pod: Option<&Pod>) -> bool {
    let is = |image: Option<String>| image.is_some_and(|image| version_of(&image) == version);
    let serves = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && pod_serves(pod);
    disk.live_attachments().next().is_some()
        && is(image_of_template(set))
        && pod.is_some_and(|pod| serves(pod) && is(image_of_pod(pod)))
}
