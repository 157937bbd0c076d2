//! From one QuestDB to another: the disk is copied first, what does not start is taken back, and is not tried again by itself.

mod copied;
mod forward;
mod midway;
mod unseen;

use std::sync::Arc;

use jiff::SignedDuration;
use resources::names::condition;
use resources::{ChangeMeans, Phase, RunState, UpgradeResult, UpgradeStatus};
use serde_json::json;

use super::model::World;
use super::operations::change;
use super::oracle::check_end;
use super::runner::{pass, settle};
use crate::change::{image_of_pod, image_of_template};
use crate::fixture::{settings, validated};
use crate::{Kind, Settings, Step, Unseen, plan, validate};

/// A database that serves, in a world whose time passes.
fn serving() -> World {
    let mut world = super::serving();
    world.clock = SignedDuration::from_secs(10);
    world
}

/// Passes until something is so.
fn until(world: &mut World, is_so: impl Fn(&World) -> bool) {
    for _ in 0..super::ENOUGH {
        if is_so(world) {
            return;
        }
        pass(world, &mut 0, None, false);
        world.tick();
    }
    panic!("it never came to it");
}

fn runs(world: &World) -> Option<String> {
    image_of_pod(world.children.pod.as_deref()?)
}

/// The StatefulSet has the image, and the pod as well.
fn is_started(world: &World, version: &str) -> bool {
    let set = image_of_template(world.children.stateful_set.as_deref());
    [set, runs(world)].iter().flatten().filter(|image| image.ends_with(version)).count() == 2
}

/// The pod answers its probes, or does not.
fn answers(world: &mut World, ready: &str) {
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    let conditions = pod.status.get_or_insert_default().conditions.iter_mut().flatten();
    conditions.filter(|found| found.type_ == "Ready").for_each(|found| ready.clone_into(&mut found.status));
}

fn wish_for(world: &mut World, version: &str) {
    change(world, |spec| version.clone_into(&mut spec.version));
}

fn image(world: &World) -> String {
    image_of_template(world.children.stateful_set.as_deref()).unwrap()
}

fn last(world: &World) -> UpgradeStatus {
    world.resource.status.as_ref().unwrap().last_upgrade.clone().unwrap()
}

fn told(world: &World, kind: &str) -> (String, String) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

fn broken(version: &str) -> Vec<String> {
    vec![domain::catalogue::image_of(version)]
}

