//! A database that is paused, restarted or deleted comes back with every row, on the volume that it had, and so does one whose Node
//! somebody said to be out of service, or deleted; one that is purged does not.

#![cfg(test)]

use cloud::{Cloud as _, InstanceId, Protection};
use reqwest::Method;
use resources::names::{self, condition};
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, cluster, eventually, unique};

use crate::change::machine;
use crate::crash::crash_and_return;
use crate::main_job::{Ready, aws, disks, machines, ready, ready_of, volumes};
use crate::support::{ROAD, alone, answered, create, ended, kubectl, objects, whole};
use crate::upgrade::get;

/// Asks something of a database in one word and waits until it is carried out.
pub(crate) async fn ask(console: &Console, id: &str, verb: &str) -> Value {
    let request = console.request(Method::POST, &format!("/v1/databases/{id}:{verb}"));
    let answer = answered(&request.header("Idempotency-Key", unique("key"))).await;
    let status = answer.status();
    let accepted: Value = answer.json().await.unwrap();
    assert_eq!(status, 202, "{accepted:#}");
    let operation = ended(console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert_eq!(operation["kind"], verb);
    accepted
}

async fn has_both_rows(database: &Ready, when: &str) {
    eventually(ROAD, &format!("the rows {when}"), async || (database.count().await? == 2).then_some(()))
        .await;
}

/// Somebody deletes the claim of a database that rests, and Kubernetes lets it go because no pod has it.
async fn delete_claim(home: &ClusterFacts, database: &str) {
    let label = format!("--selector=crd.questdb.io/database={database}");
    let delete = ["delete", "pvc", "--all-namespaces", &label, "--wait=true", "--timeout=50s"];
    assert!(!objects(home, "pvc", database).await.unwrap().is_empty(), "there is none");
    eventually(ROAD, "the end of its claim", async || kubectl(home, &delete).await.ok()).await;
}

#[tokio::test]
async fn a_database_comes_back_from_wherever_it_was_with_every_row() {
    let _whole = whole().await;
    let console = Console::of(&unique("states"));
    let home = cluster("eu-west-1");
    let accepted = create(&console, "moody", home, "retain").await.unwrap();
    let database = ready_of(&console, home, &accepted).await;
    let table = "create table trades (ts timestamp, price double) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    database.ask("insert into trades values (now(), 1.5), (now(), 2.5)").await.unwrap();
    has_both_rows(&database, "after they were inserted").await;
    let volume = database.volume.clone();
    let path = format!("/v1/databases/{}", database.id);

    let accepted = ask(&console, &database.id, "restart").await;
    has_both_rows(&ready_of(&console, home, &accepted).await, "after a restart").await;

    for (away, back) in [("pause", "resume"), ("delete", "undelete")] {
        if away == "delete" {
            let accepted = console.delete(&path).await.unwrap();
            let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
            assert_eq!(operation["state"], "succeeded", "{operation:#}");
        } else {
            ask(&console, &database.id, away).await;
        }
        assert!(database.count().await.is_none(), "it answers although it was asked to {away}");
        let kept = volumes(home, &volume).await;
        assert!(kept.len() == 1 && kept[0].attachments.is_empty(), "{away}: {kept:?}");
        if away == "pause" {
            // It is made again, and gets the disk that was another one's before.
            delete_claim(home, &database.id).await;
        }
        let accepted = ask(&console, &database.id, back).await;
        let again = ready_of(&console, home, &accepted).await;
        assert_eq!((&again.volume, &again.password), (&volume, &database.password), "{away} and {back}");
        has_both_rows(&again, &format!("after {away} and {back}")).await;
    }
    let accepted = console.delete(&path).await.unwrap();
    ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
}

/// Kubernetes grows no claim that has no storage class: that is why a disk grows by its `PersistentVolume`.
async fn claim_cannot_grow(home: &ClusterFacts, database: &Ready) {
    let claim = names::claim(&database.resource);
    let patch = json!({ "spec": { "resources": { "requests": { "storage": "30Gi" } } } }).to_string();
    let grow =
        ["patch", "pvc", &claim, "--namespace", &database.namespace, "--type", "merge", "--patch", &patch];
    let refused = kubectl(home, &grow).await.unwrap_err().to_string();
    assert!(refused.contains("only dynamically provisioned pvc can be resized"), "{refused}");
}

/// Status and message of a condition.
pub(crate) async fn told(home: &ClusterFacts, database: &Ready, kind: &str) -> Option<(String, String)> {
    let found = get(home, "questdb", &database.namespace, &database.resource).await?;
    let mut conditions = found["status"]["conditions"].as_array()?.iter();
    let told = conditions.find(|condition| condition["type"] == kind)?;
    Some((told["status"].as_str()?.to_owned(), told["message"].as_str()?.to_owned()))
}

/// The uid of its pod, and the Node that this is on, if it is on one.
async fn place(home: &ClusterFacts, database: &Ready) -> Option<String> {
    let (pod, path) = (names::pod(&database.resource), "jsonpath={.metadata.uid} {.spec.nodeName}");
    kubectl(home, &["get", "pod", &pod, "--namespace", &database.namespace, "--output", path]).await.ok()
}

/// Its pod goes soon, another one is made for a Node that does not take it or is not there, and QuestDB stops.
async fn loses_its_place(home: &ClusterFacts, database: &Ready, before: &str) {
    assert!(before.contains(' '), "it was on no Node: {before}");
    eventually(ROAD, "another pod, which is on no Node", async || {
        let now = place(home, database).await?;
        (!now.contains(' ') && !before.starts_with(&now)).then_some(())
    })
    .await;
    eventually(ROAD, "the end of QuestDB", async || database.count().await.is_none().then_some(())).await;
}

/// Its machine is the only one and may not be ended, and no other has the disk.
async fn machine_is_kept(home: &ClusterFacts, database: &Ready, id: &InstanceId) {
    let machines = machines(home, &database.id).await;
    assert!(machines.len() == 1 && machines[0].id == *id, "{id}: {machines:#?}");
    let aws = aws(home).await;
    let protection = async || aws.describe_protection(id).await.ok();
    assert_eq!(eventually(ROAD, "its protection", protection).await, Protection::ON, "{id}");
    // Kubernetes may take it off a machine whose Node is gone once the pod is, as soon as its controller comes to that.
    let disk = volumes(home, &database.volume).await.remove(0);
    assert!(disk.attachments.iter().all(|found| found.instance == *id), "{id}: {disk:?}");
}

/// Somebody says of a machine that lives that it is down: Kubernetes stops QuestDB there and takes the disk off. The report has the
/// command that ends this.
async fn is_called_out_of_service(home: &ClusterFacts, database: &Ready, id: &InstanceId) {
    let before = place(home, database).await.unwrap();
    let node = objects(home, "node", &database.id).await.unwrap();
    let key = "node.kubernetes.io/out-of-service";
    let taint = format!("{key}=nodeshutdown:NoExecute");
    kubectl(home, &["taint", "node", node.trim_start_matches("node/"), &taint]).await.unwrap();
    loses_its_place(home, database, &before).await;
    eventually(ROAD, "its disk on no machine", async || {
        volumes(home, &database.volume).await[0].attachments.is_empty().then_some(())
    })
    .await;
    let text = eventually(ROAD, "a word on the taint", async || {
        let (status, text) = told(home, database, condition::DEGRADED).await?;
        (status == "True" && text.contains(key)).then_some(text)
    })
    .await;
    machine_is_kept(home, database, id).await;

    let command = text.split_once("(kubectl ").and_then(|(_, rest)| Some(rest.split_once(')')?.0));
    let words: Vec<&str> = command.unwrap_or_else(|| panic!("no command: {text}")).split(' ').collect();
    kubectl(home, &words).await.unwrap();
    has_both_rows(database, "once the taint is off").await;
    eventually(ROAD, "the word that all is well", async || {
        let found = get(home, "questdb", &database.namespace, &database.resource).await?;
        (found["status"]["phase"] == "Ready").then_some(())
    })
    .await;
    machine_is_kept(home, database, id).await;
    assert_eq!(machine(home, database).await, id.as_str());
    let disks = disks(home, &database.id).await;
    assert!(disks.len() == 1 && disks[0].id.as_str() == database.volume, "{disks:#?}");
}

#[tokio::test]
async fn a_machine_whose_node_somebody_taints_or_deletes_is_told_and_serves_again_once_that_is_undone() {
    let stack = whole().await;
    let console = Console::of(&unique("nodeless"));
    let home = cluster("us-east-1");
    let database = ready(&console, home, "nodeless", "delete").await;
    let table = "create table trades (ts timestamp, price double) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    database.ask("insert into trades values (now(), 1.5), (now(), 2.5)").await.unwrap();
    has_both_rows(&database, "after they were inserted").await;
    claim_cannot_grow(home, &database).await;

    let id = InstanceId::new(machine(home, &database).await);
    is_called_out_of_service(home, &database, &id).await;

    let before = place(home, &database).await.unwrap();
    let node = objects(home, "node", &database.id).await.unwrap();
    kubectl(home, &["delete", &node]).await.unwrap();
    eventually(ROAD, "a word on the machine that is no Node", async || {
        let (status, text) = told(home, &database, condition::NODE_HEALTHY).await?;
        (status == "False" && text.contains(id.as_str())).then_some(())
    })
    .await;
    loses_its_place(home, &database, &before).await;
    machine_is_kept(home, &database, &id).await;

    // It joins again when it starts. This is the kubelet of all of the cluster's machines.
    drop(stack);
    let without_others = alone().await;
    crash_and_return("us-east-1-nodes").await;
    drop(without_others);
    let _whole = whole().await;
    has_both_rows(&database, "once the machine is a Node again").await;
    eventually(ROAD, "the word that all is well", async || {
        told(home, &database, condition::NODE_HEALTHY).await.filter(|(status, _)| status == "True")
    })
    .await;
    machine_is_kept(home, &database, &id).await;
    assert_eq!(machine(home, &database).await, id.as_str());
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
}

/// Asks for a purge and gives the answer's status and body.
async fn purge(console: &Console, id: &str, confirm: &str) -> (u16, Value) {
    let request = console.request(Method::POST, &format!("/v1/databases/{id}:purge"));
    let body = json!({"confirm": confirm, "reason": "a test"});
    let answer = answered(&request.header("Idempotency-Key", unique("key")).json(&body)).await;
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn a_purge_destroys_what_a_deletion_kept_and_nothing_before_it() {
    let _whole = whole().await;
    let console = Console::of(&unique("purge"));
    let home = cluster("us-east-1");
    let accepted = create(&console, "doomed", home, "retain").await.unwrap();
    let database = ready_of(&console, home, &accepted).await;
    let table = "create table trades (ts timestamp, price double) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    database.ask("insert into trades values (now(), 1.5), (now(), 2.5)").await.unwrap();
    has_both_rows(&database, "after they were inserted").await;

    let (status, refused) = purge(&console, &database.id, "doomed").await;
    assert_eq!((status, refused["code"].as_str()), (409, Some("living")), "{refused:#}");
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let (status, refused) = purge(&console, &database.id, "another").await;
    assert_eq!((status, refused["errors"][0]["pointer"].as_str()), (422, Some("/confirm")), "{refused:#}");
    assert_eq!(volumes(home, &database.volume).await.len(), 1, "it was destroyed before anybody said so");

    let (status, accepted) = purge(&console, &database.id, "doomed").await;
    assert_eq!(status, 202, "{accepted:#}");
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(
        (&operation["state"], &operation["kind"]),
        (&json!("succeeded"), &json!("purge")),
        "{operation:#}"
    );
    eventually(ROAD, "no volume left at EC2", async || {
        volumes(home, &database.volume).await.is_empty().then_some(())
    })
    .await;
    for kind in ["statefulset,service,configmap,secret,pvc,pod", "pv", "node"] {
        eventually(ROAD, &format!("no {kind} left"), async || {
            objects(home, kind, &database.id).await.ok()?.is_empty().then_some(())
        })
        .await;
    }
    let request = console.request(Method::POST, &format!("/v1/databases/{}:undelete", database.id));
    let answer = answered(&request.header("Idempotency-Key", unique("key"))).await;
    assert_eq!(answer.status(), 409, "what was purged came back");
}
