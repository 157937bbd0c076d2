//! A machine that does not join the cluster, whose Node does not become ready, or is closed: it is told and replaced, so often and no
//! more, and nothing of what serves is touched.

use std::sync::Arc;

use cloud::{InstanceState, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use resources::RunState;
use resources::names::{self, condition};

use super::kubernetes::node;
use super::model::World;
use super::operations::{become_, begin_move, change, half_moved, paused};
use super::oracle::{check_end, check_moment};
use super::runner::{pass, settle, troubles};
use super::serving;
use super::silent::say;
use crate::fixture::{resource, settings, validated};
use crate::{Step, plan};

/// A new database of which so many machines do not join.
pub(super) fn fresh(strangers: usize) -> World {
    let mut world = World::new(resource(1));
    (world.strangers, world.clock) = (strangers, minutes(1));
    world
}

/// One of which so many machines join, and their Nodes are not ready.
pub(super) fn sick(unready: usize) -> World {
    let mut world = fresh(0);
    world.unready = unready;
    world
}

/// One that serves, and of whose next machine the Node is not ready.
fn moving_to_sick() -> World {
    let mut world = moving(0);
    world.unready = 1;
    world
}

/// One that serves, and of whose next machines so many do not.
fn moving(strangers: usize) -> World {
    let mut world = serving();
    (world.strangers, world.clock) = (strangers, minutes(1));
    begin_move(&mut world);
    world
}

/// What somebody does to a Node that takes no pod of ours from then on.
type Close = fn(&mut NodeSpec);

/// With what is said to undo it.
const CLOSES: [(&str, Close); 2] = [
    ("uncordon it", |spec| spec.unschedulable = Some(true)),
    ("take that taint off", |spec| {
        let (key, effect) = ("somebody/else".to_owned(), "NoSchedule".to_owned());
        spec.taints.get_or_insert_default().push(Taint { key, effect, ..Taint::default() });
    }),
];

/// Somebody does so to every Node but that of the machine that serves.
fn close_others(world: &mut World, close: Close) {
    for node in world.children.nodes.iter_mut().skip(1) {
        close(Arc::make_mut(node).spec.get_or_insert_default());
    }
}

/// One that serves, and of whose next machine the Node is ready and closed.
fn moving_to_closed(close: Close) -> World {
    let mut world = half_moved();
    world.clock = minutes(1);
    close_others(&mut world, close);
    world
}

/// Status, reason and message.
fn told(world: &World, kind: &str) -> (String, String, String) {
    let conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|found| found.type_ == kind).cloned().unwrap();
    (found.status, found.reason, found.message)
}

pub(super) fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
    }
}

/// Which machines there are, by generation, and how each is.
pub(super) fn machines(world: &World) -> Vec<(&str, InstanceState)> {
    let machines = world.instances.iter();
    machines.map(|found| (found.tags.get(key::GENERATION).unwrap(), found.state.clone())).collect()
}

/// For how long the machine of this number has been there.
fn age(world: &World, number: usize) -> SignedDuration {
    let launched = Timestamp::try_from(world.instances[number].launched_at.unwrap()).unwrap();
    world.now.duration_since(launched)
}