#[test]
fn the_disk_is_copied_before_the_new_image_is_started() {
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    let mut was_told = false;
    for _ in 0..super::ENOUGH {
        let status = world.resource.status.as_ref().unwrap();
        was_told |= status
            .pending
            .iter()
            .any(|found| (found.field.as_str(), found.means) == ("/spec/version", ChangeMeans::Restart));
        let planned = pass(&mut world, &mut 0, None, false);
        if image(&world).ends_with("9.4.0") {
            assert!(was_told, "told beforehand");
            let phase = world.snapshots[0].status.as_ref().and_then(|status| status.phase).unwrap();
            assert!(["Copying", "Succeeded"].contains(&phase.as_str()), "{phase:?}");
        } else {
            assert_eq!(told(&world, "Ready").0, "True", "nothing is touched before");
            assert_eq!(world.resource.status.as_ref().unwrap().version.as_deref(), Some("9.3.4"));
        }
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    check_end(&world, "upgraded");
    let last = last(&world);
    assert_eq!((last.from.as_str(), last.to.as_str()), ("questdb/questdb:9.3.4", "questdb/questdb:9.4.0"));
    assert_eq!((last.result, &last.snapshot), (UpgradeResult::Succeeded, &world.snapshots[0].metadata.name));
    assert_eq!(world.snapshots.len(), 1);
    assert_eq!(world.resource.status.as_ref().unwrap().version.as_deref(), Some("9.4.0"));
    assert_eq!(told(&world, condition::UPGRADE_IN_PROGRESS).0, "False");

    // One that served is not taken back for what happens later.
    world.broken = broken("9.4.0");
    world.children.pod = None;
    for _ in 0..12 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(image(&world).ends_with("9.4.0"));
}

/// What there is of copies cannot be seen, before one is asked for and after: none is asked for, and nothing is started.
#[test]
fn nothing_is_upgraded_while_it_is_not_known_which_copies_there_are() {
    let refused = Unseen::Refused("apply the definitions".to_owned());
    let broken = Unseen::Broken("it broke".to_owned());
    for (unseen, said) in [(Unseen::Yet, None), (broken, Some("True")), (refused, Some("False"))] {
        for copies in 0..2 {
            let mut world = serving();
            wish_for(&mut world, "9.4.0");
            until(&mut world, |world| world.snapshots.len() == copies);
            world.children.copies_unseen = Some(unseen.clone());
            for _ in 0..20 {
                pass(&mut world, &mut 0, None, false);
                world.tick();
            }
            assert_eq!(world.snapshots.len(), copies, "{unseen:?}");
            assert!(image(&world).ends_with("9.3.4"), "{unseen:?}");
            assert_eq!(told(&world, "Ready").0, "True", "nothing is touched");
            let (status, text) = told(&world, condition::UPGRADE_IN_PROGRESS);
            if let (Some(expected), Unseen::Broken(why) | Unseen::Refused(why)) = (said, &unseen) {
                assert!(status == expected && text.contains(why), "{status} {text}");
            }
            let degraded = told(&world, condition::DEGRADED).0;
            assert_eq!(degraded == "True", matches!(unseen, Unseen::Refused(_)), "{unseen:?}");
            world.children.copies_unseen = None;
            settle(&mut world, None, false);
            check_end(&world, "upgraded");
            assert_eq!(world.snapshots.len(), 1, "{unseen:?}");
        }
    }
}

#[test]
fn what_does_not_start_is_taken_back_and_tried_again_only_on_demand() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    let check = |world: &World| {
        let last = last(world);
        assert_eq!(last.result, UpgradeResult::RolledBack);
        assert_eq!(last.reason.as_deref(), Some("it ended again and again, last with exit code 1"));
        let status = world.resource.status.as_ref().unwrap();
        assert_eq!((status.phase, status.version.as_deref()), (Some(Phase::Degraded), Some("9.3.4")));
        assert_eq!(
            (image(world).as_str(), told(world, "Ready").0.as_str() == "True"),
            ("questdb/questdb:9.3.4", true)
        );
        let (accepted, why) = told(world, condition::CONFIG_ACCEPTED);
        assert!(accepted == "False" && why.contains("exit code 1") && why.contains("restartNonce"), "{why}");
        let (degraded, why_degraded) = told(world, condition::DEGRADED);
        assert!(degraded == "True" && why_degraded.contains(&why), "{why_degraded}");
        let named = world.snapshots[0].metadata.name.as_deref().unwrap();
        assert!(why.contains("9.3.4 serves on") && why.contains(named), "{why}");
        assert_eq!(status.instruction.as_ref().unwrap().seq, 1, "the wish was not carried out");
    };
    check(&world);

    // Everything else of the spec goes on meanwhile, and a status that is lost changes nothing.
    change(&mut world, |spec| spec.config.clear());
    world.wipe();
    settle(&mut world, None, false);
    assert_eq!((image(&world).as_str(), world.snapshots.len()), ("questdb/questdb:9.3.4", 1));
    change(&mut world, |spec| spec.restart_nonce = Some("again".to_owned()));
    world.broken.clear();
    settle(&mut world, None, false);
    check_end(&world, "the second attempt");
    assert_eq!(
        (last(&world).result, world.snapshots.len()),
        (UpgradeResult::Succeeded, 2),
        "a copy of its own"
    );

    // Whoever gives up has nothing open.
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    wish_for(&mut world, "9.3.4");
    settle(&mut world, None, false);
    check_end(&world, "given up");
    assert_eq!(last(&world).result, UpgradeResult::RolledBack, "what happened stays told");

    // And may ask for the same again later.
    world.broken.clear();
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    check_end(&world, "asked for again");
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 2));
}

#[test]
fn without_a_copy_nothing_is_upgraded() {
    let mut world = serving();
    world.uncopied = true;
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    assert!(image(&world).ends_with("9.3.4"));
    let (accepted, why) = told(&world, condition::CONFIG_ACCEPTED);
    assert!(accepted == "False" && why.contains("copied") && told(&world, "Ready").0 == "True", "{why}");
    world.uncopied = false;
    world.snapshots.clear();
    settle(&mut world, None, false);
    check_end(&world, "the copy could be made");
    assert!(image(&world).ends_with("9.4.0"));
}

