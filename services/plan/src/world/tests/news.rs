//! What is told at once of a database that is being made: each status is a write, and whoever watches is told of it.

use std::collections::BTreeMap;

use resources::names::condition;
use resources::{Phase, QuestDBStatus};
use serde_json::{Value, json};

use super::model::World;
use super::{ENOUGH, pass, phase};
use crate::can_wait;
use crate::fixture::resource;

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
