//! Every operation with every step failing, every step done twice, and everybody seeing late what is: the end is the one
//! that an undisturbed run comes to.

use std::collections::BTreeSet;

use resources::RunState;
use serde_json::Value;

use super::blind::Blind;
use super::model::{Lost, World};
use super::operations::{Operation, become_, change, operations};
use super::oracle::{check_end, check_moment, is_refused, picture, picture_of_fresh};
use super::runner::{ENOUGH, Run, Trouble, pass, record, settle, settle_after, troubles_at};
use crate::Goal;

/// The operation, begun.
fn begun(operation: &Operation) -> World {
    let mut world = (operation.start)();
    (operation.change)(&mut world);
    world
}

/// What an undisturbed run comes to.
pub(super) fn undisturbed(operation: &Operation) -> (World, Run) {
    let mut world = begun(operation);
    let before = world.modified;
    let run = record(&mut world);
    // EC2 takes the next change only hours later.
    assert!(world.modified < before + 2, "{}: the disk is changed in two steps", operation.name);
    check_end(&world, operation.name);
    (world, run)
}

/// Runs every operation under a cloud; the end is the same.
fn under(cloud: &str, gather: impl Fn(&mut World), twice: bool) {
    for operation in operations() {
        let what = format!("{}, {cloud}", operation.name);
        let (end, _) = undisturbed(operation);
        let mut world = begun(operation);
        gather(&mut world);
        settle(&mut world, None, twice);
        check_end(&world, &what);
        assert_same(&world, &end, &what);
    }
}

fn assert_same(world: &World, other: &World, what: &str) {
    let disk = |world: &World| world.volumes.first().map(|volume| volume.id.clone());
    assert_eq!(disk(world).is_some(), disk(other).is_some(), "{what}");
    assert_pictures(&picture(world), &picture(other), what);
}

pub(super) fn assert_pictures(found: &Value, wanted: &Value, what: &str) {
    if found != wanted {
        let mut texts = Vec::new();
        differences("", found, wanted, &mut texts);
        panic!("{what}:\n{}", texts.join("\n"));
    }
}

fn differences(at: &str, found: &Value, wanted: &Value, texts: &mut Vec<String>) {
    match (found, wanted) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                differences(&format!("{at}/{key}"), &found[key], &wanted[key], texts);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{number}"), one, other, texts);
            }
        }
        _ if found == wanted => {}
        _ => texts.push(format!("{at}: {found} instead of {wanted}")),
    }
}

#[test]
fn every_step_may_fail_once() {
    for operation in operations() {
        let (end, Run { steps, passes }) = undisturbed(operation);
        for trouble in (0..steps.len()).flat_map(troubles_at) {
            let what = format!("{}, {trouble:?}", operation.name);
            comes_to(&end, &passes, trouble, &what);
        }
    }
}

/// The end is the same with a trouble on the way.
pub(super) fn comes_to(end: &World, passes: &[(usize, World)], trouble: Trouble, what: &str) {
    // The pass before the trouble begins with the same world as without it.
    let (before, world) = passes.iter().rev().find(|(taken, _)| *taken <= trouble.at).unwrap();
    let mut world = world.clone();
    settle_after(&mut world, *before, Some(trouble), false);
    check_end(&world, what);
    assert_same(&world, end, what);
}

#[test]
fn every_step_may_be_done_twice() {
    under("all twice", |_| {}, true);
}

#[test]
fn the_status_may_be_wiped_before_every_pass() {
    under("wiped", |world| world.wiped = ENOUGH / 2, false);
}

#[test]
fn ec2_may_answer_from_the_past() {
    for lag in [1, 3] {
        under("EC2 late", |world| world.lag = lag, false);
    }
}

#[test]
fn caches_may_be_one_write_behind() {
    under("caches late", |world| world.late = true, false);
}

