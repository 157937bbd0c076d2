//! What others write into the objects of a database: our fields come back, theirs are left, and neither makes an end of
//! its readiness.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::PATIENCE;
use super::subject::Subject;

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
