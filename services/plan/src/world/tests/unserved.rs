//! A first version whose image is not to be had: the next one that is asked for is started in its place, because nothing is on the disk;
//! and as soon as anything may be, that is kept.

use std::sync::Arc;

use cloud::{Volume, VolumeState, key};
use domain::catalogue;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{RunState, UpgradeResult};
use serde_json::json;

use super::enumerated::comes_to;
use super::kubernetes::parse;
use super::model::World;
use super::operations::{Operation, become_, change, end_machine, fresh, on_the_way, operation};
use super::oracle::{check_end, is_refused};
use super::runner::{ENOUGH, Run, pass, record, settle, troubles_at};
use crate::change::{image_of_pod, image_of_template};
use crate::upgrade::{NEVER, ONCE, version_of};
use crate::{Children, Kind, Part, State, Step, pod_serves};

/// Other wishes before the first version has served.
pub(super) const UNSERVED: &[Operation] = &[
    operation("another version before the first one is started", half_made, |world| wish_for(world, "9.4.0")),
    operation("another version right after the first one is started", just_started, |world| {
        wish_for(world, "9.4.0");
    }),
    operation("another major version right after the first one is started", just_started, |world| {
        wish_for(world, "10.0.0");
    }),
];

/// A resource that is known to be older than the disk that is made for it.
fn made_of(version: &str) -> World {
    let mut world = fresh();
    world.resource.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    version.clone_into(&mut world.resource.spec.version);
    world
}

fn half_made() -> World {
    on_the_way(made_of("9.3.4"), |_| {}, |world| !world.children.nodes.is_empty())
}

fn just_started() -> World {
    on_the_way(made_of("9.3.4"), |_| {}, |world| world.children.pod.is_some())
}

/// How a version does not come to serve.
#[derive(Clone, Copy, Debug)]
enum Why {
    Ends,
    IsNotToBeHad,
}

/// One whose first version does not serve, and has been tried for some minutes.
fn never_served(version: &str, why: Why) -> World {
    let mut world = made_of(version);
    let image = vec![catalogue::image_of(version)];
    match why {
        Why::Ends => world.broken = image,
        Why::IsNotToBeHad => world.unpulled = image,
    }
    world.clock = SignedDuration::from_secs(30);
    passes(&mut world, 40);
    assert_eq!(pod_runs(&world).as_deref(), Some(version));
    let said = match why {
        Why::Ends => ONCE,
        Why::IsNotToBeHad => NEVER,
    };
    assert_eq!(served(&world), Some(said));
    world
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
    }
}

/// For some minutes nothing else than this version is started, nor is the disk copied.
fn check_stays(world: &mut World, version: &str, what: &str) {
    for _ in 0..40 {
        passes(world, 1);
        assert!(pod_runs(world).is_none_or(|runs| runs == version), "{what}: {:?}", pod_runs(world));
        assert!(world.children.stateful_set.is_none() || template_has(world, version), "{what}");
        assert!(world.snapshots.is_empty(), "{what}");
    }
    assert_eq!(pod_runs(world).as_deref(), Some(version), "{what}");
}

fn wish_for(world: &mut World, version: &str) {
    change(world, |spec| version.clone_into(&mut spec.version));
}

fn served(world: &World) -> Option<&str> {
    world.volumes[0].tags.get(key::SERVED)
}

fn pod(world: &mut World) -> &mut Pod {
    Arc::make_mut(world.children.pod.as_mut().unwrap())
}

fn pod_runs(world: &World) -> Option<String> {
    let image = image_of_pod(world.children.pod.as_deref()?)?;
    Some(version_of(&image).to_owned())
}

fn template_has(world: &World, version: &str) -> bool {
    let image = image_of_template(world.children.stateful_set.as_deref());
    image.is_some_and(|image| version_of(&image) == version)
}

fn told(world: &World, kind: &str) -> String {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.type_ == kind);
    found.next().map(|found| found.message.clone()).unwrap_or_default()
}

