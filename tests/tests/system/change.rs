//! Whoever writes to a database and reads from it by its name goes through every change of it: what was acknowledged is
//! there afterwards, nothing twice, and what was read once is never gone again.

#![cfg(test)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use cloud::{Cloud as _, HostedZoneId, RecordKind};
use resources::names::{self, condition};
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, cluster, eventually, unique};
use tokio::task::JoinHandle;

use crate::main_job::{Ready, aws, machines, ready, volumes};
use crate::states::{ask, told};
use crate::support::{ROAD, apply, asked, change, ended, kubectl, objects, sql, whole};

/// How a client comes in: it asks where the name leads whenever it has no connection.
pub(crate) struct Client {
    aws: cloud_aws::Aws,
    zone: HostedZoneId,
    name: String,
    user: String,
    password: String,
    address: Option<Ipv4Addr>,
}

impl Client {
    /// One who knows a database by its name.
    pub(crate) async fn of(home: &ClusterFacts, database: &Ready, name: &str) -> Self {
        Self {
            aws: aws(home).await,
            zone: HostedZoneId::new(&home.hosted_zone_id),
            name: name.to_owned(),
            user: database.user.clone(),
            password: database.password.clone(),
            address: None,
        }
    }

    /// One statement, or an error: then the next one asks anew where the name leads.
    pub(crate) async fn ask(&mut self, statement: &str) -> Option<Value> {
        if self.address.is_none() {
            let records = self.aws.list_records(&self.zone, &self.name).await.ok()?;
            let answer = records.iter().find(|record| record.kind == RecordKind::A)?;
            self.address = answer.values.first()?.parse().ok();
        }
        let endpoint = format!("http://{}:9000", self.address?);
        let asked = sql(&endpoint, &self.user, &self.password, statement);
        let answer = tokio::time::timeout(Duration::from_secs(5), asked).await.ok().and_then(Result::ok);
        if answer.is_none() {
            self.address = None;
        }
        answer
    }
}

/// What a writer was told, and what a reader saw.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) acknowledged: AtomicI64,
    read: AtomicI64,
    pub(crate) ended: AtomicBool,
}

impl Seen {
    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::SeqCst)
    }

    pub(crate) async fn wrote(&self, more: i64, when: &str) {
        let until = self.acknowledged.load(Ordering::SeqCst) + more;
        eventually(ROAD, &format!("{more} more rows {when}"), async || {
            (self.acknowledged.load(Ordering::SeqCst) >= until).then_some(())
        })
        .await;
    }
}

impl Seen {
    /// Waits until every acknowledged row is there, once.
    pub(crate) async fn all_there(&self, mut client: Client) {
        // The last row may have been written without an answer.
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        eventually(ROAD, "every acknowledged row", async || {
            let answer = client.ask("select count(), max(number) from trades").await?;
            let row = &answer["dataset"][0];
            assert_eq!(row[0], row[1], "a gap among the rows, or one twice");
            (row[0].as_i64()? >= acknowledged).then_some(())
        })
        .await;
    }
}

/// The table that they write to.
pub(crate) const TABLE: &str = "create table trades (ts timestamp, number long) timestamp(ts) partition by day wal dedup upsert keys(ts)";

/// Writes numbered rows, each until it is acknowledged. A row that was written without an answer is written again, and the
/// table keeps one of the two.
pub(crate) async fn write(mut client: Client, seen: Arc<Seen>) {
    // Route 53 limits the calls of all together.
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    for number in 1_i64.. {
        while client.ask(&format!("insert into trades values ({number}, {number})")).await.is_none() {
            if !seen.goes_on() {
                return;
            }
            beat.tick().await;
        }
        seen.acknowledged.store(number, Ordering::SeqCst);
        if !seen.goes_on() {
            return;
        }
    }
}

/// Reads, and holds the database to what it showed before.
pub(crate) async fn read(mut client: Client, seen: Arc<Seen>) {
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    while seen.goes_on() {
        beat.tick().await;
        let Some(answer) = client.ask("select count(), max(number) from trades").await else { continue };
        let row = &answer["dataset"][0];
        let (count, last) = (row[0].as_i64().unwrap(), row[1].as_i64().unwrap_or_default());
        assert_eq!(count, last, "a gap among the rows, or one twice");
        let before = seen.read.swap(last, Ordering::SeqCst);
        assert!(last >= before, "{before} rows were there, and then {last}");
    }
}

/// Waits until the claim of a database has so much, as the kubelet says it once the file system has grown. It asks for no more
/// than it did when it was made.
pub(crate) async fn claim_has(home: &ClusterFacts, database: &Ready, capacity: &str) {
    let name = names::claim(&database.resource);
    let path = "jsonpath={.status.capacity.storage} of {.spec.resources.requests.storage}";
    let words = ["get", "persistentvolumeclaim", &name, "--namespace", &database.namespace, "--output", path];
    let wanted = format!("{capacity} of 20Gi");
    eventually(ROAD, &wanted, async || (kubectl(home, &words).await.ok()? == wanted).then_some(())).await;
}

