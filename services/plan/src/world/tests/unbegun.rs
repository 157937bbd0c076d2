//! A pod that does not begin although its machine has the disk: after a while people are told where to look, and it is waited for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resources::Phase;
use resources::names::condition;
use serde_json::{Value, json};

use super::kubernetes::parse;
use super::model::World;
use super::{check_serving, pass, phase, serving, settle};
use crate::fixture::{settings, validated};
use crate::{Part, Plan, State, Step};

/// What differs here, since then.
type Change = fn(&mut World, Timestamp);

fn container(name: &str, state: &Value) -> Value {
    json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
}

/// Its kubelet has the pod since then, and what prepares for QuestDB is so.
fn is_held_up(world: &mut World, since: Timestamp, prepares: &Value) {
    let condition =
        |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": since });
    let waits = json!({ "waiting": { "reason": "PodInitializing" } });
    Arc::make_mut(world.children.pod.as_mut().unwrap()).status = parse(&json!({
        "conditions": [condition("PodScheduled", "True"), condition("Ready", "False")],
        "initContainerStatuses": [container("link-config", prepares)],
        "containerStatuses": [container("questdb", &waits)],
    }));
}

fn does_not_begin(world: &mut World, since: Timestamp) {
    is_held_up(world, since, &json!({ "waiting": { "reason": "PodInitializing" } }));
}

fn planned(world: &World) -> Plan {
    let seen = &world.resource;
    crate::plan(seen, &validated(seen), &world.look(), &settings())
}

#[test]
fn a_pod_that_does_not_begin_with_its_disk_is_told_with_where_to_look() {
    let mut world = serving();
    world.now += SignedDuration::from_mins(30);
    let [late, soon] = [10, 9].map(|minutes| world.now - SignedDuration::from_mins(minutes));
    does_not_begin(&mut world, late);
    let others: [(&str, Change); 5] = [
        ("it has its place since a moment ago", does_not_begin),
        ("its disk came a moment ago", |world, soon| {
            let mut steps = world.resource.status.iter_mut().flat_map(|status| &mut status.steps);
            steps.find(|step| step.name == Part::Attachment.as_str()).unwrap().ended_at = Some(Time(soon));
        }),
        ("its machine was silent", |world, soon| {
            let node = Arc::make_mut(&mut world.children.nodes[0]);
            let conditions = node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
            conditions.for_each(|found| found.last_transition_time = Some(Time(soon)));
        }),
        ("its disk is not there", |world, _| world.volumes[0].attachments.clear()),
        ("something of it runs", |world, soon| {
            is_held_up(world, soon - SignedDuration::from_mins(1), &json!({ "running": {} }));
        }),
    ];
    for (what, change) in others {
        let mut world = world.clone();
        change(&mut world, soon);
        let told = planned(&world).state(Part::Pod).cloned();
        assert!(matches!(told, Some(State::Running(_))), "{what}: {told:?}");
    }

    let planned = pass(&mut world, &mut 0, None, false);
    let Some(State::Broken(text)) = planned.state(Part::Pod) else { panic!("{:?}", planned.progress) };
    let look = "see the events at the end of kubectl -n qdb-acme describe pod trades-33445566-0";
    assert!(text.contains(&format!("since {late}; ")) && text.ends_with(look), "{text}");
    assert!(!planned.actions.iter().any(|action| matches!(action.step, Step::Delete(_))), "it is waited for");
    assert_eq!(phase(&world), Some(Phase::Degraded));
    let conditions = &world.resource.status.as_ref().unwrap().conditions;
    let degraded = conditions.iter().find(|found| found.type_ == condition::DEGRADED).unwrap();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "Pod"));
    settle(&mut world, None, false);
    check_serving(&world, None);
}
