//! The disk that is already there. *Invariant:* a database that had a disk never gets an empty one in its place: a disk
//! that is missing is told to people.

use cloud::{Volume, key};
use resources::QuestDB;

use super::World;
use super::credentials::is_left_alone;
use super::source::{self, Start};
use crate::{Observed, Part, Plan, State, Validated, offered_to};

/// Why a volume that somebody makes of a copy does not belong in the place of a disk.
pub(super) const UNRESTORED: &str =
    "on a volume that is only made of its copy QuestDB restores nothing, and rows may be torn";

/// What was found when looking for the disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Disk<'a> {
    /// There never was one: it starts with this.
    Never(Start<'a>),
    /// This one.
    Found(&'a Volume),
}

impl<'a> Disk<'a> {
    pub(super) fn volume(self) -> Option<&'a Volume> {
        match self {
            Self::Never(_) => None,
            Self::Found(volume) => Some(volume),
        }
    }
}

/// `None` when no machine must be made: the disk is missing, there are two, or what it is to be made from cannot be had.
pub(super) fn volume<'a>(world: &World<'a>, plan: &mut Plan) -> Option<Disk<'a>> {
    let volumes: Vec<&Volume> = living(&world.observed.account.volumes).collect();
    match volumes.as_slice() {
        [volume] => {
            if let Some(state) = source::missed(world, volume) {
                plan.say(Part::Volume, state);
                return None;
            }
            Some(Disk::Found(volume))
        }
        [] => match trace_of_a_disk(world.resource, world.validated, world.observed) {
            None => source::start(world, plan).map(Disk::Never),
            Some(trace) => {
                let text = format!(
                    "the disk is missing although {trace}; nothing is made in its place: find or restore the volume and tag \
                     it with the database's id, or delete the database; of a snapshot make another database \
                     (spec.storage.source): {UNRESTORED}"
                );
                plan.say(Part::Volume, State::Broken(text));
                None
            }
        },
        volumes => {
            let text = format!("{}: take them off all but one", carry_its_tags(volumes));
            plan.say(Part::Volume, State::Broken(text));
            None
        }
    }
}

/// Whether what EC2 does not show is not there; what is waited for is told of a part.
pub(super) fn is_all_shown(world: &World<'_>, plan: &mut Plan, part: Part) -> bool {
    let account = &world.observed.account;
    if let Some(text) = &account.elsewhere {
        plan.say(part, State::Broken(text.clone()));
        return false;
    }
    if !account.conclusive {
        plan.wait(part, "waiting until EC2 is sure to show everything that was asked for");
    }
    account.conclusive
}

/// Volumes that are not on their way out.
pub(crate) fn living(volumes: &[Volume]) -> impl Iterator<Item = &Volume> {
    volumes.iter().filter(|volume| !volume.state.is_ending())
}

/// What there is, where that is one.
pub(super) fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// Why nothing is destroyed while several volumes carry the tags of a database.
pub(super) fn several(volumes: &[&Volume]) -> String {
    format!("{}, and none is destroyed: take the tags off all but one", carry_its_tags(volumes))
}

fn carry_its_tags(volumes: &[&Volume]) -> String {
    let ids: Vec<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    format!("volumes {} all carry this database's tags", ids.join(", "))
}

/// Why no disk of a database can be destroyed: several carry its tags, and no report says which of them it had.
pub(super) fn undecided(world: &World<'_>) -> Option<String> {
    let volumes: Vec<&Volume> = living(&world.observed.account.volumes).collect();
    (volumes.len() > 1 && disk_reported(world.resource).is_none()).then(|| several(&volumes))
}

/// The id of the disk that a database has, or had, by its last report.
pub fn disk_reported(resource: &QuestDB) -> Option<&str> {
    Some(resource.status.as_ref()?.volume.as_ref()?.id.as_str())
}

/// Why a volume with the tags of a database is not the disk that it had, by the last report. Who restores a backup may have its
/// tags restored with it: no order to destroy the one was given for the other.
pub(super) fn another(world: &World<'_>, volume: &Volume) -> Option<String> {
    let known = disk_reported(world.resource)?;
    (volume.id.as_str() != known).then(|| {
        format!(
            "{} carries this database's tags, and its disk is {known}, so it is not destroyed: to keep it, take the tag {} off it; \
             else destroy it by hand",
            volume.id,
            key::DATABASE
        )
    })
}

/// Why a volume with the tags of a database stays although its end is asked for: it is not its disk, or is given to another one.
pub(super) fn spared(world: &World<'_>, volume: &Volume) -> Option<String> {
    let offered = || {
        let named = offered_to(&world.validated.subject, &volume.tags)?;
        let (id, key) = (&volume.id, key::FOR);
        Some(format!(
            "{id} is offered to {named} by its tag {key}, so it is not destroyed: to keep it, take its tag {} off; else take off {key}",
            key::DATABASE
        ))
    };
    another(world, volume).or_else(offered)
}

/// Why there must be a disk.
pub(super) fn trace_of_a_disk(
    resource: &QuestDB,
    validated: &Validated,
    observed: &Observed,
) -> Option<String> {
    if validated.storage.provisioned {
        return Some("spec.storage.provisioned says there is one".to_owned());
    }
    let bound = observed.children.persistent_volumes.first();
    if let Some(name) = bound.and_then(|volume| volume.metadata.name.as_deref()) {
        return Some(format!("PersistentVolume {name} stands for it"));
    }
    if let Some(volume) = resource.status.as_ref().and_then(|status| status.volume.as_ref()) {
        let became = match volume.state.as_str() {
            "creating" => ", which was being created: EC2 gives up one whose key may not be used",
            // Whoever asked for that and turned round too late is told so.
            "deleted" => ", which was destroyed",
            _ => "",
        };
        return Some(format!("status names {}{became}", volume.id));
    }
    // The resource before it went, and left both.
    let uid = &validated.subject.uid;
    let kept = observed.children.secret.as_deref().filter(|secret| is_left_alone(secret, uid));
    let name = kept?.metadata.name.as_deref().unwrap_or_default();
    Some(format!("Secret {name} was kept beside it (without that, it begins anew with an empty disk)"))
}
