//! What a first disk is made from: whose data it may be, and that nothing is made before it is known.

use std::time::{Duration, SystemTime};

use cloud::{
    Owner, Role, SnapshotId, SnapshotState, Tags, Volume, VolumeId, VolumeSnapshot, VolumeState, key,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{DeletionPolicy, QuestDB, RunState, StorageSource};

use super::ends::purge_with_copy;
use super::model::World;
use super::operations::become_;
use super::runner::settle;
use crate::fixture::{self, resource, settings, subject, validated};
use crate::upgrade::NEVER;
use crate::{Part, Plan, Source, State, Step, Unseen, Validated, build, is_still_ours, plan};

/// A copy of a disk of 30 GiB of a database of the same namespace.
const COPY: &str = "snap-0123456789abcdef0";
/// A volume of 60 GiB that nobody uses.
const VOLUME: &str = "vol-01234567890123456";

pub(super) fn volume() -> StorageSource {
    StorageSource { volume_id: Some(VOLUME.to_owned()), ..StorageSource::default() }
}

fn copy() -> VolumeSnapshot {
    let subject = subject();
    let owner = Owner { database: "other".to_owned(), ..subject.owner(Role::Snapshot) };
    VolumeSnapshot {
        id: SnapshotId::new(COPY),
        state: SnapshotState::Completed,
        volume: VolumeId::new("vol-9"),
        size_gib: 30,
        progress: Some(100),
        message: None,
        encrypted: true,
        tags: owner
            .tags()
            .with(key::NAMESPACE, &subject.namespace)
            .with(key::OBJECT, "nightly")
            .with(key::QUESTDB, "9.3.1")
            .with(key::BASIS, "stopped:u:3")
            .with(key::CONSISTENT, "true"),
        started_at: None,
    }
}

pub(super) fn offered() -> Volume {
    let tags = Tags::new().with(key::FOR, "eu-west-1/qdb-acme/trades-33445566");
    Volume { id: VolumeId::new(VOLUME), zone: "eu-west-1b".to_owned(), tags, ..fixture::volume(60) }
}

fn with_source(source: StorageSource) -> QuestDB {
    let mut resource = resource(1);
    resource.spec.storage.source = Some(source);
    resource
}

pub(super) fn fresh_of_copy() -> World {
    let source = StorageSource { snapshot: Some("nightly".to_owned()), ..StorageSource::default() };
    let mut world = World::new(with_source(source));
    world.copies = vec![copy()];
    world
}

pub(super) fn fresh_on_disk() -> World {
    let mut world = World::new(with_source(volume()));
    world.resource.spec.storage.size_gib = 60;
    world.offered = Some(offered());
    world
}

/// What is planned for a resource that is held already.
fn planned(world: &mut World) -> Plan {
    let before = plan(&world.resource, &validated(&world.resource), &world.look(), &settings());
    for action in before.actions {
        if matches!(action.step, Step::AddFinalizer { .. }) {
            let seen = world.resource.clone();
            world.apply(&action.step, &seen).unwrap();
        }
    }
    plan(&world.resource, &validated(&world.resource), &world.look(), &settings())
}

#[test]
fn a_disk_is_made_of_the_copy_and_restored_once() {
    let mut world = fresh_of_copy();
    settle(&mut world, None, false);
    let disk = &world.volumes[0];
    assert_eq!((disk.snapshot.as_deref(), disk.size_gib), (Some(COPY), 50));
    let pod = world.children.stateful_set.as_ref().unwrap().spec.as_ref().unwrap().template.spec.clone();
    let first = pod.unwrap().init_containers.unwrap().remove(0);
    let held = first.env.unwrap().into_iter().find(|variable| variable.name == "HELD").unwrap();
    assert_eq!((first.name.as_str(), held.value.as_deref()), ("restore", Some("no")), "it was stopped");
    // The copy may go; the disk is there.
    world.copies.clear();
    become_(&mut world, RunState::Paused);
    settle(&mut world, None, false);
    become_(&mut world, RunState::Running);
    settle(&mut world, None, false);
    assert_eq!(world.volumes[0].snapshot.as_deref(), Some(COPY));
}

#[test]
fn a_disk_that_is_there_becomes_the_databases_own_with_what_is_on_it() {
    let mut world = fresh_on_disk();
    settle(&mut world, None, false);
    assert_eq!((world.volumes.len(), world.volumes[0].id.as_str()), (1, VOLUME));
    assert_eq!(world.instances[0].zone, "eu-west-1b", "the machine goes to the disk");
    let pod = world.children.stateful_set.as_ref().unwrap().spec.as_ref().unwrap().template.spec.clone();
    let before = pod.unwrap().init_containers.unwrap();
    assert!(before.iter().all(|container| container.name != "restore"), "nothing is restored");
    become_(&mut world, RunState::Purged);
    settle(&mut world, None, false);
    assert!(world.volumes.is_empty(), "it is the database's own");
}

/// Whether what its pods begin with is to have a copy restored.
pub(super) fn restores(world: &World) -> bool {
    let set = world.children.stateful_set.as_ref().unwrap().spec.as_ref().unwrap();
    let first = set.template.spec.as_ref().unwrap().init_containers.as_ref().unwrap();
    first[0].name == "restore"
}

/// A resource of that name is made again without a source, or one of another name takes the disk by its id.
#[test]
fn a_copy_that_was_left_before_it_was_started_is_restored_for_whoever_goes_on_with_its_disk() {
    for (by_id, has_served) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = fresh_of_copy();
        tag(&mut world, key::BASIS, "checkpoint:1");
        settle(&mut world, None, false);
        become_(&mut world, RunState::Paused);
        settle(&mut world, None, false);
        let id = world.volumes[0].id.to_string();
        let disk = StorageSource { volume_id: Some(id), ..StorageSource::default() };
        world.resource.spec.storage.source = by_id.then_some(disk);
        if !has_served {
            world.resource.status.get_or_insert_default().version = None;
        }
        become_(&mut world, RunState::Running);
        settle(&mut world, None, false);
        assert!(world.resource.status.as_ref().unwrap().version.is_some());
        assert_eq!(restores(&world), !has_served, "by its id: {by_id}");
        // Nobody is restarted for a report that was lost.
        world.resource.status = None;
        settle(&mut world, None, false);
        assert_eq!(restores(&world), !has_served, "by its id: {by_id}");
    }
}

