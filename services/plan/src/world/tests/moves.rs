//! A database goes to another machine: what serves is not touched before the next machine is ready, and what cannot be had
//! costs nothing.

use std::sync::Arc;

use cloud::{InstanceState, Volume, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use resources::{ChangeMeans, Phase};

use super::model::{Lost, World};
use super::operations::{change, half_moved, just_moved};
use super::oracle::{check_end, check_moment};
use super::runner::{ENOUGH, Trouble, pass, settle};
use super::serving;
use super::silent::say_of;
use crate::{Proof, Step};

fn wish_for(world: &mut World, machine: &str) {
    change(world, |spec| machine.clone_into(&mut spec.compute.instance_type));
}

fn told(world: &World, kind: &str) -> Option<(String, String, String)> {
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|found| found.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
    }
}

/// The machine types that run, by generation.
fn running(world: &World) -> Vec<(String, String)> {
    let living = world.instances.iter().filter(|found| !found.state.is_ending());
    living
        .map(|found| (found.tags.get(key::GENERATION).unwrap().to_owned(), found.instance_type.clone()))
        .collect()
}

fn of(generation: &str, machine: &str) -> (String, String) {
    (generation.to_owned(), machine.to_owned())
}

#[test]
fn the_old_machine_serves_until_the_next_is_ready_and_is_ended_when_left() {
    let mut world = serving();
    let (disk, pod) =
        (world.volumes[0].id.clone(), world.children.pod.as_ref().unwrap().metadata.uid.clone());
    wish_for(&mut world, "m7i.xlarge");
    let (mut most, mut down) = (0, 0);
    for _ in 0..super::ENOUGH {
        let pending = world.resource.status.as_ref().unwrap().pending.clone();
        let before = world.pinned().unwrap().to_owned();
        let mut untold = world.clone();
        untold.wipe();
        pass(&mut untold, &mut 0, None, false);
        assert_eq!(untold.pinned(), Some(before.as_str()), "nobody is moved unannounced");
        let planned = pass(&mut world, &mut 0, None, false);
        if before != world.pinned().unwrap() {
            assert!(
                pending.iter().any(|found| found.means == ChangeMeans::Move),
                "told beforehand: {pending:?}"
            );
        }
        most = most.max(running(&world).len());
        let same = world.children.pod.as_ref().is_some_and(|found| found.metadata.uid == pod);
        let pinned = world.pinned().unwrap().to_owned();
        if same && pinned.ends_with("-g1") {
            assert_eq!(told(&world, "Ready").unwrap().0, "True", "nothing is touched before");
        }
        if !same {
            let said = |means| pending.iter().any(|found| found.means == means);
            assert!(down > 0 || said(ChangeMeans::Restart) || said(ChangeMeans::Move), "{pending:?}");
            down += 1;
        }
        if planned.is_settled() {
            break;
        }
        world.tick();
    }
    assert_eq!((running(&world), most), (vec![of("2", "m7i.xlarge")], 2));
    assert_eq!((world.volumes[0].id.clone(), world.volumes[0].tags.get(key::GENERATION)), (disk, Some("2")));
    check_end(&world, "moved");
    assert_eq!(told(&world, condition::MOVING).unwrap().0, "False");
}

#[test]
fn a_move_is_not_said_to_be_done_while_something_else_comes_first() {
    type Edit = fn(&mut World);
    let edits: [(&str, Edit); 3] = [
        ("another configuration", |world| change(world, |spec| spec.config.clear())),
        ("a Service that is gone", |world| world.children.service = None),
        ("two disks", |world| {
            let copy = Volume { id: "vol-copy".into(), attachments: Vec::new(), ..world.volumes[0].clone() };
            world.volumes.push(copy);
        }),
    ];
    for (what, edit) in edits {
        let mut world = half_moved();
        assert_eq!(told(&world, condition::MOVING).unwrap().0, "True", "{what}");
        let began = |world: &World| {
            let steps = &world.resource.status.as_ref().unwrap().steps;
            steps.iter().find(|step| step.name == "next-machine").and_then(|step| step.started_at.clone())
        };
        let before = began(&world);
        edit(&mut world);
        pass(&mut world, &mut 0, None, false);
        let (said, reason, text) = told(&world, condition::MOVING).unwrap();
        assert_eq!((said.as_str(), reason.as_str()), ("True", "Preparing"), "{what}: {text}");
        assert!(text.contains("comes"), "{what}: {text}");
        assert_eq!((before.is_some(), began(&world)), (true, before), "{what}");
        world.volumes.truncate(1);
        settle(&mut world, None, false);
        check_end(&world, what);
        assert_eq!(running(&world), [of("2", "m7i.xlarge")], "{what}");
    }
}

