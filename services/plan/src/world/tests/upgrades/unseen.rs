//! A cache of pods that stands still while another version begins, and the database is to stop before anybody sees it. No older version is
//! started for that on what it has written.

use std::sync::Arc;

use resources::{RunState, UpgradeResult};

use super::super::blind::Blind;
use super::super::model::World;
use super::super::operations::change;
use super::super::runner::{ENOUGH, pass, settle};
use super::forward::{open, taken_back_and_still_there};
use super::{broken, image, is_started, last, runs, serving, until, wish_for};
use crate::{Kind, Plan, Step};

/// A database of which nobody has seen how its other version began.
type Begun = fn() -> World;

/// From here on the pod is shown as it is now.
fn stand_still(world: &mut World) {
    let pod = Arc::clone(world.children.pod.as_ref().unwrap());
    (world.blind, world.blind_to) = (usize::MAX, Blind::PodSince(pod));
}

/// 10.0.0 has begun in the place of 9.3.4, and nobody was told.
fn begun_unseen(ends: bool) -> World {
    let mut world = serving();
    if ends {
        world.broken = broken("10.0.0");
    }
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| image(world).ends_with("10.0.0"));
    assert!(runs(&world).unwrap().ends_with("9.3.4"));
    stand_still(&mut world);
    until(&mut world, |world| is_started(world, "10.0.0"));
    world.tick();
    world
}

/// It was taken back because its image was not to be had, which it is at last.
fn begun_after_it_was_taken_back() -> World {
    let mut world = taken_back_and_still_there();
    stand_still(&mut world);
    world.unpulled.clear();
    world.tick();
    open(&mut world);
    world
}

fn deletes_the_set(plan: &Plan) -> bool {
    let is_set = |step: &Step| matches!(step, Step::Delete(target) if target.kind == Kind::StatefulSet);
    plan.actions.iter().any(|action| is_set(&action.step))
}

#[test]
fn what_has_begun_unseen_is_not_forgotten_when_the_database_stops() {
    let ways: [(&str, Begun); 3] = [
        ("it serves", || begun_unseen(false)),
        ("it ends again and again", || begun_unseen(true)),
        ("it was taken back", begun_after_it_was_taken_back),
    ];
    for (what, begun) in ways {
        let mut world = begun();
        let pod = world.pod_uid();
        change(&mut world, |spec| spec.run_state = RunState::Paused);
        let mut tried = 0;
        for _ in 0..20 {
            tried += usize::from(deletes_the_set(&pass(&mut world, &mut 0, None, false)));
            world.tick();
        }
        assert!(tried > 0, "{what}: it was not about to be stopped");
        assert!(world.children.stateful_set.is_some() && world.pod_uid() == pod, "{what}");

        world.blind = 0;
        settle(&mut world, None, false);
        assert!(world.children.stateful_set.is_none() && world.pod_uid().is_none(), "{what}");
        assert_ne!(last(&world).result, UpgradeResult::RolledBack, "{what}");
        change(&mut world, |spec| spec.run_state = RunState::Running);
        for _ in 0..ENOUGH {
            pass(&mut world, &mut 0, None, false);
            world.tick();
            assert!(runs(&world).is_none_or(|image| image.ends_with("10.0.0")), "{what}: on its data");
        }
        assert!(is_started(&world, "10.0.0"), "{what}");
    }
}
