//! A key of server.conf that is misspelt is left out, and nothing else waits for it: what runs is not restarted for it, and what ended is
//! healed without it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use resources::names::condition;
use resources::{ChangeMeans, Phase};

use super::model::World;
use super::operations::{change, end_machine};
use super::{check_serving, pass, phase, serving, settle};

const MISSPELT: &str = "shared.worker.coutn";
const MEANT: &str = "shared.worker.count";

/// A database that serves, and is asked for with a key that its QuestDB does not know.
fn asked() -> World {
    let mut world = serving();
    world.listed = Some(Arc::new(BTreeSet::from([MEANT.to_owned()])));
    change(&mut world, |spec| {
        spec.config.insert(MISSPELT.to_owned(), "2".to_owned());
    });
    world
}

/// Whether the next pod would be started with it.
fn has_key(world: &World) -> bool {
    let children = &world.children;
    let set = serde_json::to_string(&children.stateful_set.as_deref()).unwrap();
    let config = serde_json::to_string(&children.config.as_deref()).unwrap();
    set.contains(MISSPELT) || config.contains(MISSPELT)
}

/// Whether a condition is so, and the reason.
fn told<'a>(world: &'a World, kind: &str) -> (&'a str, &'a str) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (found.status.as_str(), found.reason.as_str())
}

fn check_left_out(world: &World) {
    assert!(!has_key(world), "the next pod would not start");
    assert_eq!(phase(world), Some(Phase::Degraded));
    assert_eq!(told(world, condition::READY), ("True", "Serving"));
    assert_eq!(told(world, condition::CONFIG_ACCEPTED), ("False", "KeyUnknown"));
    assert_eq!(told(world, condition::PROGRESSING), ("False", "Config"));
    let pending = &world.resource.status.as_ref().unwrap().pending;
    let fields: Vec<_> = pending.iter().map(|found| (found.field.as_str(), found.means)).collect();
    assert_eq!(fields, [("/spec/config/shared.worker.coutn", ChangeMeans::Refused)]);
}

#[test]
fn nobody_is_restarted_for_it_and_all_else_is_carried_out() {
    let mut world = asked();
    let before = world.pod_uid();
    settle(&mut world, None, false);
    check_left_out(&world);
    assert_eq!(world.pod_uid(), before);
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    settle(&mut world, None, false);
    check_left_out(&world);
    let restarted = world.pod_uid();
    assert_ne!(restarted, before);
    change(&mut world, |spec| {
        let value = spec.config.remove(MISSPELT).unwrap();
        spec.config.insert(MEANT.to_owned(), value);
    });
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_ne!(world.pod_uid(), restarted);
}

#[test]
fn a_machine_that_ended_is_followed_by_another_without_it_whoever_looks_after_the_database_by_then() {
    for is_another in [false, true] {
        let mut world = asked();
        settle(&mut world, None, false);
        end_machine(&mut world, 0);
        if is_another {
            // It knows nothing, and there is nobody to be asked.
            world.listed = None;
        }
        pass(&mut world, &mut 0, None, false);
        let (ready, reason) = told(&world, condition::READY);
        assert!(ready == "False" && reason != "Config", "a machine is what it lacks: {reason}");
        settle(&mut world, None, false);
        check_left_out(&world);
        assert_eq!(world.instances.len(), 2, "{is_another}");
    }
}

#[test]
fn a_version_that_knows_it_is_given_it() {
    let mut world = asked();
    world.clock = SignedDuration::from_secs(10);
    settle(&mut world, None, false);
    change(&mut world, |spec| "9.4.0".clone_into(&mut spec.version));
    settle(&mut world, None, false);
    check_left_out(&world);
    let listed = [MEANT, MISSPELT].map(str::to_owned);
    world.listed = Some(Arc::new(listed.into()));
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert!(has_key(&world));
}
