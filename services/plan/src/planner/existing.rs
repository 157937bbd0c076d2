//! The disk that is already there. *Invariant:* a database that had a disk never gets an empty one in its place: a disk
//! that is missing is told to people.

use cloud::{Volume, VolumeState};

use super::World;
use crate::{Part, Plan, State};

/// What was found when looking for the disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Disk<'a> {
    /// There never was one.
    Never,
    /// This one.
    Found(&'a Volume),
}

impl<'a> Disk<'a> {
    pub(super) fn volume(self) -> Option<&'a Volume> {
        match self {
            Self::Never => None,
            Self::Found(volume) => Some(volume),
        }
    }
}

/// `None` when no machine must be made, because the disk is missing or there are two.
pub(super) fn volume<'a>(world: &World<'a>, plan: &mut Plan) -> Option<Disk<'a>> {
    let volumes: Vec<&Volume> = living(&world.observed.account.volumes).collect();
    match volumes.as_slice() {
        [volume] => Some(Disk::Found(volume)),
        [] => match trace_of_a_disk(world) {
            None => Some(Disk::Never),
            Some(trace) => {
                let text = format!(
                    "the disk is missing although {trace}; nothing is made in its place: find or restore the volume and tag \
                     it with the database's id, or delete the database"
                );
                plan.say(Part::Volume, State::Broken(text));
                None
            }
        },
        several => {
            let ids: Vec<&str> = several.iter().map(|volume| volume.id.as_str()).collect();
            let text = format!(
                "volumes {} all carry this database's tags: take them off all but one",
                ids.join(", ")
            );
            plan.say(Part::Volume, State::Broken(text));
            None
        }
    }
}

/// Volumes that are not on their way out.
pub(crate) fn living(volumes: &[Volume]) -> impl Iterator<Item = &Volume> {
    volumes.iter().filter(|volume| !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted))
}

/// Why there must be a disk.
fn trace_of_a_disk(world: &World<'_>) -> Option<String> {
    if world.validated.storage.provisioned {
        return Some("spec.storage.provisioned says there is one".to_owned());
    }
    let bound = world.observed.children.persistent_volumes.first();
    if let Some(name) = bound.and_then(|volume| volume.metadata.name.as_deref()) {
        return Some(format!("PersistentVolume {name} stands for it"));
    }
    let status = world.resource.status.as_ref()?.volume.as_ref()?;
    (status.state != "deleted").then(|| format!("status names {}", status.id))
}
