//! Pods: a real database on its disk, through deaths of pod, process and agent; and what a pod is told when it cannot
//! start.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::rig::{PATIENCE, Rig, image};

const PASSWORD: &str = "correct-horse";
/// How long a question may take that is asked again.
const QUESTION: Duration = Duration::from_secs(5);
/// How long a statement may take that is not to be given twice.
const STATEMENT: Duration = Duration::from_mins(1);

/// As the operator makes it, but bound to a node by hand.
pub(super) fn pod(name: &str, node: &str, image: &str) -> Value {
    let probe =
        json!({"httpGet": {"path": "/status", "port": "min"}, "periodSeconds": 1, "failureThreshold": 60});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "questdb", "image": image,
                "ports": [{"name": "http", "containerPort": 9000}, {"name": "min", "containerPort": 9003}],
                "env": [
                    {"name": "QDB_HTTP_USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
                    {"name": "QDB_HTTP_PASSWORD_FILE", "value": "/etc/questdb/password"},
                ],
                "startupProbe": probe, "readinessProbe": probe,
                "volumeMounts": [
                    {"name": "data", "mountPath": "/var/lib/questdb"},
                    {"name": "config", "mountPath": "/var/lib/questdb/conf/server.conf", "subPath": "server.conf"},
                    {"name": "login", "mountPath": "/etc/questdb", "readOnly": true},
                ],
            }],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "config", "configMap": {"name": "config"}},
                {"name": "login", "secret": {"secretName": "login"}},
            ],
        },
    })
}

