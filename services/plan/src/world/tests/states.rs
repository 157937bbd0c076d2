//! From one run state to another and back: the disk is the same one, whatever fails on the way, and a restart is one.

use resources::names::condition;
use resources::{Phase, QuestDB, QuestDBStatus, RunState, names};

use super::model::{Lost, World};
use super::{Trouble, check_serving, pass, phase, serving, settle, troubles, wish};
use crate::fixture::{resource, settings, validated};
use crate::{
    Account, Applied, Dns, Part, Plan, State, Step, Unseen, denied, is_judged, plan, status, suspended,
    unidentified, unseen,
};

/// A database that served, and now is at rest in a run state, with a disk that its wish knows of.
fn resting(run_state: RunState, end: Phase) -> World {
    let mut world = serving();
    wish(&mut world, 2, |spec| {
        spec.run_state = run_state;
        spec.storage.provisioned = true;
    });
    settle(&mut world, None, false);
    assert_eq!(phase(&world), Some(end));
    world
}

/// Settles, and holds in every pass that no disk is made and none goes.
fn settle_with_its_disk(world: &mut World, trouble: Option<Trouble>, twice: bool) -> usize {
    let mut taken = 0;
    let disk = world.volumes[0].id.clone();
    let touches = |planned: &Plan| {
        planned.actions.iter().any(|a| matches!(a.step, Step::CreateVolume(_) | Step::DeleteVolume { .. }))
    };
    for _ in 0..super::ENOUGH {
        let planned = pass(world, &mut taken, trouble, twice);
        assert!(!touches(&planned), "{trouble:?}: {:?}", planned.actions);
        if planned.is_settled() {
            assert_eq!((world.volumes.len(), &world.volumes[0].id), (1, &disk), "{trouble:?}");
            return taken;
        }
        world.tick();
    }
    panic!("not settled ({trouble:?}): {:#?}", world.resource.status);
}

const WAYS: [(RunState, Phase); 2] = [(RunState::Paused, Phase::Paused), (RunState::Deleted, Phase::Deleted)];

#[test]
fn a_wish_may_turn_round_after_every_single_step() {
    for (to, _) in WAYS {
        let mut world = serving();
        wish(&mut world, 2, |spec| spec.run_state = to);
        let steps = settle(&mut world, None, false);
        let mut unprotected = 0;
        for at in 0..steps {
            let mut world = serving();
            let machine = world.instances[0].id.clone();
            wish(&mut world, 2, |spec| spec.run_state = to);
            // The process dies right after the step, in the midst of a pass.
            let (mut taken, trouble) = (0, Trouble { at, lost: Lost::Answer, crash: true });
            pass(&mut world, &mut taken, Some(trouble), false);
            while taken <= at {
                world.tick();
                pass(&mut world, &mut taken, Some(trouble), false);
            }
            let lives = world.instances.iter().any(|found| found.id == machine && !found.state.is_ending());
            unprotected += usize::from(lives && !world.protected.contains(&machine));
            wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
            settle_with_its_disk(&mut world, None, false);
            check_serving(&world, Some(trouble));
            let kept = world.instances.iter().any(|found| found.id == machine && !found.state.is_ending());
            assert_eq!(kept, lives, "{trouble:?}: the machine that lives serves on");
        }
        assert!(unprotected > 0, "no turn came between the end of the protection and that of the machine");
    }
}

#[test]
fn a_pause_is_told_when_it_is_whole_and_not_before() {
    let told = |world: &World| {
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|found| found.type_ == condition::PAUSED).unwrap();
        (found.status.clone(), found.reason.clone(), found.observed_generation)
    };
    let said = |status: &str, reason: &str, seq| (status.to_owned(), reason.to_owned(), Some(seq));
    let mut world = serving();
    assert_eq!(told(&world), said("False", "Running", 1));
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    let (mut before, mut taken) = (0, 0);
    while phase(&world) != Some(Phase::Paused) {
        pass(&mut world, &mut taken, None, false);
        if phase(&world) != Some(Phase::Paused) {
            assert_eq!(told(&world), said("False", "Pausing", 2));
            before += 1;
        }
        assert!(before < super::ENOUGH, "{:?}", told(&world));
        world.tick();
    }
    assert!(before > 2 && world.instances.iter().all(|found| found.state.is_ending()), "{before}");
    assert_eq!(told(&world), said("True", "Stopped", 2));
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    pass(&mut world, &mut taken, None, false);
    assert_eq!(told(&world), said("False", "Running", 3));
    settle(&mut world, None, false);
    wish(&mut world, 4, |spec| spec.run_state = RunState::Deleted);
    settle(&mut world, None, false);
    assert_eq!(told(&world), said("False", "Deleted", 4));
}

