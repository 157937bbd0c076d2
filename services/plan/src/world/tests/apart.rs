//! What fails holds back what needs it and nothing else.

use std::sync::Arc;

use cloud::ModificationState;
use resources::names::{self, condition};
use resources::{Phase, RunState, StepState};

use super::credentials::{in_force, wishing};
use super::model::World;
use super::operations::{change, end_machine};
use super::{ENOUGH, check_serving, outdated, pass, phase, serving, settle, wish};
use crate::{Failure, Kind, Part, Step};

/// A database whose disk is to grow, which EC2 refuses, and whose wish has a second part.
fn refused(change: impl FnOnce(&mut resources::QuestDBSpec)) -> World {
    let mut world = serving();
    world.too_soon = true;
    wish(&mut world, 2, |spec| {
        spec.storage.size_gib = 80;
        change(spec);
    });
    let mut taken = 0;
    for _ in 0..ENOUGH {
        pass(&mut world, &mut taken, None, false);
        world.tick();
    }
    world
}

fn told<'a>(world: &'a World, kind: &str) -> (&'a str, &'a str, &'a str) {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind).unwrap();
    (&found.status, &found.reason, &found.message)
}

#[test]
fn a_disk_that_may_not_grow_yet_holds_nothing_else_back() {
    let before = serving().children.pod.as_ref().unwrap().metadata.uid.clone();
    let mut world = refused(|spec| {
        spec.config.insert("cairo.max.uncommitted.rows".to_owned(), "7".to_owned());
        spec.restart_nonce = Some("once".to_owned());
    });
    assert_eq!(world.volumes[0].size_gib, 50, "the change was refused");
    let config = world.children.config.as_ref().unwrap().data.as_ref().unwrap();
    assert!(config["server.conf"].contains("cairo.max.uncommitted.rows=7"), "{config:?}");
    assert_ne!(world.children.pod.as_ref().unwrap().metadata.uid, before, "it was restarted");
    assert_eq!(phase(&world), Some(Phase::Updating));
    assert_eq!(told(&world, condition::READY).0, "True");
    assert_eq!(told(&world, condition::VOLUME_RESIZING), ("False", "Delayed", "too soon"));
    let steps = &world.resource.status.as_ref().unwrap().steps;
    let failed: Vec<&str> =
        steps.iter().filter(|step| step.state == StepState::Failed).map(|step| step.name.as_str()).collect();
    assert_eq!(failed, ["tuning"]);
    assert_eq!(
        world.resource.status.as_ref().unwrap().instruction.as_ref().unwrap().seq,
        1,
        "not all is done"
    );

    world.too_soon = false;
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.volumes[0].size_gib, 80);
    assert_eq!(told(&world, condition::VOLUME_RESIZING).0, "False");
}

#[test]
fn a_size_that_is_refused_is_taken_back_and_what_was_asked_for_beside_it_is_done() {
    let mut world = refused(|spec| spec.storage.iops = 4_000);
    let sizes = |world: &World| {
        let children = &world.children;
        (children.claim.as_ref().unwrap().spec.clone(), children.persistent_volumes[0].spec.clone())
    };
    let before = sizes(&world);
    assert_ne!(phase(&world), Some(Phase::Ready));
    world.too_soon = false;
    wish(&mut world, 3, |spec| spec.storage.size_gib = 50);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!((world.volumes[0].size_gib, world.volumes[0].iops), (50, Some(4_000)));
    assert_eq!(sizes(&world), before);
    assert_eq!(told(&world, condition::VOLUME_RESIZING).0, "False");
}

#[test]
fn a_size_that_is_taken_back_while_the_disk_grows_shrinks_nothing() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(world.modified, 1);
    let request = |world: &World| world.children.claim.as_ref().unwrap().spec.clone();
    let claimed = request(&world);
    wish(&mut world, 3, |spec| spec.storage.size_gib = 60);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!((world.volumes[0].size_gib, world.modified), (80, 1));
    assert_eq!(request(&world), claimed);
    let disk = world.children.persistent_volumes[0].spec.as_ref().unwrap();
    assert_eq!(disk.capacity.as_ref().unwrap()["storage"].0, "80Gi");
}

