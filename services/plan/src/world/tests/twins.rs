//! Machines that somebody copied by hand, with the tags of a database's own: none is taken for that, and none is ended.

use cloud::{Instance, InstanceId, InstanceState, Tags, key};
use resources::names::condition;
use resources::{Phase, RunState};

use super::model::World;
use super::operations::{become_, begin_move, end_machine};
use super::reach::condition as told;
use super::runner::settle;
use super::silent::passes;
use super::{check_serving, phase, serving};
use crate::{Part, State, Step};

const COPY: &str = "i-copy";

/// As the console makes another one like it.
fn copy(instance: &Instance) -> Instance {
    Instance {
        id: InstanceId::new(COPY),
        private_ip: None,
        client_token: Some("of-the-console".to_owned()),
        ..instance.clone()
    }
}

fn state(world: &World, id: &str) -> Option<InstanceState> {
    let found = world.instances.iter().find(|found| found.id.as_str() == id);
    found.map(|found| found.state.clone())
}

/// What somebody does to the copy.
type Change = fn(&mut Instance);

const COPIES: [(&str, Change); 4] = [
    ("it runs", |_| {}),
    ("it is stopped", |copy| copy.state = InstanceState::Stopped),
    ("no token is shown", |copy| copy.client_token = None),
    ("without a generation", |copy| {
        let tags: Tags = copy.tags.iter().filter(|(found, _)| *found != key::GENERATION).collect();
        copy.tags = tags;
    }),
];

#[test]
fn a_copied_machine_is_told_and_nothing_is_done_for_it() {
    for place in [0, 1] {
        for (what, change) in COPIES {
            let mut world = serving();
            let home = world.instances[0].id.to_string();
            let mut copied = copy(&world.instances[0]);
            change(&mut copied);
            let copied_state = copied.state.clone();
            world.instances.insert(place, copied);
            let before = world.pod_uid();
            let planned = passes(&mut world, 10);
            assert_eq!(planned.actions, [], "{what}");
            assert_eq!(world.pod_uid(), before, "{what}");
            assert_eq!(
                (state(&world, COPY), phase(&world)),
                (Some(copied_state), Some(Phase::Ready)),
                "{what}"
            );
            let node = world.resource.status.as_ref().unwrap().node.clone().unwrap();
            assert_eq!(node.instance_id, Some(home), "{what}");
            let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
            assert!(
                degraded == "True" && text.contains(COPY) && text.contains("terminate it"),
                "{what}: {text}"
            );
            world.instances.retain(|found| found.id.as_str() != COPY);
            settle(&mut world, None, false);
            check_serving(&world, None);
            assert_eq!(told(&world, condition::DEGRADED).unwrap().0, "False", "{what}");
        }
    }
}

#[test]
fn the_end_of_a_copied_machine_takes_no_pod() {
    for place in [0, 1] {
        let mut world = serving();
        let ended = Instance { state: InstanceState::Terminated, ..copy(&world.instances[0]) };
        world.instances.insert(place, ended);
        let before = world.pod_uid();
        let planned = passes(&mut world, 5);
        assert_eq!(planned.actions, []);
        assert_eq!(world.pod_uid(), before);
    }
}

#[test]
fn a_database_moves_beside_a_copied_machine_and_leaves_that_alone() {
    let mut world = serving();
    let home = world.instances[0].id.to_string();
    let copied = copy(&world.instances[0]);
    world.instances.insert(0, copied);
    begin_move(&mut world);
    settle(&mut world, None, false);
    assert!(world.pinned().unwrap().ends_with("-g2"));
    assert_eq!(state(&world, &home), Some(InstanceState::Terminated));
    assert_eq!(state(&world, COPY), Some(InstanceState::Running));
    let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
    assert!(degraded == "True" && text.contains("launched by somebody else"), "{text}");
}

#[test]
fn copied_machines_do_not_take_the_place_of_one_that_the_database_has_left() {
    let states = [InstanceState::Running, InstanceState::Stopped];
    let ends: fn(&mut World) = |world| end_machine(world, 0);
    for (what, leave) in [("it ended", ends), ("it is left", begin_move)] {
        for count in [1, 2] {
            let mut world = serving();
            let home = world.instances[0].clone();
            let copies = states.iter().take(count).map(|state| {
                let id = InstanceId::new(format!("{COPY}-{state}"));
                Instance { id, state: state.clone(), ..copy(&home) }
            });
            world.instances.extend(copies);
            leave(&mut world);
            settle(&mut world, None, false);
            assert!(world.pinned().unwrap().ends_with("-g2"), "{what}: {count}");
            assert_eq!(phase(&world), Some(Phase::Ready), "{what}: {count}");
            assert_eq!(state(&world, home.id.as_str()), Some(InstanceState::Terminated), "{what}: {count}");
            let stays =
                |copied: &InstanceState| state(&world, &format!("{COPY}-{copied}")).as_ref() == Some(copied);
            assert!(states.iter().take(count).all(stays), "{what}: {:?}", world.instances);
            let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
            assert!(degraded == "True" && text.contains("launched by somebody else"), "{what}: {text}");
        }
    }
}

#[test]
fn of_two_machines_that_nobody_can_tell_apart_none_is_used_or_ended() {
    for place in [0, 1] {
        let mut world = serving();
        world.instances[0].client_token = None;
        let copied = Instance { client_token: None, ..copy(&world.instances[0]) };
        world.instances.insert(place, copied);
        // Nor does the report.
        world.wipe();
        let before = world.pod_uid();
        let launches =
            |step: &Step| matches!(step, Step::RunInstance { .. } | Step::TerminateInstance { .. });
        for _ in 0..10 {
            let planned = passes(&mut world, 1);
            assert!(!planned.actions.iter().any(|action| launches(&action.step)), "{:?}", planned.actions);
            let told = planned.state(Part::Instance);
            assert!(
                matches!(told, Some(State::Broken(text)) if text.contains(COPY) && text.contains("terminate all but one")),
                "{told:?}"
            );
        }
        assert_eq!((world.instances.len(), world.pod_uid()), (2, before));
        let (degraded, text) = told(&world, condition::DEGRADED).unwrap();
        assert!(degraded == "True" && text.contains(COPY), "{text}");
        world.instances.retain(|found| found.id.as_str() != COPY);
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}

#[test]
fn the_machine_that_the_report_names_is_the_one_of_two() {
    for place in [0, 1] {
        let mut world = serving();
        let home = world.instances[0].id.to_string();
        world.instances[0].client_token = None;
        let copied = Instance { client_token: None, ..copy(&world.instances[0]) };
        world.instances.insert(place, copied);
        let planned = passes(&mut world, 5);
        assert_eq!(planned.actions, []);
        let node = world.resource.status.as_ref().unwrap().node.clone().unwrap();
        assert_eq!((node.instance_id, phase(&world)), (Some(home), Some(Phase::Ready)));
        become_(&mut world, RunState::Paused);
        settle(&mut world, None, false);
        assert_eq!(phase(&world), Some(Phase::Paused), "what is to stop is ended with all that has its tags");
    }
}
