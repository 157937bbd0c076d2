//! The copy of the disk that is taken before another image is started.
//!
//! *Invariant:* while it is not known which copies there are, none is asked for and none is missed.

use jiff::{SignedDuration, Timestamp};
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase, names};
use sha2::{Digest, Sha256};

use crate::build::snapshot_order;
use crate::change::{image_of_pod, restart_in_force};
use crate::{Children, Goal, Manifest, Observed, State, Subject, Unseen, Validated};

/// How old it may be when the new image is started: what was written since is not in it.
const FRESH: SignedDuration = SignedDuration::from_mins(15);
/// Most copies that are taken for one upgrade.
const ATTEMPTS: u32 = 100;

/// How far the copy is.
pub(super) enum Standing {
    /// Nothing runs that could be copied.
    Unnamed,
    /// One of this name has to be asked for.
    Missing(String),
    /// It is under way; the text says how far.
    Waits(String),
    /// It has what the disk had a moment ago.
    Begun(String),
    /// Nobody knows for how long it cannot be seen whether there is one, which is said like this.
    Unseen(State),
    /// It will not be; the text says what to do.
    Refused(String),
}

/// Whether a copy of that time may be built on.
pub(super) fn is_fresh(then: Timestamp, now: Timestamp) -> bool {
    now.duration_since(then) <= FRESH
}

/// A copy in words.
pub(super) fn told(name: Option<&str>) -> String {
    name.map_or_else(|| "the copy of before".to_owned(), |name| format!("QuestDBSnapshot {name}"))
}

/// What the names of all copies for an upgrade begin with. They are of one process on its way to one image: an older copy lacks what
/// was written since, and whatever else of the spec is edited meanwhile asks for no other.
pub(super) struct Stems {
    /// Names of ours: what else makes it this upgrade is the restart that was asked for.
    pub(super) ours: String,
    /// Names that an older operator gave under the spec as it is now.
    pub(super) older: String,
}

/// Those of the upgrade that is asked for.
pub(super) fn stems(resource: &QuestDB, validated: &Validated, children: &Children) -> Option<Stems> {
    let pod = children.pod.as_deref()?;
    let image = image_of_pod(pod);
    if validated.goal != Goal::Serve || image.as_ref() == Some(&validated.image) {
        return None;
    }
    let uid = pod.metadata.uid.as_deref()?;
    let way = format!("{uid} {} {}", image.unwrap_or_default(), validated.image);
    // As the planner has it, for whoever looks for the copy before that.
    let restart = validated.restart_nonce.clone().or_else(|| restart_in_force(children)).unwrap_or_default();
    let generation = resource.metadata.generation.unwrap_or_default();
    let version = in_a_name(&validated.version);
    let stem = |asked: String| {
        let digest = Sha256::digest(asked);
        format!("{}-before-{version}-{}", validated.subject.name, hex::encode(&digest[..4]))
    };
    Some(Stems { ours: stem(format!("{way} restart {restart}")), older: stem(format!("{way} {generation}")) })
}

/// A version as the name of an object may have it. The tag of an image may have capitals and `_`, which Kubernetes takes in no name;
/// which version it is, the digest behind it tells.
fn in_a_name(version: &str) -> String {
    let spelt = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    version.chars().map(spelt).collect()
}

/// The names of all copies, first to last.
pub(super) fn attempts(stem: &str) -> impl Iterator<Item = String> + use<> {
    let stem = stem.to_owned();
    (1..=ATTEMPTS).map(move |attempt| if attempt == 1 { stem.clone() } else { format!("{stem}-{attempt}") })
}