#[test]
fn a_disk_that_may_not_grow_yet_is_no_reason_for_a_pod_that_is_not_ready() {
    let mut world = refused(|_| {});
    world.children.pod = None;
    pass(&mut world, &mut 0, None, false);
    let (status, reason, message) = told(&world, condition::READY);
    assert_eq!((status, reason), ("False", "Pod"), "{message}");
}

#[test]
fn a_database_whose_disk_may_not_grow_yet_stops_all_the_same() {
    for (to, end) in [(RunState::Paused, Phase::Paused), (RunState::Purged, Phase::Deleted)] {
        let mut world = refused(|_| {});
        wish(&mut world, 3, |spec| spec.run_state = to);
        settle(&mut world, None, false);
        assert_eq!(phase(&world), Some(end));
    }
}

#[test]
fn a_child_that_cannot_be_written_holds_back_the_pod_and_not_the_disk() {
    let mut world = serving();
    wish(&mut world, 2, |spec| {
        spec.storage.size_gib = 80;
        spec.config.insert("cairo.max.uncommitted.rows".to_owned(), "7".to_owned());
    });
    world.read_only = true;
    let before = world.children.pod.clone();
    let mut taken = 0;
    for _ in 0..ENOUGH {
        let planned = pass(&mut world, &mut taken, None, false);
        assert!(!planned.actions.iter().any(|action| matches!(action.step, Step::Delete(_))));
        world.tick();
    }
    assert_eq!(world.volumes[0].size_gib, 80);
    assert_eq!(
        world.children.pod.as_ref().map(|pod| &pod.metadata.uid),
        before.as_ref().map(|pod| &pod.metadata.uid)
    );
    world.read_only = false;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn what_a_secret_is_known_by_holds_nothing_back_that_goes_by_its_values() {
    for ends in [false, true] {
        let mut world = serving();
        let secret = Arc::make_mut(world.children.secret.as_mut().unwrap());
        secret.metadata.annotations.as_mut().unwrap().remove(names::SECRET_OF).unwrap();
        // Who takes it off again and again has it left to him for a while.
        world.read_only_for = Some(Kind::Secret);
        gets_another_pod(&mut world, ends, &format!("known by, {ends}"));
        world.read_only_for = None;
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}

/// Its machine ends, or its restart is asked for: it has another pod, whatever is refused of its credentials, and that is told.
fn gets_another_pod(world: &mut World, ends: bool, what: &str) {
    let before = world.pod_uid();
    if ends {
        end_machine(world, 0);
    } else {
        change(world, |spec| spec.restart_nonce = Some("once".to_owned()));
    }
    for _ in 0..ENOUGH {
        pass(world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(told(world, condition::READY).0, "True", "{what}");
    assert!(world.pod_uid().is_some_and(|uid| Some(uid) != before), "{what}");
    let status = world.resource.status.as_ref().unwrap();
    let failed = status.steps.iter().filter(|step| step.state == StepState::Failed);
    assert_eq!(failed.map(|step| step.name.as_str()).collect::<Vec<_>>(), ["credentials"], "{what}");
}

#[test]
fn what_is_only_noted_in_a_secret_holds_nothing_back_that_goes_by_its_values() {
    for ends in [false, true] {
        let mut world = serving();
        world.login("own", "psql", ("ada", "given"));
        settle(&mut world, None, false);
        // As an operator from before there were copies left it, and somebody made it immutable.
        let secret = Arc::make_mut(world.children.secret.as_mut().unwrap());
        secret.data.as_mut().unwrap().remove(names::secret::WRITTEN).unwrap();
        secret.immutable = Some(true);
        // Where they come from is to be noted: the same is given once more.
        world.login("own", "psql", ("ada", "given"));
        gets_another_pod(&mut world, ends, &format!("noted, {ends}"));
        assert_eq!(in_force(&world, "pg-password").as_deref(), Some("given"), "{ends}");
        Arc::make_mut(world.children.secret.as_mut().unwrap()).immutable = None;
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}

#[test]
fn what_a_secret_is_known_by_holds_no_credentials_back_that_are_asked_for() {
    let mut world = serving();
    let secret = Arc::make_mut(world.children.secret.as_mut().unwrap());
    secret.metadata.annotations.as_mut().unwrap().remove(names::SECRET_OF).unwrap();
    world.read_only_for = Some(Kind::Secret);
    world.login("own", "psql", ("ada", "given"));
    wishing(&mut world, &["first"]);
    for _ in 0..ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(in_force(&world, "pg-password").as_deref(), Some("given"));
    assert!(in_force(&world, "ilp-keys").is_some_and(|keys| keys.starts_with("first ")));
    assert_eq!(told(&world, condition::READY).0, "True");
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn what_a_secret_is_known_by_keeps_no_pod_from_values_that_stay() {
    let mut world = serving();
    world.login("own", "psql", ("ada", "given"));
    settle(&mut world, None, false);
    let before = world.pod_uid();
    let secret = Arc::make_mut(world.children.secret.as_mut().unwrap());
    secret.metadata.annotations.as_mut().unwrap().remove(names::SECRET_OF).unwrap();
    world.read_only_for = Some(Kind::Secret);
    // Where they come from is to be noted: the same is given once more.
    world.login("own", "psql", ("ada", "given"));
    end_machine(&mut world, 0);
    for _ in 0..ENOUGH {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(told(&world, condition::READY).0, "True");
    assert!(world.pod_uid().is_some_and(|uid| Some(uid) != before));
    world.read_only_for = None;
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn what_somebody_was_quicker_in_is_under_way_and_has_not_failed() {
    let world = serving();
    let text = "ConfigMap trades changed meanwhile and is looked at again";
    for (overtaken, state) in [(true, StepState::Running), (false, StepState::Failed)] {
        let told = |part: Part| {
            let message = text.to_owned();
            outdated::told(&world, vec![Failure { part, message, lasting: false, outdated: None, overtaken }])
        };
        let status = told(Part::Config);
        let step = status.steps.iter().find(|step| step.name == Part::Config.as_str()).unwrap();
        assert_eq!((step.state, step.message.as_deref()), (state, Some(text)));
        assert_eq!(status.phase, Some(Phase::Updating), "not all is done");
        // Nobody is told that a move is delayed, and a moment later that it goes on.
        let conditions = told(Part::Candidate).conditions;
        assert_eq!(conditions.iter().any(|found| found.type_ == condition::MOVING), !overtaken);
    }
}

#[test]
fn a_change_of_a_disk_that_was_destroyed_meanwhile_is_not_said_to_go_on() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(told(&world, condition::VOLUME_RESIZING).0, "True");
    wish(&mut world, 3, |spec| spec.run_state = RunState::Purged);
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(Phase::Deleted));
    let (status, reason, message) = told(&world, condition::VOLUME_RESIZING);
    assert_eq!((status, reason), ("False", "Done"), "{message}");
}

#[test]
fn a_change_of_a_disk_is_not_said_to_go_on_while_its_database_is_paused() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.storage.iops = 6_000);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(told(&world, condition::VOLUME_RESIZING).0, "True");
    wish(&mut world, 3, |spec| spec.run_state = RunState::Paused);
    settle(&mut world, None, false);
    let (status, reason, message) = told(&world, condition::VOLUME_RESIZING);
    assert_eq!((status, reason), ("False", "Stopped"), "{message}");
    assert!(message.starts_with("the disk has what is asked for"), "{message}");
    // EC2 does not show it any more, or not yet.
    let mut before = world.clone();
    before.volumes[0].iops = Some(3_000);
    pass(&mut before, &mut 0, None, false);
    let (status, reason, message) = told(&before, condition::VOLUME_RESIZING);
    assert_eq!((status, reason), ("False", "Stopped"), "{message}");
    assert!(message.starts_with("how far EC2 came"), "{message}");
    // How far it is, is asked for as soon as the database starts again.
    world.modification.as_mut().unwrap().state = ModificationState::Optimizing;
    (world.modifying, world.optimizing) = (0, 2 * ENOUGH);
    wish(&mut world, 4, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(told(&world, condition::VOLUME_RESIZING).1, "Optimizing");
}
