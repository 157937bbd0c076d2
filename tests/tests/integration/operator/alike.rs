//! Two databases whose identities end alike: their machines are not one Node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use resources::{Phase, names};
use serde_json::json;
use testkit::unique;

use super::subject::Subject;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_not_told_to_be_the_node_of_another_database() {
    let mut subject = Subject::new(&unique("alike")).await;
    let nodes: Api<Node> = Api::all(subject.rig.admin.clone());
    let taken = subject.node(1);
    let other = uuid::Uuid::now_v7().hyphenated().to_string();
    let labels = json!({
        names::LABEL_DATABASE: other, names::LABEL_NAME: "other", names::LABEL_NAMESPACE: "elsewhere",
    });
    let node = serde_json::from_value(json!({ "metadata": { "name": taken, "labels": labels } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();

    let _operator = subject.rig.start().await;
    subject.wish_run_state("Running").await;
    subject.join(2).await;
    subject.started().await;
    subject.carried_out(Phase::Ready).await;
    let labels = nodes.get(&taken).await.unwrap().metadata.labels.unwrap_or_default();
    assert_eq!(labels.get(names::LABEL_DATABASE), Some(&other), "it is left as it is");
    nodes.delete(&taken, &DeleteParams::default()).await.unwrap();
    subject.purge().await;
}
