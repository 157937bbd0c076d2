//! A disk that somebody emptied is not served as if nothing were missing, until somebody says that it may be.

#![cfg(test)]

use reqwest::Method;
use resources::names::{self, condition};
use serde_json::Value;
use testkit::{Console, cluster, eventually, stack, unique};

use crate::main_job::{ready, ready_of, volumes};
use crate::states::ask;
use crate::support::{ROAD, answered, ended, kubectl, whole};
use crate::upgrade::get;

#[tokio::test]
async fn an_emptied_disk_is_told_and_begun_on_only_by_a_word() {
    let _whole = whole().await;
    let console = Console::of(&unique("emptied"));
    let home = cluster("eu-west-1");
    let database = ready(&console, home, "emptied", "delete").await;
    let table = "create table trades (ts timestamp, price double) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    ask(&console, &database.id, "pause").await;

    let nodes = stack().state_dir.join("data").join(&home.name).join("nodes");
    let tables = nodes.join("volumes").join(&database.volume).join("db");
    assert_ne!(tables.read_dir().unwrap().count(), 0, "{tables:?} holds nothing");
    std::fs::remove_dir_all(&tables).unwrap();

    let request = console.request(Method::POST, &format!("/v1/databases/{}:resume", database.id));
    let answer = answered(&request.header("Idempotency-Key", unique("key"))).await;
    assert_eq!(answer.status(), 202);
    let accepted: Value = answer.json().await.unwrap();
    let (namespace, resource) = (&database.namespace, &database.resource);
    let text = eventually(ROAD, "a word on the emptied disk", async || {
        let found = get(home, "questdb", namespace, resource).await?;
        let mut conditions = found["status"]["conditions"].as_array()?.iter();
        let told = conditions.find(|told| told["type"] == condition::DEGRADED && told["status"] == "True")?;
        told["message"].as_str().filter(|text| text.contains(names::MAY_BE_EMPTY)).map(str::to_owned)
    })
    .await;
    assert!(text.contains(&database.volume), "{text}");
    // Another machine has the disk now, and other addresses: what QuestDB does shows on the disk.
    assert!(!tables.exists(), "QuestDB has begun on an emptied disk");
    assert_eq!(volumes(home, &database.volume).await.len(), 1);

    // The message has the whole command.
    let (_, command) = text.split_once("kubectl ").unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    kubectl(home, &words).await.unwrap();
    // The longer the word has taken to come, the longer the kubelet waits before it tries again: five minutes at most.
    eventually(3 * ROAD, "a start on the emptied disk", async || {
        let found = get(home, "questdb", namespace, resource).await?;
        (found["status"]["phase"] == "Ready").then_some(())
    })
    .await;
    let again = ready_of(&console, home, &accepted).await;
    assert_eq!(again.volume, database.volume);
    eventually(ROAD, "the word that there is no table", async || {
        let refused = again.ask("select count() from trades").await.err()?.to_string();
        refused.contains("does not exist").then_some(())
    })
    .await;
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
}