#[test]
fn a_machine_is_protected_again_although_something_else_takes_long() {
    let mut world = serving();
    wish(&mut world, 2, |spec| spec.run_state = RunState::Paused);
    let mut taken = 0;
    while !world.protected.is_empty() {
        // The process dies after each step that changes anything.
        let planned = pass(&mut world.clone(), &mut 0, None, false);
        let proofs =
            planned.actions.iter().take_while(|action| matches!(action.step, Step::ProveLeft(_))).count();
        let trouble = Trouble { at: taken + proofs, lost: Lost::Answer, crash: true };
        pass(&mut world, &mut taken, Some(trouble), false);
        world.tick();
    }
    world.too_soon = true;
    wish(&mut world, 3, |spec| {
        spec.run_state = RunState::Running;
        spec.storage.size_gib = 80;
    });
    for _ in 0..super::ENOUGH {
        assert!(!pass(&mut world, &mut taken, None, false).is_settled());
        world.tick();
    }
    assert!(world.protected.len() == 1 && world.is_protected(&world.instances[0].id));
}

#[test]
fn a_protection_that_somebody_took_off_comes_back_with_the_next_change() {
    for every_step in [false, true] {
        let mut world = serving();
        world.protected.clear();
        wish(&mut world, 2, |spec| spec.restart_nonce = Some("once".to_owned()));
        settle(&mut world, None, every_step);
        check_serving(&world, None);
    }
}

#[test]
fn a_return_without_its_disk_makes_no_empty_one() {
    for (from, end) in WAYS {
        let mut world = resting(from, end);
        world.volumes.clear();
        // Nothing but the wish remembers.
        world.children.persistent_volumes.clear();
        world.resource.status = None;
        wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
        let mut taken = 0;
        for _ in 0..super::ENOUGH {
            pass(&mut world, &mut taken, None, false);
            world.tick();
        }
        assert_eq!(phase(&world), Some(Phase::Degraded));
        assert!(world.volumes.is_empty());
        assert_eq!(world.instances.len(), 1, "no machine either, but the one that ended");
    }
}

#[test]
fn a_new_nonce_restarts_the_pod_once_on_its_machine() {
    let restart = |world: &mut World, seq: i64| {
        wish(world, seq, |spec| spec.restart_nonce = Some(format!("restart-{seq}")));
    };
    let uid = |world: &World| world.children.pod.as_ref().unwrap().metadata.uid.clone();
    let mut world = serving();
    restart(&mut world, 2);
    let steps = settle(&mut world, None, false);
    for trouble in troubles(steps).map(Some).chain([None]) {
        let mut world = serving();
        let (before, machine) = (uid(&world), world.instances[0].id.clone());
        restart(&mut world, 2);
        settle(&mut world, trouble, false);
        check_serving(&world, trouble);
        let after = uid(&world);
        assert_ne!(after, before, "{trouble:?}");
        assert_eq!((world.instances.len(), &world.instances[0].id), (1, &machine), "{trouble:?}");
        // The same nonce at another position is no second one.
        wish(&mut world, 3, |spec| spec.storage.size_gib = 80);
        settle(&mut world, None, false);
        assert_eq!(uid(&world), after, "{trouble:?}");
    }
}

#[test]
fn what_never_served_may_be_deleted_and_brought_back() {
    let steps = settle(&mut World::new(resource(1)), None, false);
    for stop in 0..steps {
        let mut world = World::new(resource(1));
        let mut taken = 0;
        while taken <= stop {
            pass(&mut world, &mut taken, None, false);
            world.tick();
        }
        let disks = world.volumes.clone();
        for (seq, run_state) in [(2, RunState::Deleted), (3, RunState::Running)] {
            wish(&mut world, seq, |spec| spec.run_state = run_state);
            settle(&mut world, None, false);
        }
        check_serving(&world, None);
        assert!(disks.iter().all(|disk| disk.id == world.volumes[0].id), "step {stop}: {disks:?}");
        assert!(world.resource.metadata.annotations.as_ref().unwrap().contains_key(names::GENERATION));
    }
}

