//! The copy that is taken before another version is started: one for one upgrade, whatever else of the spec is edited meanwhile.

use std::sync::Arc;

use jiff::SignedDuration;
use resources::UpgradeResult;
use resources::names::condition;
use sha2::{Digest as _, Sha256};

use super::super::model::World;
use super::super::operations::change;
use super::super::oracle::check_end;
use super::super::runner::settle;
use super::{is_started, last, serving, told, until, wish_for};

/// A database whose disk is about to be copied for another version.
fn copying() -> World {
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| world.snapshots.len() == 1);
    world
}

/// Settles; the version runs, after so many copies, of which the last is the one that was taken for it.
fn becomes(world: &mut World, version: &str, copies: usize) {
    settle(world, None, false);
    check_end(world, version);
    assert!(is_started(world, version), "{version}");
    let last = last(world);
    assert_eq!((last.result, world.snapshots.len()), (UpgradeResult::Succeeded, copies), "{version}");
    assert_eq!(last.snapshot, world.snapshots[copies - 1].metadata.name, "{version}");
}

#[test]
fn what_else_is_edited_while_the_disk_is_copied_asks_for_no_second_copy() {
    let mut world = copying();
    change(&mut world, |spec| spec.network.allowed_cidrs = vec!["10.9.0.0/16".to_owned()]);
    becomes(&mut world, "9.4.0", 1);
    // There and back again is another process each time.
    wish_for(&mut world, "9.3.4");
    becomes(&mut world, "9.3.4", 2);
    wish_for(&mut world, "9.4.0");
    becomes(&mut world, "9.4.0", 3);
}

#[test]
fn another_restart_is_another_attempt() {
    let mut world = copying();
    change(&mut world, |spec| spec.restart_nonce = Some("again".to_owned()));
    becomes(&mut world, "9.4.0", 2);
    // It is in force although nobody asks for it any more.
    change(&mut world, |spec| {
        spec.restart_nonce = None;
        "9.3.4".clone_into(&mut spec.version);
    });
    becomes(&mut world, "9.3.4", 3);
}

/// Another restart is asked for, as what is told says.
fn asks_again(world: &mut World) {
    let (accepted, why) = told(world, condition::CONFIG_ACCEPTED);
    assert!(accepted == "False" && why.contains("change spec.restartNonce"), "{accepted}: {why}");
    change(world, |spec| spec.restart_nonce = Some("again".to_owned()));
}

#[test]
fn another_restart_is_a_way_on_where_no_copy_came_to_be_of_use() {
    let mut world = serving();
    world.uncopied = true;
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    world.uncopied = false;
    asks_again(&mut world);
    becomes(&mut world, "9.4.0", 2);

    // All that there may be are too old.
    let mut world = copying();
    (0..4).for_each(|_| world.tick());
    let first = Arc::clone(&world.snapshots[0]);
    for attempt in 2..=100 {
        let mut next = (*first).clone();
        next.metadata.name = first.metadata.name.as_ref().map(|name| format!("{name}-{attempt}"));
        world.snapshots.push(Arc::new(next));
    }
    world.now += SignedDuration::from_mins(16);
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4") && world.snapshots.len() == 100);
    asks_again(&mut world);
    becomes(&mut world, "9.4.0", 101);
}

/// Gives the copy the name that operators of before gave it.
fn name_as_before(world: &mut World) -> String {
    let uid = world.pod_uid().unwrap();
    let generation = world.resource.metadata.generation.unwrap();
    let [from, to] = ["9.3.4", "9.4.0"].map(domain::catalogue::image_of);
    let digest = Sha256::digest(format!("{uid} {from} {to} {generation}"));
    let name = format!("trades-33445566-before-9-4-0-{}", hex::encode(&digest[..4]));
    Arc::make_mut(&mut world.snapshots[0]).metadata.name = Some(name.clone());
    name
}

#[test]
fn a_copy_that_an_older_operator_asked_for_is_used_while_it_is_made_and_once_it_is() {
    for ticks in 0..4 {
        let mut world = copying();
        let name = name_as_before(&mut world);
        for _ in 0..ticks {
            world.tick();
        }
        becomes(&mut world, "9.4.0", 1);
        assert_eq!(last(&world).snapshot, Some(name), "{ticks}");
    }
    // One that is too old by now is followed by one of ours.
    let mut world = copying();
    let name = name_as_before(&mut world);
    for _ in 0..4 {
        world.tick();
    }
    world.now += SignedDuration::from_mins(16);
    becomes(&mut world, "9.4.0", 2);
    assert!(!last(&world).snapshot.unwrap().starts_with(&name));
}
