//! EC2 shows late what was created, or answers from the past: what it does not show is not gone yet.

use cloud::InstanceState;
use jiff::Timestamp;
use resources::{DeletionPolicy, Phase, QuestDB, RunState, names};
use serde_json::json;

use super::model::{Lost, World};
use super::{ENOUGH, Trouble, pass, settle};
use crate::fixture::{settings, validated};
use crate::{Applied, Part, State, Step, plan, status};

type Change = fn(&mut QuestDB);

/// A resource that people wrote, with a disk that goes with it.
fn plain() -> QuestDB {
    let mut plain = crate::fixture::plain();
    plain.spec.storage.deletion_policy = DeletionPolicy::Delete;
    plain
}

fn remove(resource: &mut QuestDB) {
    resource.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
}

#[test]
fn a_look_at_nothing_ends_a_database_only_when_it_is_conclusive() {
    let wishes: [(&str, Change, Phase); 4] = [
        ("pause", |wish| wish.spec.run_state = RunState::Paused, Phase::Paused),
        ("delete", |wish| wish.spec.run_state = RunState::Deleted, Phase::Deleted),
        ("purge", |wish| wish.spec.run_state = RunState::Purged, Phase::Deleted),
        ("remove", remove, Phase::Deleting),
    ];
    for (word, change, end) in wishes {
        for conclusive in [false, true] {
            let mut world = World::new(plain());
            world.resource.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
            change(&mut world.resource);
            let (wish, mut observed) = (validated(&world.resource), world.look());
            observed.account.conclusive = conclusive;
            let planned = plan(&world.resource, &wish, &observed, &settings());
            let report = status(
                &world.resource,
                &wish,
                &observed,
                (&planned, &Applied::default()),
                Timestamp::UNIX_EPOCH,
            );
            let waits = matches!(planned.state(Part::InstanceStop), Some(State::Running(text)) if text.contains("EC2"));
            let lets_go = planned.actions.iter().any(|action| action.step == Step::RemoveFinalizer);
            assert_eq!(waits, !conclusive, "{word}");
            assert_eq!(lets_go, conclusive && word == "remove", "{word}");
            assert_eq!(planned.is_settled(), conclusive && word != "remove", "{word}");
            assert_eq!(
                report.phase == Some(end),
                conclusive || word == "remove",
                "{word}: {:?}",
                report.phase
            );
        }
    }
}

#[test]
fn every_step_of_a_create_may_be_the_last_before_a_deletion_that_does_not_see_it() {
    let steps = settle(&mut World::new(plain()), None, false);
    for at in 0..steps {
        let mut world = World::new(plain());
        let (mut taken, trouble) = (0, Trouble { at, lost: Lost::Answer, crash: true });
        for _ in 0..ENOUGH {
            pass(&mut world, &mut taken, Some(trouble), false);
            if taken > at {
                break;
            }
            world.tick();
        }
        assert!(taken > at, "step {at} was not reached");
        remove(&mut world.resource);
        world.hidden = 3;
        settle(&mut world, None, false);
        assert!(world.released, "{trouble:?}");
        let ended = world.instances.iter().all(|instance| instance.state == InstanceState::Terminated);
        assert!(ended && world.groups.is_empty() && world.volumes.is_empty(), "{trouble:?}: {world:#?}");
        assert!(world.records.is_empty() && world.children.persistent_volumes.is_empty(), "{trouble:?}");
    }
}