/// Passes until this machine is not left alone any more; how old it is then.
pub(super) fn until_ended(world: &mut World, number: usize) -> SignedDuration {
    for _ in 0..100 {
        passes(world, 1);
        let machine = world.instances.get(number);
        if machine.is_some_and(|machine| machine.state.is_ending()) {
            return age(world, number);
        }
    }
    panic!("it was left as it is: {:?}", machines(world));
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

#[test]
fn a_machine_that_does_not_join_is_told_and_another_takes_its_place() {
    let mut world = fresh(1);
    passes(&mut world, 15);
    assert!(age(&world, 0) > minutes(5) && age(&world, 0) < minutes(15));
    assert_eq!(told(&world, condition::NODE_HEALTHY).1, "Waiting", "it has time");
    let after = until_ended(&mut world, 0);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
    let (status, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotJoined"), "{text}");
    assert!(text.contains("15 minutes") && text.contains("get-console-output --instance-id"), "{text}");
    let volume = world.volumes[0].id.clone();
    settle(&mut world, None, false);
    check_end(&world, "another one joined");
    let expected = [("1", InstanceState::Terminated), ("2", InstanceState::Running)];
    assert_eq!((machines(&world), &world.volumes[0].id), (expected.to_vec(), &volume));
    assert_eq!(told(&world, condition::NODE_HEALTHY).0, "True");
}

#[test]
fn each_of_a_row_has_twice_the_time_and_the_last_one_is_left() {
    let mut world = fresh(9);
    for (number, least) in [(0, 15), (1, 30)] {
        let after = until_ended(&mut world, number);
        assert!(after >= minutes(least) && after < minutes(least + 5), "{number}: {after}");
        // What was said of the one before stays said while the next has time.
        for _ in 0..10 {
            let next = world.instances.len() > number + 1;
            passes(&mut world, 1);
            let (_, reason, text) = told(&world, condition::NODE_HEALTHY);
            assert!(!next || reason == "NotJoined", "{number}: {text}");
        }
        assert_eq!(told(&world, condition::DEGRADED).0, "False", "it is tried on");
    }
    passes(&mut world, 200);
    let ended = |generation| (generation, InstanceState::Terminated);
    assert_eq!(machines(&world), [ended("1"), ended("2"), ("3", InstanceState::Running)]);
    assert_eq!(world.protected.len(), 1);
    assert_eq!(told(&world, condition::DEGRADED).0, "True");
    let (_, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert!(reason == "NotJoined" && text.contains("60 minutes") && text.contains("protections"), "{text}");

    // Who has looked at it and terminates it has a row of its own.
    world.instances[2].state = InstanceState::Terminated;
    let after = until_ended(&mut world, 3);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
    world.strangers = 0;
    settle(&mut world, None, false);
    check_end(&world, "one joined at last");
    assert_eq!(machines(&world)[4], ("5", InstanceState::Running));
}

#[test]
fn what_serves_serves_on_while_next_machines_do_not_join() {
    let mut world = moving(9);
    let pod = world.pod_uid();
    // What needs no other machine waits for the first of them alone.
    change(&mut world, |spec| spec.config.clear());
    let after = until_ended(&mut world, 1);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
    let (status, reason, _) = told(&world, condition::MOVING);
    assert_eq!(status, "True", "{reason}");
    passes(&mut world, 10);
    assert_ne!(world.pod_uid(), pod, "restarted without the move");
    let (status, reason, text) = told(&world, condition::MOVING);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NotJoined"), "{text}");
    passes(&mut world, 200);
    let ended = |generation| (generation, InstanceState::Terminated);
    let runs = |generation| (generation, InstanceState::Running);
    assert_eq!(machines(&world), [runs("1"), ended("2"), ended("3"), runs("4")]);
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert_eq!(told(&world, condition::READY).0, "True");
    let (status, reason, text) = told(&world, condition::MOVING);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotJoined"), "{text}");

    // It joins after all, and is as good as any.
    let late = node(&world.instances[3]);
    world.children.nodes.push(Arc::new(late));
    settle(&mut world, None, false);
    check_end(&world, "moved");
    assert_eq!(machines(&world)[3], runs("4"));
}

#[test]
fn one_that_joins_at_the_last_moment_is_not_ended() {
    let mut world = fresh(1);
    let is_given_up = |world: &World| {
        let annotations = world.resource.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(names::UNJOINED))
    };
    for _ in 0..40 {
        if is_given_up(&world) {
            break;
        }
        passes(&mut world, 1);
    }
    assert!(is_given_up(&world) && machines(&world) == [("1", InstanceState::Running)]);
    let seen = world.resource.clone();
    let planned = plan(&seen, &validated(&seen), &world.look(), &settings());
    let mut steps = planned.actions.iter().map(|action| &action.step);
    let proof = steps.find(|step| matches!(step, Step::ProveLeft(_))).unwrap();
    assert!(steps.any(|step| matches!(step, Step::TerminateInstance { .. })), "{:?}", planned.actions);
    assert!(world.clone().apply(proof, &seen).is_ok());
    let late = node(&world.instances[0]);
    world.children.nodes.push(Arc::new(late));
    assert!(world.clone().apply(proof, &seen).is_err(), "whoever looked before is stopped by a live look");
    // Somebody's hand came before it all the same.
    world.protected.clear();
    settle(&mut world, None, false);
    check_end(&world, "it joined");
    assert_eq!(machines(&world), [("1", InstanceState::Running)]);
}

#[test]
fn one_whose_node_is_gone_has_joined_once_and_is_told_and_never_ended() {
    let mut world = serving();
    world.clock = minutes(1);
    let late = world.children.nodes.clone();
    world.children.nodes.clear();
    for number in 0..60 {
        let planned = pass(&mut world, &mut 0, None, false);
        let ends = |step: &Step| matches!(step, Step::WriteReleased { .. } | Step::Unprotect { .. });
        assert!(!planned.actions.iter().any(|action| ends(&action.step)), "{:?}", planned.actions);
        let reason = if number < 5 { "Waiting" } else { "NotJoined" };
        assert_eq!(told(&world, condition::NODE_HEALTHY).1, reason, "after {number} minutes");
        world.tick();
    }
    let (status, _, text) = told(&world, condition::NODE_HEALTHY);
    assert!(status == "False" && text.contains("reboot-instances") && text.contains("not ended"), "{text}");
    assert_eq!(told(&world, condition::DEGRADED).0, "False", "it may serve");
    world.children.nodes = late;
    settle(&mut world, None, false);
    check_end(&world, "it is there again");
    assert_eq!(told(&world, condition::NODE_HEALTHY).0, "True");
}

#[test]
fn a_node_that_does_not_become_ready_is_told_and_another_machine_takes_its_place() {
    let mut world = sick(1);
    passes(&mut world, 8);
    assert_eq!(told(&world, condition::NODE_HEALTHY).1, "Waiting", "it has time");
    passes(&mut world, 7);
    assert!(age(&world, 0) > minutes(6) && age(&world, 0) < minutes(15), "{}", age(&world, 0));
    let (status, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotReady"), "{text}");
    assert!(text.contains("5 minutes (KubeletNotReady)") && text.contains("kubectl describe node"), "{text}");
    assert_eq!(world.pinned(), None, "what was never ready is given nothing");
    let after = until_ended(&mut world, 0);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
    let (_, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert!(reason == "NotReady" && text.contains("15 minutes"), "{reason}: {text}");
    passes(&mut world, 1);
    let text = told(&world, condition::NODE_HEALTHY).2;
    assert!(text.contains("the one before it could not take the database"), "it had joined: {text}");
    let volume = world.volumes[0].id.clone();
    settle(&mut world, None, false);
    check_end(&world, "another one is ready");
    let expected = [("1", InstanceState::Terminated), ("2", InstanceState::Running)];
    assert_eq!((machines(&world), &world.volumes[0].id), (expected.to_vec(), &volume));
}

#[test]
fn machines_of_a_row_are_counted_whatever_they_lack() {
    let mut world = sick(9);
    world.strangers = 1;
    for (number, least) in [(0, 15), (1, 30)] {
        let after = until_ended(&mut world, number);
        assert!(after >= minutes(least) && after < minutes(least + 5), "{number}: {after}");
    }
    passes(&mut world, 200);
    let ended = |generation| (generation, InstanceState::Terminated);
    assert_eq!(machines(&world), [ended("1"), ended("2"), ("3", InstanceState::Running)]);
    assert_eq!(told(&world, condition::DEGRADED).0, "True");
    let (_, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert!(reason == "NotReady" && text.contains("60 minutes") && text.contains("terminate it"), "{text}");
    world.wake_kubelets();
    settle(&mut world, None, false);
    check_end(&world, "the last one is ready after all");
    assert_eq!(machines(&world)[2], ("3", InstanceState::Running));
}

/// The database served on while its second machine was given up, and is moved to the one that takes the place of that.
fn serves_on_and_moves_to_the_third(world: &mut World) {
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert_eq!(told(world, condition::READY).0, "True");
    settle(world, None, false);
    check_end(world, "moved");
    let ended = |generation| (generation, InstanceState::Terminated);
    assert_eq!(machines(world), [ended("1"), ended("2"), ("3", InstanceState::Running)]);
}

#[test]
fn what_serves_serves_on_while_the_node_of_the_next_machine_is_not_ready() {
    let mut world = moving_to_sick();
    passes(&mut world, 13);
    let (status, reason, text) = told(&world, condition::MOVING);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NotReady"), "{text}");
    let after = until_ended(&mut world, 1);
    assert!(after >= minutes(15) && after < minutes(20), "{after}");
    serves_on_and_moves_to_the_third(&mut world);
}

#[test]
fn what_serves_serves_on_while_the_node_of_the_next_machine_is_closed_and_another_takes_its_place() {
    for (cure, close) in CLOSES {
        let mut world = moving_to_closed(close);
        passes(&mut world, 4);
        let (status, reason, text) = told(&world, condition::MOVING);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NodeClosed"), "{text}");
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let since = conditions.iter().find(|found| found.type_ == condition::MOVING).unwrap();
        let since = since.last_transition_time.0;
        assert!(text.contains(cure) && text.contains(&format!("since {since}")), "{text}");
        until_ended(&mut world, 1);
        let after = world.now.duration_since(since);
        assert!(after >= minutes(15) && after < minutes(20), "{after}");
        serves_on_and_moves_to_the_third(&mut world);
    }
}

#[test]
fn one_whose_node_is_opened_in_time_is_moved_to_and_a_wish_that_turns_back_ends_it() {
    for (_, close) in CLOSES {
        let mut world = moving_to_closed(close);
        passes(&mut world, 10);
        let mut back = world.clone();
        change(&mut back, |spec| "m7i.large".clone_into(&mut spec.compute.instance_type));
        settle(&mut back, None, false);
        check_end(&back, "back before the commit point");
        let ended = |generation| (generation, InstanceState::Terminated);
        let runs = |generation| (generation, InstanceState::Running);
        assert_eq!(machines(&back), [runs("1"), ended("2")]);

        let spec = Arc::make_mut(&mut world.children.nodes[1]).spec.get_or_insert_default();
        (spec.unschedulable, spec.taints) = (None, None);
        settle(&mut world, None, false);
        check_end(&world, "moved");
        assert_eq!(machines(&world), [ended("1"), runs("2")]);
    }
}

#[test]
fn who_closes_the_nodes_of_all_next_machines_has_three_of_them() {
    for (_, close) in CLOSES {
        let mut world = moving_to_closed(close);
        for _ in 0..200 {
            close_others(&mut world, close);
            passes(&mut world, 1);
        }
        let ended = |generation| (generation, InstanceState::Terminated);
        let runs = |generation| (generation, InstanceState::Running);
        assert_eq!(machines(&world), [runs("1"), ended("2"), ended("3"), runs("4")]);
        let [ready, degraded] = [condition::READY, condition::DEGRADED].map(|kind| told(&world, kind).0);
        assert_eq!((ready.as_str(), degraded.as_str()), ("True", "True"));
        let (status, reason, text) = told(&world, condition::MOVING);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NodeClosed"), "{text}");
        assert!(text.contains("terminate it"), "{text}");
        for node in &mut world.children.nodes {
            let spec = Arc::make_mut(node).spec.get_or_insert_default();
            (spec.unschedulable, spec.taints) = (None, None);
        }
        settle(&mut world, None, false);
        check_end(&world, "opened at last");
        assert_eq!(machines(&world)[3], runs("4"));
    }
}

#[test]
fn one_whose_node_is_ready_at_the_last_moment_is_not_ended() {
    let mut world = sick(1);
    let proof = (0..40).find_map(|_| {
        passes(&mut world, 1);
        let seen = world.resource.clone();
        let planned = plan(&seen, &validated(&seen), &world.look(), &settings());
        let mut steps = planned.actions.into_iter().map(|action| action.step);
        steps.find(|step| matches!(step, Step::ProveLeft(_)))
    });
    let proof = proof.unwrap();
    assert_eq!(machines(&world), [("1", InstanceState::Running)]);
    assert!(world.clone().apply(&proof, &world.resource).is_ok());
    world.wake_kubelets();
    assert!(
        world.clone().apply(&proof, &world.resource).is_err(),
        "who looked before is stopped by a live look"
    );
    settle(&mut world, None, false);
    check_end(&world, "it is ready");
    assert_eq!(machines(&world), [("1", InstanceState::Running)]);
}

#[test]
fn a_machine_that_the_database_is_on_is_told_and_never_ended_for_its_node() {
    let mut world = serving();
    world.clock = minutes(1);
    let pod = world.pod_uid();
    say(&mut world, "False");
    for _ in 0..60 {
        let planned = pass(&mut world, &mut 0, None, false);
        let ends = |step: &Step| matches!(step, Step::WriteReleased { .. } | Step::Unprotect { .. });
        assert!(!planned.actions.iter().any(|action| ends(&action.step)), "{:?}", planned.actions);
        world.tick();
    }
    let (_, reason, text) = told(&world, condition::NODE_HEALTHY);
    assert!(reason == "NotReady" && text.contains("not ended"), "{reason}: {text}");
    assert_eq!(world.pod_uid(), pod);
    world.wake_kubelets();
    settle(&mut world, None, false);
    check_end(&world, "it is ready again");
}

#[test]
fn every_step_on_the_way_to_another_machine_may_fail_and_be_done_twice() {
    let starts = vec![
        ("new", fresh(1), 2),
        ("moving", moving(1), 3),
        ("new and not ready", sick(1), 2),
        ("moving to one that is not ready", moving_to_sick(), 3),
        ("moving to one that is closed", moving_to_closed(CLOSES[0].1), 3),
    ];
    for (what, start, machines) in starts {
        let mut twice = start.clone();
        settle(&mut twice, None, true);
        check_end(&twice, what);
        let steps = settle(&mut start.clone(), None, false);
        for trouble in troubles(steps) {
            let mut world = start.clone();
            settle(&mut world, Some(trouble), false);
            let what = format!("{what}, {trouble:?}");
            check_end(&world, &what);
            assert_eq!(world.instances.len(), machines, "{what}");
        }
    }
}

/// As where an account may have no further disk, or not use the key of the image: EC2 takes the launch and ends the machine.
fn end_before_they_run(world: &mut World, reason: &str) {
    for found in world.instances.iter_mut().filter(|found| !found.state.is_ending()) {
        found.state = InstanceState::Terminated;
        found.state_reason = Some(reason.to_owned());
    }
}

fn resumed() -> World {
    let mut world = paused();
    become_(&mut world, RunState::Running);
    world
}

#[test]
fn machines_that_end_before_they_run_are_told_and_not_launched_without_a_pause() {
    for (what, mut world) in [("new", World::new(resource(1))), ("resumed", resumed())] {
        let before = world.instances.len();
        world.clock = SignedDuration::from_secs(10);
        for _ in 0..40 {
            pass(&mut world, &mut 0, None, false);
            end_before_they_run(&mut world, "Client.VolumeLimitExceeded");
            world.tick();
        }
        // The second follows the first at once, the third five minutes after it.
        assert_eq!(world.instances.len() - before, 3, "{what}: {:#?}", world.instances);
        let (status, reason, text) = told(&world, condition::DEGRADED);
        assert_eq!((status.as_str(), reason.as_str()), ("True", "Instance"), "{what}");
        assert!(text.contains("Client.VolumeLimitExceeded"), "{what}: {text}");
        settle(&mut world, None, false);
        check_end(&world, what);
    }
}

#[test]
fn whoever_ends_machines_by_hand_is_not_kept_waiting() {
    let mut world = World::new(resource(1));
    for _ in 0..20 {
        pass(&mut world, &mut 0, None, false);
        end_before_they_run(&mut world, "Client.UserInitiatedShutdown");
        world.tick();
    }
    assert!(world.instances.len() > 5, "{:#?}", world.instances);
    settle(&mut world, None, false);
    check_end(&world, "let be");
}