#[test]
fn a_namespace_that_is_not_seen_is_told_until_it_is() {
    let mut world = serving();
    let before = world.resource.status.clone().unwrap();
    assert!(unseen(&world.resource, &Unseen::Yet, world.now).is_none(), "what comes by itself is no news");
    let broken = unseen(&world.resource, &Unseen::Broken("it broke".to_owned()), world.now).unwrap();
    let refused = unseen(&world.resource, &Unseen::Refused("grant it".to_owned()), world.now).unwrap();
    for (status, reason, text) in [(broken, "Broken", "it broke"), (refused, "Refused", "grant it")] {
        let of = |kind: &str| status.conditions.iter().find(|found| found.type_ == kind).unwrap().clone();
        let seen = of(condition::NAMESPACE_SEEN);
        assert_eq!((seen.status.as_str(), seen.reason.as_str()), ("False", reason));
        assert!(seen.message.contains(text), "{}", seen.message);
        assert_eq!(
            (of(condition::DEGRADED).status, of(condition::PROGRESSING).status),
            ("True".into(), "False".into())
        );
        assert_eq!(
            of(condition::READY),
            before.conditions.iter().find(|one| one.type_ == "Ready").unwrap().clone()
        );
        assert_eq!(
            (status.phase, &status.node, &status.volume),
            (before.phase, &before.node, &before.volume)
        );
        world.resource.status = Some(status);
        let again = unseen(&world.resource, &Unseen::Refused("grant it".to_owned()), world.now);
        assert_eq!(again == world.resource.status, text == "grant it", "what means the same is the same");
    }
    // Whatever is told next ends it.
    let hidden = world.resource.clone();
    let text = |status: &QuestDBStatus| serde_json::to_string(&status.conditions).unwrap();
    for status in [
        suspended(&hidden, None, world.now),
        unidentified(&hidden, "two claim it", world.now),
        denied(&hidden, "no right", world.now),
    ] {
        let seen = status.conditions.iter().find(|found| found.type_ == condition::NAMESPACE_SEEN).unwrap();
        assert_eq!(seen.status, "True");
        assert!(!text(&status).contains("NamespaceUnseen"), "{}", text(&status));
    }
    settle(&mut world, None, false);
    check_serving(&world, None);
    let status = world.resource.status.as_ref().unwrap();
    assert!(!text(status).contains("NamespaceUnseen"), "{}", text(status));
    assert_eq!(status.phase, Some(Phase::Ready));
}

#[test]
fn what_is_denied_is_told_until_it_is_allowed() {
    let mut world = serving();
    let said_of = |world: &World, applied: &Applied| {
        let (resource, observed) = (&world.resource, world.look());
        let wish = validated(resource);
        let planned = plan(resource, &wish, &observed, &settings());
        let status = status(resource, &wish, &observed, (&planned, applied), world.now);
        let found = status.conditions.iter().find(|found| found.type_ == condition::ACCESS_DENIED).cloned();
        (found.map(|found| (found.status, found.message)), status)
    };
    assert_eq!(
        said_of(&world, &Applied::default()).0,
        None,
        "nothing is said before there is something to say"
    );
    let refused = Applied { denied: vec!["patch services x".to_owned()], ..Applied::default() };
    let (said, status) = said_of(&world, &refused);
    assert_eq!(said, Some(("True".to_owned(), "patch services x".to_owned())));
    world.resource.status = Some(status);
    assert_eq!(said_of(&world, &Applied::default()).0.unwrap().0, "False");
    // What breaks a pass off, too.
    let status = denied(&world.resource, "get secrets x", world.now);
    assert!(status.conditions.iter().any(|found| found.message == "get secrets x" && found.status == "True"));
}

#[test]
fn a_spec_that_nobody_works_on_is_told_as_seen_and_not_taken_for_carried_out() {
    let mut world = serving();
    assert!(is_judged(&world.resource));
    wish(&mut world, 2, |spec| spec.storage.size_gib = 80);
    for status in
        [suspended(&world.resource, None, world.now), denied(&world.resource, "get secrets x", world.now)]
    {
        assert_eq!(status.observed_generation, Some(2));
        assert_eq!(
            status.phase,
            world.resource.status.as_ref().unwrap().phase,
            "how it is, is not said anew"
        );
        let seen = QuestDB { status: Some(status), ..world.resource.clone() };
        assert!(!is_judged(&seen));
    }
    settle(&mut world, None, false);
    assert!(is_judged(&world.resource));
}

#[test]
fn nothing_is_gone_that_may_be_in_another_account() {
    let mut world = resting(RunState::Paused, Phase::Paused);
    wish(&mut world, 3, |spec| {
        spec.run_state = RunState::Purged;
        spec.storage.provisioned = true;
    });
    let wish = validated(&world.resource);
    for (elsewhere, ends) in [(None, true), (Some("another account".to_owned()), false)] {
        let mut observed = world.look();
        observed.dns = Dns { records: Some(Vec::new()), ..Dns::default() };
        observed.account = Account { conclusive: elsewhere.is_none(), elsewhere, ..Account::default() };
        let planned = plan(&world.resource, &wish, &observed, &settings());
        let told = planned.state(Part::InstanceStop);
        let is_told = matches!(told, Some(State::Broken(text)) if text.contains("another account"));
        assert_eq!((told == Some(&State::Done), is_told), (ends, !ends), "{told:?}");
        let deletes = planned.actions.iter().any(|action| matches!(action.step, Step::Delete(_)));
        assert_eq!(deletes, ends, "{:?}", planned.actions);
        let report = status(&world.resource, &wish, &observed, (&planned, &Applied::default()), world.now);
        assert_eq!(report.volume.unwrap().state == "deleted", ends);
    }
}
