//! A snapshot of a database, from asked for to whole or failed: what to do next, and what to say of it.
//!
//! The order is: write down that a release is owed, CHECKPOINT CREATE, begin the EBS snapshot, see it, mark it as
//! trusted, CHECKPOINT RELEASE, see that nothing is held, strike the debt; EBS then copies by itself. A database
//! that is stopped is copied as it lies.
//!
//! *Invariant:* a copy is trusted only when what held the database still when it was begun (its **basis**, written into
//! its tags by the request that made it) was still holding it after it had begun. So neither a restart of QuestDB nor a
//! second leader nor a late request makes a torn copy pass for a whole one.
//!
//! *Invariant:* the last copy of a database that is being destroyed is begun only when no machine is left, and says of which
//! number of the disk it is: no other snapshot is taken of it then, and no checkpoint is asked for.
//!
//! *Invariant:* while a database may be held, its snapshot carries the finalizer that says so; whatever fails, the debt
//! is paid or waits for a database that answers. One that cannot be read in whole has its debt paid too, once it is overdue; that is
//! all that is done for it, and its debt stays written down.
//!
//! *Invariant:* a checkpoint that no snapshot owes the release of is somebody else's: it is told, waited for and never
//! released. So that this can be known, the debt is written down before anything is asked of QuestDB, and only while
//! nothing holds the database. One that began when nothing was asked for under the debt any more is somebody else's too, however long
//! the debt stands. Should two processes lead at once, each may strike the debt of a checkpoint that the other one has made: a process
//! that knows when the one began that it made releases that very one, debt or not ([`debt_struck()`]).
//!
//! *Invariant:* of several copies for one snapshot that one counts which was told of, else the earliest that is trusted, and none is settled
//! while others are seen. A process that had one begun looks once more when EC2 shows all, should another one have settled it by then
//! ([`surplus()`]).
//!
//! *Invariant:* a debt is not struck while a request for a checkpoint may be under way whose answer nobody heard: it would hold a database
//! that nobody owes anything.

mod asked;
mod debt;
mod decide;
mod known;
mod lost;
mod refused;
mod report;
mod surplus;
#[cfg(test)]
mod tests;
mod unrestored;

use cloud::{NewSnapshot, SnapshotId, Tags, VolumeId, VolumeSnapshot, key};
use jiff::{SignedDuration, Timestamp};
use resources::{CopyPolicy, QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase, names};

pub use debt::{Debt, debt, debt_struck, is_overdue, patience, until_late};
pub use decide::{plan, rests_on_database};
pub use known::{Checkpoint, Known, Requests};
pub use lost::{left_out, told_copy};
pub use refused::Refused;
pub use report::{looked_after, status};
pub use surplus::surplus;
pub use unrestored::unrestored;

/// Reason of condition `Ready` of a snapshot that had succeeded, and whose copy is not in EC2 any more.
pub const COPY_GONE: &str = "CopyGone";
/// Reason of condition `Ready` of one whose copy is there, and was begun before the object was made: it is no copy of now.
pub const COPY_OF_BEFORE: &str = "CopyOfBefore";
/// Reason and message of condition `Ready` of one whose copy is there, and is its own.
pub(crate) const WHOLE: (&str, &str) = ("Completed", "the copy is whole");

/// Everything that is known when a snapshot is looked at.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The database's disk and what goes on over it.
    pub ground: Ground,
    /// Snapshots in EC2 with this one's identity. Only those that were made for it count ([`is_made_for`]).
    pub copies: Vec<VolumeSnapshot>,
    /// Whether what is not among the copies does not exist (EC2 shows what was asked for only after a while).
    pub conclusive: bool,
    /// Another snapshot of the same database that comes first.
    pub before: Option<String>,
    /// What this process knows of the checkpoint that this snapshot may owe the release of.
    pub known: Known,
    /// What EC2 refused last of what was asked of it for the copy, as far as this process knows.
    pub refused: Option<Refused>,
    /// Now.
    pub now: Timestamp,
}

/// A database as far as copying its disk is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// There is no such resource.
    Absent,
    /// No process and no machine has the disk.
    Stopped {
        /// The disk.
        disk: Disk,
        /// The wish under which it is: another one has to be written before anything can have the disk again.
        wish: String,
    },
    /// QuestDB answers.
    Serving {
        /// The disk.
        disk: Disk,
        /// The checkpoint that holds it; none when nothing does.
        held: Option<Held>,
    },
    /// The database is being destroyed, and no machine is left that could have the disk.
    Ended {
        /// The disk.
        disk: Disk,
        /// The number that it carries: a higher one is written on it before any machine can have it again.
        number: u64,
    },
    /// Neither is known; what is waited for.
    Unclear(String),
}

