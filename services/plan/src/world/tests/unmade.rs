//! A StatefulSet of which no pod is made, because somebody refuses it: that is told after a while, and waited for.

use std::iter;

use jiff::{SignedDuration, Timestamp};
use resources::names::condition;

use super::model::World;
use super::operations::change;
use super::{ENOUGH, check_serving, pass, serving, settle};
use crate::fixture::resource;
use crate::{Kind, Part, State};

/// What a pass waits for with the pod, and when.
fn look(world: &mut World) -> (String, Timestamp) {
    let now = world.now;
    let planned = pass(world, &mut 0, None, false);
    world.tick();
    match planned.state(Part::Pod) {
        Some(State::Running(text)) => (text.clone(), now),
        _ => (String::new(), now),
    }
}

fn ready(world: &World) -> &str {
    let mut conditions = world.resource.status.iter().flat_map(|status| &status.conditions);
    &conditions.find(|found| found.type_ == condition::READY).unwrap().message
}

/// One that serves, and whose pod is to be made again.
fn restarting() -> World {
    let mut world = serving();
    change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
    world
}

#[test]
fn a_pod_that_nobody_takes_is_told_after_a_while_and_waited_for() {
    for mut world in [World::new(resource(1)), restarting()] {
        (world.read_only_for, world.clock) = (Some(Kind::Pod), SignedDuration::from_secs(10));
        let mut looks = iter::repeat_with(|| look(&mut world)).take(ENOUGH);
        let (first, since) = looks.find(|(text, _)| text.starts_with("waiting for the pod")).unwrap();
        let waits = format!("waiting for the pod to be made since {since}");
        assert_eq!(first, waits);
        let told = format!(
            "{waits}; most often the namespace's Pod Security Standard (the pod takes host ports unless spec.network.hostPorts is \
             false), a ResourceQuota or an admission webhook refuses it: kubectl describe statefulset trades-33445566 -n qdb-acme"
        );
        for seconds in [10, 20, 30, 40, 50] {
            let (text, now) = look(&mut world);
            assert_eq!(now, since + SignedDuration::from_secs(seconds));
            let is_late = seconds >= 30;
            assert_eq!(&text, if is_late { &told } else { &waits }, "after {seconds} s");
            assert_eq!(ready(&world) == format!("pod: {told}"), is_late, "{}", ready(&world));
        }
        world.read_only_for = None;
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}
