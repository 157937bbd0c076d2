//! Caches that are behind by more than a write: for some looks they show nothing of what runs. No machine is ended by them while
//! anything is on it, none that is made ready is given up, and nobody is pinned elsewhere.

use std::sync::Arc;

use cloud::{InstanceState, key};
use k8s_openapi::api::core::v1::Pod;
use resources::RunState;
use resources::names::condition;

use super::model::World;
use super::operations::{become_, change, half_moved, just_moved};
use super::oracle::{check_end, check_moment};
use super::runner::{ENOUGH, pass, settle};
use super::serving;
use super::silent::{say, say_of};
use crate::fixture::{settings, validated};
use crate::{Children, Kind, Manifest, Part, Plan, State, Step};

/// What they do not show.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Blind {
    /// The StatefulSet.
    Set,
    /// The pod either.
    Pod,
    /// Where the disk is, and the Nodes, either.
    All,
    /// What became of the pod since it was this one, or so.
    PodSince(Arc<Pod>),
}

impl Blind {
    pub(super) fn hide(&self, children: &mut Children) {
        if let Self::PodSince(pod) = self {
            children.pod = Some(Arc::clone(pod));
            return;
        }
        children.stateful_set = None;
        if *self != Self::Set {
            children.pod = None;
        }
        if *self == Self::All {
            children.attachments.clear();
            children.nodes.clear();
        }
    }

    /// Whether there is any of it.
    pub(super) fn hides(&self, children: &Children) -> bool {
        if let Self::PodSince(pod) = self {
            return children.pod.as_ref() != Some(pod);
        }
        let pod = *self != Self::Set && children.pod.is_some();
        let all = *self == Self::All && !(children.attachments.is_empty() && children.nodes.is_empty());
        children.stateful_set.is_some() || pod || all
    }
}

impl World {
    /// What the API server does not make because it is there, and the operator does not write over.
    pub(super) fn is_yet_to_be_seen(&self, manifest: &Manifest) -> bool {
        let found = self.children.stateful_set.as_deref();
        let subject = validated(&self.resource).subject;
        found.is_some_and(|found| subject.is_yet_to_be_seen(manifest, &found.metadata))
    }
}

fn passes(world: &mut World, count: usize) -> Vec<Plan> {
    let one = |world: &mut World| {
        let planned = pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
        planned
    };
    (0..count).map(|_| one(world)).collect()
}

/// The same without seeing this.
fn blind_passes(world: &mut World, count: usize, blind: Blind) -> Vec<Plan> {
    (world.blind, world.blind_to) = (count, blind);
    passes(world, count)
}

/// The generations of the machines that live.
fn living(world: &World) -> Vec<&str> {
    let living = world.instances.iter().filter(|found| !found.state.is_ending());
    living.filter_map(|found| found.tags.get(key::GENERATION)).collect()
}

fn wish_for(world: &mut World, machine: &str) {
    change(world, |spec| machine.clone_into(&mut spec.compute.instance_type));
}

fn proves(plan: &Plan) -> bool {
    plan.actions.iter().any(|action| matches!(action.step, Step::ProveLeft(_)))
}

#[test]
fn no_machine_is_ended_by_looks_that_do_not_show_what_is_on_it() {
    let starts: [fn() -> World; 3] = [serving, half_moved, just_moved];
    for start in starts {
        for run_state in [RunState::Paused, RunState::Deleted, RunState::Purged] {
            let mut world = start();
            become_(&mut world, run_state);
            let (machine, pod) = (world.volumes[0].attachments[0].instance.clone(), world.pod_uid());
            let plans = blind_passes(&mut world, 10, Blind::All);
            assert!(plans.iter().any(proves), "{run_state:?}: nothing was about to be ended");
            let lives = world.instances.iter().any(|found| found.id == machine && !found.state.is_ending());
            assert!(lives && world.protected.contains(&machine), "{run_state:?}: {:#?}", world.instances);
            assert_eq!(world.pod_uid(), pod, "{run_state:?}: QuestDB runs on");
            settle(&mut world, None, false);
            check_end(&world, "stopped as soon as it was seen");
        }
    }
}

#[test]
fn a_next_machine_is_kept_while_the_stateful_set_is_not_seen() {
    for looks in 1..4 {
        let mut world = half_moved();
        blind_passes(&mut world, looks, Blind::Set);
        assert_eq!(living(&world), ["1", "2"]);
        let conditions = &world.resource.status.as_ref().unwrap().conditions;
        let moving = conditions.iter().find(|found| found.type_ == condition::MOVING).unwrap();
        assert!(moving.status == "True" && moving.message.contains("is kept until"), "{moving:?}");
        settle(&mut world, None, false);
        check_end(&world, "moved");
        assert_eq!((living(&world), world.instances.len()), (vec!["2"], 2));
    }
    // Nor is it given up when somebody takes it away.
    let mut world = half_moved();
    world.children.stateful_set = None;
    settle(&mut world, None, false);
    check_end(&world, "moved");
    assert_eq!((living(&world), world.instances.len()), (vec!["2"], 2));
}

#[test]
fn a_next_machine_that_nobody_needs_is_ended_although_the_stateful_set_is_not_seen() {
    let mut world = half_moved();
    wish_for(&mut world, "m7i.large");
    let plans = blind_passes(&mut world, 4, Blind::Set);
    assert!(plans.iter().any(proves));
    assert_eq!(living(&world), ["1"]);
    settle(&mut world, None, false);
    check_end(&world, "back");
}

