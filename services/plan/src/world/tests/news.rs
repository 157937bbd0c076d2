//! What is told at once of a database that is being made: each status is a write, and whoever watches is told of it.

use std::collections::BTreeMap;

use resources::names::condition;
use resources::{Phase, QuestDBStatus};
use serde_json::{Value, json};

use super::model::World;
use super::runner::settle_after;
use super::{ENOUGH, Trouble, check_serving, pass, phase, troubles};
use crate::fixture::resource;
use crate::{can_wait, only_begins};

/// What a status says that is more than how far the database is. Since when, and in which words, is not.
fn told(status: &QuestDBStatus) -> Value {
    let disk = status.volume.as_ref().map(|volume| (volume.id.as_str(), volume.size_gib));
    let conditions = status.conditions.iter().filter(|found| found.type_ != condition::NODE_HEALTHY);
    let conditions: BTreeMap<&str, &str> =
        conditions.map(|found| (found.type_.as_str(), found.status.as_str())).collect();
    json!({
        "disk": disk, "version": status.version, "name": status.dns, "endpoints": status.endpoints,
        "pending": status.pending, "upgrade": status.last_upgrade, "conditions": conditions,
    })
}

#[test]
fn of_a_new_database_its_disk_its_version_and_its_name_are_told_at_once_and_what_it_waits_for_is_not() {
    let (mut world, mut taken) = (World::new(resource(1)), 0);
    let (mut news, mut words) = (0, 0);
    for _ in 0..ENOUGH {
        let before = world.resource.status.clone();
        pass(&mut world, &mut taken, None, false);
        world.tick();
        let after = world.resource.status.clone().unwrap();
        if after.phase == Some(Phase::Ready) {
            break;
        }
        assert_eq!(after.phase, Some(Phase::Provisioning));
        let Some(before) = before.filter(|before| *before != after) else { continue };
        let waits = can_wait(&before, &after);
        assert_eq!(waits, told(&before) == told(&after), "{before:?} {after:?}");
        news += usize::from(!waits);
        words += usize::from(waits);
    }
    assert_eq!(phase(&world), Some(Phase::Ready));
    assert!((2..=4).contains(&news) && words > 2, "{news} at once, and {words} that wait");
}

/// Passes over a new database whose first status is kept back for as long as it may be; how many of them there were, and how many steps
/// they took.
fn unsaid(world: &mut World, trouble: Option<Trouble>) -> (usize, usize) {
    let mut taken = 0;
    for passes in 1..ENOUGH {
        pass(world, &mut taken, trouble, false);
        world.resource.status = world.resource.status.take().filter(|first| !only_begins(first));
        world.tick();
        if world.resource.status.is_some() {
            return (passes, taken);
        }
    }
    panic!("nothing was said of it after {ENOUGH} passes ({trouble:?})");
}

#[test]
fn a_database_of_which_nothing_was_said_before_its_disk_is_made_whatever_goes_wrong() {
    let mut world = World::new(resource(1));
    let (passes, taken) = unsaid(&mut world, None);
    assert!(passes > 2, "{passes}");
    assert!(world.resource.status.as_ref().is_some_and(|first| first.volume.is_some()), "{passes}");
    let steps = settle_after(&mut world, taken, None, false);
    check_serving(&world, None);
    for trouble in troubles(steps) {
        let mut world = World::new(resource(1));
        let (_, taken) = unsaid(&mut world, Some(trouble));
        settle_after(&mut world, taken, Some(trouble), false);
        check_serving(&world, Some(trouble));
    }
}