/// Its last copy is all that is left of a database that was purged before its first pod ran; whether that ran in truth, the disk says.
#[test]
fn a_copy_of_a_disk_that_is_not_known_to_have_been_restored_names_it_for_what_is_made_of_it() {
    for has_served in [false, true] {
        let mut world = fresh_of_copy();
        tag(&mut world, key::BASIS, "checkpoint:1");
        settle(&mut world, None, false);
        become_(&mut world, RunState::Paused);
        settle(&mut world, None, false);
        world.resource.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        world.volumes[0].created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(100));
        if !has_served {
            world.resource.status.get_or_insert_default().version = None;
        }
        purge_with_copy(&mut world);
        settle(&mut world, None, false);
        assert!(world.volumes.is_empty());
        let copy = &world.whole_copy().unwrap().shown;
        let disk = build::new_volume(&validated(&resource(1)), "eu-west-1a", Some(copy));
        let expected = (!has_served).then(|| format!("{} {}", copy.id, copy.volume));
        assert_eq!(disk.tags.get(key::UNRESTORED), expected.as_deref(), "it has served: {has_served}");
    }
}

/// Of what a copy holds people have been told, also where nobody can tell which versions read it.
#[test]
fn of_no_disk_that_is_made_of_a_copy_it_is_said_that_questdb_has_never_begun_on_it() {
    let copy = copy();
    for (version, made_of, written, served) in [
        ("9.3.4", None, None, Some(NEVER)),
        ("nightly", None, None, Some(NEVER)),
        ("9.3.4", Some(&copy), Some("9.3.4"), None),
        ("nightly", Some(&copy), None, None),
    ] {
        let wish = Validated { version: version.to_owned(), ..validated(&resource(1)) };
        let tags = build::new_volume(&wish, "eu-west-1a", made_of).tags;
        let told = (tags.get(key::QUESTDB), tags.get(key::SERVED));
        assert_eq!(told, (written, served), "{version}, of a copy: {}", made_of.is_some());
    }
}