#[test]
fn caches_may_not_show_what_runs_for_some_looks() {
    let (serving, ending) =
        ([(1, Blind::Set), (2, Blind::Set)], [(4, Blind::Set), (2, Blind::Pod), (3, Blind::All)]);
    for operation in operations() {
        let (end, Run { passes, .. }) = undisturbed(operation);
        let ends = Goal::of(&end.resource) != Goal::Serve;
        for (looks, blind) in serving.iter().chain(ending.iter().filter(|_| ends)) {
            // What is not there is shown to nobody anyhow.
            for (taken, world) in passes.iter().filter(|(_, world)| blind.hides(&world.children)) {
                let what = format!("{}, {looks} without {blind:?} after step {taken}", operation.name);
                let mut world = world.clone();
                (world.blind, world.blind_to) = (*looks, blind.clone());
                settle_after(&mut world, *taken, None, false);
                check_end(&world, &what);
                assert_same(&world, &end, &what);
                assert_eq!(world.instances.len(), end.instances.len(), "{what}: a machine was given up");
            }
        }
    }
}

#[test]
fn all_may_be_late_and_done_twice() {
    under("all of it", |world| (world.lag, world.late) = (2, true), true);
}

/// A word for it, and what it does to a world whose spec was this one.
type Turn = (&'static str, fn(&mut World, &resources::QuestDBSpec));

/// Wishes that may follow any other, but one that is for good.
const TURNS: [Turn; 4] = [
    ("back", |world, former| change(world, |spec| again(spec, former))),
    ("to a pause", |world, _| become_(world, RunState::Paused)),
    ("to service", |world, _| become_(world, RunState::Running)),
    ("to an end", |world, _| become_(world, RunState::Purged)),
];

/// What was wished for before, as far as it may be wished for again.
fn again(spec: &mut resources::QuestDBSpec, former: &resources::QuestDBSpec) {
    let (instruction, storage) = (spec.instruction.take(), spec.storage.clone());
    spec.clone_from(former);
    spec.instruction = instruction;
    spec.storage.size_gib = former.storage.size_gib.max(storage.size_gib);
    spec.storage.provisioned |= storage.provisioned;
}

#[test]
fn a_wish_may_turn_round_after_every_step() {
    let mut turned = 0;
    for operation in operations() {
        let former = (operation.start)().resource.spec;
        let (end, Run { steps, passes }) = undisturbed(operation);
        let for_good = end.resource.spec.run_state == RunState::Purged
            || end.resource.metadata.deletion_timestamp.is_some();
        for at in (0..steps.len()).filter(|_| !for_good) {
            // Back after every step, and after every third another way, each in its turn.
            let other = (at % 3 == 0).then(|| TURNS[1 + at / 3 % 3]);
            for (way, turn) in [TURNS[0]].into_iter().chain(other) {
                let what = format!("{}, turned {way} after step {at}", operation.name);
                turn_round(stopped_after(at, &passes), |world| turn(world, &former), &what);
                turned += 1;
            }
        }
    }
    assert!(turned > 250, "{turned}");
}

/// Another wish is carried out as if it had been the first, with the disk that there is.
fn turn_round(mut world: World, turn: impl FnOnce(&mut World), what: &str) {
    let disk = world.volumes.first().map(|volume| volume.id.clone());
    world.wake_kubelets();
    turn(&mut world);
    settle(&mut world, None, false);
    check_end(&world, what);
    if world.resource.spec.run_state == RunState::Running && !is_refused(&world.resource) {
        assert!(disk.is_none_or(|id| world.volumes[0].id == id), "{what}: another disk");
        assert_pictures(&picture(&world), &picture_of_fresh(&world), what);
    }
}

/// The world right after a step: the process died before the next.
fn stopped_after(at: usize, passes: &[(usize, World)]) -> World {
    let (before, world) = passes.iter().rev().find(|(taken, _)| *taken <= at).unwrap();
    let (mut world, mut taken) = (world.clone(), *before);
    let trouble = Trouble { at, lost: Lost::Answer, crash: true };
    pass(&mut world, &mut taken, Some(trouble), false);
    assert_eq!(taken, at + 1);
    check_moment(&world, "right after a step");
    world.tick();
    world
}

#[test]
fn no_two_operations_have_one_name() {
    let names: BTreeSet<&str> = operations().map(|operation| operation.name).collect();
    assert_eq!(names.len(), operations().count());
}
