//! EC2 shows late what was created, or answers from the past: what it does not show is not gone yet.

use cloud::InstanceState;
use jiff::{SignedDuration, Timestamp};
use resources::names::condition;
use resources::{DeletionPolicy, Phase, QuestDB, RunState, names};
use serde_json::json;

use super::model::{Lost, World};
use super::oracle::check_end;
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

/// As where the key that it is to be encrypted with may not be used: EC2 takes the request, and gives the volume up.
#[test]
fn a_volume_that_is_asked_for_and_never_shows_is_told() {
    let mut world = World::new(plain());
    world.clock = SignedDuration::from_mins(1);
    let mut late = 0;
    for number in 0..30 {
        pass(&mut world, &mut 0, None, false);
        world.volumes.clear();
        let launched = world.instances.first().and_then(|found| found.launched_at);
        let launched = launched.map(|launched| Timestamp::try_from(launched).unwrap());
        let is_late = launched
            .is_some_and(|launched| world.now.duration_since(launched) >= SignedDuration::from_mins(15));
        late += usize::from(is_late);
        let mut conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
        let is_told = conditions.any(|found| {
            found.type_ == condition::DEGRADED && found.status == "True" && found.message.contains("the key")
        });
        assert_eq!(is_told, is_late, "after {number} minutes: {:#?}", world.resource.status);
        world.tick();
    }
    assert!((8..20).contains(&late) && world.instances.len() == 1, "{late}");
    settle(&mut world, None, false);
    check_end(&world, "it came in the end");
}

#[test]
fn a_disk_that_was_given_up_while_it_was_made_is_told_as_that() {
    let mut world = World::new(plain());
    for _ in 0..ENOUGH {
        pass(&mut world, &mut 0, None, false);
        let status = world.resource.status.as_mut().unwrap();
        if let Some(volume) = &mut status.volume {
            "creating".clone_into(&mut volume.state);
            break;
        }
        world.tick();
    }
    world.volumes.clear();
    world.children.persistent_volumes.clear();
    let planned = plan(&world.resource, &validated(&world.resource), &world.look(), &settings());
    let told = planned.state(Part::Volume);
    assert!(matches!(told, Some(State::Broken(text)) if text.contains("was being created")), "{told:?}");
    assert!(!planned.actions.iter().any(|action| matches!(action.step, Step::CreateVolume(_))));
}
