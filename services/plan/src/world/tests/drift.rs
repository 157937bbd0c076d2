//! What others write into our objects: our fields come back, theirs are left, and neither keeps us busy.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use resources::names::{self, condition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::model::World;
use super::operations::change;
use super::{ENOUGH, check_serving, pass, phase, serving, settle};
use crate::fixture::{settings, validated};
use crate::{Action, Applied, Kind, Memory, Observed, Plan, Step, plan, status};

/// Edits a child by hand.
fn edit<K: Serialize + DeserializeOwned>(child: &mut Option<Arc<K>>, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::to_value(child.as_deref().unwrap()).unwrap();
    change(&mut value);
    *child = Some(Arc::new(serde_json::from_value(value).unwrap()));
}

/// Gives a child a version.
fn number<K: Serialize + DeserializeOwned>(child: &mut Option<Arc<K>>, version: &str) {
    edit(child, |value| {
        value["metadata"]["uid"] = json!("u");
        value["metadata"]["resourceVersion"] = json!(version);
    });
}

fn set(world: &mut World) -> &mut Option<Arc<StatefulSet>> {
    &mut world.children.stateful_set
}

fn config(world: &mut World) -> &mut Option<Arc<ConfigMap>> {
    &mut world.children.config
}

fn service(world: &mut World) -> &mut Option<Arc<Service>> {
    &mut world.children.service
}

fn push(value: &mut Value, list: &str, element: Value) {
    value.pointer_mut(list).unwrap().as_array_mut().unwrap().push(element);
}

const POD: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";

#[test]
fn what_others_added_is_left_and_not_fought_over() {
    let mut world = serving();
    edit(set(&mut world), |value| {
        push(value, &format!("{CONTAINER}/env"), json!({ "name": "EXTRA", "value": "1" }));
        push(value, &format!("{CONTAINER}/ports"), json!({ "containerPort": 7, "protocol": "TCP" }));
        push(
            value,
            &format!("{CONTAINER}/volumeMounts"),
            json!({ "name": "scratch", "mountPath": "/scratch" }),
        );
        push(value, &format!("{POD}/volumes"), json!({ "name": "scratch", "emptyDir": {} }));
        push(value, &format!("{POD}/containers"), json!({ "name": "agent", "image": "agent" }));
        value["metadata"]["labels"]["team"] = json!("a");
        value["metadata"]["annotations"]["note"] = json!("a");
    });
    edit(config(&mut world), |value| value["data"]["log.conf"] = json!("x"));
    edit(service(&mut world), |value| {
        push(value, "/spec/ports", json!({ "name": "extra", "port": 7, "protocol": "TCP" }));
    });
    let before = (world.children.clone(), world.resource.status.clone());
    let planned = pass(&mut world, &mut 0, None, false);
    assert_eq!(planned.actions, []);
    assert!(planned.is_settled(), "{:?}", planned.progress);
    assert_eq!(world.resource.status, before.1, "nothing is said to be wrong");
    check_serving(&world, None);
    assert_eq!(format!("{:?}", world.children), format!("{:?}", before.0));
}

