//! There is a way forward for what does not serve any more, and none back to an image that cannot read what was written.

use std::sync::Arc;

use jiff::SignedDuration;
use resources::names::condition;
use resources::{UpgradeResult, UpgradeStatus, names};

use super::super::model::World;
use super::super::operations::change;
use super::super::oracle::check_end;
use super::super::runner::{ENOUGH, pass, settle};
use super::{broken, image, is_started, last, runs, serving, told, told_of_upgrade, until, wish_for};
use crate::Kind;

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
    }
}

/// An image is taken back, and the one of before does not start either.
fn neither_starts() -> World {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    world.broken.extend(broken("9.3.4"));
    until(&mut world, |world| is_started(world, "9.3.4"));
    passes(&mut world, 10);
    assert!(is_started(&world, "9.3.4") && told(&world, "Ready").0 == "False");
    assert!(last(&world).result == UpgradeResult::RolledBack && last(&world).complete);
    world
}

#[test]
fn what_does_not_serve_any_more_is_started_as_another_from_the_copy_of_before() {
    let mut world = neither_starts();
    let copy = world.snapshots[0].metadata.name.clone();
    wish_for(&mut world, "9.4.1");
    settle(&mut world, None, false);
    check_end(&world, "another version");
    assert!(is_started(&world, "9.4.1") && world.snapshots.len() == 1, "{:?}", world.snapshots);
    assert_eq!((last(&world).result, last(&world).snapshot), (UpgradeResult::Succeeded, copy));

    let mut world = neither_starts();
    let nonce = |nonce: &'static str| {
        move |spec: &mut resources::QuestDBSpec| spec.restart_nonce = Some(nonce.to_owned())
    };
    for attempt in ["second", "third"] {
        change(&mut world, nonce(attempt));
        until(&mut world, |world| is_started(world, "9.4.0"));
        until(&mut world, |world| is_started(world, "9.3.4"));
        passes(&mut world, 5);
    }
    world.broken = broken("9.3.4");
    change(&mut world, nonce("fourth"));
    settle(&mut world, None, false);
    check_end(&world, "another attempt");
    assert!(is_started(&world, "9.4.0") && world.snapshots.len() == 1);
}

/// An image is taken back, and the one of before is not to be had any more, as where it comes from another repository by now.
fn one_is_not_to_be_had() -> World {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    world.unpulled = broken("9.3.4");
    until(&mut world, |world| is_started(world, "9.3.4"));
    world.clock = SignedDuration::from_mins(1);
    passes(&mut world, 15);
    assert!(is_started(&world, "9.3.4") && told(&world, "Ready").0 == "False");
    assert!(last(&world).result == UpgradeResult::RolledBack && last(&world).complete);
    world
}

#[test]
fn what_is_not_to_be_had_any_more_is_told_and_followed_by_another_from_the_copy_of_before() {
    let world = one_is_not_to_be_had();
    let copy = world.snapshots[0].metadata.name.clone();
    let check = |version: &str, ask: fn(&mut World)| {
        let mut world = world.clone();
        ask(&mut world);
        settle(&mut world, None, false);
        check_end(&world, version);
        assert!(is_started(&world, version) && world.snapshots.len() == 1, "{:?}", world.snapshots);
        assert_eq!((last(&world).result, &last(&world).snapshot), (UpgradeResult::Succeeded, &copy));
    };
    check("9.4.1", |world| wish_for(world, "9.4.1"));
    check("9.4.0", |world| {
        world.broken.clear();
        change(world, |spec| spec.restart_nonce = Some("again".to_owned()));
    });

    // Who gives up is told that what is in force does not start, and what is left to be done.
    let mut world = world;
    wish_for(&mut world, "9.3.4");
    passes(&mut world, 3);
    let (degraded, text) = told(&world, condition::DEGRADED);
    assert!(degraded == "True" && text.contains("does not start: its image cannot be had"), "{text}");
    assert!(text.contains("ask for another version") && text.contains(copy.as_deref().unwrap()), "{text}");
    world.unpulled.clear();
    settle(&mut world, None, false);
    check_end(&world, "it can be had again");
    assert!(is_started(&world, "9.3.4"));
}

