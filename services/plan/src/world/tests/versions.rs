//! A disk outlives its database, and says which QuestDB may have opened it: no older major version gets it, whoever has it next.

use std::sync::{Arc, LazyLock};

use cloud::{InstanceState, Tags, Volume, key};
use domain::catalogue;
use jiff::SignedDuration;
use resources::names::{self, condition};
use resources::{QuestDB, RunState, UpgradeResult, UpgradeStatus};
use serde_json::json;

use super::model::World;
use super::operations::{Operation, become_, change, deleted, operation, paused, remove};
use super::oracle::{check_end, is_refused};
use super::runner::{ENOUGH, pass, settle};
use super::{serving, source};
use crate::change::{image_of_pod, image_of_template};
use crate::fixture::plain;
use crate::{Kind, Part, State, Step};

/// The disk that a resource of people left is found again by another of its name.
pub(super) const RETURNS: &[Operation] = &[
    operation("made again on the disk that stayed", returned, |_| {}),
    operation("made again as a later version", returned, |world| wish_for(world, "10.0.1")),
    operation("made again as an older major version, refused", returned, |world| wish_for(world, "9.4.0")),
];

fn at(version: &str) -> QuestDB {
    let mut resource = plain();
    version.clone_into(&mut resource.spec.version);
    resource
}

/// What is left of a database of this version after its resource was deleted.
fn left() -> Volume {
    static LEFT: LazyLock<Volume> = LazyLock::new(|| {
        let mut world = World::new(at("10.0.0"));
        settle(&mut world, None, false);
        remove(&mut world);
        settle(&mut world, None, false);
        assert!(world.released);
        world.volumes.remove(0)
    });
    LEFT.clone()
}

/// The resource is made again, and nothing is there but the disk.
fn returned() -> World {
    let mut world = World::new(at("10.0.0"));
    world.volumes = vec![left()];
    world
}

fn wish_for(world: &mut World, version: &str) {
    change(world, |spec| version.clone_into(&mut spec.version));
}

fn said(world: &World) -> Option<&str> {
    world.volumes[0].tags.get(key::QUESTDB)
}

fn say(world: &mut World, version: Option<&str>) {
    let tags = &mut world.volumes[0].tags;
    let others: Tags = tags.iter().filter(|(found, _)| *found != key::QUESTDB).collect();
    *tags = version.map_or_else(|| others.clone(), |version| others.clone().with(key::QUESTDB, version));
}

/// The version that runs, or that the StatefulSet would start.
fn runs(world: &World) -> Option<String> {
    let image = world.children.pod.as_deref().and_then(image_of_pod);
    let image = image.or_else(|| image_of_template(world.children.stateful_set.as_deref()));
    image.map(|image| crate::upgrade::version_of(&image).to_owned())
}

/// Settles; every version that ran on the way.
fn versions(world: &mut World) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for _ in 0..ENOUGH {
        pass(world, &mut 0, None, false);
        world.tick();
        versions.extend(runs(world));
    }
    settle(world, None, false);
    versions.dedup();
    versions
}

fn refusal(world: &World) -> String {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let mut accepted = conditions.filter(|found| found.type_ == condition::CONFIG_ACCEPTED);
    accepted.next().unwrap().message.clone()
}

#[test]
fn a_disk_that_stays_says_which_questdb_had_it() {
    assert_eq!(left().tags.get(key::QUESTDB), Some("10.0.0"));
    for world in [paused(), deleted()] {
        assert_eq!(said(&world), Some("9.3.4"));
    }
}

#[test]
fn whoever_finds_a_disk_alone_starts_no_older_major_version_on_it() {
    for (version, expected) in [
        ("10.0.0", vec!["10.0.0"]),
        // As whoever is upgraded: the disk is copied first, while what had it serves.
        ("10.0.1", vec!["10.0.0", "10.0.1"]),
        ("9.4.0", vec!["10.0.0"]),
    ] {
        let mut world = returned();
        wish_for(&mut world, version);
        assert_eq!(versions(&mut world), expected, "{version}");
        check_end(&world, version);
        assert_eq!(said(&world), expected.last().copied(), "{version}");
        assert_eq!(world.snapshots.len(), expected.len() - 1, "{version}");
        assert_eq!(is_refused(&world.resource), version == "9.4.0", "{version}");
        if version == "9.4.0" {
            let text = refusal(&world);
            let wanted = "QuestDB 9.4.0 cannot read what 10.0.0 has written: ask for 10.0.0 or a later one";
            assert!(text.contains(wanted), "{text}");
        }
    }
}

