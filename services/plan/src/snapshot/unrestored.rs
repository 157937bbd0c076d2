//! A disk that was made from a copy, and is copied before anything is known to have been started on it.
//!
//! A copy of a database that is stopped is not restored, because what lies there as a checkpoint is an older one. Of such a disk it is
//! the very one that the data has to be put back to: without that it may be torn. So the copy says which disks QuestDB may have left
//! unrestored, and whoever makes a disk of it looks for the marker that each of them was given at its first start
//! ([`crate::build::Copied`]).
//!
//! *Invariant:* what the copy says decides nothing by itself: a report may be lost, and a process may have served without ever being
//! ready. It is said only of a disk that can have had no start without the marker, which is one that was made for the very database
//! that has it now: each of its pods begins with what writes it. A disk that came from another database or from a person may have been
//! served by what wrote none, though it is younger than the resource: a restored backup that was put in the place of one, for one.

use cloud::{Volume, key};
use resources::{QuestDB, StorageSource};

use crate::build::Copied;
use crate::planner::{has_served, is_older_than};

/// The disks that a copy of this one names by its tag `questdb.io/unrestored`, taken while nothing has it; `None` where there is nothing
/// to restore, or where it is not certain that the disk itself tells whether it was.
pub fn unrestored(resource: &QuestDB, disk: &Volume) -> Option<String> {
    let source = resource.spec.storage.source.as_ref().filter(|source| source.is_copy())?;
    let is_own = is_made_from(source, disk) && is_older_than(resource, disk) == Some(false);
    Copied::of(disk).filter(|_| is_own && !has_served(resource))?.unrestored()
}

/// Whether a disk can be what was made from the copy that a source names.
fn is_made_from(source: &StorageSource, disk: &Volume) -> bool {
    match &source.snapshot_id {
        Some(id) => disk.snapshot.as_ref() == Some(id),
        // Which copy a name meant may be known no more. Each of those says what held the database, and hands that on.
        None => disk.tags.get(key::BASIS).is_some(),
    }
}
