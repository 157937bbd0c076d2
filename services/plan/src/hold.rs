//! What holds a resource while anything of its database is there: the finalizer. Without it a deletion waits for nothing, and nobody
//! would look for machine and disk any more.

use resources::{Phase, QuestDB, names};

use crate::{Goal, is_believed, is_judged};

/// Whether a resource has our finalizer.
pub fn is_held(resource: &QuestDB) -> bool {
    resource.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER)
}

/// Whether a resource that something was made for could be deleted at once. Nobody may put a finalizer on what is being deleted:
/// who deletes a resource first and takes it off then is not overruled.
pub fn lost_its_hold(resource: &QuestDB) -> bool {
    let stays = resource.metadata.deletion_timestamp.is_none();
    stays && !is_held(resource) && was_made(resource) && !is_destroyed(resource)
}

/// Whether a machine or a disk was made, or asked for: the generation of a machine is written before that, and a report tells of it
/// only later. Who copies a resource elsewhere takes the annotation along, and not the status: without an identity in it, the
/// annotation tells of what another resource has.
fn was_made(resource: &QuestDB) -> bool {
    let status = resource.status.as_ref();
    let is_told = status.is_some_and(|status| status.volume.is_some() || status.node.is_some());
    let annotations = resource.metadata.annotations.as_ref();
    let is_asked_for = annotations.is_some_and(|found| found.contains_key(names::GENERATION));
    is_told || is_asked_for && is_believed(resource)
}

/// Whether the last report says that nothing is left, as this very spec asks for: the annotation stays for good, and so does the disk
/// in the status.
fn is_destroyed(resource: &QuestDB) -> bool {
    let phase = resource.status.as_ref().and_then(|status| status.phase);
    Goal::of(resource) == Goal::Purge && phase == Some(Phase::Deleted) && is_judged(resource)
}

#[cfg(test)]
mod tests {
    use resources::{NodeStatus, QuestDBStatus, RunState, VolumeStatus};
    use serde_json::json;

    use super::*;
    use crate::fixture::{DATABASE, plain, resource};

    /// With the generation of a machine written down.
    fn asked_for(mut resource: QuestDB) -> QuestDB {
        let annotations = resource.metadata.annotations.get_or_insert_default();
        annotations.insert(names::GENERATION.to_owned(), "1".to_owned());
        resource
    }

    /// With something else in its status.
    fn told(mut resource: QuestDB, change: impl FnOnce(&mut QuestDBStatus)) -> QuestDB {
        change(resource.status.get_or_insert_default());
        resource
    }

    fn disk(state: &str) -> VolumeStatus {
        VolumeStatus { id: "vol-1".to_owned(), size_gib: 50, state: state.to_owned() }
    }

    #[test]
    fn what_was_made_or_asked_for_is_to_be_held() {
        assert!(!lost_its_hold(&plain()), "nothing was made for it");
        let made = [
            asked_for(plain()),
            asked_for(told(resource(1), |status| status.database_id = Some(DATABASE.to_owned()))),
            told(plain(), |status| status.volume = Some(disk("creating"))),
            told(plain(), |status| status.node = Some(NodeStatus::default())),
        ];
        for mut resource in made {
            assert!(lost_its_hold(&resource), "{resource:?}");
            resource.metadata.finalizers = Some(vec!["other".to_owned()]);
            assert!(lost_its_hold(&resource), "held by somebody else alone: {resource:?}");
            resource.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
            assert!(!lost_its_hold(&resource), "held: {resource:?}");
            resource.metadata.finalizers = None;
            resource.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            assert!(!lost_its_hold(&resource), "nobody may hold it any more: {resource:?}");
        }
    }

    #[test]
    fn a_copy_of_a_resource_is_not_held_for_the_machine_of_the_first() {
        let copied = told(plain(), |status| status.database_id = None);
        for resource in [copied, resource(1)] {
            assert!(!lost_its_hold(&asked_for(resource.clone())), "{resource:?}");
        }
    }

    #[test]
    fn what_was_destroyed_is_let_go_until_something_else_is_asked_for() {
        let told_of = |status: &mut QuestDBStatus| {
            status.phase = Some(Phase::Deleted);
            status.observed_generation = Some(1);
            status.volume = Some(disk("deleted"));
        };
        let mut gone = asked_for(told(plain(), told_of));
        gone.spec.run_state = RunState::Purged;
        assert!(!lost_its_hold(&gone), "nothing is left");
        let deleting = told(gone.clone(), |status| status.phase = Some(Phase::Deleting));
        assert!(lost_its_hold(&deleting), "something is left");
        let mut retired = gone.clone();
        retired.spec.run_state = RunState::Deleted;
        assert!(lost_its_hold(&retired), "its disk stays");
        gone.metadata.generation = Some(2);
        assert!(lost_its_hold(&gone), "no report is of this spec");
    }
}