/// What makes a source one that nothing is made from, and what is said of it.
type Row<T> = (fn(&mut T), bool, &'static str);

const COPIES: &[Row<World>] = &[
    (|world| world.copies.clear(), false, "is not there"),
    (|world| world.copies.push(copy()), false, "may mean"),
    (|world| world.copies[0].state = SnapshotState::Pending, true, "waiting for snap-"),
    (|world| being_copied(world, 47), true, "to be copied (40 %)"),
    (|world| world.copies[0].state = SnapshotState::Error, false, "reports"),
    (|world| world.copies[0].state = SnapshotState::Recoverable, false, "reports"),
    (|world| world.copies[0].size_gib = 51, false, "is of a disk of 51 GiB"),
    (|world| tag(world, key::QUESTDB, "8.3.3"), false, "cannot restore"),
    (|world| tag(world, key::NAMESPACE, "qdb-other"), false, "create-tags"),
    (|world| tag(world, key::CLUSTER, "us-east-1"), false, "create-tags"),
    (|world| world.copies[0].tags = Tags::new(), false, "create-tags"),
    (
        |world| world.copies[0].tags = Tags::new().with(key::FOR, "us-east-1/qdb-acme/trades-33445566"),
        false,
        "create-tags",
    ),
    (|world| untag(world, key::CONSISTENT), false, "never confirmed"),
];

fn tag(world: &mut World, key: &str, value: &str) {
    world.copies[0].tags = world.copies[0].tags.clone().with(key, value);
}

fn being_copied(world: &mut World, percent: u8) {
    world.copies[0].state = SnapshotState::Pending;
    world.copies[0].progress = Some(percent);
}

fn untag(world: &mut World, key: &str) {
    let tags = &mut world.copies[0].tags;
    *tags = tags.iter().filter(|(found, _)| *found != key).collect();
}

const VOLUMES: &[Row<World>] = &[
    (|world| world.offered = None, false, "is not there"),
    (|world| offer(world, |volume| volume.state = VolumeState::InUse), true, "to be free"),
    (|world| offer(world, |volume| volume.state = VolumeState::Error), false, "nobody's disk"),
    (|world| offer(world, |volume| volume.zone = "eu-west-1c".to_owned()), false, "no machines"),
    (|world| world.resource.spec.zone = Some("eu-west-1a".to_owned()), false, "spec.zone"),
    (|world| offer(world, |volume| volume.tags = Tags::new()), false, "create-tags"),
    (
        |world| offer(world, |volume| volume.tags = volume.tags.clone().with(key::DATABASE, "other")),
        false,
        "is the disk of database other",
    ),
    (
        |world| offer(world, |volume| volume.tags = volume.tags.clone().with(key::QUESTDB, "10.0.0")),
        false,
        "vol-01234567890123456: QuestDB 9.3.4 cannot read what 10.0.0 may have written, of which tag questdb.io/version of the disk alone \
         tells: ask for 10.0.0 or a later one",
    ),
];

fn offer(world: &mut World, change: impl FnOnce(&mut Volume)) {
    change(world.offered.as_mut().unwrap());
}

#[test]
fn nothing_is_made_of_what_may_not_be_had() {
    for (fresh, rows) in [(fresh_of_copy as fn() -> World, COPIES), (fresh_on_disk, VOLUMES)] {
        for (change, waits, text) in rows {
            let mut world = fresh();
            change(&mut world);
            let planned = planned(&mut world);
            let (found, is_wait) = match planned.state(Part::Volume) {
                Some(State::Running(found)) => (found, true),
                Some(State::Broken(found)) => (found, false),
                other => panic!("{text}: {other:?}"),
            };
            assert!(found.contains(text) && is_wait == *waits, "{text}: {found}");
            let made = planned.actions.iter().map(|action| action.step.name());
            let made: Vec<_> =
                made.filter(|step| !["CreateSecret", "CreateSecurityGroup"].contains(step)).collect();
            assert_eq!(made, [""; 0], "{text}");
        }
    }
}

#[test]
fn a_disk_that_an_older_operator_made_empty_is_not_served_for_the_source() {
    for source in [fresh_of_copy as fn() -> World, fresh_on_disk] {
        let mut world = source();
        let wanted = world.resource.spec.storage.source.take();
        settle_until_disk(&mut world);
        world.resource.spec.storage.source = wanted;
        let told = |world: &mut World| match planned(world).state(Part::Volume) {
            Some(State::Broken(text)) => Some(text.clone()),
            _ => None,
        };
        let text = told(&mut world).unwrap();
        assert!(text.contains("does not come from spec.storage.source"), "{text}");
        world.resource.status.get_or_insert_default().version = Some("9.3.4".to_owned());
        assert_eq!(told(&mut world), None, "what has served is served");
    }
}

#[test]
fn what_a_namesake_left_is_not_served_for_the_copy_that_is_asked_for() {
    const OTHER: &str = "snap-0fedcba9876543210";
    let mut world = fresh_of_copy();
    settle_until_disk(&mut world);
    for (id, provisioned, expected) in [(COPY, false, false), (OTHER, false, true), (OTHER, true, false)] {
        let source = StorageSource { snapshot_id: Some(id.to_owned()), ..StorageSource::default() };
        world.resource.spec.storage.source = Some(source);
        world.resource.spec.storage.provisioned = provisioned;
        let planned = planned(&mut world);
        let told = planned.state(Part::Volume);
        let is_told = matches!(told, Some(State::Broken(text)) if text.contains("does not come from"));
        assert_eq!(is_told, expected, "{id} {provisioned}");
    }
}

/// What is said of the disk of a resource that is made again at `made`, while its name means these copies.
fn told_of_what_was_left(made: i64, copies: Vec<VolumeSnapshot>, provisioned: bool) -> Option<String> {
    let mut world = fresh_of_copy();
    settle_until_disk(&mut world);
    world.volumes[0].created_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(100));
    world.children.stateful_set = None;
    world.copies = copies;
    world.resource.metadata.creation_timestamp = Some(Time(Timestamp::from_second(made).unwrap()));
    world.resource.spec.storage.provisioned = provisioned;
    match planned(&mut world).state(Part::Volume) {
        Some(State::Broken(text)) => Some(text.clone()),
        _ => None,
    }
}

