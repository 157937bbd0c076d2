//! A disk that somebody brought, with QuestDB's tables at its top: whoever had it before mounted it as the folder of tables alone, as the
//! questdb-operator once did. QuestDB would begin in a folder beside them as a new database, and answer. So its pod does not begin, and
//! people are told what is to be moved where. The operator moves nothing: what else lies there it does not know.

use k8s_openapi::api::core::v1::Pod;

use super::World;
use super::existing::{living, only};
use crate::build::USER;
use crate::{Part, Plan, State, pod};

/// Whether a pod does not begin for that, which is told.
pub(super) fn holds_up(world: &World<'_>, plan: &mut Plan, pod: &Pod) -> bool {
    let refuses = pod::preparing(pod).any(pod::finds_tables_elsewhere);
    let Some(disk) = only(living(&world.observed.account.volumes)).filter(|_| refuses) else {
        return false;
    };
    plan.say(Part::Pod, State::Broken(refused(disk.id.as_str())));
    true
}

fn refused(disk: &str) -> String {
    format!(
        "QuestDB's tables lie at the top of {disk}, where they are when a disk is mounted as the folder of tables alone, and QuestDB looks \
         for them in its folder db: it is not started, because it would begin as a new database beside them. Pause the database, attach \
         the disk to a machine of yours, move all that lies at its top into a folder db there that belongs to user {USER}, detach it, and \
         let the database run again"
    )
}