/// A checkpoint that holds a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// When it began.
    pub since: Timestamp,
    /// How long ago that is, by the same clock.
    pub age: SignedDuration,
}

/// The disk to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The volume.
    pub volume: VolumeId,
    /// Cluster, as in every tag.
    pub cluster: String,
    /// Identity of the database.
    pub database: String,
    /// QuestDB version whose data is on it.
    pub version: String,
    /// Itself and the disks before it that are not known to have had restored what they were made from ([`unrestored()`]).
    pub unrestored: Option<String>,
}

impl Ground {
    /// What holds the disk still, in the words of a tag; none when nothing does or nobody knows.
    pub fn basis(&self) -> Option<String> {
        match self {
            Self::Stopped { wish, .. } => Some(format!("stopped:{wish}")),
            Self::Serving { held: Some(held), .. } => {
                Some(format!("checkpoint:{}", held.since.as_microsecond()))
            }
            Self::Ended { number, .. } => Some(crate::last_copy::basis(*number)),
            Self::Serving { held: None, .. } | Self::Absent | Self::Unclear(_) => None,
        }
    }

    /// The disk, where it is known.
    pub fn disk(&self) -> Option<&Disk> {
        match self {
            Self::Stopped { disk, .. } | Self::Serving { disk, .. } | Self::Ended { disk, .. } => Some(disk),
            Self::Absent | Self::Unclear(_) => None,
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put the finalizer on, and mint an identity unless there is one.
    Hold,
    /// Write down that a release is owed, unless another snapshot of the database owes one.
    Owe,
    /// CHECKPOINT CREATE.
    Checkpoint,
    /// Begin the EBS snapshot.
    Begin(NewSnapshot),
    /// Mark a copy as trusted.
    Trust(SnapshotId),
    /// CHECKPOINT RELEASE.
    Release,
    /// Strike the debt: nothing of ours holds the database.
    Strike,
    /// Destroy a copy.
    Discard(SnapshotId),
    /// Let the object go.
    LetGo,
}

impl Step {
    /// For logs, events and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hold => "Hold",
            Self::Owe => "OweRelease",
            Self::Checkpoint => "CreateCheckpoint",
            Self::Begin(_) => "CreateSnapshot",
            Self::Trust(_) => "TrustSnapshot",
            Self::Release => "ReleaseCheckpoint",
            Self::Strike => "StrikeRelease",
            Self::Discard(_) => "DeleteSnapshot",
            Self::LetGo => "RemoveFinalizer",
        }
    }

    /// Whether it cannot be undone.
    pub const fn is_destructive(&self) -> bool {
        matches!(self, Self::Discard(_) | Self::LetGo)
    }
}

/// What to do next and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The next thing to do; none when something is waited for, or nothing more will come.
    pub step: Option<Step>,
    /// How far it came.
    pub phase: SnapshotPhase,
    /// Why it is so, in a word.
    pub reason: &'static str,
    /// What is waited for, or what went wrong.
    pub message: String,
    /// The copy that counts.
    pub copy: Option<VolumeSnapshot>,
    /// Whether nothing is left to be done or waited for: the object is not looked at again until it changes.
    pub settled: bool,
}

/// The identity minted for a snapshot: it outlives the annotation by the status.
pub fn identity(resource: &QuestDBSnapshot) -> Option<&str> {
    let annotations = resource.metadata.annotations.as_ref();
    let annotated = annotations.and_then(|annotations| annotations.get(names::snapshot::IDENTITY));
    let told = resource.status.as_ref().and_then(|status| status.identity.as_ref());
    // It is a filter of a question that others share: only what we mint, whatever people write there.
    annotated.filter(|identity| crate::identity::is_uuid(identity)).or(told).map(String::as_str)
}

/// Whether a copy with these tags was made for this very object, and not for one whose manifest it is a copy of.
pub fn is_of(resource: &QuestDBSnapshot, tags: &Tags) -> bool {
    let [namespace, name] = [&resource.metadata.namespace, &resource.metadata.name].map(Option::as_deref);
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    // Taken off by others, it says nothing; the identity alone is left then.
    tags.get(key::NAMESPACE).is_none_or(|found| found == namespace)
        && tags.get(key::OBJECT).is_none_or(|found| found == name)
}