/// It serves, as the first one that did.
fn check_first(world: &World, version: &str, what: &str) {
    check_end(world, what);
    let status = world.resource.status.as_ref().unwrap();
    assert_eq!((status.version.as_deref(), &status.last_upgrade), (Some(version), &None), "{what}");
    assert!(world.snapshots.is_empty(), "{what}: there was nothing to copy");
    let tags = &world.volumes[0].tags;
    assert_eq!((tags.get(key::QUESTDB), served(world)), (Some(version), Some(ONCE)), "{what}");
}

const WAYS: [(&str, &str); 3] = [("9.3.4", "9.4.0"), ("9.4.0", "9.3.4"), ("10.0.0", "10.0.1")];

#[test]
fn what_never_began_makes_room_for_another_version_without_a_copy() {
    for (first, wish) in WAYS {
        let what = format!("{first} to {wish}");
        let mut world = never_served(first, Why::IsNotToBeHad);
        let planned = pass(&mut world, &mut 0, None, false);
        let state = planned.state(Part::Pod);
        assert!(
            matches!(state, Some(State::Broken(text)) if text.contains("ask for another version")),
            "{what}: {state:?}"
        );
        wish_for(&mut world, wish);
        settle(&mut world, None, false);
        check_first(&world, wish, &what);
    }
}

#[test]
fn several_versions_may_not_be_to_be_had_one_after_the_other() {
    let mut world = never_served("9.3.4", Why::IsNotToBeHad);
    world.unpulled.extend(["9.4.0", "9.3.5"].map(catalogue::image_of));
    for version in ["9.4.0", "9.3.5"] {
        wish_for(&mut world, version);
        passes(&mut world, 20);
        assert_eq!((pod_runs(&world).as_deref(), served(&world)), (Some(version), Some(NEVER)));
    }
    wish_for(&mut world, "9.4.1");
    settle(&mut world, None, false);
    check_first(&world, "9.4.1", "the fourth");
}

#[test]
fn whatever_goes_wrong_on_the_way_to_the_other_version_the_end_is_the_same() {
    for (first, wish) in WAYS {
        let begun = || {
            let mut world = never_served(first, Why::IsNotToBeHad);
            wish_for(&mut world, wish);
            world
        };
        let mut end = begun();
        let Run { steps, passes } = record(&mut end);
        check_first(&end, wish, "undisturbed");
        for trouble in (0..steps.len()).flat_map(troubles_at) {
            comes_to(&end, &passes, trouble, &format!("{first} to {wish}, {trouble:?}"));
        }
        let check = |cloud: &str, gather: fn(&mut World)| {
            let mut world = begun();
            gather(&mut world);
            settle(&mut world, None, false);
            check_first(&world, wish, &format!("{first} to {wish}, {cloud}"));
        };
        check("wiped", |world| world.wiped = ENOUGH / 2);
        check("EC2 late", |world| world.lag = 3);
        check("caches late", |world| world.late = true);
    }
}

/// It goes on as with every database that serves: with a copy, and not back to an older major version.
fn check_kept(mut world: World, (first, wish): (&str, &str), what: &str) {
    (world.broken, world.unpulled) = (Vec::new(), Vec::new());
    settle(&mut world, None, false);
    check_end(&world, what);
    assert_eq!(served(&world), Some(ONCE), "{what}");
    let is_older = catalogue::is_downgrade(first, wish);
    assert_eq!(is_refused(&world.resource), is_older, "{what}");
    assert_eq!(world.snapshots.is_empty(), is_older, "{what}");
    assert_eq!(pod_runs(&world).as_deref(), Some(if is_older { first } else { wish }), "{what}");
    let last = world.resource.status.as_ref().and_then(|status| status.last_upgrade.as_ref());
    let result = last.map(|last| (version_of(&last.from), last.result));
    assert_eq!(result, (!is_older).then_some((first, UpgradeResult::Succeeded)), "{what}");
}

