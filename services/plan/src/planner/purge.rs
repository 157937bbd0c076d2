//! The end of a disk, which nothing brings back.
//!
//! *Invariant:* no other disk is destroyed than the one that the database is reported to have had, whatever its tags say; one of
//! which no report tells is reported first, and of several none is, nor destroyed.

use cloud::{Volume, VolumeState};
use resources::names;

use super::{World, existing, held, last_copy, teardown};
use crate::{Part, Plan, State, Step};

/// Whether nothing is left to destroy.
pub(super) fn plan(world: &World<'_>, plan: &mut Plan) -> bool {
    if let Some(text) = existing::undecided(world) {
        plan.say(Part::VolumeRemoval, State::Broken(text));
        return false;
    }
    let mut gone = true;
    for volume in &world.observed.account.volumes {
        match (&volume.state, existing::spared(world, volume)) {
            (VolumeState::Deleted, _) => continue,
            (VolumeState::Deleting, _) => {
                plan.wait(Part::VolumeRemoval, format!("waiting for the end of {}", volume.id));
            }
            (_, Some(text)) => plan.say(Part::VolumeRemoval, State::Broken(text)),
            _ if teardown::is_held(world, volume) => {
                plan.say(Part::VolumeRemoval, held::at_the_end(world, volume, Part::VolumeRemoval));
            }
            _ if teardown::is_mistagged(world, volume) => {
                plan.wait(Part::VolumeRemoval, format!("{} is being tagged again", volume.id));
            }
            _ if existing::disk_reported(world.resource).is_none() => {
                let text = format!("that {} is the disk is being written down", volume.id);
                plan.wait(Part::VolumeRemoval, text);
            }
            _ => destroy(world, plan, volume),
        }
        gone = false;
    }
    gone
}

/// *Invariant:* of a database that keeps a last copy no disk is destroyed without the proof that there is one of that very disk.
fn destroy(world: &World<'_>, plan: &mut Plan, volume: &Volume) {
    let (copy, reason) = match last_copy::proven(world, volume) {
        Some(copy) => {
            let told = last_copy::told(copy);
            (Some(copy.id.clone()), format!("nothing holds the disk, and {told} keeps what it holds"))
        }
        None if world.validated.keeps_copy() => {
            let text = format!("{} is not destroyed before a last copy of it is complete", volume.id);
            return plan.wait(Part::VolumeRemoval, text);
        }
        None => (None, "the database is purged and nothing holds its disk".to_owned()),
    };
    let persistent_volume = names::persistent_volume(volume.id.as_str());
    let step = Step::DeleteVolume { volume: volume.id.clone(), copy, persistent_volume };
    plan.act(Part::VolumeRemoval, step, reason);
    plan.wait(Part::VolumeRemoval, format!("{} is being destroyed", volume.id));
}
