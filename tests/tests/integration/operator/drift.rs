//! What others write into the objects of a database: our fields come back, theirs are left, and neither makes an end of
//! its readiness.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::PATIENCE;
use super::subject::Subject;
use crate::front::Act;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_add_is_left_and_what_they_change_comes_back() {
    let mut subject = Subject::new(&unique("drift")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let (client, namespace) = (subject.rig.admin.clone(), subject.rig.namespace.clone());
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let services: Api<Service> = Api::namespaced(client, &namespace);
    let config = names::config(&subject.name);
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };

    let intended = configs.get(&config).await.unwrap().data.unwrap();
    let set = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "questdb", "env": [{ "name": "EXTRA", "value": "1" }] },
    ] } } } });
    subject.sets().patch(&subject.name, &somebody, &Patch::Strategic(&set)).await.unwrap();
    let port = json!({ "spec": { "ports": [{ "name": "extra", "port": 7, "protocol": "TCP" }] } });
    services.patch(&subject.name, &somebody, &Patch::Strategic(&port)).await.unwrap();
    let data = json!({ "data": { "log.conf": "theirs", "server.conf": "theirs" } });
    configs.patch(&config, &somebody, &Patch::Merge(&data)).await.unwrap();

    eventually(PATIENCE, "our key of the ConfigMap to come back", async || {
        let data = configs.get(&config).await.unwrap().data?;
        (data["server.conf"] == intended["server.conf"]).then_some(())
    })
    .await;
    // Another wish is carried out in full beside what they added.
    subject.wish(|spec| spec["network"] = json!({ "allowedCidrs": ["10.9.0.0/16"] })).await;
    subject.carried_out(Phase::Ready).await;
    let set = serde_json::to_value(subject.sets().get(&subject.name).await.unwrap()).unwrap();
    let env = set.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array).unwrap();
    assert!(env.iter().any(|entry| entry["name"] == "EXTRA"), "{env:?}");
    assert_eq!(configs.get(&config).await.unwrap().data.unwrap()["log.conf"], "theirs");
    let ports = services.get(&subject.name).await.unwrap().spec.unwrap().ports.unwrap();
    assert!(ports.iter().any(|port| port.port == 7), "{ports:?}");
    subject.purge().await;
}

/// More than one pass tries.
const REFUSED: usize = 6;

/// The variables of QuestDB's container, as the StatefulSet has them.
async fn env(subject: &Subject) -> BTreeMap<String, Value> {
    let set = subject.sets().get(&subject.name).await.unwrap();
    let env = set.spec.unwrap().template.spec.unwrap().containers.remove(0).env.unwrap();
    env.into_iter().map(|entry| (entry.name.clone(), serde_json::to_value(entry).unwrap())).collect()
}

/// What somebody wrote leaves no place for ours: it goes, with nothing that stands beside it; and what is asked for no more, or
/// in another way, goes with the next wish as ever. A variable that somebody named stays named, as beside any field that is applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaves_no_place_for_ours_is_written_over() {
    let mut subject = Subject::new(&unique("union")).await;
    let _others = super::others::Others::of(&subject.rig);
    let (_operator, front) = super::edits::behind(&subject.rig).await;
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let rolling = json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } });
    subject.sets().patch(&subject.name, &somebody, &Patch::Merge(&rolling)).await.unwrap();
    let set = async || serde_json::to_value(subject.sets().get(&subject.name).await.unwrap()).unwrap();
    eventually(PATIENCE, "our strategy to come back", async || {
        (set().await["spec"]["updateStrategy"] == json!({ "type": "OnDelete" })).then_some(())
    })
    .await;
    // Somebody is quicker whenever it gives back what it only wrote over, until it gives that up, and once more.
    let refused = AtomicUsize::new(0);
    front.set(move |seen| {
        let gives_back = seen.is_apply() && seen.body.contains("managedFields");
        let quicker = gives_back && refused.fetch_add(1, Ordering::Relaxed) < REFUSED;
        if quicker { Act::Answer(409, None) } else { Act::Pass }
    });
    let theirs = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "questdb", "env": [
        { "name": "FOO", "value": "theirs" }, { "name": "THEIRS", "value": "1" },
    ] }] } } } });
    subject.sets().patch(&subject.name, &somebody, &Patch::Strategic(&theirs)).await.unwrap();
    let keys: Api<ConfigMap> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let map =
        serde_json::from_value(json!({ "metadata": { "name": "keys" }, "data": { "a": "1" } })).unwrap();
    keys.create(&PostParams::default(), &map).await.unwrap();
    let from = json!({ "configMapKeyRef": { "name": "keys", "key": "a" } });
    let wanted = [json!({ "name": "FOO", "valueFrom": from }), json!({ "name": "BAR", "value": "1" })];
    subject.wish(|spec| spec["pod"] = json!({ "env": wanted })).await;
    subject.carried_out(Phase::Ready).await;
    let found = env(&subject).await;
    assert_eq!([&found["FOO"], &found["BAR"]], [&wanted[0], &wanted[1]], "{found:?}");
    let theirs = json!({ "name": "THEIRS", "value": "1" });
    assert_eq!(found["THEIRS"], theirs, "{found:?}");
    // What only the wish before wrote goes by itself: nothing is written over for the next one.
    let written_over = || front.seen(|seen| seen.is_apply() && seen.body.contains("managedFields")).len();
    let before = written_over();
    let moved = json!({ "name": "BAR", "valueFrom": from });
    subject.wish(|spec| spec["pod"] = json!({ "env": [wanted[0], moved] })).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!((&env(&subject).await["BAR"], written_over()), (&moved, before));
    subject.wish(|_| {}).await;
    subject.carried_out(Phase::Ready).await;
    let found = env(&subject).await;
    assert_eq!([&found["FOO"], &found["THEIRS"]], [&json!({ "name": "FOO" }), &theirs], "{found:?}");
    assert!(!found.contains_key("BAR"), "{found:?}");
    assert_eq!(front.harmed(), REFUSED, "the fault did not fire");
    subject.purge_with_others().await;
}