#[test]
fn a_database_whose_disk_is_on_no_machine_stays_where_that_was_last() {
    let mut world = half_moved();
    say_of(&mut world, 1, "Unknown");
    world.children.stateful_set = None;
    world.children.pod = None;
    world.let_go();
    passes(&mut world, 6);
    assert_eq!(living(&world), ["1", "2"]);
    assert!(world.pinned().unwrap().ends_with("-g1"), "{:?}", world.pinned());
    let on = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    assert!(world.children.pod.as_deref().and_then(on).unwrap().ends_with("-g1"));
    say_of(&mut world, 1, "True");
    settle(&mut world, None, false);
    check_end(&world, "moved");
    assert_eq!((living(&world), world.instances.len()), (vec!["2"], 2));
}

#[test]
fn nobody_is_pinned_elsewhere_by_a_look_that_does_not_show_the_stateful_set() {
    let mut world = just_moved();
    blind_passes(&mut world, 3, Blind::Set);
    assert!(world.pinned().unwrap().ends_with("-g2"), "{:?}", world.pinned());
    settle(&mut world, None, false);
    check_end(&world, "moved");
    assert_eq!((living(&world), world.instances.len()), (vec!["2"], 2));
}

/// The first proof that is to be made on the way to where a database goes.
fn first_proof(world: &mut World) -> Step {
    for _ in 0..ENOUGH {
        let seen = world.resource.clone();
        let planned = crate::plan(&seen, &validated(&seen), &world.look(), &settings());
        let mut steps = planned.actions.into_iter().map(|action| action.step);
        if let Some(proof) = steps.find(|step| matches!(step, Step::ProveLeft(_))) {
            return proof;
        }
        passes(world, 1);
    }
    panic!("nothing is to be proved: {:#?}", world.resource.status)
}

/// What happens to a world.
type Change = fn(&mut World);

#[test]
fn what_spoke_for_the_end_of_a_machine_is_asked_once_more() {
    let faults: [(&str, Change, Change); 2] = [
        (
            "somebody stopped it, and starts it again",
            |world| world.instances[0].state = InstanceState::Stopped,
            |world| world.instances[0].state = InstanceState::Running,
        ),
        (
            "its Node is not ready, and is again",
            |world| {
                world.children.stateful_set = None;
                world.children.pod = None;
            },
            |world| say(world, "True"),
        ),
    ];
    for (what, fault, end) in faults {
        let mut world = serving();
        // Nobody there ends a pod or lets go of a disk.
        say(&mut world, "Unknown");
        become_(&mut world, RunState::Paused);
        fault(&mut world);
        let proof = first_proof(&mut world);
        let mut late = world.clone();
        end(&mut late);
        let seen = world.resource.clone();
        assert!(late.apply(&proof, &seen).is_err(), "{what}: {proof:?}");
        assert!(world.apply(&proof, &seen).is_ok(), "{what}: {proof:?}");
        settle(&mut world, None, false);
        check_end(&world, what);
    }
}

#[test]
fn a_pod_is_not_forgotten_while_its_machine_may_not_be_shown() {
    let mut world = serving();
    say(&mut world, "Unknown");
    become_(&mut world, RunState::Paused);
    world.children.stateful_set = None;
    let mut older = world.instances[0].clone();
    older.id = cloud::InstanceId::new("i-of-before");
    older.state = InstanceState::Terminated;
    passes(&mut world, 6);
    for conclusive in [false, true] {
        let mut observed = world.look();
        // EC2 shows one that has ended, and not the one that the pod is on.
        observed.account.instances = vec![older.clone()];
        observed.account.conclusive = conclusive;
        let seen = &world.resource;
        let planned = crate::plan(seen, &validated(seen), &observed, &settings());
        let forgets = |step: &Step| matches!(step, Step::Delete(target) if target.at_once);
        let found = planned.actions.iter().any(|action| forgets(&action.step));
        assert_eq!(found, conclusive, "{:#?}", planned.actions);
    }
}

/// What EC2 lacks in an answer may run.
#[test]
fn a_node_that_is_ready_is_not_forgotten_although_ec2_does_not_know_its_machine() {
    let planned = |world: &World| {
        let mut observed = world.look();
        let machine = observed.account.instances.remove(0);
        observed.account.gone.push(machine.id.clone());
        if observed.account.instances.is_empty() {
            let id = cloud::InstanceId::new("i-of-before");
            let ended = cloud::Instance { id, state: InstanceState::Terminated, ..machine };
            observed.account.instances.push(ended);
        }
        let seen = &world.resource;
        crate::plan(seen, &validated(seen), &observed, &settings())
    };
    let forgets = |plan: &Plan| {
        let is_it =
            |step: &Step| matches!(step, Step::Delete(target) if target.at_once || target.kind == Kind::Node);
        plan.actions.iter().any(|action| is_it(&action.step))
    };
    let mut ends = serving();
    say(&mut ends, "Unknown");
    become_(&mut ends, RunState::Paused);
    ends.children.stateful_set = None;
    passes(&mut ends, 6);
    for mut world in [just_moved(), ends.clone()] {
        for (status, expected) in [("True", false), ("Unknown", true)] {
            say(&mut world, status);
            let planned = planned(&world);
            assert_eq!(forgets(&planned), expected, "{status}: {:#?}", planned.actions);
        }
    }
    // Its pod has gone by then.
    ends.children.pod = None;
    say(&mut ends, "True");
    let planned = planned(&ends);
    let told = planned.state(Part::InstanceStop);
    assert!(matches!(told, Some(State::Running(text)) if text.contains("is ready, and EC2")), "{told:?}");
}
