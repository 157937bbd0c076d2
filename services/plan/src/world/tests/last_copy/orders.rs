//! Orders for last copies: which copy of several counts, what is told of those that failed, and what of all when nobody remembers.

use std::sync::Arc;

use cloud::SnapshotId;
use jiff::SignedDuration;

use super::{copied, destroys, passes, said};
use crate::world::tests::ends::purge_with_copy;
use crate::world::tests::{serving, settle};

#[test]
fn what_failed_to_the_end_is_told_with_why_and_since_when_and_what_to_do() {
    let mut world = serving();
    world.spoilt = usize::MAX;
    purge_with_copy(&mut world);
    world.clock = SignedDuration::from_mins(2);
    let mut orders = 0;
    for _ in 0..100 * 60 {
        passes(&mut world, 1);
        orders = world.snapshots.len();
        let (_, reason, message) = said(&world);
        if reason == "Failed" {
            for expected in ["failed at 19", "EC2 could not finish the copy", "by hand"] {
                assert!(message.contains(expected), "{expected}: {message}");
            }
        }
        if orders == 100 && reason == "Failed" {
            break;
        }
    }
    assert_eq!(orders, 100);
    passes(&mut world, 20);
    let (_, reason, message) = said(&world);
    let expected = [
        "all 100 QuestDBSnapshots from trades-33445566-last to trades-33445566-last-100 were used",
        "QuestDBSnapshot trades-33445566-last-100 failed at 19",
        "EC2 could not finish the copy",
        "delete all of these, trades-33445566-last, trades-33445566-last-2 … trades-33445566-last-100",
        "by hand",
    ];
    assert_eq!(reason, "Failed");
    for text in expected {
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(!message.contains("another one is asked for after"), "{message}");
    assert!(!message.contains('*'), "no name has one, and a prefix is that of others too: {message}");
    assert_eq!((world.snapshots.len(), world.volumes.len()), (100, 1));
    // As it says.
    world.spoilt = 0;
    world.snapshots.clear();
    settle(&mut world, None, false);
    assert!(world.volumes.is_empty());
}

#[test]
fn of_several_copies_that_hold_all_the_same_is_kept_in_whatever_order_ec2_tells_of_them() {
    for turned in [false, true] {
        let mut world = copied();
        let mut later = world.copied[0].clone();
        later.shown.id = SnapshotId::new("snap-later");
        later.shown.started_at = later.shown.started_at.map(|at| at + std::time::Duration::from_secs(1));
        world.copied.insert(usize::from(turned), later);
        settle(&mut world, None, false);
        let kept = world.resource.status.as_ref().unwrap().last_copy.clone().unwrap();
        assert_eq!(kept.snapshot_id, "snap-later");
    }
}

/// Only the latest order is known where it is planned; whoever destroys the disk looks at the one of the very copy.
#[test]
fn an_order_takes_its_copy_only_when_it_is_deleted_and_was_to_delete_it() {
    let world = copied();
    let (order, copy) = (&world.snapshots[0], &world.copied[0].shown);
    let check = |gone: bool, policy, name: &str, expected: bool| {
        let mut order = (**order).clone();
        let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
        order.metadata.deletion_timestamp = gone.then_some(at);
        order.metadata.name = Some(name.to_owned());
        order.spec.deletion_policy = policy;
        assert_eq!(crate::takes_copy(&order, copy), expected, "{gone} {policy:?} {name}");
    };
    check(true, resources::CopyPolicy::Delete, "trades-33445566-last", true);
    check(false, resources::CopyPolicy::Delete, "trades-33445566-last", false);
    check(true, resources::CopyPolicy::Retain, "trades-33445566-last", false);
    check(true, resources::CopyPolicy::Delete, "trades-33445566-last-2", false);
}

#[test]
fn a_report_that_was_lost_tells_of_the_kept_copy_again() {
    let mut world = serving();
    purge_with_copy(&mut world);
    settle(&mut world, None, false);
    let before = world.resource.status.clone().unwrap().last_copy.unwrap();
    world.wipe();
    settle(&mut world, None, false);
    let told = world.resource.status.clone().unwrap().last_copy.unwrap();
    assert_eq!(
        (&told.snapshot, &told.snapshot_id, &told.volume_id),
        (&before.snapshot, &before.snapshot_id, &before.volume_id)
    );
    assert_eq!(said(&world).1, "Kept");
    // An order that is none any more tells nothing.
    let mut order = (*world.snapshots[0]).clone();
    order.status.as_mut().unwrap().phase = Some(resources::SnapshotPhase::Failed);
    world.snapshots[0] = Arc::new(order);
    world.wipe();
    assert!(!passes(&mut world, 3).iter().any(destroys));
    assert_eq!(world.resource.status.unwrap().last_copy, None);
}
