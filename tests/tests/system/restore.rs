//! A snapshot of a database that is being written to becomes another database with every row that was acknowledged before.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, cluster, eventually, unique};
use tokio::task::JoinHandle;

use crate::main_job::{Ready, ready, ready_resource, volumes};
use crate::support::{ROAD, apply, ended, kubectl, whole};

/// Rows in a database: how many there are, and the highest number.
pub(crate) async fn rows(database: &Ready) -> Option<(i64, i64)> {
    let answer = database.ask("select count(), max(number) from trades").await.ok()?;
    let row = &answer["dataset"][0];
    Some((row[0].as_i64()?, row[1].as_i64()?))
}

/// Writes one numbered row after the other; each is written before the next begins.
struct Writer {
    acknowledged: Arc<AtomicI64>,
    task: JoinHandle<()>,
}

/// Ends with the first error: a row is there or nobody was told that it is, and no second try blurs that.
async fn write(database: Arc<Ready>, acknowledged: Arc<AtomicI64>) {
    for number in 0_i64.. {
        if database.ask(&format!("insert into trades values (now(), {number})")).await.is_err() {
            return;
        }
        acknowledged.store(number, Ordering::SeqCst);
    }
}

impl Writer {
    fn start(database: Arc<Ready>) -> Self {
        let acknowledged = Arc::new(AtomicI64::new(-1));
        let task = tokio::spawn(write(database, Arc::clone(&acknowledged)));
        Self { acknowledged, task }
    }

    fn last(&self) -> i64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    async fn wrote(&self, number: i64) {
        eventually(ROAD, &format!("row {number}"), async || (self.last() >= number).then_some(())).await;
    }
}

/// Asks for a snapshot the way people do, and waits until it is whole.
pub(crate) async fn snapshot(home: &ClusterFacts, database: &Ready, name: &str) -> Value {
    let namespace = database.namespace.as_str();
    let snapshot = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshot",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "database": database.resource, "deletionPolicy": "Delete" },
    });
    apply(home, &snapshot).await.unwrap();
    let get = ["get", "questdbsnapshot", name, "--namespace", namespace, "--output", "json"];
    eventually(ROAD, &format!("snapshot {name}"), async || {
        let found: Value = serde_json::from_str(&kubectl(home, &get).await.ok()?).ok()?;
        assert_ne!(found["status"]["phase"], "Failed", "{found:#}");
        (found["status"]["phase"] == "Succeeded").then_some(found)
    })
    .await
}

/// Deletes an object and waits until it is gone, which it may be after a try that waited in vain.
pub(crate) async fn remove(home: &ClusterFacts, namespace: &str, kind: &str, name: &str) {
    let delete = ["delete", kind, name, "--namespace", namespace, "--ignore-not-found", "--timeout=50s"];
    eventually(ROAD, &format!("the end of {name}"), async || kubectl(home, &delete).await.ok()).await;
}

#[tokio::test]
async fn a_snapshot_under_load_becomes_a_database_with_every_acknowledged_row() {
    let _whole = whole().await;
    let console = Console::of(&unique("restore"));
    let home = cluster("eu-west-1");
    let old = Arc::new(ready(&console, home, "source", "delete").await);
    let table = "create table trades (ts timestamp, number long) timestamp(ts) partition by day wal";
    old.ask(table).await.unwrap();
    let writer = Writer::start(Arc::clone(&old));
    writer.wrote(50).await;

    let before = writer.last();
    let (namespace, copy) = (&old.namespace, unique("copy"));
    let taken = snapshot(home, &old, &copy).await;
    // Nothing holds it, and it goes on being written to.
    writer.wrote(writer.last() + 20).await;
    assert!(!writer.task.is_finished(), "the writer met an error");
    let held = old.ask("select * from checkpoint_status()").await.unwrap();
    assert_eq!(held["dataset"][0][0], json!(false), "{held:#}");

    let name = unique("restored");
    let restored = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "storage": { "sizeGib": 30, "deletionPolicy": "Delete", "source": { "snapshot": copy } } },
    });
    apply(home, &restored).await.unwrap();
    let new = ready_resource(home, namespace, &name).await;
    let (count, last) =
        eventually(ROAD, "the rows of before", async || rows(&new).await.filter(|(_, last)| *last >= before))
            .await;
    assert_eq!(count, last + 1, "a gap among the rows: {count} rows up to {last}");
    assert_ne!(new.password, old.password, "a database of its own");
    let disk = volumes(home, &new.volume).await.remove(0);
    assert_eq!(disk.snapshot.as_deref(), taken["status"]["snapshotId"].as_str());
    assert_eq!(disk.size_gib, 30);
    // A write to the one is no write to the other.
    new.ask("insert into trades values (now(), 1000000)").await.unwrap();
    eventually(ROAD, "a row of its own", async || (rows(&new).await?.1 == 1_000_000).then_some(())).await;
    let (_, last) = eventually(ROAD, "the rows of the other", async || rows(&old).await).await;
    assert!(last < 1_000_000, "{last}");

    writer.task.abort();
    for (kind, name) in [("questdb", &name), ("questdbsnapshot", &copy)] {
        remove(home, namespace, kind, name).await;
    }
    // EC2 shows what is gone for a moment longer.
    eventually(ROAD, "no volume left at EC2", async || {
        volumes(home, &new.volume).await.is_empty().then_some(())
    })
    .await;
    let accepted = console.delete(&format!("/v1/databases/{}", old.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
}
