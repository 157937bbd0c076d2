//! One trace from the HTTP request through Kafka's headers to the custom resource and back: whoever looks for a trace id
//! finds it in the log of every program that took part.

#![cfg(test)]

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Console, cluster, eventually, stack, unique};

use crate::support::{ROAD, answered, ended, kubectl, whole};

/// Whether a program logged something under a trace.
fn logged(program: &str, trace_id: &str) -> bool {
    let file = stack().state_dir.join("logs").join(format!("{program}.log"));
    let log = std::fs::read_to_string(file).unwrap_or_default();
    log.lines().any(|line| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        line["trace_id"] == trace_id
    })
}

#[tokio::test]
async fn one_trace_id_is_in_every_log_on_the_road() {
    let _whole = whole().await;
    let console = Console::of(&unique("acme"));
    let home = cluster("us-east-1");
    let trace_id = uuid::Uuid::new_v4().simple().to_string();
    let request = console
        .request(Method::POST, "/v1/databases")
        .header("Idempotency-Key", unique("key"))
        .header("traceparent", format!("00-{trace_id}-00f067aa0ba902b7-01"))
        .json(&json!({"name": "traced", "region": home.region, "storage": {"deletion_policy": "delete"}}));
    let answer = answered(&request).await;
    let accepted: Value = answer.error_for_status().unwrap().json().await.unwrap();
    let id = accepted["database"]["id"].as_str().unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");

    let path = format!("/v1/databases/{id}");
    let database = eventually(ROAD, "the database", async || console.get(&path).await.ok()).await;
    let name = |field: &str| database["observed"][field].as_str().unwrap_or_default().to_owned();
    let traceparent = r"jsonpath={.metadata.annotations.crd\.questdb\.io/traceparent}";
    let (namespace, resource) = (name("namespace"), name("resource_name"));
    let annotation =
        kubectl(home, &["get", "qdb", &resource, "--namespace", &namespace, "--output", traceparent])
            .await
            .unwrap();
    assert!(annotation.contains(&trace_id), "the custom resource carries {annotation:?}");

    // A log may be written a moment after what it tells of.
    for program in ["backend", "provisioner", "us-east-1-operator"] {
        eventually(ROAD, &format!("the trace in the log of {program}"), async || {
            logged(program, &trace_id).then_some(())
        })
        .await;
    }
    console.delete(&path).await.unwrap();
}
