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

use super::{ran_last, version_of};
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