#[test]
fn a_machine_that_cannot_be_had_costs_nothing_and_is_tried_again() {
    let mut world = serving();
    let pod = world.children.pod.clone();
    world.full.machines = vec![world.volumes[0].zone.clone()];
    wish_for(&mut world, "m7i.xlarge");
    passes(&mut world, 12);
    let status = world.resource.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Updating));
    assert_eq!(told(&world, "Ready").unwrap().0, "True");
    let (said, reason, text) = told(&world, condition::MOVING).unwrap();
    assert_eq!((said.as_str(), reason.as_str()), ("False", "Delayed"));
    assert!(text.contains("no machine is free") && text.contains("serves on"), "{text}");
    assert_eq!((running(&world), &world.children.pod), (vec![of("1", "m7i.large")], &pod));
    assert_eq!(status.pending.len(), 1, "{:?}", status.pending);

    // What needs no other machine does not wait for one.
    change(&mut world, |spec| spec.config.clear());
    passes(&mut world, 8);
    assert_ne!(world.children.pod.as_ref().unwrap().metadata.uid, pod.unwrap().metadata.uid, "restarted");
    assert_eq!(running(&world), [of("1", "m7i.large")]);

    let mut back = world.clone();
    wish_for(&mut back, "m7i.large");
    settle(&mut back, None, false);
    check_end(&back, "back, while none can be had");
    assert_eq!(running(&back), [of("1", "m7i.large")]);

    world.full.machines.clear();
    world.memory.resting.clear();
    settle(&mut world, None, false);
    check_end(&world, "there is one again");
    assert_eq!(running(&world), [of("2", "m7i.xlarge")]);
}

#[test]
fn a_database_that_does_not_serve_is_not_said_to_while_no_machine_can_be_had() {
    let mut world = serving();
    world.full.machines = vec![world.volumes[0].zone.clone()];
    // Its Node was drained.
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
    world.children.pod = None;
    world.volumes[0].attachments.clear();
    world.children.attachments.clear();
    passes(&mut world, 12);
    assert_eq!(told(&world, "Ready").unwrap().0, "False");
    let (said, reason, text) = told(&world, condition::MOVING).unwrap();
    assert_eq!((said.as_str(), reason.as_str()), ("False", "Delayed"));
    assert!(text.contains("no machine is free") && !text.contains("serves on"), "{text}");

    world.full.machines.clear();
    world.memory.resting.clear();
    settle(&mut world, None, false);
    check_end(&world, "there is one");
    assert_eq!(running(&world), [of("2", "m7i.large")]);
}

#[test]
fn a_machine_that_somebody_stopped_is_not_moved_to() {
    let mut world = serving();
    wish_for(&mut world, "m7i.xlarge");
    passes(&mut world, 3);
    let next = world.instances.iter().position(|found| found.instance_type == "m7i.xlarge").unwrap();
    world.instances[next].state = InstanceState::Stopped;
    passes(&mut world, 6);
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert!(told(&world, condition::MOVING).unwrap().2.contains("terminate it"));
    wish_for(&mut world, "m7i.large");
    settle(&mut world, None, false);
    check_end(&world, "back");
    assert_eq!(running(&world), [of("1", "m7i.large")]);
}

#[test]
fn a_machine_that_stopped_before_its_disk_left_it_is_ended_for_that() {
    let mut world = just_moved();
    world.instances[0].state = InstanceState::Stopped;
    say_of(&mut world, 0, "Unknown");
    let found = (0..8).find_map(|_| {
        let before = world.clone();
        let planned = pass(&mut world, &mut 0, None, false);
        world.tick();
        let mut steps = planned.actions.into_iter().map(|action| action.step);
        let proof = steps.find(|step| matches!(step, Step::ProveLeft(left) if left.proof == Proof::Down))?;
        steps.any(|step| matches!(step, Step::WriteReleased { .. })).then_some((proof, before))
    });
    let Some((proof, mut before)) = found else { panic!("{:#?}", world.resource.status) };
    let first = before.instances[0].id.clone();
    assert!(before.volumes[0].live_attachments().any(|found| found.instance == first), "it has the disk");
    let seen = before.resource.clone();
    assert!(before.clone().apply(&proof, &seen).is_ok());
    before.instances[0].state = InstanceState::Running;
    assert!(before.apply(&proof, &seen).is_err(), "somebody starts it, and its kubelet lets go of the disk");
    settle(&mut world, None, false);
    check_end(&world, "it was down");
    assert_eq!(running(&world), [of("2", "m7i.xlarge")]);
}