#[test]
fn of_a_disk_that_does_not_say_it_nothing_is_known_and_nothing_refused() {
    for shown in [None, Some("nightly"), Some("10.0.0@sha256:0")] {
        let mut world = returned();
        say(&mut world, shown);
        wish_for(&mut world, "9.4.0");
        assert_eq!(versions(&mut world), ["9.4.0"], "{shown:?}");
        check_end(&world, "nothing was known");
        assert_eq!(said(&world), Some("9.4.0"), "{shown:?}");
    }
}

fn about_to_be_purged() -> World {
    let mut world = serving();
    become_(&mut world, RunState::Purged);
    world
}

/// The disks of an older operator, of databases that live.
#[test]
fn a_disk_that_does_not_say_it_is_told_once() {
    for (start, tagged) in [(serving as fn() -> World, 1), (paused, 1), (deleted, 1), (about_to_be_purged, 0)]
    {
        let mut world = start();
        say(&mut world, None);
        let mut count = 0;
        for _ in 0..ENOUGH {
            let planned = pass(&mut world, &mut 0, None, false);
            let steps = planned.actions.iter().map(|action| &action.step);
            count += steps.filter(|step| matches!(step, Step::Tag { .. })).count();
            world.tick();
        }
        assert_eq!(count, tagged);
        if tagged > 0 {
            assert_eq!(said(&world), Some("9.3.4"));
        }
        check_end(&world, "it is known");
    }
}

/// The operator looks away at any moment of an upgrade, and everybody else goes on: the model refuses to start what the disk does
/// not say.
#[test]
fn a_disk_says_which_questdb_may_open_it_before_it_can() {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    let mut started = 0;
    for _ in 0..ENOUGH {
        let planned = pass(&mut world, &mut 0, None, false);
        let mut alone = world.clone();
        // Somebody has the pod made again meanwhile.
        alone.children.pod = None;
        alone.let_go();
        (0..10).for_each(|_| alone.tick());
        started += usize::from(runs(&alone).as_deref() == Some("10.0.0"));
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    assert!(started > 0, "nothing was started");
    assert_eq!(said(&world), Some("10.0.0"));
}

/// The disk says it, and nothing that would start it was written.
fn said_too_much() -> World {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    world.read_only_for = Some(Kind::StatefulSet);
    for _ in 0..ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
        if said(&world) == Some("10.0.0") {
            world.read_only_for = None;
            assert_eq!(runs(&world).as_deref(), Some("9.3.4"));
            return world;
        }
    }
    panic!("it was never said");
}

#[test]
fn what_was_said_too_early_is_taken_back_once_the_older_one_serves() {
    let mut world = said_too_much();
    wish_for(&mut world, "9.3.4");
    settle(&mut world, None, false);
    check_end(&world, "it turned back");
    assert_eq!((said(&world), runs(&world).as_deref()), (Some("9.3.4"), Some("9.3.4")));
}

#[test]
fn what_was_said_too_early_counts_when_nothing_else_is_left() {
    let mut world = said_too_much();
    wish_for(&mut world, "9.3.4");
    (world.children.stateful_set, world.children.pod) = (None, None);
    world.let_go();
    world.wipe();
    assert_eq!(versions(&mut world), ["10.0.0"]);
    assert!(is_refused(&world.resource) && said(&world) == Some("10.0.0"));
}

/// Nothing that would start it could be written, and then the machine is gone.
#[test]
fn where_the_disk_alone_tells_of_a_later_version_it_is_said_and_what_can_be_done_while_nothing_runs() {
    let mut world = said_too_much();
    wish_for(&mut world, "9.3.4");
    world.instances[0].state = InstanceState::Terminated;
    world.children.pod = None;
    world.let_go();
    pass(&mut world, &mut 0, None, false);
    let alone = "10.0.0 may have written, of which tag questdb.io/version of the disk alone tells";
    let text = refusal(&world);
    assert!(text.contains(alone) && text.contains("takes that tag off while nothing runs"), "{text}");
    // From then on it may begin.
    settle(&mut world, None, false);
    let text = refusal(&world);
    assert_eq!(runs(&world).as_deref(), Some("10.0.0"));
    assert!(text.contains("10.0.0 has written") && !text.contains("tag"), "{text}");
}

