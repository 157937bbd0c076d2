//! What a running QuestDB reads again: nobody is restarted for it, and nothing is called done before the process says so.

use std::sync::Arc;

use jiff::SignedDuration;
use resources::ChangeMeans::{Online, Restart};
use resources::{Phase, QuestDBSpec, names};
use serde_json::json;

use super::kubernetes::unready;
use super::model::World;
use super::operations::change;
use super::runner::{pass, settle};
use super::{check_serving, phase, serving};
use crate::fixture::{settings, validated};
use crate::{Step, plan, suspended};

/// A key that a running QuestDB reads again.
const CONNECTIONS: &str = "http.net.connection.limit";

pub(super) fn more_connections(spec: &mut QuestDBSpec) {
    spec.config.insert(CONNECTIONS.to_owned(), "80".to_owned());
}

pub(super) fn no_connections(spec: &mut QuestDBSpec) {
    spec.config.remove(CONNECTIONS);
}

/// More connections, and a key for which it has to start anew.
pub(super) fn more_of_both(spec: &mut QuestDBSpec) {
    more_connections(spec);
    spec.config.insert("shared.worker.count".to_owned(), "2".to_owned());
}

/// One with a key that it reads again.
pub(super) fn serving_many() -> World {
    let mut world = serving();
    change(&mut world, more_connections);
    settle(&mut world, None, false);
    world
}

fn pending(world: &World) -> Vec<(String, resources::ChangeMeans)> {
    let pending = &world.resource.status.as_ref().unwrap().pending;
    pending.iter().map(|found| (found.field.clone(), found.means)).collect()
}

fn annotation(world: &mut World, key: &str) -> String {
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.annotations.get_or_insert_default().entry(key.to_owned()).or_default().clone()
}