#[test]
fn a_machine_whose_node_is_closed_is_not_moved_to() {
    let mut world = serving();
    wish_for(&mut world, "m7i.xlarge");
    passes(&mut world, 2);
    let close = |world: &mut World, closed: bool| {
        let node = std::sync::Arc::make_mut(&mut world.children.nodes[1]);
        node.spec.get_or_insert_default().unschedulable = Some(closed);
    };
    close(&mut world, true);
    passes(&mut world, 8);
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert!(told(&world, condition::MOVING).unwrap().2.contains("uncordon"));
    close(&mut world, false);
    settle(&mut world, None, false);
    check_end(&world, "opened");
    assert_eq!(running(&world), [of("2", "m7i.xlarge")]);
}

#[test]
fn another_image_of_the_cluster_is_told_and_moves_nobody() {
    let mut world = serving();
    world.instances[0].image = "ami-older".to_owned();
    passes(&mut world, 6);
    assert_eq!(running(&world), [of("1", "m7i.large")]);
    let status = world.resource.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(Phase::Ready));
    let pending: Vec<_> = status.pending.iter().map(|found| (found.field.as_str(), found.means)).collect();
    assert_eq!(pending, [("/spec/compute/nodeImage", ChangeMeans::Move)]);
}

#[test]
fn a_machine_that_the_stateful_set_really_pins_is_not_ended_by_an_older_look() {
    let mut world = serving();
    wish_for(&mut world, "m7i.xlarge");
    let before = loop {
        let before = world.clone();
        pass(&mut world, &mut 0, None, false);
        if world.pinned().unwrap().ends_with("-g2") {
            break before;
        }
        world.tick();
    };
    // The wish turns back, and whoever looks sees the StatefulSet of before.
    wish_for(&mut world, "m7i.large");
    let real = world.children.stateful_set.clone();
    for _ in 0..4 {
        let mut observed = world.look();
        observed.children.stateful_set.clone_from(&before.children.stateful_set);
        let wish = crate::fixture::validated(&world.resource);
        let plan = crate::plan(&world.resource, &wish, &observed, &crate::fixture::settings());
        let seen = world.resource.clone();
        for action in plan.actions {
            if matches!(action.step, crate::Step::Apply(_)) {
                continue;
            }
            if world.apply(&action.step, &seen).is_err() {
                break;
            }
        }
        assert_eq!(world.children.stateful_set, real);
        assert_eq!(running(&world).len(), 2, "the one that is pinned lives");
    }
    settle(&mut world, None, false);
    check_end(&world, "back by a second move");
    assert_eq!(running(&world), [of("3", "m7i.large")]);
}

type Fault = fn(&mut World);

/// The pin names the next machine, whose Node is not ready yet: QuestDB runs on where it is, and its name leads there.
#[test]
fn a_database_that_serves_beside_its_pin_is_ready_as_long_as_its_name_leads_there() {
    let ready = |world: &World| told(world, condition::READY).unwrap().0;
    let answer = |world: &mut World, number: usize, is: &str| {
        let node = std::sync::Arc::make_mut(&mut world.children.nodes[number]);
        let conditions = node.status.get_or_insert_default().conditions.iter_mut().flatten();
        conditions.filter(|found| found.type_ == "Ready").for_each(|found| is.clone_into(&mut found.status));
    };
    let faults: [(&str, Fault, &str); 4] = [
        ("nothing", |_| {}, "True"),
        (
            "the name leads elsewhere",
            |world| {
                let dns = world.resource.status.as_mut().unwrap().dns.as_mut().unwrap();
                dns.address = Some("10.9.9.9".to_owned());
            },
            "False",
        ),
        (
            "its Node is silent",
            |world| {
                let node = std::sync::Arc::make_mut(&mut world.children.nodes[0]);
                let conditions = node.status.get_or_insert_default().conditions.iter_mut().flatten();
                conditions.for_each(|found| "Unknown".clone_into(&mut found.status));
            },
            "False",
        ),
        (
            "it does not answer",
            |world| {
                let pod = std::sync::Arc::make_mut(world.children.pod.as_mut().unwrap());
                let conditions = pod.status.get_or_insert_default().conditions.iter_mut().flatten();
                conditions.for_each(|found| "False".clone_into(&mut found.status));
            },
            "False",
        ),
    ];
    for (what, fault, expected) in faults {
        let mut world = just_moved();
        let (before, leads) = (world.pod_uid(), world.records.clone());
        answer(&mut world, 1, "Unknown");
        fault(&mut world);
        pass(&mut world, &mut 0, None, false);
        assert!(world.pinned().unwrap().ends_with("-g2") && world.pod_uid() == before, "{what}");
        assert_eq!((ready(&world).as_str(), world.records == leads), (expected, true), "{what}");
    }
    let mut world = just_moved();
    settle(&mut world, None, false);
    check_end(&world, "moved");
}

