//! Which copies say that what they are of may never have been restored.

use std::time::{Duration, SystemTime};

use cloud::{Tags, Volume, key};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{QuestDB, StorageSource};

use super::world::World;
use crate::fixture;
use crate::snapshot::{Ground, Step, plan, unrestored};

fn source(snapshot_id: Option<&str>, volume_id: Option<&str>) -> StorageSource {
    let [snapshot_id, volume_id] = [snapshot_id, volume_id].map(|id| id.map(str::to_owned));
    StorageSource { snapshot_id, volume_id, ..StorageSource::default() }
}

fn by_name() -> StorageSource {
    StorageSource { snapshot: Some("nightly".to_owned()), ..StorageSource::default() }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A database that was made in second 50 and has not served, and the disk that was made for it from a copy of one that did.
fn restored() -> (QuestDB, Volume) {
    let mut database = fixture::resource(1);
    database.spec.storage.source = Some(source(Some("snap-1"), None));
    database.metadata.creation_timestamp = Some(Time(Timestamp::from_second(50).unwrap()));
    let mut disk =
        Volume { snapshot: Some("snap-1".to_owned()), created_at: Some(at(51)), ..fixture::volume(50) };
    tag(&mut disk, key::BASIS, "checkpoint:1");
    (database, disk)
}

fn tag(disk: &mut Volume, key: &str, value: &str) {
    disk.tags = disk.tags.clone().with(key, value);
}

/// What is different, and which disks a copy names.
type Row = (&'static str, fn(&mut QuestDB, &mut Volume), Option<&'static str>);

const ROWS: &[Row] = &[
    ("it was left before it was started", |_, _| {}, Some("vol-1")),
    ("others took the copy", |_, disk| disk.tags = Tags::new(), Some("vol-1")),
    ("it was stopped when it was copied", |_, disk| tag(disk, key::BASIS, "stopped:u:3"), None),
    (
        "and was left before it was started itself",
        |_, disk| {
            tag(disk, key::BASIS, "stopped:u:3");
            tag(disk, key::UNRESTORED, "snap-1 vol-7");
        },
        Some("vol-7 vol-1"),
    ),
    (
        "it has served",
        |database, _| database.status.get_or_insert_default().version = Some("9.3.4".to_owned()),
        None,
    ),
    // Another database may have served from these, whose pods had nothing restored.
    ("it was left by another database", |_, disk| disk.created_at = Some(at(49)), None),
    ("nobody knows since when it is there", |_, disk| disk.created_at = None, None),
    ("the database has no source", |database, _| database.spec.storage.source = None, None),
    ("it was adopted", |database, _| database.spec.storage.source = Some(source(None, Some("vol-1"))), None),
    ("somebody put another in its place", |_, disk| disk.snapshot = Some("snap-2".to_owned()), None),
    ("the source has a name", |database, _| database.spec.storage.source = Some(by_name()), Some("vol-1")),
    (
        "and somebody put another in its place",
        |database, disk| {
            database.spec.storage.source = Some(by_name());
            disk.tags = Tags::new();
        },
        None,
    ),
    ("it began empty", |_, disk| disk.snapshot = None, None),
];

#[test]
fn only_a_disk_that_tells_by_itself_whether_it_was_restored_is_said_to_be_in_doubt() {
    for (what, change, expected) in ROWS {
        let (mut database, mut disk) = restored();
        change(&mut database, &mut disk);
        assert_eq!(unrestored(&database, &disk).as_deref(), *expected, "{what}");
    }
}

/// What a copy names that is begun after so many steps.
fn named(stopped: Option<u64>, steps: usize) -> Option<String> {
    let mut world = World::new(&["a"]);
    world.stopped = stopped;
    while world.steps.len() < steps {
        world.pass(0, None);
        world.tick();
    }
    let mut seen = world.seen(0);
    seen.conclusive = true;
    match &mut seen.ground {
        Ground::Stopped { disk, .. } | Ground::Serving { disk, .. } => {
            disk.unrestored = Some("vol-1".to_owned());
        }
        other => panic!("{other:?}"),
    }
    let Some(Step::Begin(new)) = plan(&world.objects[0], &seen).step else { panic!("{seen:?}") };
    new.tags.get(key::UNRESTORED).map(str::to_owned)
}

#[test]
fn what_a_checkpoint_holds_is_not_said_to_be_in_doubt() {
    assert_eq!(named(Some(3), 1).as_deref(), Some("vol-1"), "it is stopped");
    assert_eq!(named(None, 3), None, "it answers, and is held");
}