#[test]
fn what_a_namesake_left_is_not_served_for_the_copy_that_is_named() {
    let other = || VolumeSnapshot { id: SnapshotId::new("snap-0fedcba9876543210"), ..copy() };
    for (what, made, copies, provisioned, expected) in [
        ("it was made of that copy", 200, vec![copy()], false, false),
        ("of another one", 200, vec![other()], false, true),
        ("nobody can tell", 200, vec![], false, false),
        ("the resource was there before it", 50, vec![other()], false, false),
        ("it is known to have a disk", 200, vec![other()], true, false),
    ] {
        let told = told_of_what_was_left(made, copies, provisioned);
        let is_told = told.as_deref().is_some_and(|text| text.contains("does not come from"));
        assert_eq!(is_told, expected, "{what}: {told:?}");
    }
}

#[test]
fn whoever_is_to_delete_a_database_is_told_what_goes_with_it() {
    let mut world = fresh_of_copy();
    settle_until_disk(&mut world);
    world.volumes[0].snapshot = None;
    for (policy, goes) in
        [(DeletionPolicy::Retain, false), (DeletionPolicy::Snapshot, true), (DeletionPolicy::Delete, true)]
    {
        world.resource.spec.storage.deletion_policy = policy;
        let planned = planned(&mut world);
        let told = planned.state(Part::Volume);
        let Some(State::Broken(text)) = told else { panic!("{told:?}") };
        assert!(text.contains("without a source"), "{text}");
        assert_eq!(text.contains("that disk goes with it"), goes, "{policy:?}: {text}");
    }
}

/// As far as a database comes before anything runs on its disk.
fn settle_until_disk(world: &mut World) {
    settle(world, None, false);
    world.resource.status.get_or_insert_default().version = None;
}

#[test]
fn whoever_may_write_tags_in_aws_may_offer_any_copy() {
    let mut world = fresh_of_copy();
    world.copies[0].tags = Tags::new().with(key::FOR, "eu-west-1/qdb-acme/trades-33445566");
    settle(&mut world, None, false);
    assert_eq!(world.volumes[0].snapshot.as_deref(), Some(COPY));
}

#[test]
fn nothing_is_decided_before_the_source_was_looked_at() {
    let mut world = fresh_of_copy();
    planned(&mut world);
    let mut observed = world.look();
    for source in [None, Some(Source::Unfinished("waiting for snapshot nightly: Copying".to_owned()))] {
        observed.account.source = source;
        let planned = plan(&world.resource, &validated(&world.resource), &observed, &settings());
        assert!(matches!(planned.state(Part::Volume), Some(State::Running(_))));
        let made = |part: Part| planned.actions.iter().any(|action| action.part == part);
        assert!(!made(Part::Volume) && !made(Part::Instance));
    }
}

#[test]
fn no_disk_is_made_while_it_is_not_known_which_snapshots_there_are() {
    let mut world = fresh_of_copy();
    planned(&mut world);
    let mut observed = world.look();
    let broken = Unseen::Broken("it broke".to_owned());
    for unseen in [Unseen::Yet, broken, Unseen::Refused("grant it".to_owned())] {
        observed.account.source = Some(Source::Unseen(unseen.clone()));
        let planned = plan(&world.resource, &validated(&world.resource), &observed, &settings());
        let said = match (planned.state(Part::Volume), &unseen) {
            (Some(State::Running(said)), Unseen::Yet | Unseen::Broken(_))
            | (Some(State::Broken(said)), Unseen::Refused(_)) => said,
            other => panic!("{other:?}"),
        };
        if let Unseen::Broken(why) | Unseen::Refused(why) = &unseen {
            assert!(said.contains(why), "{said}");
        }
        let made = |part: Part| planned.actions.iter().any(|action| action.part == part);
        assert!(!made(Part::Volume) && !made(Part::Instance), "{unseen:?}");
    }
}

#[test]
fn what_is_offered_to_another_is_not_ours_any_more() {
    for (named, expected) in
        [("eu-west-1/qdb-acme/trades-33445566", true), ("eu-west-1/qdb-acme/other", false)]
    {
        assert_eq!(is_still_ours(&subject(), &Tags::new().with(key::FOR, named)), expected, "{named}");
    }
}