/// Two machines run, and what starts with the Node of the second, which is ready from now on, keeps pods away by a taint of its own.
fn starting() -> World {
    let mut world = half_moved();
    world.clock = SignedDuration::from_secs(20);
    let now = world.now;
    let node = Arc::make_mut(&mut world.children.nodes[1]);
    let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].last_transition_time = Some(Time(now));
    let (key, effect) = ("ebs.csi.aws.com/agent-not-ready".to_owned(), "NoExecute".to_owned());
    node.spec.as_mut().unwrap().taints = Some(vec![Taint { key, effect, ..Taint::default() }]);
    world
}

#[test]
fn a_taint_that_a_node_starts_with_is_told_only_when_it_stays() {
    let mut world = starting();
    for seconds in [0, 20, 40, 60, 80] {
        passes(&mut world, 1);
        let (status, reason, text) = told(&world, condition::MOVING).unwrap();
        assert_eq!(status, "True", "after {seconds} seconds: {reason}: {text}");
    }
    let mut open = world.clone();
    Arc::make_mut(&mut open.children.nodes[1]).spec.as_mut().unwrap().taints = None;
    settle(&mut open, None, false);
    check_end(&open, "its driver is there");
    assert_eq!(running(&open), [of("2", "m7i.xlarge")]);

    passes(&mut world, 4);
    let (status, reason, text) = told(&world, condition::MOVING).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NodeClosed"), "{text}");
    assert_eq!(running(&world).len(), 2, "it has its time from here on");
}

/// Two machines run, the Node of the second is cordoned, and for an hour the report has said something else of the move, or the same
/// of a machine before.
fn closed_after(reason: &str) -> World {
    let mut world = starting();
    world.now += SignedDuration::from_hours(1);
    let now = world.now;
    let node = Arc::make_mut(&mut world.children.nodes[1]);
    let spec = node.spec.as_mut().unwrap();
    (spec.taints, spec.unschedulable) = (None, Some(true));
    let conditions = node.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].last_transition_time = Some(Time(now));
    let conditions = &mut world.resource.status.as_mut().unwrap().conditions;
    let moving = conditions.iter_mut().find(|found| found.type_ == condition::MOVING).unwrap();
    moving.last_transition_time = Time(now - SignedDuration::from_hours(1));
    "False".clone_into(&mut moving.status);
    reason.clone_into(&mut moving.reason);
    world
}

#[test]
fn a_node_that_is_closed_only_now_has_all_its_time_whatever_was_told_before() {
    for reason in ["Broken", "NodeClosed"] {
        let mut world = closed_after(reason);
        let began = world.now;
        passes(&mut world, 30);
        let (status, said, text) = told(&world, condition::MOVING).unwrap();
        assert_eq!((status.as_str(), said.as_str()), ("False", "NodeClosed"), "{text}");
        assert_eq!(running(&world).len(), 2, "{reason}: it has not had its time");
        let ended = (0..40).any(|_| {
            passes(&mut world, 1);
            running(&world).iter().all(|machine| *machine != of("2", "m7i.xlarge"))
        });
        let after = world.now.duration_since(began);
        assert!(ended && after >= SignedDuration::from_mins(15), "{reason}: {after}");
    }
}

#[test]
fn a_closed_node_is_told_since_the_same_moment_while_its_machine_cannot_be_given_up() {
    let mut world = closed_after("Broken");
    passes(&mut world, 3);
    let since = |world: &World| {
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|found| found.type_ == condition::MOVING).unwrap();
        (found.reason.clone(), found.last_transition_time.0)
    };
    let before = since(&world);
    for _ in 0..ENOUGH {
        let lost = Trouble { at: 0, lost: Lost::Request, crash: false };
        pass(&mut world, &mut 0, Some(lost), false);
        world.tick();
        assert_eq!(since(&world), before);
    }
    assert_eq!(running(&world).len(), 2);
    let ended = (0..6).any(|_| {
        passes(&mut world, 1);
        running(&world).len() == 1
    });
    assert!(ended, "it is given up at once when that can be done");
}