pub(super) async fn rig_with_node() -> (Rig, String, cloud::InstanceId) {
    let rig = Rig::new().await;
    let name = unique("node");
    let instance = rig.launch(&name).await;
    let config = "http.health.check.authentication.required=false\ntelemetry.enabled=false\ncairo.max.uncommitted.rows=4321\n";
    rig.create(json!({"kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"server.conf": config}}))
        .await;
    let login = json!({"user": "admin", "password": PASSWORD});
    rig.create(json!({"kind": "Secret", "metadata": {"name": "login"}, "stringData": login})).await;
    (rig, name, instance)
}

pub(super) async fn until_node(rig: &Rig, name: &str) {
    let nodes: Api<Node> = Api::all(rig.client.clone());
    eventually(PATIENCE, "a node", async || nodes.get_opt(name).await.ok().flatten()).await;
}

pub(super) fn is_ready(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    status.pod_ip.clone()
}

pub(super) fn waiting_reason(pod: &Pod) -> Option<String> {
    pod.status
        .as_ref()?
        .container_statuses
        .as_ref()?
        .first()?
        .state
        .as_ref()?
        .waiting
        .as_ref()?
        .reason
        .clone()
}

pub(super) fn restarts(pod: &Pod) -> Option<i32> {
    Some(pod.status.as_ref()?.container_statuses.as_ref()?.first()?.restart_count)
}

/// The rows of an answer.
pub(super) async fn sql(address: &str, query: &str) -> Option<Value> {
    sql_within(QUESTION, address, query).await
}

/// Gives a statement once.
pub(super) async fn run(address: &str, statement: &str) {
    let done = sql_within(STATEMENT, address, statement).await;
    assert!(done.is_some(), "{statement}");
}

async fn sql_within(limit: Duration, address: &str, query: &str) -> Option<Value> {
    let http = reqwest::Client::builder().no_proxy().timeout(limit).build().unwrap();
    let request = http.get(format!("http://{address}:9000/exec")).query(&[("query", query)]);
    let answer = request.basic_auth("admin", Some(PASSWORD)).send().await.ok()?.error_for_status().ok()?;
    Some(answer.json::<Value>().await.ok()?["dataset"].clone())
}

pub(super) async fn until_rows(address: &str, query: &str, expected: Value) {
    eventually(PATIENCE, query, async || (sql(address, query).await? == expected).then_some(())).await;
}

pub(super) async fn delete_and_wait(rig: &Rig, name: &str) {
    let pods: Api<Pod> = rig.api();
    pods.delete(name, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the pod's end", async || pods.get_opt(name).await.ok()?.is_none().then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_keeps_its_rows_through_deaths_of_agent_process_and_pod() {
    let (rig, node, instance) = rig_with_node().await;
    let mut agent = rig.start("process");
    until_node(&rig, &node).await;
    let volume = rig.volume().await;
    rig.bound_claim(&volume, "data").await;
    rig.create(pod("db-0", &node, &image())).await;
    // Bound, but its disk is not attached: it must not run.
    rig.until_pod("db-0", "a waiting pod", |pod| (waiting_reason(pod)? == "ContainerCreating").then_some(()))
        .await;
    let attachment = rig.attachment(&volume, &node).await;
    rig.until_attached(&attachment).await;
    let address = rig.until_pod("db-0", "a ready pod", is_ready).await;
    until_rows(
        &address,
        "select value from (show parameters) where property_path = 'cairo.max.uncommitted.rows'",
        json!([["4321"]]),
    )
    .await;
    run(&address, "create table t (ts timestamp, v long) timestamp(ts) partition by day wal").await;
    run(&address, "insert into t values (now(), 42)").await;
    until_rows(&address, "select sum(v) from t", json!([[42]])).await;

    // The agent dies; the database does not, and the next agent takes it up without starting it anew.
    agent.kill().await.unwrap();
    until_rows(&address, "select sum(v) from t", json!([[42]])).await;
    let _agent = rig.start("process");
    delete_and_wait(&rig, "db-0").await;
    assert_eq!(sql(&address, "select 1").await, None, "the process outlived its pod");

    rig.create(pod("db-0", &node, &image())).await;
    let address = rig.until_pod("db-0", "a ready pod", is_ready).await;
    until_rows(&address, "select sum(v) from t", json!([[42]])).await;
    assert_eq!(rig.until_pod("db-0", "a status", restarts).await, 0);

    // The machine dies: nobody is asked.
    rig.aws.terminate_instance(&instance).await.unwrap();
    eventually(PATIENCE, "silence", async || sql(&address, "select 1").await.is_none().then_some(())).await;
    rig.end().await;
}

#[tokio::test]
async fn a_pod_whose_image_is_not_here_says_so() {
    let (rig, node, instance) = rig_with_node().await;
    let _agent = rig.start("process");
    until_node(&rig, &node).await;
    let mut wrong = pod("wrong", &node, "questdb/questdb:0.0.1");
    wrong["spec"]["volumes"][0] = json!({"name": "data", "emptyDir": {}});
    rig.create(wrong).await;
    rig.until_pod("wrong", "ErrImagePull", |pod| (waiting_reason(pod)? == "ErrImagePull").then_some(()))
        .await;
    let mut lost = pod("lost", &node, &image());
    lost["spec"]["volumes"][0] = json!({"name": "data", "emptyDir": {}});
    lost["spec"]["volumes"][2]["secret"]["secretName"] = json!("nowhere");
    rig.create(lost).await;
    rig.until_pod("lost", "a waiting pod", |pod| (waiting_reason(pod)? == "ContainerCreating").then_some(()))
        .await;
    for name in ["wrong", "lost"] {
        delete_and_wait(&rig, name).await;
    }
    rig.aws.terminate_instance(&instance).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn without_processes_pods_are_ready_at_once_and_go_when_deleted() {
    let (rig, node, instance) = rig_with_node().await;
    let _agent = rig.start("none");
    until_node(&rig, &node).await;
    rig.create(pod("db-0", &node, "questdb/questdb:0.0.1")).await;
    rig.until_pod("db-0", "a ready pod", is_ready).await;
    delete_and_wait(&rig, "db-0").await;
    rig.aws.terminate_instance(&instance).await.unwrap();
    rig.end().await;
}
