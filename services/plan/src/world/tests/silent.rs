//! A machine whose kubelet is dead: nobody there stops the pod or lets go of the disk, and the database ends all the same.

use std::sync::Arc;

use cloud::{InstanceState, VolumeId};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::{Phase, RunState};

use super::model::World;
use super::operations::{become_, half_moved};
use super::oracle::check_end;
use super::{Trouble, check_gone, check_serving, pass, phase, serving, settle, wish};
use crate::{Part, Plan, State, Step};

/// Longest silence that is waited for.
const LONG: SignedDuration = SignedDuration::from_mins(5);

/// How fast time goes while somebody is waited for.
pub(super) const CLOCK: SignedDuration = SignedDuration::from_secs(30);

const ENDS: [(RunState, Phase); 3] = [
    (RunState::Paused, Phase::Paused),
    (RunState::Deleted, Phase::Deleted),
    (RunState::Purged, Phase::Deleted),
];

/// A database that is to stop, whose Node has been in this state since the epoch.
fn stopping(to: RunState, status: &str) -> World {
    let mut world = serving();
    say(&mut world, status);
    wish(&mut world, 2, |spec| {
        spec.run_state = to;
        spec.storage.provisioned = true;
    });
    world
}

pub(super) fn say(world: &mut World, status: &str) {
    say_of(world, 0, status);
}

/// The same of another Node than the first.
pub(super) fn say_of(world: &mut World, number: usize, status: &str) {
    let condition = &mut Arc::make_mut(&mut world.children.nodes[number])
        .status
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()[0];
    status.clone_into(&mut condition.status);
    condition.last_transition_time = Some(Time(Timestamp::UNIX_EPOCH));
}

fn check_down(world: &World, to: RunState, end: Phase, trouble: Option<Trouble>) {
    assert_eq!(phase(world), Some(end), "{trouble:?}");
    assert!(world.children.pod.is_none() && world.children.nodes.is_empty(), "{trouble:?}");
    assert!(world.instances.iter().all(|found| found.state == InstanceState::Terminated), "{trouble:?}");
    if to == RunState::Purged {
        check_gone(world, trouble);
    } else {
        assert_eq!(world.volumes.len(), 1, "{trouble:?}: the disk stays");
    }
}

#[test]
fn a_machine_that_is_silent_for_long_is_ended_before_its_pod() {
    for (to, end) in ENDS {
        let mut world = stopping(to, "Unknown");
        world.now = Timestamp::UNIX_EPOCH + LONG - SignedDuration::from_secs(1);
        let mut taken = 0;
        for _ in 0..20 {
            pass(&mut world, &mut taken, None, false);
            world.tick();
        }
        assert_eq!(world.instances[0].state, InstanceState::Running, "it may come back");
        assert_eq!(world.protected.len(), 1);
        assert!(world.children.pod.is_some());
        world.now += SignedDuration::from_secs(1);
        pass(&mut world, &mut taken, None, false);
        assert_eq!(world.instances[0].state, InstanceState::Running, "its pod has time to stop");
        world.clock = CLOCK;
        let steps = settle(&mut world, None, false);
        check_down(&world, to, end, None);
        assert!(steps > 3, "{steps}");
    }
}

/// Whoever looks after an account may mark all disks in it like that.
#[test]
fn a_machine_that_would_take_the_disk_along_is_not_ended() {
    let mut world = stopping(RunState::Paused, "Unknown");
    world.volumes[0].attachments[0].goes_with_machine = true;
    (world.now, world.clock) = (Timestamp::UNIX_EPOCH + LONG, CLOCK);
    let (mut taken, mut told) = (0, None);
    for _ in 0..30 {
        told = pass(&mut world, &mut taken, None, false).state(Part::InstanceStop).cloned();
        world.tick();
    }
    assert_eq!(world.instances[0].state, InstanceState::Running);
    let is_told = matches!(&told, Some(State::Broken(text)) if text.contains("DeleteOnTermination=false"));
    assert!(is_told, "{told:?}");
    world.volumes[0].attachments[0].goes_with_machine = false;
    settle(&mut world, None, false);
    check_down(&world, RunState::Paused, Phase::Paused, None);
}

#[test]
fn a_machine_that_is_ready_again_in_time_stops_its_pod_itself() {
    for (to, end) in ENDS {
        let mut world = stopping(to, "Unknown");
        let mut taken = 0;
        for _ in 0..5 {
            pass(&mut world, &mut taken, None, false);
            world.tick();
        }
        say(&mut world, "True");
        world.now = Timestamp::UNIX_EPOCH + LONG * 2;
        // The model ends no machine under a pod whose kubelet listens.
        settle(&mut world, None, false);
        check_down(&world, to, end, None);
    }
}