fn annotate(world: &mut World, key: &str, value: &str) {
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// Passes, one each minute, while QuestDB answers like this; which of them restarted it, if any did.
fn minutes(world: &mut World, most: usize, deaf: Option<bool>) -> Option<usize> {
    (world.deaf, world.clock) = (deaf, SignedDuration::from_mins(1));
    let before = world.pod_uid();
    (1..=most).find(|_| {
        pass(world, &mut 0, None, false);
        world.tick();
        world.pod_uid() != before
    })
}

#[test]
fn nobody_is_restarted_for_what_is_read_again() {
    let mut world = serving();
    let before = world.pod_uid();
    change(&mut world, more_connections);
    settle(&mut world, None, false);
    assert_eq!((world.pod_uid(), world.reloads), (before.clone(), 1));
    change(&mut world, no_connections);
    settle(&mut world, None, false);
    assert_eq!((world.pod_uid(), world.reloads), (before, 2));
    check_serving(&world, None);
}

#[test]
fn a_restart_that_is_taken_back_with_it_is_none() {
    let mut world = serving();
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    settle(&mut world, None, false);
    let before = world.pod_uid();
    change(&mut world, |spec| {
        spec.restart_nonce = None;
        more_connections(spec);
    });
    settle(&mut world, None, false);
    assert_eq!((world.pod_uid(), world.reloads), (before, 1));
}

#[test]
fn what_needs_a_start_brings_the_rest_along() {
    let mut world = serving();
    let before = world.pod_uid();
    change(&mut world, more_of_both);
    settle(&mut world, None, false);
    assert!(world.pod_uid() != before && world.reloads == 0);
    check_serving(&world, None);
}

#[test]
fn a_pod_that_never_sees_another_file_is_restarted() {
    let mut world = serving();
    let running = annotation(&mut world, names::RUNNING);
    assert!(running.contains(r#","live":true"#), "{running}");
    annotate(&mut world, names::RUNNING, &running.replace(r#","live":true"#, ""));
    let before = world.pod_uid();
    change(&mut world, more_connections);
    pass(&mut world, &mut 0, None, false);
    assert_eq!(pending(&world), [(format!("/spec/config/{CONNECTIONS}"), Restart)]);
    settle(&mut world, None, false);
    assert!(world.pod_uid() != before && world.reloads == 0);
    check_serving(&world, None);
}

#[test]
fn what_is_not_taken_over_stays_pending_while_the_database_serves() {
    let mut world = serving();
    (world.deaf, world.clock) = (Some(true), SignedDuration::from_mins(1));
    let before = world.pod_uid();
    change(&mut world, more_connections);
    for _ in 0..20 {
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_eq!(world.pod_uid(), before);
    assert_eq!(pending(&world), [(format!("/spec/config/{CONNECTIONS}"), Online)]);
    assert_eq!(phase(&world), Some(Phase::Updating));
    let status = world.resource.status.as_ref().unwrap();
    assert!(status.conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"));
    assert!(status.instruction.as_ref().unwrap().seq < world.resource.spec.instruction.as_ref().unwrap().seq);

    // Nor is anything called done when the wish turns back: nobody knows which value it has.
    let mut back = world.clone();
    change(&mut back, no_connections);
    pass(&mut back, &mut 0, None, false);
    assert_eq!(pending(&back), [(format!("/spec/config/{CONNECTIONS}"), Online)]);
    back.deaf = None;
    settle(&mut back, None, false);
    assert_eq!((back.pod_uid(), back.reloads), (before.clone(), 1));
    check_serving(&back, None);

    // A restart that is asked for reads it, too.
    change(&mut world, |spec| spec.restart_nonce = Some("now".to_owned()));
    settle(&mut world, None, false);
    assert!(world.pod_uid() != before && world.reloads == 0);
    check_serving(&world, None);
}

#[test]
fn one_that_cannot_be_told_is_restarted_after_some_minutes() {
    let mut world = serving();
    (world.deaf, world.clock) = (Some(false), SignedDuration::from_mins(1));
    let before = world.pod_uid();
    change(&mut world, more_connections);
    let (mut minutes, mut told) = (0, false);
    while world.pod_uid() == before && minutes < 20 {
        told = pending(&world).contains(&(format!("/spec/config/{CONNECTIONS}"), Restart));
        pass(&mut world, &mut 0, None, false);
        world.tick();
        minutes += 1;
    }
    assert!((6..12).contains(&minutes) && told, "{minutes} {told}");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.reloads, 0);
}

#[test]
fn one_that_has_answered_before_its_file_need_be_there_is_restarted_all_the_same() {
    let mut world = serving();
    change(&mut world, more_connections);
    assert_eq!(minutes(&mut world, 3, Some(true)), None);
    assert_ne!(annotation(&mut world, names::CONFIG), "", "it was told");
    let restarted = minutes(&mut world, 20, Some(false)).unwrap();
    assert!((6..12).contains(&(3 + restarted)), "{restarted}");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.reloads, 0);
}

#[test]
fn what_was_refused_keeps_a_silent_one_from_a_restart_until_it_is_corrected() {
    let set = |world: &mut World, key: &str, value: &str| {
        change(world, |spec| drop(spec.config.insert(key.to_owned(), value.to_owned())));
    };
    let mut world = serving();
    set(&mut world, CONNECTIONS, "8x");
    assert_eq!(minutes(&mut world, 20, Some(true)), None);
    assert_eq!(minutes(&mut world, 20, Some(false)), None, "it would not start with that");
    set(&mut world, "pg.net.connection.limit", "80");
    assert_eq!(minutes(&mut world, 20, Some(false)), None, "nor with more beside it");
    assert!(pending(&world).iter().all(|(_, means)| *means == Online), "{:?}", pending(&world));
    set(&mut world, CONNECTIONS, "80");
    let restarted = minutes(&mut world, 20, Some(false)).unwrap();
    assert!((6..12).contains(&restarted), "{restarted}");
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.reloads, 0);
}

#[test]
fn what_an_older_operator_noted_as_refused_is_believed() {
    let mut world = serving();
    change(&mut world, more_connections);
    assert_eq!(minutes(&mut world, 2, Some(false)), None);
    annotate(&mut world, names::CONFIG_REFUSED, "12345678");
    assert_eq!(minutes(&mut world, 20, Some(false)), None);
}

/// Passes in which nothing is done go on telling what is pending.
#[test]
fn nobody_is_restarted_because_nothing_was_to_be_done_for_a_while() {
    let mut world = serving();
    let before = world.pod_uid();
    change(&mut world, more_connections);
    assert_eq!(minutes(&mut world, 3, Some(true)), None);
    let annotations = world.resource.metadata.annotations.get_or_insert_default();
    annotations.insert(names::PAUSE_RECONCILE.to_owned(), "true".to_owned());
    for _ in 0..10 {
        let planned = plan(&world.resource, &validated(&world.resource), &world.look(), &settings());
        world.resource.status = Some(suspended(&world.resource, Some(&planned), world.now));
        world.now += SignedDuration::from_mins(1);
    }
    assert!(pending(&world).iter().all(|(_, means)| *means == Online), "{:?}", pending(&world));
    world.resource.metadata.annotations.as_mut().unwrap().remove(names::PAUSE_RECONCILE);
    assert_eq!(minutes(&mut world, 20, Some(true)), None, "it answers, and has not taken it over");
    assert_eq!(world.pod_uid(), before);
}

/// It is asked once more, before its restart is told.
#[test]
fn nobody_is_restarted_because_nobody_was_there_to_ask() {
    for (asked, deaf) in [(1, None), (2, None), (2, Some(true))] {
        let mut world = serving();
        let before = world.pod_uid();
        change(&mut world, more_connections);
        assert_eq!(minutes(&mut world, asked, Some(true)), None);
        world.now += SignedDuration::from_mins(10);
        assert_eq!(minutes(&mut world, 20, deaf), None, "{asked} {deaf:?}");
        world.deaf = None;
        settle(&mut world, None, false);
        assert_eq!((world.pod_uid(), world.reloads), (before, 1), "{asked} {deaf:?}");
        check_serving(&world, None);
    }
}

#[test]
fn one_that_ended_before_it_served_is_started_anew() {
    let mut world = serving();
    change(&mut world, more_connections);
    let before = world.pod_uid();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    unready(pod);
    let ended = json!([{ "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 1 }]);
    pod.status.get_or_insert_default().container_statuses = serde_json::from_value(ended).unwrap();
    let seen = world.children.pod.clone();
    for _ in 0..4 {
        if world.pod_uid() == before {
            world.children.pod.clone_from(&seen);
        }
        pass(&mut world, &mut 0, None, false);
        world.tick();
    }
    assert_ne!(world.pod_uid(), before);
    settle(&mut world, None, false);
    assert_eq!(world.reloads, 0);
}

#[test]
fn one_that_does_not_answer_is_neither_told_nor_restarted() {
    let mut world = serving();
    change(&mut world, more_connections);
    let before = world.pod_uid();
    for number in 0..10 {
        unready(Arc::make_mut(world.children.pod.as_mut().unwrap()));
        let planned = pass(&mut world, &mut 0, None, false);
        let touches = |step: &Step| matches!(step, Step::Delete(_) | Step::Reload(_));
        assert!(
            !planned.actions.iter().any(|action| touches(&action.step)),
            "{number}: {:?}",
            planned.actions
        );
    }
    assert_eq!((world.pod_uid(), world.reloads), (before.clone(), 0));
    settle(&mut world, None, false);
    assert_eq!((world.pod_uid(), world.reloads), (before, 1));
}

#[test]
fn what_was_read_again_is_known_of_the_next_pod() {
    let mut world = serving_many();
    assert_eq!(world.reloads, 1);
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(world.reloads, 1);
}