/// It was seen to serve alone, and does not any more: the hand that writes looks itself.
#[test]
fn nothing_older_is_said_by_who_saw_what_was() {
    let world = said_too_much();
    let tags = Tags::new().with(key::QUESTDB, "9.3.4");
    let step = Step::Tag { resource: world.volumes[0].id.to_string(), tags };
    let mut later = world.clone();
    settle(&mut later, None, false);
    assert_eq!(runs(&later).as_deref(), Some("10.0.0"));
    assert!(later.apply(&step, &world.resource).is_err(), "the later one has the disk");
    let mut other = world.clone();
    assert!(other.apply(&step, &world.resource).is_ok(), "it serves");
    other.children.pod = None;
    say(&mut other, Some("10.0.0"));
    assert!(other.apply(&step, &world.resource).is_err(), "it does not");
}

/// A start of another version than 9.3.4, at this second, and what became of it.
fn start(to: &str, result: UpgradeResult, second: u32) -> UpgradeStatus {
    let (from, to) = (catalogue::image_of("9.3.4"), catalogue::image_of(to));
    let begun = result != UpgradeResult::RolledBack;
    let started_at = format!("1970-01-01T00:00:{second:02}Z");
    let told = json!({ "from": from, "to": to, "result": result, "begun": begun, "startedAt": started_at });
    serde_json::from_value(told).unwrap()
}

/// A paused database, of which a cluster that was restored from a copy of before tells that 9.3.4 served, and what became of the
/// last start; its disk tells more, for the start of the first second.
fn restored(last: Option<UpgradeStatus>, shown: &str) -> World {
    let mut world = paused();
    world.resource.status.as_mut().unwrap().last_upgrade = last;
    say(&mut world, Some(shown));
    let tags = &mut world.volumes[0].tags;
    *tags = tags.clone().with(key::START, "1");
    world
}

#[test]
fn what_is_told_of_an_older_major_version_than_the_disk_tells_of_is_of_before() {
    use UpgradeResult::{RolledBack, Running, Succeeded};
    for (last, shown, expected) in [
        (None, "10.0.0", "10.0.0"),
        (Some(start("9.4.0", Succeeded, 1)), "10.0.0", "10.0.0"),
        (Some(start("9.4.0", Running, 1)), "10.0.0", "10.0.0"),
        (Some(start("10.0.0", Running, 1)), "11.0.0", "11.0.0"),
        (Some(start("10.0.0", RolledBack, 1)), "11.0.0", "11.0.0"),
        // It is known why the disk says so, and that it did not come to it.
        (Some(start("10.0.0", RolledBack, 1)), "10.0.0", "9.3.4"),
        // That is known of another attempt alone.
        (Some(start("10.0.0", RolledBack, 2)), "10.0.0", "10.0.0"),
        // Within a major version what is told is as good, and newer.
        (None, "9.4.0", "9.3.4"),
    ] {
        let what = format!("{last:?}, the disk says {shown}");
        let mut world = restored(last, shown);
        assert!(world.children.stateful_set.is_none() && world.children.pod.is_none());
        become_(&mut world, RunState::Running);
        assert_eq!(versions(&mut world), [expected], "{what}");
        check_end(&world, &what);
        let is_later = expected != "9.3.4";
        assert_eq!((said(&world), is_refused(&world.resource)), (Some(expected), is_later), "{what}");
        let status = world.resource.status.as_ref().unwrap();
        assert_eq!(status.version.as_deref(), Some(expected), "{what}");
        if is_later {
            let wanted = format!("QuestDB 9.3.4 cannot read what {expected} has written");
            assert!(refusal(&world).contains(&wanted), "{what}: {}", refusal(&world));
            assert_eq!(status.last_upgrade, None, "{what}: of a time before");
        }
    }
    let mut world = restored(None, "10.0.0");
    wish_for(&mut world, "10.0.1");
    become_(&mut world, RunState::Running);
    assert_eq!(versions(&mut world), ["10.0.0", "10.0.1"]);
    check_end(&world, "upgraded");
    assert_eq!(world.snapshots.len(), 1, "the disk is copied first");
}

