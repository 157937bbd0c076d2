//! Operations about the end of a database: its last copy, and its protection.

use jiff::SignedDuration;
use resources::{DeletionPolicy, RunState};

use super::model::World;
use super::operations::{
    Operation, become_, change, deleted, on_the_way, operation, paused, remove, serving_plain,
};
use super::serving;

/// All of them.
pub(super) const ENDS: &[Operation] = &[
    operation("purge with a last copy", serving, purge_with_copy),
    operation("purge with a last copy what is paused", paused, purge_with_copy),
    operation("purge with a last copy what is deleted", deleted, purge_with_copy),
    operation("remove with a last copy", serving_plain, remove_with_copy),
    operation("purge with a last copy that fails at first", serving, |world| {
        world.spoilt = 1;
        purge_with_copy(world);
    }),
    operation("purge with a last copy what has no disk any more", deleted, |world| {
        world.volumes.clear();
        purge_with_copy(world);
    }),
    operation("purge without a copy after all", half_copied, |world| {
        change(world, |spec| spec.storage.deletion_policy = DeletionPolicy::Delete);
    }),
    operation("remove without its disk after all", half_copied_plain, |world| {
        world.resource.spec.storage.deletion_policy = DeletionPolicy::Retain;
        world.touch();
    }),
    operation("remove what is purged", purged, remove),
    operation("remove what is gone already", serving_plain, |world| {
        super::gone::lose_all(world);
        remove(world);
    }),
    operation("protect", serving, |world| change(world, |spec| spec.deletion_protection = true)),
    operation("protect no more", protected, |world| {
        change(world, |spec| spec.deletion_protection = false);
    }),
    operation("remove what is protected", protected_plain, remove),
    operation("remove what was protected", removed_and_protected, |world| {
        change(world, |spec| spec.deletion_protection = false);
    }),
];

pub(super) fn purge_with_copy(world: &mut World) {
    world.clock = SignedDuration::from_secs(20);
    become_(world, RunState::Purged);
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Snapshot;
}

pub(super) fn remove_with_copy(world: &mut World) {
    world.clock = SignedDuration::from_secs(20);
    world.resource.spec.storage.deletion_policy = DeletionPolicy::Snapshot;
    remove(world);
}

fn purged() -> World {
    let mut world = serving();
    become_(&mut world, RunState::Purged);
    super::settle(&mut world, None, false);
    world
}

/// The copy is asked for, and nobody has begun it.
fn half_copied() -> World {
    on_the_way(serving(), purge_with_copy, |world| !world.snapshots.is_empty())
}

/// The copy is begun.
fn half_copied_plain() -> World {
    on_the_way(serving_plain(), remove_with_copy, |world| !world.copied.is_empty())
}

fn protected() -> World {
    let mut world = serving();
    change(&mut world, |spec| spec.deletion_protection = true);
    super::settle(&mut world, None, false);
    world
}

pub(super) fn protected_plain() -> World {
    let mut world = serving_plain();
    change(&mut world, |spec| spec.deletion_protection = true);
    super::settle(&mut world, None, false);
    world
}

fn removed_and_protected() -> World {
    let mut world = protected_plain();
    remove(&mut world);
    super::settle(&mut world, None, false);
    world
}
