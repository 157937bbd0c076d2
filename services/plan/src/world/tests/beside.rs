//! What a database serves without is refused: that anything else goes on is told for as long as it does.

use std::mem;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use resources::names::condition;
use resources::{Phase, QuestDBStatus, RunState};
use serde_json::json;

use super::credentials::wishing;
use super::kubernetes::parse;
use super::model::World;
use super::operations::{become_, change};
use super::outdated::told as told_after;
use super::reach::condition as word;
use super::runner::{ENOUGH, settle};
use super::silent::say;
use super::{pass, phase, serving};
use crate::fixture::{settings, validated};
use crate::{Applied, Failure, Part, State, plan, status};

const REFUSED: &str = "refused";

fn refusal(part: Part) -> Failure {
    Failure { part, message: REFUSED.to_owned(), lasting: true, outdated: None, overtaken: false }
}

/// What is told of whether anything goes on: how it is, and the reason.
fn progressing(status: &QuestDBStatus) -> (&str, &str) {
    let found = status.conditions.iter().find(|found| found.type_ == condition::PROGRESSING).unwrap();
    (&found.status, &found.reason)
}

fn passes(world: &mut World, count: usize) {
    for _ in 0..count {
        pass(world, &mut 0, None, false);
        world.tick();
    }
}

/// Somebody wants the Node empty that the database is on.
fn cordon(world: &mut World) {
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
}

fn wish_for_another_machine(world: &mut World) {
    change(world, |spec| "m7i.xlarge".clone_into(&mut spec.compute.instance_type));
}

#[test]
fn a_move_goes_on_beside_rules_that_are_refused_and_its_end_is_told() {
    let mut world = serving();
    world.full.rules = Some(world.groups[0].ingress.len());
    change(&mut world, |spec| spec.network.allowed_cidrs.push("10.9.0.0/16".to_owned()));
    passes(&mut world, 6);
    let told = |world: &World| {
        let (status, reason) = progressing(world.resource.status.as_ref().unwrap());
        (status.to_owned(), reason.to_owned())
    };
    let refused = ("False".to_owned(), "Rules".to_owned());
    assert_eq!(told(&world), refused);

    wish_for_another_machine(&mut world);
    let mut moved = 0;
    for _ in 0..ENOUGH {
        passes(&mut world, 1);
        assert_eq!((word(&world, "Degraded").unwrap().0, phase(&world)), ("True", Some(Phase::Degraded)));
        if word(&world, condition::MOVING).is_some_and(|(status, _)| status == "True") {
            assert_eq!(told(&world).0, "True", "{:?}", word(&world, condition::MOVING));
            moved += 1;
        }
    }
    assert!(moved > 3 && word(&world, condition::MOVING).unwrap().0 == "False", "{moved}");
    assert_eq!(told(&world), refused);
}

#[test]
fn only_what_waits_for_nothing_that_is_refused_goes_on_beside_it() {
    let mut world = serving();
    wish_for_another_machine(&mut world);
    passes(&mut world, 2);
    let again = |part| Failure { lasting: false, ..refusal(part) };
    for (failures, expected) in [
        (vec![], ("True", "NextMachine")),
        (vec![refusal(Part::Rules)], ("True", "NextMachine")),
        (vec![refusal(Part::Keys), refusal(Part::Reach)], ("True", "NextMachine")),
        (vec![refusal(Part::Rules), again(Part::Tags)], ("True", "Tags")),
        // It waits for the end of another one, say.
        (vec![refusal(Part::Former)], ("False", "FormerMachines")),
        (vec![refusal(Part::Former), again(Part::Candidate)], ("False", "FormerMachines")),
        (vec![refusal(Part::Former), again(Part::Tags)], ("True", "Tags")),
        (vec![refusal(Part::Candidate)], ("False", "NextMachine")),
        (vec![refusal(Part::SecurityGroup)], ("False", "SecurityGroup")),
        (vec![refusal(Part::Rules), refusal(Part::Config)], ("False", "Config")),
        // The first of several is not the one that is waited for.
        (vec![refusal(Part::Rules), refusal(Part::Former)], ("False", "Rules")),
        (vec![refusal(Part::Rules), refusal(Part::Former), again(Part::Candidate)], ("False", "Rules")),
        (vec![refusal(Part::Former), refusal(Part::Rules)], ("False", "FormerMachines")),
    ] {
        let what = format!("{failures:?}");
        assert_eq!(progressing(&told_after(&world, failures)), expected, "{what}");
    }
    become_(&mut world, RunState::Paused);
    let status = told_after(&world, vec![refusal(Part::Former)]);
    assert_eq!(progressing(&status), ("False", "FormerMachines"), "it is not to serve");
}