/// A cluster that was restored from a copy of before shows a StatefulSet of 9.3.4, whose machine is gone, and a pod that serves; the
/// disk tells more. What that says of its last upgrade may be nothing that can be read.
#[test]
fn no_older_version_is_started_on_another_machine_by_a_stateful_set_of_before() {
    for is_unread in [false, true] {
        let mut world = serving();
        if is_unread {
            let set = Arc::make_mut(world.children.stateful_set.as_mut().unwrap());
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(names::UPGRADE.to_owned(), "{".to_owned());
        }
        say(&mut world, Some("10.0.0"));
        world.instances[0].state = InstanceState::Terminated;
        world.let_go();
        let planned = pass(&mut world, &mut 0, None, false);
        let tells = |step: &Step| matches!(step, Step::Tag { tags, .. } if tags.get(key::QUESTDB).is_some());
        assert!(!planned.actions.iter().any(|action| tells(&action.step)), "{:?}", planned.actions);
        let served = |world: &World| world.children.pod.as_deref().and_then(image_of_pod);
        world.children.pod = None;
        for _ in 0..ENOUGH {
            pass(&mut world, &mut 0, None, false);
            world.tick();
            assert!(served(&world).is_none_or(|image| image.ends_with("10.0.0")), "{:?}", served(&world));
        }
        if !is_unread {
            settle(&mut world, None, false);
            check_end(&world, "on another machine");
            assert!(is_refused(&world.resource), "{}", refusal(&world));
        }
        assert_eq!((said(&world), runs(&world).as_deref()), (Some("10.0.0"), Some("10.0.0")), "{is_unread}");
    }
}

/// The disk says it for a start that never came to be, and the database stops before anything else: what served is started again.
#[test]
fn what_was_said_too_early_is_taken_back_before_a_pause() {
    for wish in ["9.3.4", "10.0.0"] {
        let mut world = said_too_much();
        wish_for(&mut world, wish);
        become_(&mut world, RunState::Paused);
        settle(&mut world, None, false);
        check_end(&world, wish);
        assert_eq!(said(&world), Some("9.3.4"), "{wish}");
        become_(&mut world, RunState::Running);
        assert_eq!(versions(&mut world).first().map(String::as_str), Some("9.3.4"), "{wish}");
        assert_eq!(runs(&world).as_deref(), Some(wish));
    }
}

/// What a copy holds is no older than its version, so nor is the disk that is made of it, though nothing started on it yet.
#[test]
fn a_disk_of_a_copy_is_kept_from_older_versions_before_anything_starts_on_it() {
    let mut world = source::fresh_of_copy();
    "10.0.0".clone_into(&mut world.resource.spec.version);
    let copy = &mut world.copies[0].tags;
    *copy = copy.clone().with(key::QUESTDB, "10.0.1");
    for _ in 0..ENOUGH {
        if !world.volumes.is_empty() {
            break;
        }
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!((said(&world), runs(&world)), (Some("10.0.0"), None));
    wish_for(&mut world, "9.4.0");
    assert_eq!(versions(&mut world), ["10.0.0"]);
    assert!(is_refused(&world.resource), "{}", refusal(&world));
}

/// What is said of a pod whose version does not start, and how many minutes after it was made. Nothing else is started.
fn until_told(world: &mut World) -> (i64, String) {
    let mut told = None;
    for _ in 0..40 {
        let planned = pass(world, &mut 0, None, false);
        let made = world.children.pod.as_ref().and_then(|pod| pod.metadata.creation_timestamp.clone());
        if let Some(State::Broken(text)) = planned.state(Part::Pod) {
            let age = world.now.duration_since(made.unwrap().0).as_mins();
            told.get_or_insert_with(|| (age, text.clone()));
        }
        assert!(runs(world).is_none_or(|version| version == "10.0.0"), "{:?}", runs(world));
        world.tick();
    }
    told.unwrap()
}

/// The version that the disk names cannot be started any more, whatever is asked for.
#[test]
fn what_the_disk_names_and_does_not_start_is_told_in_time_and_nothing_else_is_started() {
    let image = vec![catalogue::image_of("10.0.0")];
    for wish in ["10.0.0", "10.0.1", "9.4.0"] {
        for (broken, unpulled, why, least) in
            [(vec![], image.clone(), "ErrImagePull", 10), (image.clone(), vec![], "exit code 1", 3)]
        {
            let mut world = returned();
            world.clock = SignedDuration::from_mins(1);
            (world.broken, world.unpulled) = (broken, unpulled);
            wish_for(&mut world, wish);
            let (after, text) = until_told(&mut world);
            assert!(after >= least && text.contains(why), "{wish}, after {after} minutes: {text}");
            let conditions = &world.resource.status.as_ref().unwrap().conditions;
            let degraded = conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap();
            assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "Pod"), "{wish}");
            assert_eq!(is_refused(&world.resource), wish == "9.4.0");
            (world.broken, world.unpulled) = (Vec::new(), Vec::new());
            settle(&mut world, None, false);
            check_end(&world, "it can be had again");
            assert_eq!(runs(&world).as_deref(), Some(if wish == "9.4.0" { "10.0.0" } else { wish }));
        }
    }
}