#[test]
fn each_field_of_ours_comes_back_by_one_apply() {
    type Edit = fn(&mut World);
    let edits: [(Kind, Edit); 10] = [
        (Kind::StatefulSet, |world| edit(set(world), |value| value["spec"]["replicas"] = json!(0))),
        (Kind::StatefulSet, |world| {
            edit(set(world), |value| {
                value.pointer_mut(CONTAINER).unwrap()["env"][0]["value"] = json!("true");
            });
        }),
        (Kind::StatefulSet, |world| {
            edit(set(world), |value| {
                value.pointer_mut(&format!("{CONTAINER}/env")).unwrap().as_array_mut().unwrap().remove(0);
            });
        }),
        (Kind::StatefulSet, |world| {
            edit(set(world), |value| {
                push(value, &format!("{POD}/tolerations"), json!({ "operator": "Exists" }));
            });
        }),
        (Kind::StatefulSet, |world| {
            edit(set(world), |value| {
                push(value, &format!("{POD}/containers"), json!({ "name": "agent", "image": "agent" }));
                value.pointer_mut(CONTAINER).unwrap()["image"] = json!("other");
            });
        }),
        (Kind::ConfigMap, |world| edit(config(world), |value| value["data"]["server.conf"] = json!("x"))),
        (Kind::ConfigMap, |world| {
            edit(config(world), |value| value["data"] = json!({ "other": "x" }));
        }),
        (Kind::Service, |world| edit(service(world), |value| value["spec"]["ports"][1]["port"] = json!(7))),
        (Kind::Service, |world| {
            edit(service(world), |value| value["metadata"]["annotations"][names::RESOURCE] = json!("x"));
        }),
        // It would send nobody to the pod.
        (Kind::Service, |world| edit(service(world), |value| value["spec"]["selector"]["app"] = json!("x"))),
    ];
    for (number, (kind, change)) in edits.into_iter().enumerate() {
        let mut world = serving();
        let intended = world.children.config.as_ref().unwrap().data.clone();
        change(&mut world);
        let planned = pass(&mut world, &mut 0, None, false);
        let steps: Vec<&Step> = planned.actions.iter().map(|action| &action.step).collect();
        assert!(
            matches!(steps.as_slice(), [Step::Apply(manifest)] if manifest.kind == kind),
            "edit {number}: {steps:?}"
        );
        assert!(planned.actions[0].puts_right, "edit {number}: it is counted");
        assert!(!planned.actions[0].writes_over, "edit {number}: it has its place");
        world.tick();
        settle(&mut world, None, false);
        check_serving(&world, None);
        assert_eq!(world.children.config.as_ref().unwrap().data, intended, "edit {number}");
    }
}

/// Somebody adds, to a part of the StatefulSet, a field that has no place beside ours.
fn crowd(world: &mut World, (part, field, value): (&str, &str, &Value)) {
    edit(set(world), |set| set.pointer_mut(part).unwrap()[field] = value.clone());
}

#[test]
fn what_has_no_place_beside_ours_is_written_over_by_one_step() {
    let key = json!({ "name": "theirs", "key": "a" });
    for (part, field, value) in [
        (format!("{CONTAINER}/env/0"), "valueFrom", json!({ "configMapKeyRef": key })),
        (format!("{CONTAINER}/env/1/valueFrom"), "configMapKeyRef", key),
        (format!("{POD}/initContainers/0/env/2"), "value", json!("theirs")),
        (format!("{POD}/volumes/0"), "emptyDir", json!({})),
        (format!("{CONTAINER}/startupProbe"), "tcpSocket", json!({ "port": 1 })),
        (format!("{POD}/securityContext/seccompProfile"), "localhostProfile", json!("theirs")),
        ("/spec/updateStrategy".to_owned(), "rollingUpdate", json!({ "partition": 0 })),
    ] {
        let mut world = serving();
        crowd(&mut world, (&part, field, &value));
        let planned = pass(&mut world, &mut 0, None, false);
        assert!(
            matches!(planned.actions.as_slice(), [action] if action.writes_over && action.puts_right
                && matches!(&action.step, Step::Apply(manifest) if manifest.kind == Kind::StatefulSet)),
            "{part}: {:?}",
            planned.actions
        );
        world.tick();
        settle(&mut world, None, false);
        check_serving(&world, None);
    }
}

#[test]
fn nobody_is_restarted_for_a_template_of_which_no_pod_can_be_made() {
    let ends = |planned: &Plan| {
        let is_pod = |step: &Step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod);
        planned.actions.iter().any(|action| is_pod(&action.step))
    };
    let mut world = serving();
    change(&mut world, |spec| spec.restart_nonce = Some("once".to_owned()));
    for _ in 0..ENOUGH {
        let mut crowded = world.clone();
        crowd(&mut crowded, (&format!("{CONTAINER}/env/1"), "value", &json!("theirs")));
        let planned = pass(&mut crowded, &mut 0, None, false);
        assert!(!ends(&planned), "{:?}", planned.actions);
        assert!(planned.actions.iter().any(|action| action.writes_over), "{:?}", planned.actions);
        if ends(&pass(&mut world, &mut 0, None, false)) {
            return;
        }
        world.tick();
    }
    panic!("nobody was restarted");
}