/// How far the copy is that was looked at.
pub(super) fn standing(resource: &QuestDB, validated: &Validated, observed: &Observed) -> Standing {
    let Some(stems) = stems(resource, validated, &observed.children) else { return Standing::Unnamed };
    if let Some(unseen) = &observed.children.copies_unseen {
        return hidden(unseen);
    }
    let mut ours = attempts(&stems.ours);
    let found = observed.children.copy.as_deref();
    let known = found.and_then(|found| {
        let name = found.metadata.name.clone()?;
        // Up to the one that was found they are gone through. One of an older operator is followed by the first of ours.
        let is_known = attempts(&stems.older).any(|older| older == name) || ours.any(|one| one == name);
        is_known.then_some((name, found))
    });
    let Some((name, found)) = known else { return Standing::Missing(stems.ours) };
    if found.metadata.deletion_timestamp.is_some() {
        return Standing::Waits(format!(
            "QuestDBSnapshot {name} is being deleted, and is asked for again then"
        ));
    }
    if !is_of(found, validated, observed) {
        return Standing::Refused(format!(
            "QuestDBSnapshot {name} is no copy of this database's disk, and nothing is upgraded without one: delete it"
        ));
    }
    let status = found.status.as_ref();
    match status.and_then(|status| status.phase) {
        Some(SnapshotPhase::Copying | SnapshotPhase::Succeeded) => {
            match status.and_then(|status| status.started_at.as_ref()) {
                None => Standing::Waits(format!("waiting for QuestDBSnapshot {name} to say of when it is")),
                Some(then) if is_fresh(then.0, observed.at) => Standing::Begun(name),
                Some(_) => ours.next().map_or_else(|| used_up(&name), Standing::Missing),
            }
        }
        Some(SnapshotPhase::Failed) => Standing::Refused(format!(
            "the disk could not be copied, and nothing is upgraded without that: {}; delete QuestDBSnapshot {name}, or \
             change spec.restartNonce, to have it taken again",
            status.and_then(QuestDBSnapshotStatus::message).unwrap_or("its status does not say why")
        )),
        _ => Standing::Waits(format!("waiting for QuestDBSnapshot {name} to be begun")),
    }
}

/// There are as many as may be, and none was used while it was fresh.
fn used_up(last: &str) -> Standing {
    Standing::Refused(format!(
        "none of {ATTEMPTS} copies of the disk was used in time, the last one is QuestDBSnapshot {last}; change spec.restartNonce to \
         have others taken"
    ))
}

/// One that is there and cannot be seen would be taken a second time.
fn hidden(unseen: &Unseen) -> Standing {
    let unknown = |why: &str| {
        format!("nothing is upgraded without a copy of the disk, and it is not known which there are: {why}")
    };
    match unseen {
        Unseen::Yet => Standing::Waits("waiting to see which copies of the disk there are".to_owned()),
        Unseen::Broken(why) => Standing::Unseen(State::Running(unknown(why))),
        Unseen::Refused(why) => Standing::Unseen(State::Broken(unknown(why))),
    }
}

/// Whether the copy of that name is there, and is one of this database's disk.
pub(super) fn is_kept(name: &str, validated: &Validated, observed: &Observed) -> bool {
    let copy = observed.children.copy.as_deref();
    copy.filter(|copy| copy.metadata.name.as_deref() == Some(name)).is_some_and(|copy| {
        let phase = copy.status.as_ref().and_then(|status| status.phase);
        matches!(phase, Some(SnapshotPhase::Copying | SnapshotPhase::Succeeded))
            && copy.metadata.deletion_timestamp.is_none()
            && is_of(copy, validated, observed)
    })
}

/// Whether it is a copy of the disk that this database has.
fn is_of(copy: &QuestDBSnapshot, validated: &Validated, observed: &Observed) -> bool {
    let status = copy.status.as_ref();
    let database = status.and_then(|status| status.database_id.as_ref());
    let volume = status.and_then(|status| status.volume_id.as_deref());
    let is_there = |volume: &str| observed.account.volumes.iter().any(|found| found.id.as_str() == volume);
    copy.spec.database == validated.subject.name
        && database.is_none_or(|database| *database == validated.subject.database)
        && volume.is_none_or(is_there)
}

/// The order for a copy.
pub(super) fn manifest(subject: &Subject, name: &str) -> Manifest {
    snapshot_order(subject, name, (names::BEFORE_UPGRADE, &subject.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_spelt_as_a_name_may_have_it() {
        for (version, expected) in [
            ("9.3.5", "9-3-5"),
            ("9.4.0-rc1", "9-4-0-rc1"),
            ("9.4.0-SNAPSHOT", "9-4-0-snapshot"),
            ("9.4.0_1", "9-4-0-1"),
        ] {
            assert_eq!(in_a_name(version), expected);
        }
    }
}