/// What ends has begun, and may have answered; what is to run on another machine may have run on the one before; and what another major
/// version begins on is not for the one before.
#[test]
fn whatever_may_have_begun_is_copied_first() {
    let ends = |version| never_served(version, Why::Ends);
    let is_not_to_be_had = |version| never_served(version, Why::IsNotToBeHad);
    for way in WAYS {
        let mut world = ends(way.0);
        wish_for(&mut world, way.1);
        check_stays(&mut world, way.0, &format!("{way:?}, it ends"));
        check_kept(world, way, &format!("{way:?}, it ended"));

        let mut world = is_not_to_be_had(way.0);
        become_(&mut world, RunState::Paused);
        settle(&mut world, None, false);
        become_(&mut world, RunState::Running);
        wish_for(&mut world, way.1);
        check_stays(&mut world, way.0, &format!("{way:?}, after a pause"));
        assert!(told(&world, condition::DEGRADED).contains("no other is started on its data"), "{way:?}");
        check_kept(world, way, &format!("{way:?}, it was paused"));
    }
    for way in [("9.3.4", "10.0.0"), ("10.0.0", "9.4.0")] {
        let mut world = is_not_to_be_had(way.0);
        wish_for(&mut world, way.1);
        check_stays(&mut world, way.0, &format!("{way:?}"));
        check_kept(world, way, &format!("{way:?}, it is to be had"));
    }
}

/// It served while nobody looked, as where nothing is to be done for it or its spec is refused, its pod is gone by now, and another version
/// is asked for.
fn served_unseen() -> World {
    let mut world = just_started();
    world.clock = SignedDuration::from_secs(30);
    world.tick();
    assert!(world.children.pod.as_deref().is_some_and(pod_serves));
    let version = world.resource.status.as_ref().and_then(|status| status.version.as_ref());
    assert_eq!((version, served(&world)), (None, Some(NEVER)), "nobody knows");
    world.children.pod = None;
    world.let_go();
    wish_for(&mut world, "9.4.0");
    world
}

#[test]
fn what_served_while_nobody_looked_keeps_its_data_whatever_its_next_pod_is_like() {
    let first = vec![catalogue::image_of("9.3.4")];
    let way = ("9.3.4", "9.4.0");
    check_kept(served_unseen(), way, "it starts");

    // Its disk may be full of what clients wrote.
    let mut world = served_unseen();
    world.broken.clone_from(&first);
    check_stays(&mut world, "9.3.4", "it ends");
    check_kept(world, way, "it ended");

    // Where it served, its image was.
    let mut world = served_unseen();
    world.unpulled = first;
    end_machine(&mut world, 0);
    check_stays(&mut world, "9.3.4", "its image is not to be had on the next machine");
    check_kept(world, way, "its image is on the next machine");
}

/// The other version is about to be started in the place of one that is not to be had.
fn about_to_be_replaced(first: &str, wish: &str) -> World {
    let mut world = never_served(first, Why::IsNotToBeHad);
    wish_for(&mut world, wish);
    for _ in 0..ENOUGH {
        if template_has(&world, wish) {
            break;
        }
        passes(&mut world, 1);
    }
    assert!(template_has(&world, wish) && pod_runs(&world).as_deref() == Some(first));
    world
}

/// The same, and the first one is to be had and answers after all.
fn answers_at_last(first: &str, wish: &str) -> World {
    let mut world = about_to_be_replaced(first, wish);
    world.unpulled.clear();
    let status = pod(&mut world).status.get_or_insert_default();
    (status.init_container_statuses, status.container_statuses) = (None, None);
    let conditions = status.conditions.iter_mut().flatten();
    conditions.filter(|found| found.type_ == "Ready").for_each(|found| "True".clone_into(&mut found.status));
    world
}

#[test]
fn what_answers_before_it_is_replaced_keeps_its_data() {
    for way in WAYS {
        check_kept(answers_at_last(way.0, way.1), way, &format!("{way:?}"));

        // It is reported, and then its pod is gone before the StatefulSet could be put back.
        let what = format!("{way:?}, its pod is gone");
        let mut world = answers_at_last(way.0, way.1);
        world.read_only_for = Some(Kind::StatefulSet);
        pass(&mut world, &mut 0, None, false);
        assert!(template_has(&world, way.1) && served(&world) == Some(NEVER), "{what}");
        world.children.pod = None;
        world.read_only_for = None;
        pass(&mut world, &mut 0, None, false);
        assert!(template_has(&world, way.0), "{what}");
        world.tick();
        check_kept(world, way, &what);
    }
}

