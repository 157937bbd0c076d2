//! A disk that somebody else brings with the tags of a database: it takes the place of one that is missing, and is not destroyed in
//! the place of one that is purged.

use cloud::{
    Attachment, AttachmentState, InstanceId, InstanceState, Role, Tags, Volume, VolumeId, VolumeState, key,
};
use resources::names::{self, condition};
use resources::{DeletionPolicy, Phase, RunState};

use super::model::World;
use super::operations::{become_, deleted, end_machine, half_moved, on_the_way, paused};
use super::reach::condition as told;
use super::runner::settle;
use super::silent::passes;
use super::source::restores;
use super::{check_gone, check_serving, phase, serving};
use crate::fixture::{settings, subject, validated};
use crate::{Part, State, lost};

const RESTORED: &str = "vol-restored";

/// A disk that was made of a backup of this one, and given the tags of its database.
fn restored(disk: &Volume) -> Volume {
    Volume {
        id: VolumeId::new(RESTORED),
        state: VolumeState::Available,
        attachments: Vec::new(),
        tags: subject().owner(Role::Volume).tags(),
        ..disk.clone()
    }
}

/// The disk that the claim stands for, and which claim it is.
fn claimed(world: &World) -> (Option<String>, Option<String>) {
    let claim = world.children.claim.as_deref().unwrap();
    (claim.spec.as_ref().unwrap().volume_name.clone(), claim.metadata.uid.clone())
}

fn without_machine() -> World {
    let mut world = serving();
    end_machine(&mut world, 0);
    world
}

#[test]
fn a_disk_in_the_place_of_a_missing_one_is_claimed_anew() {
    for what in ["paused", "deleted", "its machine ended, too"] {
        let mut world = match what {
            "paused" => paused(),
            "deleted" => deleted(),
            _ => without_machine(),
        };
        let (disk, (_, before)) = (world.volumes.remove(0), claimed(&world));
        become_(&mut world, RunState::Running);
        let planned = passes(&mut world, 2);
        let told = planned.state(Part::Volume);
        let says = |text: &str| text.contains("tag it") && text.contains("spec.storage.source");
        assert!(matches!(told, Some(State::Broken(text)) if says(text)), "{what}: {told:?}");
        world.volumes.push(restored(&disk));
        settle(&mut world, None, false);
        check_serving(&world, None);
        let (now, uid) = claimed(&world);
        assert_eq!(now, Some(names::persistent_volume(RESTORED)), "{what}");
        assert!(world.is_bound() && uid != before, "{what}");
    }
}

/// A database that began with a copy, and had it restored, has left its disk.
#[test]
fn on_a_disk_that_another_database_had_restored_nothing_is_restored_again() {
    for begin in [paused, deleted, without_machine] {
        let mut world = begin();
        let disk = world.volumes.remove(0);
        become_(&mut world, RunState::Running);
        passes(&mut world, 2);
        let tags = subject().owner(Role::Volume).tags().with(key::BASIS, "checkpoint:1");
        world.volumes.push(Volume { snapshot: Some("snap-1".to_owned()), tags, ..restored(&disk) });
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert!(!restores(&world), "it would go back over what was written since");
    }
}

/// The disk is put in the place of another, in another zone: the database goes there.
fn check_follows(world: &mut World) {
    let disk = world.volumes.remove(0);
    let zone = settings().zones.into_keys().find(|zone| *zone != disk.zone).unwrap();
    world.volumes.push(Volume { zone: zone.clone(), ..restored(&disk) });
    settle(world, None, false);
    check_serving(world, None);
    let living = world.instances.iter().find(|found| !found.state.is_ending()).unwrap();
    assert_eq!(living.zone, zone, "no disk comes into another zone");
}

#[test]
fn a_machine_is_made_where_the_disk_is_that_was_put_in_the_place_of_another() {
    let runs_anew =
        |world: &World| world.instances.get(1).is_some_and(|second| second.state == InstanceState::Running);
    check_follows(&mut on_the_way(serving(), |world| end_machine(world, 0), runs_anew));
    // Where it was to move, the next machine runs already where the disk of before was.
    let mut moves = half_moved();
    (moves.children.pod, moves.children.attachments) = (None, Vec::new());
    check_follows(&mut moves);
}

#[test]
fn a_claim_is_not_taken_from_under_a_pod_and_people_are_told_how_it_goes_on() {
    let mut world = serving();
    world.volumes = vec![restored(&world.volumes[0])];
    let before = (world.pod_uid(), claimed(&world));
    let planned = passes(&mut world, 6);
    let told = planned.state(Part::Attachment);
    assert!(matches!(told, Some(State::Broken(text)) if text.contains("pause the database")), "{told:?}");
    assert_eq!((world.pod_uid(), claimed(&world)), before);
    become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(claimed(&world).0, Some(names::persistent_volume(RESTORED)));
}

