//! A taint on the Node of a database that serves, by which Kubernetes stops QuestDB and takes the disk off beside a machine that lives:
//! it is told, nothing is made or ended for it, and the database serves again once the taint is off, or elsewhere.

use std::sync::Arc;

use cloud::{Instance, InstanceState, key};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::names::condition;
use serde_json::json;

use super::kubernetes::parse;
use super::model::World;
use super::oracle::{check_end, check_moment};
use super::runner::{pass, settle};
use super::serving;
use super::silent::say;

/// What people say by it: that the machine is down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// With it a Node starts whose disks cannot be mounted yet.
const STARTS: &str = "ebs.csi.aws.com/agent-not-ready";

/// Whether a Node has a taint that nothing stays for, and nothing is started with.
pub(super) fn evicts(spec: &NodeSpec) -> bool {
    spec.taints.iter().flatten().any(|taint| taint.effect == "NoExecute")
}

/// The first Node has this taint alone, or none.
fn taint(world: &mut World, key: Option<&str>) {
    let taint =
        key.map(|key| Taint { key: key.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() });
    let node = Arc::make_mut(&mut world.children.nodes[0]);
    node.spec.get_or_insert_default().taints = Some(taint.into_iter().collect());
}

/// One that served, and Kubernetes has done what the taint asks for: QuestDB is stopped, the disk is on no machine, and the next pod
/// has no place.
fn shut_out(key: &str) -> World {
    let mut world = serving();
    taint(&mut world, Some(key));
    world.let_go();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.uid = Some("next".to_owned());
    pod.spec.get_or_insert_default().node_name = None;
    pod.status = parse(&json!({ "conditions": [{ "type": "PodScheduled", "status": "False" }] }));
    world
}

/// Status and message.
fn told(world: &World, kind: &str) -> (String, String) {
    let mut conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|found| found.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
        check_moment(world, "on the way");
    }
}

/// It is where it was: its machine is the only one that ever was, and protected, and nothing was started.
fn check_left_alone(world: &World) {
    assert_eq!(world.instances.len(), 1, "{:?}", world.instances);
    let machine = &world.instances[0];
    assert!(machine.state == InstanceState::Running && world.is_protected(&machine.id), "{machine:?}");
    assert!(world.pinned().unwrap().ends_with("-g1"));
    assert_eq!(world.pod_uid().as_deref(), Some("next"));
    assert_eq!(world.volumes[0].attachments, []);
}

#[test]
fn a_taint_by_which_kubernetes_stops_it_is_told_at_once_and_nothing_else_is_done() {
    let mut world = shut_out(OUT_OF_SERVICE);
    passes(&mut world, 1);
    let (status, text) = told(&world, condition::DEGRADED);
    assert_eq!(status, "True", "{text}");
    for command in [
        "(kubectl taint node qdb-33445566-g1 node.kubernetes.io/out-of-service-)",
        "(kubectl cordon qdb-33445566-g1)",
    ] {
        assert!(text.contains(command), "{text}");
    }
    assert_eq!(told(&world, condition::READY), ("False".to_owned(), text));
    world.clock = SignedDuration::from_mins(10);
    passes(&mut world, 12);
    check_left_alone(&world);

    taint(&mut world, None);
    settle(&mut world, None, false);
    check_end(&world, "the taint is off");
    assert_eq!((world.instances.len(), told(&world, condition::DEGRADED).0.as_str()), (1, "False"));
}

/// Kubernetes forgets a pod there that nobody stopped: QuestDB may run on, and nobody is to have its machine or its place.
#[test]
fn the_same_beside_a_kubelet_that_is_silent_ends_no_machine() {
    let mut world = shut_out(OUT_OF_SERVICE);
    say(&mut world, "Unknown");
    world.clock = SignedDuration::from_mins(10);
    passes(&mut world, 12);
    check_left_alone(&world);
    assert_eq!(told(&world, condition::NODE_HEALTHY).0, "False");
    assert!(told(&world, condition::DEGRADED).1.contains(OUT_OF_SERVICE));

    world.wake_kubelets();
    taint(&mut world, None);
    settle(&mut world, None, false);
    check_end(&world, "its kubelet is heard again");
    assert_eq!(world.instances.len(), 1);
}

#[test]
fn who_cordons_its_node_as_well_has_it_move_with_its_disk() {
    let mut world = shut_out(OUT_OF_SERVICE);
    passes(&mut world, 2);
    let disk = world.volumes[0].id.clone();
    let node = Arc::make_mut(&mut world.children.nodes[0]);
    node.spec.get_or_insert_default().unschedulable = Some(true);
    passes(&mut world, 1);
    assert_eq!(told(&world, condition::NODE_CORDONED).0, "True");
    settle(&mut world, None, false);
    check_end(&world, "moved");
    let lives = |found: &&Instance| !found.state.is_ending();
    let living: Vec<_> = world.instances.iter().filter(lives).collect();
    assert!(living.len() == 1 && living[0].tags.get(key::GENERATION) == Some("2"), "{living:?}");
    assert_eq!(world.volumes[0].id, disk);
}

/// A taint that passes by itself most often: its Node is ready since now, or is long since and the pod was made now.
fn starting() -> [World; 2] {
    let mut world = shut_out(STARTS);
    world.now += SignedDuration::from_hours(1);
    world.clock = SignedDuration::from_mins(1);
    let (now, mut other) = (Time(world.now), world.clone());
    let node = Arc::make_mut(&mut world.children.nodes[0]);
    let conditions = node.status.get_or_insert_default().conditions.iter_mut().flatten();
    conditions.for_each(|found| found.last_transition_time = Some(now.clone()));
    let pod = Arc::make_mut(other.children.pod.as_mut().unwrap());
    pod.metadata.creation_timestamp = Some(now);
    [world, other]
}

#[test]
fn a_taint_that_something_may_start_with_is_told_once_it_stays() {
    for mut world in starting() {
        for (minute, degraded) in [(0, "False"), (1, "False"), (2, "True")] {
            passes(&mut world, 1);
            assert_eq!(told(&world, condition::DEGRADED).0, degraded, "after {minute} minutes");
            let text = told(&world, condition::READY).1;
            assert!(text.contains(STARTS), "after {minute} minutes: {text}");
            // Nobody is to take off what goes by itself.
            assert_eq!(text.contains("kubectl"), degraded == "True", "after {minute} minutes: {text}");
        }
        taint(&mut world, None);
        settle(&mut world, None, false);
        check_end(&world, "its driver is there");
    }
}

#[test]
fn of_a_node_that_is_not_ready_that_is_told_and_no_taint_that_goes_with_it() {
    let mut world = shut_out(STARTS);
    say(&mut world, "False");
    world.clock = SignedDuration::from_mins(10);
    passes(&mut world, 3);
    assert_eq!(told(&world, condition::NODE_HEALTHY).0, "False");
    assert_eq!(told(&world, condition::DEGRADED).0, "False");
    check_left_alone(&world);
}
