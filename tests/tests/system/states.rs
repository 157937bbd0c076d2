//! A database that is paused, restarted or deleted comes back with every row, on the volume that it had; one that is purged
//! does not.

#![cfg(test)]

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, cluster, eventually, unique};

use crate::main_job::{Ready, ready_of, volumes};
use crate::support::{ROAD, create, ended, kubectl, objects, whole};

/// Asks something of a database in one word and waits until it is carried out.
pub(crate) async fn ask(console: &Console, id: &str, verb: &str) -> Value {
    let request = console.request(Method::POST, &format!("/v1/databases/{id}:{verb}"));
    let answer = request.header("Idempotency-Key", unique("key")).send().await.unwrap();
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
    let delete = ["delete", "pvc", "--all-namespaces", &label, "--wait=true", "--timeout=30s"];
    let deleted = kubectl(home, &delete).await.unwrap();
    assert!(deleted.contains("deleted"), "{deleted:?}");
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

/// Asks for a purge and gives the answer's status and body.
async fn purge(console: &Console, id: &str, confirm: &str) -> (u16, Value) {
    let request = console.request(Method::POST, &format!("/v1/databases/{id}:purge"));
    let body = json!({"confirm": confirm, "reason": "a test"});
    let answer = request.header("Idempotency-Key", unique("key")).json(&body).send().await.unwrap();
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
    let answer = request.header("Idempotency-Key", unique("key")).send().await.unwrap();
    assert_eq!(answer.status(), 409, "what was purged came back");
}