#[test]
fn what_serves_beside_a_second_disk_with_its_tags_is_told_to_serve_as_long_as_it_does() {
    let mut world = serving();
    let (other, before) = (restored(&world.volumes[0]), world.pod_uid());
    world.volumes.insert(0, other);
    passes(&mut world, 5);
    assert_eq!(world.pod_uid(), before);
    for kind in [condition::READY, condition::NODE_HEALTHY, condition::DNS_READY, condition::DEGRADED] {
        assert_eq!(told(&world, kind).unwrap().0, "True", "{kind}");
    }
    let text = told(&world, condition::DEGRADED).unwrap().1;
    assert!(text.contains(RESTORED) && text.contains("all but one"), "{text}");
    let mut silent = world.clone();
    let pod = std::sync::Arc::make_mut(silent.children.pod.as_mut().unwrap());
    let conditions = pod.status.get_or_insert_default().conditions.iter_mut().flatten();
    conditions.for_each(|found| "False".clone_into(&mut found.status));
    passes(&mut silent, 1);
    assert_eq!(told(&silent, condition::READY).unwrap().0, "False");
    world.volumes.remove(0);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

fn purge(world: &mut World, policy: DeletionPolicy) {
    world.clock = jiff::SignedDuration::from_secs(20);
    become_(world, RunState::Purged);
    world.resource.spec.storage.deletion_policy = policy;
}

fn ids(world: &World) -> Vec<&str> {
    world.volumes.iter().map(|found| found.id.as_str()).collect()
}

#[test]
fn a_disk_that_comes_with_the_tags_of_a_purged_database_is_told_and_stays() {
    for policy in [DeletionPolicy::Delete, DeletionPolicy::Snapshot] {
        let mut world = serving();
        let disk = world.volumes[0].clone();
        purge(&mut world, policy);
        settle(&mut world, None, false);
        let copy = world.resource.status.as_ref().unwrap().last_copy.clone();
        assert_eq!((world.volumes.len(), copy.is_some()), (0, policy == DeletionPolicy::Snapshot));
        world.volumes.push(restored(&disk));
        passes(&mut world, 20);
        assert_eq!(ids(&world), [RESTORED], "{policy:?}");
        let status = world.resource.status.as_ref().unwrap();
        let degraded = status.conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap();
        let text = &degraded.message;
        assert_eq!(degraded.status, "True", "{policy:?}");
        assert!(text.contains(RESTORED) && text.contains(disk.id.as_str()), "{policy:?}: {text}");
        assert_eq!(status.last_copy, copy, "{policy:?}");
        // Whoever keeps it takes the tags off.
        world.volumes.clear();
        settle(&mut world, None, false);
        check_gone(&world, None);
    }
}

#[test]
fn beside_a_disk_that_is_purged_another_one_stays() {
    for first in [false, true] {
        let mut world = serving();
        let other = restored(&world.volumes[0]);
        purge(&mut world, DeletionPolicy::Delete);
        passes(&mut world, 1);
        world.volumes.insert(usize::from(!first), other);
        passes(&mut world, 40);
        assert_eq!(ids(&world), [RESTORED], "in whatever order EC2 shows them");
    }
}

#[test]
fn of_two_disks_that_no_report_tells_apart_none_is_destroyed() {
    let (delete, snapshot) = (DeletionPolicy::Delete, DeletionPolicy::Snapshot);
    for (policy, place) in [(delete, 0), (delete, 1), (snapshot, 0), (snapshot, 1)] {
        let mut world = serving();
        let disk = world.volumes[0].clone();
        purge(&mut world, policy);
        world.wipe();
        world.volumes.insert(place, Volume { tags: disk.tags.clone(), ..restored(&disk) });
        passes(&mut world, 40);
        assert_eq!(ids(&world).len(), 2, "{policy:?} {place}");
        let status = world.resource.status.as_ref().unwrap();
        assert_eq!(status.volume, None, "whichever is named here is destroyed");
        let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
        assert_eq!(degraded, "True", "{policy:?} {place}");
        assert!(text.contains(RESTORED) && text.contains(disk.id.as_str()), "{text}");
        // Whoever keeps one takes its tags off.
        world.volumes.retain(|found| found.id == disk.id);
        settle(&mut world, None, false);
        check_gone(&world, None);
    }
}

#[test]
fn a_disk_of_which_no_report_tells_is_reported_before_it_is_destroyed() {
    let mut world = on_the_way(
        serving(),
        |world| purge(world, DeletionPolicy::Delete),
        |world| world.groups.is_empty() && world.volumes.len() == 1,
    );
    world.wipe();
    let disk = world.volumes[0].id.clone();
    let planned = passes(&mut world, 1);
    let told = planned.state(Part::VolumeRemoval);
    assert!(matches!(told, Some(State::Running(text)) if text.contains("written down")), "{told:?}");
    assert_eq!(ids(&world), [disk.as_str()]);
    let reported = world.resource.status.as_ref().and_then(|status| status.volume.as_ref());
    assert_eq!(reported.map(|volume| volume.id.as_str()), Some(disk.as_str()));
    settle(&mut world, None, false);
    check_gone(&world, None);
}

/// A database that serves on a restored disk, beside the one that it had before. Somebody keeps that without its tags, and what stood
/// for it in Kubernetes is there still, and was there first.
fn replaced() -> World {
    let mut world = paused();
    let disk = world.volumes.remove(0);
    become_(&mut world, RunState::Running);
    passes(&mut world, 2);
    world.volumes.push(restored(&disk));
    settle(&mut world, None, false);
    check_serving(&world, None);
    world.volumes.push(Volume { tags: Tags::new(), ..disk });
    world.children.persistent_volumes.reverse();
    assert_eq!(world.children.persistent_volumes.len(), 2);
    world
}

/// The disk that was replaced, by its id and tags.
fn former(world: &World) -> (VolumeId, Tags) {
    let former = world.volumes.iter().find(|found| found.id.as_str() != RESTORED).unwrap();
    (former.id.clone(), former.tags.clone())
}

#[test]
fn a_disk_that_was_replaced_is_not_taken_back_when_the_other_loses_its_tags() {
    let mut world = replaced();
    let before = former(&world);
    world.volumes[0].tags = Tags::new();
    passes(&mut world, 3);
    assert_eq!(world.volumes[0].tags.get(key::DATABASE), Some(subject().database.as_str()));
    assert_eq!(former(&world), before);
    assert_eq!(world.resource.status.as_ref().unwrap().volume.as_ref().unwrap().id, RESTORED);
}

#[test]
fn a_disk_that_was_replaced_does_not_come_back_when_the_other_is_destroyed() {
    let mut world = replaced();
    let before = former(&world);
    purge(&mut world, DeletionPolicy::Delete);
    settle(&mut world, None, false);
    assert_eq!((phase(&world), ids(&world).len()), (Some(Phase::Deleted), 1));
    assert_eq!(former(&world), before);
}

#[test]
fn of_two_disks_nobody_knows_which_it_was_without_a_report() {
    let mut world = replaced();
    let mut observed = world.look();
    observed.account.volumes.clear();
    let wish = validated(&world.resource);
    assert_eq!(lost(&world.resource, &wish, &observed).volume, Some(VolumeId::new(RESTORED)));
    world.resource.status = None;
    assert_eq!(lost(&world.resource, &wish, &observed).volume, None);
}

#[test]
fn a_machine_of_others_that_has_the_disk_is_named() {
    let lent = || {
        let mut world = paused();
        let disk = &mut world.volumes[0];
        let (volume, instance) = (disk.id.clone(), InstanceId::new("i-stranger"));
        let (device, state) = ("/dev/sdf".to_owned(), AttachmentState::Attached);
        disk.attachments.push(Attachment { volume, instance, device, state, goes_with_machine: false });
        world
    };
    let check = |mut world: World, part: Part| {
        let planned = passes(&mut world, 20);
        let told = planned.state(part);
        assert!(
            matches!(told, Some(State::Running(text)) if text.contains("i-stranger")),
            "{part}: {told:?}"
        );
        assert_eq!(world.volumes.len(), 1);
    };
    let mut serves = lent();
    become_(&mut serves, RunState::Running);
    check(serves, Part::Attachment);
    for (policy, part) in
        [(DeletionPolicy::Delete, Part::VolumeRemoval), (DeletionPolicy::Snapshot, Part::LastCopy)]
    {
        let mut purged = lent();
        purge(&mut purged, policy);
        check(purged, part);
    }
}

#[test]
fn a_machine_of_others_that_has_the_disk_beside_ours_is_named() {
    let told = |world: &World| {
        let seen = &world.resource;
        crate::plan(seen, &validated(seen), &world.look(), &settings()).strangers
    };
    let mut world = serving();
    assert!(told(&world).is_empty());
    let attachments = &mut world.volumes[0].attachments;
    let theirs = Attachment { instance: InstanceId::new("i-stranger"), ..attachments[0].clone() };
    attachments.push(theirs);
    let strangers = told(&world);
    assert!(matches!(strangers.as_slice(), [text] if text.contains("i-stranger")), "{strangers:?}");
}
