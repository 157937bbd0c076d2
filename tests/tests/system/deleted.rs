//! The resource of a database that serves is deleted by hand, alone or with its namespace: refused; and where somebody took the
//! policies away, the database comes back with the disk that it had and every row, whatever its own policy says of a deletion.

#![cfg(test)]

use std::path::Path;

use futures::join;
use serde_json::json;
use testkit::{ClusterFacts, Console, cluster, eventually, stack, unique};

use crate::change::machine;
use crate::main_job::{Ready, disks, machines, ready, ready_resource, volumes};
use crate::support::{ROAD, ended, kubectl, whole};

/// Bindings of the policies that stand in the way of it.
const BINDINGS: [&str; 2] = ["slipway-managed-delete", "slipway-managed-namespace"];

/// A cluster without these policies; they are there again when this is dropped, even by a failing test.
struct Open(&'static ClusterFacts);

impl Open {
    async fn new(home: &'static ClusterFacts) -> Self {
        let open = Self(home);
        for binding in BINDINGS {
            let delete = ["delete", "validatingadmissionpolicybinding", binding, "--ignore-not-found"];
            kubectl(home, &delete).await.unwrap();
        }
        open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let apply = |_| {
            let applied = std::process::Command::new(&stack().kubectl)
                .arg(format!("--kubeconfig={}", self.0.kubeconfig.display()))
                .args(["apply", "--server-side", "--force-conflicts", "--field-manager=slipway-sandbox"])
                .arg(format!("--filename={}", root.join("deploy").join("policies").display()))
                .status();
            applied.is_ok_and(|applied| applied.success())
        };
        // An API server that stands still is waited for by kubectl, but not for long.
        assert!((0..6).any(apply) || std::thread::panicking());
    }
}

async fn has_both_rows(database: &Ready, when: &str) {
    eventually(ROAD, &format!("the rows {when}"), async || (database.count().await? == 2).then_some(()))
        .await;
}

/// A database with two rows, whose disk goes when it is deleted as databases are.
async fn filled(console: &Console, home: &ClusterFacts) -> Ready {
    let database = ready(console, home, "byhand", "delete").await;
    let table = "create table trades (ts timestamp, price double) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    database.ask("insert into trades values (now(), 1.5), (now(), 2.5)").await.unwrap();
    has_both_rows(&database, "after they were inserted").await;
    database
}

/// Deletes by hand what stands for a database, and waits until it is gone; the database, once it is there again.
async fn again(console: &Console, home: &ClusterFacts, before: &Ready, what: &[&str]) -> Ready {
    let left = machine(home, before).await;
    let delete = [&["delete"][..], what, &["--wait=true", "--timeout=50s"]].concat();
    // What was taken away may be heeded for a moment longer.
    eventually(ROAD, &format!("the end of {what:?}"), async || kubectl(home, &delete).await.ok()).await;
    let kept = volumes(home, &before.volume).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    // The sweep does the same within minutes, and may have come first: then it may be on another machine by now.
    assert!(kept[0].attachments.iter().all(|found| found.instance.as_str() != left), "{left}: {kept:?}");
    let reason = json!({ "reason": "somebody deleted it by hand" });
    console.post(&format!("/v1/databases/{}:resend", before.id), &reason).await.unwrap();
    ready_resource(home, &before.namespace, &before.resource).await
}

/// It is what it was, and there is nothing of it twice; then it ends as databases do.
async fn is_the_same(console: &Console, home: &ClusterFacts, before: &Ready, after: &Ready) {
    assert_eq!((&after.id, &after.volume), (&before.id, &before.volume));
    has_both_rows(after, "once it is there again").await;
    let disks = disks(home, &before.id).await;
    assert_eq!(disks.len(), 1, "{disks:#?}");
    let machines = machines(home, &before.id).await;
    assert_eq!(machines.len(), 1, "{machines:#?}");
    let accepted = console.delete(&format!("/v1/databases/{}", before.id)).await.unwrap();
    let operation = ended(console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    // This was asked for in so many words; EC2 shows what is gone for a moment longer.
    eventually(ROAD, "no volume left at EC2", async || {
        volumes(home, &before.volume).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_deleted_by_hand_is_refused_or_comes_back_with_every_row() {
    let _whole = whole().await;
    let home = cluster("us-east-1");
    let [console, other] = ["byhand", "byhand"].map(|tenant| Console::of(&unique(tenant)));
    let (alone, within) = join!(filled(&console, home), filled(&other, home));
    let (its, namespace) = (alone.namespace.as_str(), within.namespace.as_str());
    let refused: [(&str, &[&str]); 3] = [
        (BINDINGS[0], &["delete", "questdb", &alone.resource, "--namespace", its, "--wait=false"]),
        (BINDINGS[0], &["delete", "questdb", "--all", "--namespace", its, "--wait=false"]),
        (BINDINGS[1], &["delete", "namespace", namespace, "--wait=false"]),
    ];
    for (policy, delete) in refused {
        let error = kubectl(home, delete).await.unwrap_err().to_string();
        assert!(error.contains(policy), "{delete:?}: {error}");
    }
    join!(has_both_rows(&alone, "after a refusal"), has_both_rows(&within, "after a refusal"));

    let open = Open::new(home).await;
    let every = ["questdb", "--all", "--namespace", its];
    let around = ["namespace", namespace, "--ignore-not-found"];
    let (one, all) = join!(again(&console, home, &alone, &every), again(&other, home, &within, &around));
    drop(open);
    join!(is_the_same(&console, home, &alone, &one), is_the_same(&other, home, &within, &all));
}
