//! From one real version of QuestDB to the next, and a wish back: with a copy first, under load, without losing a row.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testkit::{ClusterFacts, cluster, eventually, unique};

use crate::change::{Client, Seen, TABLE, both, read, write};
use crate::main_job::{Ready, ready_resource, volumes};
use crate::support::{ROAD, apply, kubectl, whole};

/// What is on offer in the local clusters, beside what every operator knows.
const OLDER: &str = "9.3.2";
const NEWER: &str = "9.3.4";

async fn get(home: &ClusterFacts, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let words = ["get", kind, name, "--namespace", namespace, "--output", "json"];
    serde_json::from_str(&kubectl(home, &words).await.ok()?).ok()
}

/// Asks for a version, and gives the status once that wish came to its end.
async fn wish(home: &ClusterFacts, database: &Ready, version: &str) -> Value {
    let Ready { namespace, resource, .. } = database;
    let patch = json!({ "spec": { "version": version } }).to_string();
    let words =
        ["patch", "questdb", resource, "--namespace", namespace, "--type", "merge", "--patch", &patch];
    kubectl(home, &words).await.unwrap();
    let image = format!("questdb/questdb:{version}");
    eventually(ROAD, &format!("the end of an upgrade to {version}"), async || {
        let found = get(home, "questdb", namespace, resource).await?;
        let (status, last) = (&found["status"], &found["status"]["lastUpgrade"]);
        let over = last["to"] == image.as_str() && last["result"] != "Running";
        (over && status["phase"] == "Ready").then(|| status.clone())
    })
    .await
}

/// What QuestDB says of itself, whoever started it.
async fn says(home: &ClusterFacts, namespace: &str, name: &str, version: &str) {
    eventually(ROAD, &format!("QuestDB {version}"), async || {
        let database = ready_resource(home, namespace, name).await;
        let build = database.ask("select build()").await.ok()?["dataset"][0][0].to_string();
        build.contains(&format!("QuestDB {version},")).then_some(())
    })
    .await;
}

/// The snapshot that was taken before an upgrade: whole enough to go on, of the version before, and taken before it.
async fn copied_before(home: &ClusterFacts, database: &Ready, status: &Value, version: &str) -> String {
    let last = &status["lastUpgrade"];
    let name = last["snapshot"].as_str().unwrap_or_else(|| panic!("nothing was copied: {last:#}"));
    let copy = get(home, "questdbsnapshot", &database.namespace, name).await.expect("the snapshot stays");
    let taken = &copy["status"];
    assert_eq!(taken["version"], version, "{copy:#}");
    assert_eq!(taken["volumeId"], database.volume.as_str(), "{copy:#}");
    let moment = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(moment(&taken["startedAt"]) <= moment(&last["startedAt"]), "{copy:#} {last:#}");
    name.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_to_the_next_version_and_back_without_losing_a_row() {
    let _whole = whole().await;
    let home = cluster("eu-west-1");
    let (namespace, name) = (unique("upgrade"), unique("aged"));
    apply(home, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))
        .await
        .unwrap();
    let wished = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "version": OLDER, "storage": { "sizeGib": 20, "deletionPolicy": "Delete" } },
    });
    apply(home, &wished).await.unwrap();
    let database = ready_resource(home, &namespace, &name).await;
    says(home, &namespace, &name, OLDER).await;
    database.ask(TABLE).await.unwrap();
    let found = get(home, "questdb", &namespace, &name).await.unwrap();
    let host = found["status"]["dns"]["name"].as_str().unwrap().to_owned();
    let client = async || Client::of(home, &database, &host).await;
    let seen = Arc::new(Seen::default());
    let writer = tokio::spawn(write(client().await, Arc::clone(&seen)));
    let reader = tokio::spawn(read(client().await, Arc::clone(&seen)));
    seen.wrote(20, "before the upgrade").await;

    let mut copies = Vec::new();
    for (from, to) in [(OLDER, NEWER), (NEWER, OLDER)] {
        let status = wish(home, &database, to).await;
        let last = &status["lastUpgrade"];
        assert_eq!(last["result"], "Succeeded", "{last:#}");
        assert_eq!(last["from"], format!("questdb/questdb:{from}"), "{last:#}");
        assert_eq!(status["version"], to, "{status:#}");
        copies.push(copied_before(home, &database, &status, from).await);
        says(home, &namespace, &name, to).await;
        assert_eq!(volumes(home, &database.volume).await.len(), 1, "another disk");
        seen.wrote(20, &format!("after the upgrade to {to}")).await;
    }
    assert_ne!(copies[0], copies[1]);

    seen.ended.store(true, Ordering::SeqCst);
    both(writer, reader).await;
    seen.all_there(client().await).await;
    let delete = ["delete", "questdb", &name, "--namespace", &namespace, "--wait=true", "--timeout=50s"];
    eventually(ROAD, "the end of the database", async || kubectl(home, &delete).await.ok()).await;
    for copy in &copies {
        let delete = ["delete", "questdbsnapshot", copy, "--namespace", &namespace, "--timeout=50s"];
        kubectl(home, &delete).await.unwrap();
    }
    kubectl(home, &["delete", "namespace", &namespace, "--wait=false"]).await.unwrap();
}
