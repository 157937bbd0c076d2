//! A database that is let go although parts of it are gone already, whoever took them: nothing is waited for that will not come.

use cloud::{Instance, InstanceState};
use resources::DeletionPolicy;

use super::model::World;
use super::operations::{end_machine, remove, serving_plain};
use super::oracle::check_end;
use super::runner::settle;

/// What somebody else has taken away, and how.
type Loss = (&'static str, fn(&mut World));

const LOSSES: [Loss; 10] = [
    ("the machine", |world| end_machine(world, 0)),
    ("the machine, which EC2 has forgotten,", forget_machine),
    ("the disk", |world| world.volumes.clear()),
    ("the firewall", |world| world.groups.clear()),
    ("the name", |world| world.records.clear()),
    ("the Secret", |world| world.children.secret = None),
    ("the StatefulSet with its pod", |world| {
        (world.children.stateful_set, world.children.pod) = (None, None);
    }),
    ("the claim with its volume", |world| {
        world.children.claim = None;
        world.children.persistent_volumes.clear();
    }),
    ("the configuration with the Services", |world| {
        let children = &mut world.children;
        (children.config, children.service, children.headless) = (None, None, None);
    }),
    ("the NetworkPolicy with the disruption budget", |world| {
        (world.children.network_policy, world.children.disruption_budget) = (None, None);
    }),
];

/// Its Node went too, and whatever was on it.
fn forget_machine(world: &mut World) {
    world.instances.clear();
    world.volumes.iter_mut().for_each(|volume| volume.attachments.clear());
    let children = &mut world.children;
    children.nodes.clear();
    children.attachments.clear();
    children.pod = None;
}

/// Takes everything away.
pub(super) fn lose_all(world: &mut World) {
    for (_, lose) in LOSSES {
        lose(world);
    }
}

#[test]
fn a_deletion_comes_to_its_end_whatever_is_gone_already() {
    for (what, lose) in LOSSES {
        for policy in [DeletionPolicy::Retain, DeletionPolicy::Delete] {
            let what = format!("{what} is gone, {policy:?}");
            let mut world = serving_plain();
            world.resource.spec.storage.deletion_policy = policy;
            lose(&mut world);
            remove(&mut world);
            settle(&mut world, None, false);
            assert!(world.released, "{what}: {:#?}", world.resource.status);
            check_end(&world, &what);
            let has_ended = |found: &Instance| found.state == InstanceState::Terminated;
            assert!(world.instances.iter().all(has_ended), "{what}: {:?}", world.instances);
        }
    }
}