/// The machine that a database is on.
pub(crate) async fn machine(home: &ClusterFacts, database: &Ready) -> String {
    let disk = volumes(home, &database.volume).await.remove(0);
    assert_eq!(disk.attachments.len(), 1, "{disk:?}");
    disk.attachments[0].instance.to_string()
}

/// Somebody tells Kubernetes, too, to have its disk on the Node where it is: then there are two attachments of one volume.
async fn is_held(home: &ClusterFacts, database: &Ready) -> String {
    let (name, node) = (unique("held"), objects(home, "node", &database.id).await.unwrap());
    let disk = names::persistent_volume(&database.volume);
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": {
            "attacher": "ebs.csi.aws.com",
            "nodeName": node.trim_start_matches("node/"),
            "source": { "persistentVolumeName": disk },
        },
    });
    apply(home, &attachment).await.unwrap();
    let words = ["get", "volumeattachment", &name, "--output", "jsonpath={.status.attached}"];
    eventually(ROAD, "the second attachment", async || {
        (kubectl(home, &words).await.ok()? == "true").then_some(())
    })
    .await;
    name
}

/// The database serves where it moved to and EC2 has its disk only there, but its old machine stays until nothing says any more that
/// the disk is on it.
async fn let_go(home: &ClusterFacts, database: &Ready, seen: &Seen, [old, held]: [&str; 2]) {
    eventually(ROAD, "a move that waits for the disk to leave", async || {
        let (status, text) = told(home, database, condition::MOVING).await?;
        (status == "True" && text.contains("to leave")).then_some(())
    })
    .await;
    eventually(ROAD, "the disk on another machine alone", async || {
        let disk = volumes(home, &database.volume).await.remove(0);
        let mut places = disk.attachments.iter().map(|found| found.instance.as_str());
        (places.next().is_some_and(|place| place != old) && places.next().is_none()).then_some(())
    })
    .await;
    seen.wrote(20, "while its old machine is held").await;
    assert_eq!(machines(home, &database.id).await.len(), 2, "its old machine is gone");
    kubectl(home, &["delete", "volumeattachment", held, "--wait=false"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_and_a_reader_go_through_every_change_without_losing_a_row() {
    let _whole = whole().await;
    let console = Console::of(&unique("changes"));
    let home = cluster("eu-west-1");
    let database = ready(&console, home, "written", "delete").await;
    let path = format!("/v1/databases/{}", database.id);
    database.ask(TABLE).await.unwrap();
    let shown = eventually(ROAD, "the database", async || console.get(&path).await.ok()).await;
    let endpoint = shown["observed"]["endpoints"]["http"].as_str().unwrap();
    let name = endpoint.trim_start_matches("http://").split(':').next().unwrap().to_owned();
    let client = async || Client::of(home, &database, &name).await;
    let seen = Arc::new(Seen::default());
    let writer = tokio::spawn(write(client().await, Arc::clone(&seen)));
    let reader = tokio::spawn(read(client().await, Arc::clone(&seen)));
    seen.wrote(20, "before any change").await;

    ask(&console, &database.id, "restart").await;
    seen.wrote(20, "after a restart").await;

    change(&console, &path, json!({"config": {"shared.worker.count": "3"}})).await;
    seen.wrote(20, "after another configuration").await;

    change(&console, &path, json!({"storage": {"size_gib": 30}})).await;
    assert_eq!(volumes(home, &database.volume).await[0].size_gib, 30);
    claim_has(home, &database, "30Gi").await;
    seen.wrote(20, "after more room").await;

    let before = machine(home, &database).await;
    let held = is_held(home, &database).await;
    // It cannot end before its old machine is let go, so that its end is waited for only then.
    let moves = asked(&console, &path, &json!({"compute": {"instance_type": "m7i.xlarge"}})).await;
    let_go(home, &database, &seen, [&before, &held]).await;
    let operation = ended(&console, &moves).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    assert_ne!(machine(home, &database).await, before, "it was not moved");
    assert_eq!(machines(home, &database.id).await.len(), 1, "its old machine is still there");
    seen.wrote(20, "after a move").await;

    ask(&console, &database.id, "pause").await;
    ask(&console, &database.id, "resume").await;
    seen.wrote(20, "after a pause").await;

    seen.ended.store(true, Ordering::SeqCst);
    both(writer, reader).await;
    seen.all_there(client().await).await;
    let accepted = console.delete(&path).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
}

async fn both(writer: JoinHandle<()>, reader: JoinHandle<()>) {
    writer.await.unwrap();
    reader.await.unwrap();
}