/// Whether a copy with the identity of an object is one that we had made for it. What somebody makes of such a copy has its tags too
/// (`CopySnapshot`, a backup service), and the id of no volume that means anything: so it is not the one that the request for ours
/// wrote into its tags.
pub fn is_made_for(resource: &QuestDBSnapshot, copy: &VolumeSnapshot) -> bool {
    let told = resource.status.as_ref().and_then(|status| status.snapshot_id.as_deref());
    if told == Some(copy.id.as_str()) {
        return true;
    }
    match copy.tags.get(key::VOLUME) {
        Some(volume) => volume == copy.volume.as_str(),
        // Of an operator from before that tag, or taken off. EC2 calls no volume of anybody so: `vol-ffffffff`.
        None => copy.volume.as_str().trim_start_matches("vol-").bytes().any(|digit| digit != b'f'),
    }
}

/// How much later than a copy was begun the object that had it made may seem to have been made: the clocks are two.
const CLOCKS: SignedDuration = SignedDuration::from_hours(1);

/// Whether a copy was begun long before its object was made: a backup has brought the object back. The first one may be there still,
/// in another cluster of the same name, and its copy is not destroyed with the second.
fn is_of_before(resource: &QuestDBSnapshot, copy: &VolumeSnapshot) -> bool {
    begun(copy).is_some_and(|begun| is_before(resource, begun))
}

fn is_before(resource: &QuestDBSnapshot, begun: Timestamp) -> bool {
    let made = resource.metadata.creation_timestamp.as_ref().map(|made| made.0);
    made.is_some_and(|made| made.duration_since(begun) > CLOCKS)
}

fn begun(copy: &VolumeSnapshot) -> Option<Timestamp> {
    copy.started_at.and_then(|begun| Timestamp::try_from(begun).ok())
}

/// Reason and message of condition `Ready` of one that has succeeded, and whose copy, begun then, is there. Who waits for that has asked
/// for a copy of now, and may be about to change what it holds.
fn whole(resource: &QuestDBSnapshot, begun: Option<Timestamp>) -> (&'static str, String) {
    let Some(begun) = begun.filter(|begun| is_before(resource, *begun)) else {
        return (WHOLE.0, WHOLE.1.to_owned());
    };
    // A status tells it to the second.
    let begun = begun.strftime("%Y-%m-%dT%H:%M:%SZ");
    let text = format!(
        "the copy is whole, and holds the disk as of {begun}, before this QuestDBSnapshot was made, which has the annotation {} of an \
         earlier one: a database may begin with it; for a copy of now make a QuestDBSnapshot without that annotation",
        names::snapshot::IDENTITY
    );
    (COPY_OF_BEFORE, text)
}

/// When its copy was begun, by the last report.
fn told_begun(resource: &QuestDBSnapshot) -> Option<Timestamp> {
    Some(resource.status.as_ref()?.started_at.as_ref()?.0)
}

/// What is said of copies with the identity of an object that goes which were not made for it, or before it: they are somebody's, and
/// stay.
pub fn left_to_others(resource: &QuestDBSnapshot, copies: &[VolumeSnapshot]) -> Option<String> {
    let ids = |which: &dyn Fn(&VolumeSnapshot) -> bool| {
        let ids: Vec<&str> = copies.iter().filter(|copy| which(copy)).map(|copy| copy.id.as_str()).collect();
        (!ids.is_empty()).then(|| ids.join(", "))
    };
    let destroys = resource.spec.deletion_policy == CopyPolicy::Delete;
    let others = ids(&|copy| !is_made_for(resource, copy)).map(|ids| {
        format!(
            "{ids} carries its tags and was not made for it, but by somebody of its copy: it is left as it is, for them to delete"
        )
    });
    let before = ids(&|copy| destroys && is_made_for(resource, copy) && is_of_before(resource, copy));
    let before = before.map(|ids| {
        format!(
            "{ids} was begun before it was made, so that a backup has brought it back, and another may stand for the copy: it is left as \
             it is; delete it in EC2 if nobody needs it"
        )
    });
    others.into_iter().chain(before).reduce(|all, more| format!("{all}; {more}"))
}

/// The number of the disk whose last copy a snapshot is ordered to be; `None` for any other snapshot.
pub fn last_copy_of(resource: &QuestDBSnapshot) -> Option<u64> {
    crate::last_copy::number_of_order(resource)
}

/// What is waited for before a disk can be made from a snapshot; `None` once it has succeeded.
pub fn unfinished(resource: &QuestDBSnapshot) -> Option<String> {
    let phase = resource.status.as_ref().and_then(|status| status.phase).unwrap_or(SnapshotPhase::Pending);
    let name = resource.metadata.name.as_deref().unwrap_or_default();
    if let Some(what) = crate::unread(resource) {
        return Some(format!("waiting for snapshot {name}: {what}"));
    }
    match phase {
        SnapshotPhase::Succeeded => None,
        SnapshotPhase::Failed => Some(format!(
            "snapshot {name} has failed: make another of that name in its place, or another database"
        )),
        phase => Some(format!("waiting for snapshot {name}: {}", phase.as_str())),
    }
}