/// Nothing starts again on its Node, and no other machine is to be had.
#[test]
fn a_restart_that_waits_for_a_machine_that_is_refused_does_not_go_on() {
    let mut world = serving();
    cordon(&mut world);
    world.full.machines = vec![world.volumes[0].zone.clone()];
    change(&mut world, |spec| spec.restart_nonce = Some("again".to_owned()));
    passes(&mut world, 12);
    let planned = plan(&world.resource, &validated(&world.resource), &world.look(), &settings());
    let waits = planned.state(Part::Pod);
    assert!(matches!(waits, Some(State::Running(text)) if text.contains("cordoned")), "{waits:?}");
    let told = |part| told_after(&world, vec![refusal(part)]);
    assert_eq!(progressing(&told(Part::Candidate)), ("False", "NextMachine"));
    assert_eq!(progressing(&told(Part::Rules)).0, "True", "it waits for something else");
}

/// Its Node was drained, and its next pod has no place before there is another.
#[test]
fn a_pod_that_waits_for_a_machine_that_is_refused_does_not_go_on() {
    let mut world = serving();
    cordon(&mut world);
    world.let_go();
    let pod = Arc::make_mut(world.children.pod.as_mut().unwrap());
    pod.spec.get_or_insert_default().node_name = None;
    pod.status = parse(&json!({ "conditions": [{ "type": "PodScheduled", "status": "False" }] }));
    let told = |part| told_after(&world, vec![refusal(part)]);
    assert_eq!(progressing(&told(Part::Candidate)), ("False", "NextMachine"));
    assert_eq!(progressing(&told(Part::Rules)).0, "True", "the next machine comes");
}

/// Nobody is left there who stops QuestDB and lets go of the disk: only the end of the machine frees both.
#[test]
fn what_waits_for_a_machine_that_cannot_be_ended_does_not_go_on() {
    let mut world = serving();
    cordon(&mut world);
    say(&mut world, "Unknown");
    let (silent, turn) = (SignedDuration::from_mins(5), SignedDuration::from_secs(10));
    (world.now, world.clock) = (Timestamp::UNIX_EPOCH + silent, turn);
    let is_told_to_stop = |world: &World| {
        let pod = world.children.pod.as_deref();
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    };
    for _ in 0..ENOUGH {
        if is_told_to_stop(&world) {
            break;
        }
        passes(&mut world, 1);
    }
    assert!(is_told_to_stop(&world) && world.children.nodes.len() == 2);
    let told = |part| told_after(&world, vec![refusal(part)]);
    assert_eq!(progressing(&told(Part::Former)), ("False", "FormerMachines"));
    assert_eq!(progressing(&told(Part::Rules)).0, "True", "it is ended in its time");
}

/// Of a key that is denied it is not kept in mind that it was refused.
#[test]
fn credentials_that_wait_for_a_key_that_is_denied_do_not_go_on() {
    let mut world = serving();
    wishing(&mut world, &["first"]);
    settle(&mut world, None, false);
    world.full.secrets = true;
    wishing(&mut world, &["second"]);
    for _ in 0..ENOUGH {
        if !world.memory.refused.is_empty() {
            break;
        }
        passes(&mut world, 1);
    }
    assert_eq!(mem::take(&mut world.memory.refused), [Part::Keys]);
    let (wish, observed) = (validated(&world.resource), world.look());
    let planned = plan(&world.resource, &wish, &observed, &settings());
    for (denied, expected) in [
        (Vec::new(), ("True", "Credentials")),
        (vec!["nobody may create Secrets".to_owned()], ("False", "Keys")),
    ] {
        let applied = Applied { failures: vec![refusal(Part::Keys)], denied, ..Applied::default() };
        let told = status(&world.resource, &wish, &observed, (&planned, &applied), world.now);
        assert_eq!(progressing(&told), expected);
    }
}