#[test]
fn an_older_major_version_never_gets_the_data() {
    let mut world = serving();
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    assert!(
        image(&world).ends_with("10.0.0")
            && told(&world, condition::CONFIG_ACCEPTED).1.contains("cannot read")
    );
    assert_eq!(world.snapshots.len(), 1, "nothing is prepared for it");

    // Nor after a pause, of which only the status knows.
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    change(&mut world, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    assert!(is_started(&world, "10.0.0") && told(&world, "Ready").0 == "True", "what ran last serves");
    assert!(told(&world, condition::CONFIG_ACCEPTED).1.contains("cannot read"));
    wish_for(&mut world, "10.0.0");
    settle(&mut world, None, false);
    check_end(&world, "back to its own");
}

#[test]
fn without_a_stateful_set_the_image_that_ran_last_is_started_first() {
    // Asked for while it is paused.
    let mut world = serving();
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    change(&mut world, |spec| {
        spec.run_state = RunState::Running;
        "9.4.0".clone_into(&mut spec.version);
    });
    until(&mut world, |world| runs(world).is_some());
    assert!(is_started(&world, "9.3.4"));
    settle(&mut world, None, false);
    check_end(&world, "upgraded after the pause");
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 1));

    // Taken back, then paused.
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    settle(&mut world, None, false);
    change(&mut world, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    change(&mut world, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4"));
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::RolledBack, 1));

    // Somebody deletes it.
    let mut world = serving();
    world.uncopied = true;
    wish_for(&mut world, "9.4.0");
    world.children.stateful_set = None;
    settle(&mut world, None, false);
    assert!(is_started(&world, "9.3.4"));
    assert!(told(&world, condition::CONFIG_ACCEPTED).1.contains("copied"));
}

#[test]
fn an_image_that_served_unseen_keeps_its_data() {
    for wish in ["9.3.4", "9.4.0"] {
        let mut world = serving();
        wish_for(&mut world, "10.0.0");
        until(&mut world, |world| is_started(world, "10.0.0"));
        answers(&mut world, "True");
        wish_for(&mut world, wish);
        settle(&mut world, None, false);
        assert!(is_started(&world, "10.0.0"), "{wish}");
        assert_eq!(last(&world).result, UpgradeResult::Succeeded, "{wish}");
        assert!(told(&world, condition::CONFIG_ACCEPTED).1.contains("cannot read"), "{wish}");
    }

    // Within a major version it goes back, as to any other version: with a copy.
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    until(&mut world, |world| is_started(world, "9.4.0"));
    answers(&mut world, "True");
    wish_for(&mut world, "9.3.4");
    settle(&mut world, None, false);
    check_end(&world, "went back");
    assert_eq!((last(&world).to.as_str(), world.snapshots.len()), ("questdb/questdb:9.3.4", 2));
}

#[test]
fn one_that_serves_while_it_is_taken_back_stays() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    let is_taken_back = |world: &World| {
        let status = world.resource.status.as_ref().unwrap();
        status.last_upgrade.as_ref().is_some_and(|last| last.result == UpgradeResult::RolledBack)
    };
    until(&mut world, |world| {
        image(world).ends_with("9.3.4") && is_taken_back(world) && runs(world).unwrap().ends_with("9.4.0")
    });
    world.broken.clear();
    answers(&mut world, "True");
    settle(&mut world, None, false);
    check_end(&world, "it serves");
    assert!(is_started(&world, "9.4.0") && last(&world).result == UpgradeResult::Succeeded);
}