#[test]
fn a_wish_that_turns_back_after_a_silent_machine_was_ended_serves_again() {
    let mut world = stopping(RunState::Paused, "Unknown");
    world.now = Timestamp::UNIX_EPOCH + LONG;
    world.clock = CLOCK;
    settle(&mut world, None, false);
    wish(&mut world, 3, |spec| spec.run_state = RunState::Running);
    settle(&mut world, None, false);
    check_serving(&world, None);
}

#[test]
fn a_silent_machine_that_is_left_is_ended_only_after_its_pod_had_its_time() {
    let mut world = serving();
    let node = Arc::make_mut(&mut world.children.nodes[0]);
    node.spec.get_or_insert_default().unschedulable = Some(true);
    say(&mut world, "Unknown");
    (world.now, world.clock) = (Timestamp::UNIX_EPOCH + LONG, SignedDuration::from_secs(10));
    let (mut taken, mut waited) = (0, 0);
    for _ in 0..40 {
        pass(&mut world, &mut taken, None, false);
        let pod = world.children.pod.clone();
        let Some(end) = pod.and_then(|pod| pod.metadata.deletion_timestamp.clone()) else {
            world.tick();
            continue;
        };
        if world.now >= end.0 + SignedDuration::from_secs(30) {
            break;
        }
        assert_eq!(world.instances[0].state, InstanceState::Running, "{} before {}", world.now, end.0);
        waited += 1;
        world.tick();
    }
    assert!(waited > 10, "{waited}");
    // Right before it is ended its kubelet is heard of: whoever looked before is stopped by a live look.
    let mut late = world.clone();
    let seen = late.resource.clone();
    let wish = crate::fixture::validated(&seen);
    let plan = crate::plan(&seen, &wish, &late.look(), &crate::fixture::settings());
    let proof = plan.actions.iter().find(|action| matches!(action.step, Step::ProveLeft(_))).unwrap();
    say(&mut late, "True");
    assert!(late.apply(&proof.step, &seen).is_err());
    assert!(world.apply(&proof.step, &seen).is_ok());
    settle(&mut world, None, false);
    check_end(&world, "drained of a silent Node");
}

/// So many passes; what the last one planned.
pub(super) fn passes(world: &mut World, count: usize) -> Plan {
    let mut planned = Plan::default();
    for _ in 0..count {
        planned = pass(world, &mut 0, None, false);
        world.tick();
    }
    planned
}

/// Of two disks the first is on a machine whose kubelet is dead, the other on one that lets go of it.
#[test]
fn a_disk_that_nobody_lets_go_of_hides_no_other() {
    let mut world = half_moved();
    let mut other = world.volumes[0].clone();
    other.id = VolumeId::new("vol-other");
    for attachment in &mut other.attachments {
        attachment.volume = other.id.clone();
        attachment.instance = world.instances[1].id.clone();
    }
    assert_eq!((world.instances.len(), other.attachments.len()), (2, 1));
    world.volumes.push(other);
    say(&mut world, "Unknown");
    (world.children.stateful_set, world.children.pod) = (None, None);
    become_(&mut world, RunState::Paused);
    let planned = passes(&mut world, 8);
    let waits = planned.state(Part::Detachment);
    assert!(matches!(waits, Some(State::Running(text)) if text.contains("vol-other")), "{waits:?}");
    assert!(world.instances.iter().all(|found| found.state == InstanceState::Running));
    assert_eq!(world.protected.len(), 2);
    let held = std::mem::take(&mut world.volumes[1].attachments);
    let second = world.instances[1].id.clone();
    let proof = (0..8).find_map(|_| {
        let before = world.clone();
        let steps = passes(&mut world, 1).actions.into_iter().map(|action| action.step);
        let mut of_second =
            steps.filter(|step| matches!(step, Step::ProveLeft(left) if left.instance == second));
        of_second.next().map(|proof| (proof, before))
    });
    let (proof, mut before) = proof.unwrap();
    assert!(before.clone().apply(&proof, &before.resource).is_ok());
    before.volumes[1].attachments = held;
    assert!(before.clone().apply(&proof, &before.resource).is_err(), "the other disk is there again");
    passes(&mut world, 8);
    assert!(world.instances.iter().all(|found| found.state == InstanceState::Terminated));
}