#[test]
fn a_field_of_what_was_known_to_be_as_intended_comes_back_too() {
    type Edit = fn(&mut Observed);
    let mut world = serving();
    number(set(&mut world), "1");
    number(config(&mut world), "1");
    number(service(&mut world), "1");
    let (seen, observed) = world.see();
    let planned = |observed: &Observed| plan(&seen, &validated(&seen), observed, &settings());
    let first = planned(&observed);
    assert!(first.agreed.len() >= 3, "{:?}", first.agreed);
    let memory = Memory { agreed: first.agreed.clone(), ..observed.memory.clone() };
    let observed = Observed { memory, ..observed };
    assert_eq!(planned(&observed), first, "what is known changes nothing");
    let edits: [(Kind, Edit); 3] = [
        (Kind::ConfigMap, |seen| {
            edit(&mut seen.children.config, |value| value["data"]["server.conf"] = json!("x"));
            number(&mut seen.children.config, "2");
        }),
        (Kind::Service, |seen| {
            edit(&mut seen.children.service, |value| value["spec"]["selector"]["app"] = json!("x"));
            number(&mut seen.children.service, "2");
        }),
        (Kind::StatefulSet, |seen| {
            edit(&mut seen.children.stateful_set, |value| value["spec"]["replicas"] = json!(0));
            number(&mut seen.children.stateful_set, "2");
        }),
    ];
    for (kind, change) in edits {
        let mut edited = observed.clone();
        change(&mut edited);
        let planned = planned(&edited);
        let applies =
            |action: &Action| matches!(&action.step, Step::Apply(manifest) if manifest.kind == kind);
        assert!(planned.actions.iter().any(applies), "{kind:?}: {:?}", planned.actions);
    }
}

#[test]
fn what_an_older_operator_wrote_is_taken_away_by_one_apply() {
    let mut world = serving();
    edit(config(&mut world), |value| {
        // Its intention had one key more, so it was another.
        value["metadata"]["annotations"][names::APPLIED] = json!("0123456789abcdef");
        value["data"]["former"] = json!("x");
    });
    let planned = pass(&mut world, &mut 0, None, false);
    assert!(matches!(planned.actions.as_slice(), [action] if matches!(&action.step, Step::Apply(manifest)
            if manifest.kind == Kind::ConfigMap && manifest.uid.is_some() && !action.puts_right)));
    world.tick();
    settle(&mut world, None, false);
    check_serving(&world, None);
    assert_eq!(phase(&world), Some(resources::Phase::Ready));
    assert!(!world.children.config.as_ref().unwrap().data.as_ref().unwrap().contains_key("former"));
}

#[test]
fn a_field_that_two_write_is_told_until_only_one_does() {
    let mut world = serving();
    let (wish, observed) = (validated(&world.resource), world.look());
    let mut say = |contended: &[&str]| {
        let contended = contended.iter().map(|text| (*text).to_owned()).collect();
        let applied = Applied { contended, ..Applied::default() };
        let said = (&Plan::default(), &applied);
        let status = status(&world.resource, &wish, &observed, said, Timestamp::UNIX_EPOCH);
        let found = status.conditions.iter().find(|found| found.type_ == condition::CONTENDED).cloned();
        world.resource.status = Some(status);
        found.map(|found| (found.status, found.message))
    };
    assert_eq!(say(&[]), None);
    let told = say(&["/spec/replicas is written by scaler as well"]).unwrap();
    assert!(told.0 == "True" && told.1.contains("scaler"), "{told:?}");
    assert_eq!(say(&[]).unwrap().0, "False");
}