/// The copy of a snapshot that has succeeded, and since when it is known to be whole where that is told.
pub fn whole_copy(resource: &QuestDBSnapshot) -> Option<(SnapshotId, Option<Timestamp>)> {
    let status = resource.status.as_ref().filter(|status| status.phase == Some(SnapshotPhase::Succeeded))?;
    let id = status.snapshot_id.as_ref()?;
    Some((SnapshotId::new(id), status.ended_at.as_ref().map(|ended| ended.0)))
}

/// Whether a snapshot that had succeeded was told to have no copy any more.
pub fn is_gone(resource: &QuestDBSnapshot) -> bool {
    is_unready_for(resource, COPY_GONE)
}

/// Whether the last report gives this reason for which it is not ready.
fn is_unready_for(resource: &QuestDBSnapshot, reason: &str) -> bool {
    let ready = resource.status.as_ref().and_then(QuestDBSnapshotStatus::ready);
    ready.is_some_and(|ready| ready.status == "False" && ready.reason == reason)
}

/// What is said of one without its copy.
fn gone_text(resource: &QuestDBSnapshot) -> String {
    let id = whole_copy(resource).map_or_else(|| "its copy".to_owned(), |(id, _)| id.to_string());
    format!(
        "EC2 does not show {id} any more: somebody destroyed it, or it lies in the Recycle Bin. It counts as no copy, and no disk can \
         be made from it: take it out of the Recycle Bin, or delete this QuestDBSnapshot and make another"
    )
}

/// Whether the database may be held for this snapshot.
pub fn owes(resource: &QuestDBSnapshot) -> bool {
    has_finalizer(resource, names::snapshot::RELEASE_OWED)
}

/// Whether EBS is copying by itself, as far as the last report knows, and the database has nothing to do with it any more.
pub fn is_copying(resource: &QuestDBSnapshot) -> bool {
    let phase = resource.status.as_ref().and_then(|status| status.phase);
    phase == Some(SnapshotPhase::Copying) && resource.metadata.deletion_timestamp.is_none() && !owes(resource)
}

fn is_held(resource: &QuestDBSnapshot) -> bool {
    has_finalizer(resource, names::snapshot::FINALIZER) && identity(resource).is_some()
}

fn has_finalizer(resource: &QuestDBSnapshot, name: &str) -> bool {
    resource.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Whether the last report says that nothing is left to be done.
pub fn is_settled(resource: &QuestDBSnapshot) -> bool {
    let Some(status) = &resource.status else { return false };
    let at_rest = status
        .conditions
        .iter()
        .any(|condition| condition.type_ == names::condition::PROGRESSING && condition.status == "False");
    at_rest
        && status.phase.is_some_and(SnapshotPhase::is_final)
        && status.observed_generation == resource.metadata.generation
        && resource.metadata.deletion_timestamp.is_none()
        && is_held(resource)
        && !owes(resource)
}

/// Of the snapshots of one database, the one that may hold it before this one may: whoever owes a release, else the
/// oldest that is not final. Everybody who looks at the same list names the same one. One that cannot be read in whole is not worked
/// on, and nobody waits for it unless it owes a release.
pub fn comes_before<'a>(
    resource: &QuestDBSnapshot,
    all: impl IntoIterator<Item = &'a QuestDBSnapshot>,
) -> Option<&'a QuestDBSnapshot> {
    fn rank(one: &QuestDBSnapshot) -> (bool, Option<Timestamp>, Option<&str>) {
        let made = one.metadata.creation_timestamp.as_ref().map(|made| made.0);
        (!owes(one), made, one.metadata.name.as_deref())
    }
    // EBS copies by itself: the database is free by then.
    let is_through = |one: &QuestDBSnapshot| {
        let phase = one.status.as_ref().and_then(|status| status.phase);
        phase.is_some_and(|phase| phase.is_final() || phase == SnapshotPhase::Copying)
    };
    let is_unread = |one: &QuestDBSnapshot| resources::unread(&one.metadata).is_some();
    let comes = |one: &QuestDBSnapshot| {
        !is_through(one) && !is_unread(one) && one.metadata.deletion_timestamp.is_none()
    };
    all.into_iter()
        .filter(|one| one.spec.database == resource.spec.database)
        .filter(|one| one.metadata.namespace == resource.metadata.namespace)
        .filter(|one| one.metadata.uid != resource.metadata.uid)
        .filter(|one| owes(one) || comes(one))
        .filter(|one| rank(one) < rank(resource))
        .min_by(|one, other| rank(one).cmp(&rank(other)))
}