#[test]
fn another_image_is_written_only_over_what_was_seen() {
    let mut world = serving();
    world.broken = broken("9.4.0");
    wish_for(&mut world, "9.4.0");
    let decides = |world: &World| {
        let planned = plan(&world.resource, &validated(&world.resource), &world.look(), &settings());
        let mut steps = planned.actions.into_iter().map(|action| action.step);
        steps.find(|step| matches!(step, Step::Apply(manifest) if manifest.kind == Kind::StatefulSet))
    };
    let mut counted = 0;
    for _ in 0..20 {
        if let Some(step) = decides(&world) {
            let mut later = world.clone();
            let set = Arc::make_mut(later.children.stateful_set.as_mut().unwrap());
            set.metadata.resource_version = Some("later".to_owned());
            assert!(later.apply(&step, &world.resource).is_err(), "an older decision");
            counted += 1;
        }
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(counted, 5, "there, that it has begun, back, in which pod, and that it serves again");
}

#[test]
fn another_major_version_that_may_have_written_is_not_taken_back() {
    let mut world = serving();
    world.broken = broken("10.0.0");
    wish_for(&mut world, "10.0.0");
    until(&mut world, |world| told_of_upgrade(world).contains("does not start"));
    assert!(is_started(&world, "10.0.0"));
    let text = told_of_upgrade(&world);
    assert!(text.contains(world.snapshots[0].metadata.name.as_deref().unwrap()), "{text}");
    assert_eq!(world.resource.status.as_ref().unwrap().phase, Some(Phase::Degraded));
    wish_for(&mut world, "9.3.4");
    for _ in 0..20 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert!(is_started(&world, "10.0.0"), "nor on demand");
    wish_for(&mut world, "10.0.0");
    world.broken.clear();
    settle(&mut world, None, false);
    check_end(&world, "it was repaired");
}

fn told_of_upgrade(world: &World) -> String {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let mut words = conditions.filter(|found| found.type_ == condition::UPGRADE_IN_PROGRESS);
    words.next().map(|found| found.message.clone()).unwrap_or_default()
}

#[test]
fn a_copy_that_is_too_old_is_taken_again() {
    let phase = |world: &World| world.snapshots.first().and_then(|found| found.status.as_ref()?.phase);
    let copied = |world: &World| phase(world).is_some_and(|phase| phase.as_str() == "Copying");
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    until(&mut world, copied);
    assert!(image(&world).ends_with("9.3.4"));
    world.now += SignedDuration::from_mins(16);
    settle(&mut world, None, false);
    check_end(&world, "with another copy");
    assert_eq!(world.snapshots.len(), 2);
    let second = world.snapshots[1].metadata.name.clone();
    assert!(second.as_deref().unwrap().ends_with("-2") && last(&world).snapshot == second);

    // One of another disk is none, and one that goes is none.
    for fault in ["volume", "database", "deleted"] {
        let mut world = serving();
        wish_for(&mut world, "9.4.0");
        until(&mut world, copied);
        let copy = Arc::make_mut(&mut world.snapshots[0]);
        let status = copy.status.as_mut().unwrap();
        match fault {
            "volume" => status.volume_id = Some("vol-of-others".to_owned()),
            "database" => status.database_id = Some("other".to_owned()),
            _ => {
                copy.metadata.deletion_timestamp =
                    serde_json::from_value(json!("1970-01-01T00:00:00Z")).unwrap();
            }
        }
        for _ in 0..10 {
            pass(&mut world, &mut 0, None, false);
            world.tick();
        }
        assert!(is_started(&world, "9.3.4"), "{fault}");
        world.snapshots.clear();
        settle(&mut world, None, false);
        check_end(&world, fault);
    }
}

#[test]
fn another_configuration_serves_before_another_version_is_started() {
    let mut world = serving();
    let first = world.pod_uid();
    change(&mut world, |spec| {
        "9.4.0".clone_into(&mut spec.version);
        spec.config.insert("cairo.max.uncommitted.rows".to_owned(), "7".to_owned());
    });
    until(&mut world, |world| !world.snapshots.is_empty());
    assert!(is_started(&world, "9.3.4") && world.pod_uid() != first, "with the other configuration");
    settle(&mut world, None, false);
    check_end(&world, "both");
    assert_eq!((last(&world).result, world.snapshots.len()), (UpgradeResult::Succeeded, 1));
}

#[test]
fn when_it_began_is_told_once() {
    let mut world = serving();
    wish_for(&mut world, "9.4.0");
    world.read_only_for = Some(Kind::StatefulSet);
    let is_begun = |world: &World| world.resource.status.as_ref().unwrap().last_upgrade.is_some();
    until(&mut world, is_begun);
    let began = last(&world).started_at;
    pass(&mut world, &mut 0, None, false);
    world.tick();
    pass(&mut world, &mut 0, None, false);
    assert_eq!(last(&world).started_at, began);
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_end(&world, "upgraded");
}

#[test]
fn the_version_in_force_is_valid_although_it_is_on_offer_no_more() {
    let world = serving();
    let settings = Settings { versions: "9.3.5,9.4.0".parse().unwrap(), ..settings() };
    let subject = crate::fixture::subject();
    assert!(validate(&world.resource, subject.clone(), &settings).is_ok());
    let new = crate::fixture::resource(1);
    assert!(validate(&new, subject, &settings).is_err(), "a new database may not have it");
}