#[test]
fn a_copy_that_lacks_something_or_is_gone_is_not_started_from() {
    let check = |world: &mut World, what: &str| {
        wish_for(world, "9.4.1");
        passes(world, 20);
        assert!(is_started(world, "9.3.4"), "{what}");
        assert!(told_of_upgrade(world).contains("has to serve"), "{what}: {}", told_of_upgrade(world));
    };
    let mut world = neither_starts();
    world.snapshots.clear();
    check(&mut world, "it is gone");

    let mut world = neither_starts();
    Arc::make_mut(&mut world.snapshots[0]).status.as_mut().unwrap().volume_id =
        Some("vol-of-others".to_owned());
    check(&mut world, "of another disk");

    // What was put back has served, even for a moment, in a pod that is there no more.
    let mut world = neither_starts();
    world.broken = broken("9.4.0");
    until(&mut world, |world| told(world, "Ready").0 == "True");
    passes(&mut world, 2);
    assert!(!last(&world).complete);
    world.broken = [broken("9.4.0"), broken("9.3.4")].concat();
    world.children.pod = None;
    passes(&mut world, 5);
    check(&mut world, "it served since");

    // A first start that goes on is not cut short.
    let mut world = neither_starts();
    let starts = |world: &mut World| {
        let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
        let status = serde_json::json!({
            "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "False" }],
            "containerStatuses": [{ "name": "questdb", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": { "running": {} } }],
        });
        pod.status = serde_json::from_value(status).unwrap();
    };
    wish_for(&mut world, "9.4.1");
    starts(&mut world);
    for _ in 0..5 {
        pass(&mut world, &mut 0, None, false);
    }
    assert!(image(&world).ends_with("9.3.4"), "it is being started");
}

/// That it was taken back is written before it is said, and what says it may be lost.
#[test]
fn a_report_that_is_lost_takes_nothing_from_the_copy() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    world.broken.extend(broken("9.3.4"));
    for _ in 0..ENOUGH {
        let before = world.resource.status.clone();
        pass(&mut world, &mut 0, None, false);
        if written(&world).result == UpgradeResult::RolledBack {
            world.resource.status = before;
            break;
        }
        world.tick();
    }
    assert!(written(&world).complete && last(&world).result == UpgradeResult::Running, "the report was lost");
    passes(&mut world, 10);
    assert!(is_started(&world, "9.3.4") && last(&world).result == UpgradeResult::RolledBack);
    assert!(last(&world).complete && last(&world).put_back == world.pod_uid());
    wish_for(&mut world, "9.4.1");
    settle(&mut world, None, false);
    check_end(&world, "another version");
    assert!(is_started(&world, "9.4.1") && world.snapshots.len() == 1);
}

/// The upgrade as the StatefulSet has it written down.
fn written(world: &World) -> UpgradeStatus {
    let set = world.children.stateful_set.as_ref().unwrap();
    let text = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::UPGRADE));
    text.map_or_else(|| last(world), |text| serde_json::from_str(text).unwrap())
}

/// A pod that takes the place of the one that was put back may follow one that served while nobody looked.
#[test]
fn what_another_pod_did_meanwhile_is_not_known_of_the_one_that_is_there() {
    let mut world = neither_starts();
    let seen = last(&world).put_back;
    assert!(seen.is_some() && seen == world.pod_uid());
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.uid = Some("another".to_owned());
    passes(&mut world, 3);
    assert!(!last(&world).complete);
    wish_for(&mut world, "9.4.1");
    passes(&mut world, 20);
    assert!(is_started(&world, "9.3.4"));
    assert!(told_of_upgrade(&world).contains("has to serve"), "{}", told_of_upgrade(&world));

    // One that is restarted for its wish is ended as it was seen, and says as much as the one before.
    let mut world = neither_starts();
    change(&mut world, |spec| {
        spec.config.insert("cairo.other".to_owned(), "1".to_owned());
    });
    let before = world.pod_uid();
    until(&mut world, |world| world.pod_uid().is_some() && world.pod_uid() != before);
    passes(&mut world, 10);
    assert!(last(&world).complete && last(&world).put_back == world.pod_uid());
    wish_for(&mut world, "9.4.1");
    settle(&mut world, None, false);
    check_end(&world, "another version");
    assert!(is_started(&world, "9.4.1") && world.snapshots.len() == 1);
}

/// In which pod it was put back is written before it is said, too.
#[test]
fn a_report_that_is_lost_makes_no_other_pod_the_one_that_was_put_back() {
    let mut world = neither_starts();
    assert!(world.pod_uid().is_some() && written(&world).put_back == world.pod_uid());
    let report = world.resource.status.as_mut().unwrap().last_upgrade.as_mut().unwrap();
    report.put_back = None;
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.uid = Some("another".to_owned());
    passes(&mut world, 3);
    assert!(!last(&world).complete, "the one before may have served");
    wish_for(&mut world, "9.4.1");
    passes(&mut world, 20);
    assert!(is_started(&world, "9.3.4"));
}