/// From then on it may answer at any moment.
#[test]
fn what_begins_before_it_is_replaced_stays() {
    for way in WAYS {
        let mut world = about_to_be_replaced(way.0, way.1);
        world.unpulled.clear();
        let status = pod(&mut world).status.get_or_insert_default();
        status.init_container_statuses = None;
        status.container_statuses = parse(&json!([{
            "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "running": {} },
        }]));
        pass(&mut world, &mut 0, None, false);
        assert!(template_has(&world, way.0), "{way:?}");
        assert_eq!(pod(&mut world).metadata.deletion_timestamp, None, "{way:?}");
        world.tick();
        check_kept(world, way, &format!("{way:?}"));
    }
}

/// Between the look and the end of its pod it may begin, which its pod says then.
#[test]
fn what_is_replaced_is_ended_only_as_it_was_seen() {
    for (first, wish) in WAYS {
        let mut world = about_to_be_replaced(first, wish);
        let ended = (0..ENOUGH).find_map(|_| {
            pod(&mut world).metadata.resource_version = Some("seen".to_owned());
            let planned = pass(&mut world, &mut 0, None, false);
            world.tick();
            planned.actions.into_iter().find_map(|action| match action.step {
                Step::Delete(target) if target.kind == Kind::Pod => Some(target.resource_version),
                _ => None,
            })
        });
        assert_eq!(ended, Some(Some("seen".to_owned())), "{first} to {wish}");
    }
}

/// The resource is deleted, its disk stays, and one of its name is made a while later.
fn made_again(version: &str) -> World {
    let before = never_served(version, Why::IsNotToBeHad);
    let mut world = made_of(version);
    world.resource.metadata.creation_timestamp = Some(Time(before.now));
    (world.now, world.clock) = (before.now, before.clock);
    world.unpulled.clone_from(&before.unpulled);
    let left = before.volumes.into_iter();
    let free = |disk| Volume { state: VolumeState::Available, attachments: Vec::new(), ..disk };
    world.volumes = left.map(free).collect();
    world
}

/// Somebody may have served from it meanwhile who does not know what it says.
#[test]
fn a_disk_that_was_there_before_is_copied_first_and_what_can_be_done_is_told() {
    for wish in ["9.4.0", "9.3.5"] {
        let mut world = made_again("9.4.1");
        wish_for(&mut world, wish);
        check_stays(&mut world, "9.4.1", wish);
        let text = told(&world, condition::UPGRADE_IN_PROGRESS);
        assert!(text.contains("has to serve") && text.contains("take a QuestDBSnapshot"), "{wish}: {text}");
        assert!(told(&world, condition::DEGRADED).contains("no other is started on its data"), "{wish}");
        world.unpulled.clear();
        settle(&mut world, None, false);
        check_end(&world, wish);
        assert_eq!((pod_runs(&world).as_deref(), world.snapshots.len()), (Some(wish), 1));
    }
}

/// The cluster was restored from a backup of before it served, and what asks for another version may be just as old.
#[test]
fn a_cluster_of_before_does_not_make_a_disk_one_that_never_served() {
    for wish in ["9.4.0", "10.0.1"] {
        let before = made_of("10.0.0");
        let mut world = before.clone();
        settle(&mut world, None, false);
        assert_eq!(served(&world), Some(ONCE));
        let nodes = std::mem::take(&mut world.children.nodes);
        (world.resource, world.children) = (before.resource, Children { nodes, ..Children::default() });
        world.let_go();
        wish_for(&mut world, wish);
        let mut ran = 0;
        for _ in 0..ENOUGH {
            passes(&mut world, 1);
            let (runs, is_copied) = (pod_runs(&world), !world.snapshots.is_empty());
            ran += usize::from(runs.is_some());
            assert!(runs.is_none_or(|runs| runs == "10.0.0" || is_copied), "{wish}");
        }
        assert_eq!((ran > 0, is_refused(&world.resource)), (true, wish == "9.4.0"));
    }
}
