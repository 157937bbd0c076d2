//! What a real API server answers, and what the provisioner makes of it.

use domain::Position;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use provisioner::classify::{Verdict, classify, code};
use resources::{QuestDB, names};
use serde_json::{Value, json};

const HELD: Position = Position { epoch: 3, seq: 10 };

fn body(name: &str, seq: i64, hash: &str) -> Value {
    json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB", "metadata": {"name": name},
        "spec": {
            "instruction": {"id": "i", "databaseId": "0192f3a4-5b6c-7d8e-9f00-112233445566", "epoch": 3, "seq": seq, "render": 1, "hash": hash},
            "version": "9.3.4",
            "storage": {"sizeGib": 50},
        },
    })
}

async fn apply(api: &Api<QuestDB>, body: &Value) -> Option<kube::Error> {
    let params = PatchParams::apply(names::PROVISIONER).force();
    api.patch_metadata("trades", &params, &Patch::Apply(body)).await.err()
}

fn told(error: Option<kube::Error>, seq: i64) -> String {
    let error = error.expect("the API server refuses");
    match classify(&error, Position { epoch: 3, seq }, "mine") {
        Verdict::Superseded(holder) => format!("superseded by {}/{}", holder.epoch, holder.seq),
        Verdict::Held => "held".to_owned(),
        Verdict::Conflict(holder) => format!("conflict with {}", holder.hash),
        Verdict::NoNamespace => "no namespace".to_owned(),
        Verdict::Park(trouble) => trouble.code.to_owned(),
        Verdict::Refused(message) => format!("refused: {message}"),
        Verdict::Busy { trouble, .. } => format!("busy: {}", trouble.code),
    }
}

#[tokio::test]
async fn the_fence_says_who_holds_the_resource() {
    let client = testkit::client(&testkit::bare_cluster().provisioner_kubeconfig).await.unwrap();
    let admin = testkit::client(&testkit::bare_cluster().kubeconfig).await.unwrap();
    let namespace = testkit::temporary_namespace(&admin, "answers").await.unwrap();
    let api: Api<QuestDB> = Api::namespaced(client, &namespace);
    assert!(apply(&api, &body("trades", HELD.seq, "mine")).await.is_none());
    assert_eq!(told(apply(&api, &body("trades", 9, "mine")).await, 9), "superseded by 3/10");
    assert_eq!(
        told(apply(&api, &body("trades", 10, "other")).await, 10),
        "held",
        "the hash that stands is the one asked for"
    );
    let mut newer = body("trades", 10, "mine");
    newer["spec"]["instruction"]["render"] = json!(2);
    assert!(apply(&api, &newer).await.is_none(), "a newer translation of the same instruction");
    assert_eq!(told(apply(&api, &body("trades", 10, "mine")).await, 10), "held");
    assert!(apply(&api, &body("trades", 11, "theirs")).await.is_none());
    assert_eq!(told(apply(&api, &body("trades", 11, "mine")).await, 11), "conflict with theirs");
    let mut shrunk = body("trades", 12, "mine");
    shrunk["spec"]["storage"]["sizeGib"] = json!(49);
    let refusal = told(apply(&api, &shrunk).await, 12);
    assert!(refusal.starts_with("refused: ") && refusal.contains("only grow"), "{refusal}");
}

#[tokio::test]
async fn what_time_may_cure_is_parked() {
    let facts = testkit::bare_cluster();
    let client = testkit::client(&facts.provisioner_kubeconfig).await.unwrap();
    let admin = testkit::client(&facts.kubeconfig).await.unwrap();
    let namespace = testkit::temporary_namespace(&admin, "answers").await.unwrap();
    let api: Api<QuestDB> = Api::namespaced(client.clone(), &namespace);
    let mut future = body("trades", 1, "mine");
    future["spec"]["fieldFromTheFuture"] = json!(true);
    assert_eq!(told(apply(&api, &future).await, 1), code::OLD_DEFINITION);
    let mut wrong = body("trades", 1, "mine");
    wrong["spec"]["storage"]["sizeGib"] = json!("much");
    let refusal = told(apply(&api, &wrong).await, 1);
    assert!(refusal.starts_with("refused: "), "{refusal}");
    let elsewhere: Api<QuestDB> = Api::namespaced(client.clone(), "no-such-namespace");
    assert_eq!(told(apply(&elsewhere, &body("trades", 1, "mine")).await, 1), "no namespace");
    let params = PatchParams::apply(names::PROVISIONER).force();
    let unknown = ApiResource::from_gvk(&GroupVersionKind::gvk("crd.nobody.io", "v1", "QuestDB"));
    let unknown: Api<DynamicObject> = Api::namespaced_with(admin, &namespace, &unknown);
    let missing =
        json!({"apiVersion": "crd.nobody.io/v1", "kind": "QuestDB", "metadata": {"name": "trades"}});
    let error = unknown.patch_metadata("trades", &params, &Patch::Apply(&missing)).await.err();
    assert_eq!(told(error, 1), code::NO_DEFINITION);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, &namespace);
    let error = secrets.get("anything").await.err();
    assert_eq!(told(error, 1), code::FORBIDDEN);
}

#[tokio::test]
async fn a_stranger_is_parked_too() {
    let facts = testkit::bare_cluster();
    let mut config = kube::config::Kubeconfig::read_from(&facts.provisioner_kubeconfig).unwrap();
    for named in &mut config.auth_infos {
        if let Some(auth) = &mut named.auth_info {
            auth.token = Some("nobody".to_owned().into());
        }
    }
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    runtime::install_crypto();
    let api: Api<QuestDB> = Api::namespaced(kube::Client::try_from(config).unwrap(), "default");
    assert_eq!(told(apply(&api, &body("trades", 1, "mine")).await, 1), code::CREDENTIALS);
}