/// A major version that has begun does not start.
fn stuck_at_10() -> World {
    let mut world = serving();
    world.broken = broken("10.0.0");
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| told_of_upgrade(world).contains("does not start"));
    world
}

fn check_stuck(world: &World, version: &str) {
    let copy = world.snapshots[0].metadata.name.as_deref().unwrap();
    let text = told_of_upgrade(world);
    assert!(text.contains(&format!("{version} does not start")) && text.contains(copy), "{text}");
    assert!(is_started(world, version) && world.snapshots.len() == 1, "{version}");
}

#[test]
fn what_may_not_go_back_goes_forward_as_often_as_it_takes() {
    let mut world = stuck_at_10();
    world.broken.extend(broken("10.0.1"));
    wish_for(&mut world, "10.0.1");
    until(&mut world, |world| told_of_upgrade(world).contains("10.0.1 does not start"));
    check_stuck(&world, "10.0.1");
    assert_eq!((last(&world).from.as_str(), last(&world).begun), ("questdb/questdb:9.3.4", true));
    wish_for(&mut world, "9.3.4");
    passes(&mut world, 10);
    check_stuck(&world, "10.0.1");
    wish_for(&mut world, "10.0.2");
    settle(&mut world, None, false);
    check_end(&world, "the third");
    assert!(is_started(&world, "10.0.2") && last(&world).result == UpgradeResult::Succeeded);
}

#[test]
fn who_takes_the_way_forward_back_before_it_begins_may_take_it_again() {
    let mut world = stuck_at_10();
    wish_for(&mut world, "10.0.1");
    until(&mut world, |world| image(world).ends_with("10.0.1"));
    world.unpulled = broken("10.0.1");
    wish_for(&mut world, "10.0.0");
    world.clock = SignedDuration::from_mins(1);
    passes(&mut world, 30);
    check_stuck(&world, "10.0.0");
    wish_for(&mut world, "10.0.2");
    settle(&mut world, None, false);
    check_end(&world, "forward after all");
    assert!(is_started(&world, "10.0.2"));
}

/// A major version whose image could not be had is taken back, and its pod cannot be stopped yet.
pub(super) fn taken_back_and_still_there() -> World {
    let mut world = serving();
    world.unpulled = broken("10.0.0");
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| is_started(world, "10.0.0"));
    world.clock = SignedDuration::from_mins(1);
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
    world.full.machines = vec![world.instances[0].zone.clone()];
    until(&mut world, |world| image(world).ends_with("9.3.4"));
    passes(&mut world, 3);
    assert!(runs(&world).unwrap().ends_with("10.0.0"), "its deletion waits");
    assert_eq!((last(&world).result, last(&world).begun), (UpgradeResult::RolledBack, false));
    world
}

pub(super) fn open(world: &mut World) {
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = None;
    world.full.machines.clear();
    world.memory.resting.clear();
}

#[test]
fn a_major_version_that_begins_after_it_was_taken_back_stays() {
    for (wish, writes) in [("10.0.0", true), ("9.3.4", true), ("10.0.0", false)] {
        let mut world = taken_back_and_still_there();
        wish_for(&mut world, wish);
        // It is pulled at last, and does not serve.
        world.unpulled.clear();
        world.broken = broken("10.0.0");
        world.tick();
        if !writes {
            // That it has begun is only reported, and then its pod is gone.
            world.read_only_for = Some(Kind::StatefulSet);
            passes(&mut world, 2);
            assert!(image(&world).ends_with("9.3.4") && last(&world).begun);
            world.children.pod = None;
            world.children.stateful_set.as_ref().unwrap();
            pass(&mut world, &mut 0, None, false);
            world.read_only_for = None;
            pass(&mut world, &mut 0, None, false);
        }
        open(&mut world);
        for _ in 0..20 {
            passes(&mut world, 1);
            assert!(
                runs(&world).is_none_or(|image| image.ends_with("10.0.0")),
                "{wish}: on the data of another"
            );
        }
        assert!(is_started(&world, "10.0.0") && last(&world).result == UpgradeResult::Running, "{wish}");
        assert!(last(&world).begun && told_of_upgrade(&world).contains("does not start"), "{wish}");
        world.broken.clear();
        wish_for(&mut world, "10.0.0");
        settle(&mut world, None, false);
        check_end(&world, "it serves");
        assert_eq!(last(&world).result, UpgradeResult::Succeeded, "{wish}");
    }
}

#[test]
fn what_was_taken_back_and_has_not_begun_goes_back() {
    let mut world = taken_back_and_still_there();
    open(&mut world);
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4") && told(&world, "Ready").0 == "True");
    assert!(told(&world, condition::CONFIG_ACCEPTED).1.contains("ErrImagePull"));
}
