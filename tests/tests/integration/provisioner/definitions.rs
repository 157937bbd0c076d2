//! Definitions and namespaces that are missing, old, or on their way out: parked with the reason, drained when they are as
//! they should be.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use wire::OutcomeKind;

use super::rig::Rig;
use crate::front::Front;

/// What is parked is parked for what the server says, however long a busy one takes to say it.
const PATIENT: [&str; 2] = ["--call-timeout", "50"];

/// The definition under another group, without the field `restartNonce` where it is `old`.
pub(super) fn definition(group: &str, old: bool) -> CustomResourceDefinition {
    let mut definition = resources::QuestDB::crd();
    definition.metadata.name = Some(format!("questdbs.{group}"));
    group.clone_into(&mut definition.spec.group);
    if old {
        let schema = definition.spec.versions[0].schema.as_mut().unwrap();
        let properties = schema.open_api_v3_schema.as_mut().unwrap().properties.as_mut().unwrap();
        let spec = properties.get_mut("spec").unwrap().properties.as_mut().unwrap();
        spec.remove("restartNonce").unwrap();
    }
    definition
}

/// Puts a definition into the bare cluster, in place of what is there of that name.
pub(super) async fn install(client: &kube::Client, definition: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.metadata.name.as_deref().unwrap();
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(definition)).await.unwrap();
}

pub(super) async fn remove(client: &kube::Client, definition: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.metadata.name.as_deref().unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_and_then_an_older_definition_park_what_they_cannot_take() {
    let rig = Rig::new().await;
    let group = format!("{}.questdb.io", testkit::unique("g"));
    let front = Front::with_group(testkit::bare_cluster(), &group).await;
    rig.credentials_at("bare", front.url());
    let running = rig.start(&PATIENT);
    let plain: Vec<_> = (0..10).map(|_| rig.instruction(1)).collect();
    for instruction in &plain {
        rig.publish(instruction).await;
    }
    for instruction in &plain {
        assert_eq!(rig.outcome(instruction, OutcomeKind::Parked).await.code, "no_definition");
    }
    install(&rig.client, &definition(&group, true)).await;
    for instruction in &plain {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let mut new = rig.instruction(1);
    new.desired.restart_nonce = Some("from a newer program".to_owned());
    rig.publish(&new).await;
    let outcome = rig.outcome(&new, OutcomeKind::Parked).await;
    assert!(outcome.code == "old_definition" && outcome.message.contains("restartNonce"), "{outcome:?}");
    let other = rig.instruction(1);
    rig.publish(&other).await;
    rig.outcome(&other, OutcomeKind::Applied).await;
    rig.count("select code from parked_instructions", "old_definition").await;
    install(&rig.client, &definition(&group, false)).await;
    rig.outcome(&new, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
    remove(&rig.client, &definition(&group, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_on_its_way_out_is_waited_for() {
    let rig = Rig::new().await;
    let name = format!("qdb-{}", rig.tenant);
    let api: Api<Namespace> = Api::all(rig.client.clone());
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    api.create(&PostParams::default(), &namespace).await.unwrap();
    // There is nobody in this cluster who would finish it.
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let running = rig.start(&PATIENT);
    // A connection has less time than a call: now there is one.
    let mut other = rig.instruction(1);
    other.tenant = testkit::unique("t").parse().unwrap();
    rig.publish(&other).await;
    rig.outcome(&other, OutcomeKind::Applied).await;
    let instruction = rig.instruction(1);
    rig.publish(&instruction).await;
    assert_eq!(rig.outcome(&instruction, OutcomeKind::Parked).await.code, "namespace");
    let mut ending = api.get(&name).await.unwrap();
    ending.spec.as_mut().unwrap().finalizers = Some(Vec::new());
    let body = serde_json::to_vec(&json!(ending)).unwrap();
    let request = axum::http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    rig.client.request::<Namespace>(request).await.unwrap();
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}
