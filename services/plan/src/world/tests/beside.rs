//! What a database serves without is refused: that anything else goes on is told for as long as it does.

use std::sync::Arc;

use resources::names::condition;
use resources::{Phase, QuestDBStatus, RunState};

use super::model::World;
use super::operations::{become_, change};
use super::outdated::told as told_after;
use super::reach::condition as word;
use super::runner::ENOUGH;
use super::{pass, phase, serving};
use crate::fixture::{settings, validated};
use crate::{Failure, Part, State, plan};

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
    Arc::make_mut(&mut world.children.nodes[0]).spec.get_or_insert_default().unschedulable = Some(true);
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
