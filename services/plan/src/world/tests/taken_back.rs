//! A cache of the StatefulSet alone that is behind while the database moves, in an operator that has to write it for another reason: it
//! makes pods in another way than the one before it did, or somebody changed it by hand. That does not take the move back.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use resources::names;

use super::enumerated::undisturbed;
use super::model::World;
use super::operations::operations;
use super::oracle::{check_end, check_moment};
use super::runner::{Run, settle};
use crate::fixture::{settings, validated};
use crate::{Applied, Failure, Plan, Step, plan};

/// What takes a database to another machine.
const MOVES: [&str; 3] = ["another machine", "another machine and everything else", "drained"];

/// Why the StatefulSet is not as intended, wherever the database is.
struct Reason {
    name: &'static str,
    /// What makes it so.
    change: fn(&mut StatefulSet),
    /// Whether it is still so, or only seems to be.
    lasts: bool,
}

const REASONS: [Reason; 2] = [
    Reason { name: "the operator before made pods in another way", change: make_otherwise, lasts: true },
    Reason { name: "somebody scaled it down, which was put right", change: scale_down, lasts: false },
];

fn make_otherwise(set: &mut StatefulSet) {
    let otherwise = |key: &str| (key.to_owned(), "otherwise".to_owned());
    set.metadata.annotations.get_or_insert_default().extend([otherwise(names::APPLIED)]);
    let template = set.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    template.annotations.as_mut().unwrap().extend([otherwise(names::TEMPLATE)]);
}

fn scale_down(set: &mut StatefulSet) {
    set.spec.as_mut().unwrap().replicas = Some(0);
}

/// The generation of the machine that is pinned.
fn pinned(world: &World) -> Option<u64> {
    names::generation_of_node(world.pinned()?)
}

/// The same of what a step writes.
fn pinned_by(step: &Step) -> Option<u64> {
    let Step::Apply(manifest) = step else { return None };
    let pin = format!("/spec/template/spec/nodeSelector/{}", names::LABEL_NODE.replace('/', "~1"));
    names::generation_of_node(manifest.body.pointer(&pin)?.as_str()?)
}

/// The StatefulSet as it was at each time when it pinned an older machine than now.
fn outdated(world: &World, before: &[(usize, World)]) -> Vec<Arc<StatefulSet>> {
    let now = pinned(world);
    let earlier = before.iter().map(|(_, earlier)| earlier);
    let earlier = earlier.filter(|earlier| pinned(earlier).is_some_and(|pinned| Some(pinned) < now));
    let mut sets: Vec<_> = earlier.filter_map(|earlier| earlier.children.stateful_set.clone()).collect();
    sets.dedup_by(|one, other| one.metadata.resource_version == other.metadata.resource_version);
    sets
}

/// One pass of somebody who sees an older StatefulSet.
fn pass_behind(world: &mut World, older: StatefulSet) -> Plan {
    let seen = world.resource.clone();
    let mut observed = world.look();
    observed.children.stateful_set = Some(Arc::new(older));
    let planned = plan(&seen, &validated(&seen), &observed, &settings());
    let mut applied = Applied::default();
    for action in &planned.actions {
        if applied.skips(action) {
            continue;
        }
        if let Err(message) = world.apply(&action.step, &seen) {
            let (part, message) = (action.part, message.to_owned());
            let failure = Failure { part, message, lasting: false, outdated: None, overtaken: true };
            applied.failures.push(failure);
        }
    }
    planned
}

/// Whether such a pass was about to take the move back.
fn is_about_to(
    mut world: World,
    mut older: StatefulSet,
    (reason, end): (&Reason, &World),
    what: &str,
) -> bool {
    (reason.change)(&mut older);
    if reason.lasts {
        (reason.change)(Arc::make_mut(world.children.stateful_set.as_mut().unwrap()));
    }
    let (before, pod) = (pinned(&world), world.pod_uid());
    let planned = pass_behind(&mut world, older);
    assert!(pinned(&world) >= before, "{what}: the move was taken back to {:?}", world.pinned());
    check_moment(&world, what);
    world.tick();
    settle(&mut world, None, false);
    check_end(&world, what);
    assert_eq!(world.instances.len(), end.instances.len(), "{what}: a machine was given up");
    assert!(pod != end.pod_uid() || world.pod_uid() == pod, "{what}: QuestDB was restarted");
    planned.actions.iter().filter_map(|action| pinned_by(&action.step)).any(|to| Some(to) < before)
}

#[test]
fn a_move_is_not_taken_back_by_a_look_that_shows_the_stateful_set_as_it_was() {
    for reason in &REASONS {
        for operation in operations().filter(|operation| MOVES.contains(&operation.name)) {
            let (end, Run { passes, .. }) = undisturbed(operation);
            let what = format!("{}, {}", operation.name, reason.name);
            let worlds = passes.iter().enumerate().flat_map(|(number, (_, world))| {
                outdated(world, &passes[..number]).into_iter().map(move |older| (world.clone(), older))
            });
            let met = worlds.filter(|(world, older)| {
                is_about_to(world.clone(), (**older).clone(), (reason, &end), &what)
            });
            assert!(met.count() > 0, "{what}: no pass was about to");
        }
    }
}
