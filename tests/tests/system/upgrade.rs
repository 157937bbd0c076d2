//! From one real version of QuestDB to another, and back; and to one that does not start: with a copy first, under load, without
//! losing a row.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testkit::{ClusterFacts, cluster, eventually, unique};
use tokio::task::JoinHandle;

use crate::change::{Client, Seen, TABLE, read, write};
use crate::main_job::{Ready, ready_resource, volumes};
use crate::restore::remove;
use crate::support::{ROAD, apply, kubectl, whole};

/// A version whose image reads passwords for it, as the local node agents have it.
const OLDER: &str = "9.3.2-files";
/// The version that every operator knows.
pub(crate) const NEWER: &str = "9.3.4";
/// A version that ends as soon as it starts: it finds a user without a password.
const BROKEN: &str = "9.3.2";

/// An object, if it is there and the API server answers.
pub(crate) async fn get(home: &ClusterFacts, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let words = ["get", kind, name, "--namespace", namespace, "--output", "json"];
    serde_json::from_str(&kubectl(home, &words).await.ok()?).ok()
}

/// A database that is written to and read from by its name.
pub(crate) struct Used {
    pub(crate) home: &'static ClusterFacts,
    pub(crate) database: Ready,
    /// Its name.
    pub(crate) host: String,
    pub(crate) seen: Arc<Seen>,
    tasks: (JoinHandle<()>, JoinHandle<()>),
}

impl Used {
    /// A database of this version, in a namespace of its own.
    pub(crate) async fn begin(version: &str) -> Self {
        let home = cluster("eu-west-1");
        let (namespace, name) = (unique("upgrade"), unique("aged"));
        apply(home, &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))
            .await
            .unwrap();
        let wished = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "version": version, "storage": { "sizeGib": 20, "deletionPolicy": "Delete" } },
        });
        apply(home, &wished).await.unwrap();
        let database = ready_resource(home, &namespace, &name).await;
        database.ask(TABLE).await.unwrap();
        let found = get(home, "questdb", &namespace, &name).await.unwrap();
        let host = found["status"]["dns"]["name"].as_str().unwrap().to_owned();
        let seen = Arc::new(Seen::default());
        let writer = Client::of(home, &database, &host).await;
        let reader = Client::of(home, &database, &host).await;
        let tasks =
            (tokio::spawn(write(writer, Arc::clone(&seen))), tokio::spawn(read(reader, Arc::clone(&seen))));
        seen.wrote(20, "before any change").await;
        Self { home, database, host, seen, tasks }
    }

    /// Asks for a version.
    async fn wish(&self, version: &str) {
        self.patch(&json!({ "version": version })).await;
    }

    /// Writes these fields of the spec.
    pub(crate) async fn patch(&self, spec: &Value) {
        self.try_patch(spec).await.unwrap();
    }

    /// The same, where it may be refused.
    pub(crate) async fn try_patch(&self, spec: &Value) -> anyhow::Result<String> {
        let Ready { namespace, resource, .. } = &self.database;
        let patch = json!({ "spec": spec }).to_string();
        let words =
            ["patch", "questdb", resource, "--namespace", namespace, "--type", "merge", "--patch", &patch];
        kubectl(self.home, &words).await
    }

    /// The status once an upgrade came to this end, and all is as it should be otherwise.
    async fn ended(&self, version: &str, result: &str) -> Value {
        let Ready { namespace, resource, .. } = &self.database;
        let image = format!("questdb/questdb:{version}");
        eventually(2 * ROAD, &format!("the end of an upgrade to {version}"), async || {
            let found = get(self.home, "questdb", namespace, resource).await?;
            let last = &found["status"]["lastUpgrade"];
            let over = last["to"] == image.as_str() && last["result"] != "Running";
            assert!(!over || last["result"] == result, "{last:#}");
            (over && is(&found, "Ready") == "True").then(|| found["status"].clone())
        })
        .await
    }

    /// What QuestDB says of itself, whoever started it.
    async fn says(&self, version: &str) {
        let mut client = Client::of(self.home, &self.database, &self.host).await;
        eventually(ROAD, &format!("QuestDB {version}"), async || {
            let build = client.ask("select build()").await?["dataset"][0][0].to_string();
            build.contains(&format!("QuestDB {version},")).then_some(())
        })
        .await;
    }

    /// The snapshot that was taken before an upgrade: of the version before, and taken before it.
    async fn copied_before(&self, status: &Value, version: &str) -> String {
        let last = &status["lastUpgrade"];
        let name = last["snapshot"].as_str().unwrap_or_else(|| panic!("nothing was copied: {last:#}"));
        let copy = get(self.home, "questdbsnapshot", &self.database.namespace, name).await;
        let copy = copy.expect("the snapshot stays");
        let taken = &copy["status"];
        assert_eq!(taken["version"], version, "{copy:#}");
        assert_eq!(taken["volumeId"], self.database.volume.as_str(), "{copy:#}");
        let moment = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(moment(&taken["startedAt"]) <= moment(&last["startedAt"]), "{copy:#} {last:#}");
        name.to_owned()
    }

    /// Every acknowledged row is there, once, on the same disk; then all of it goes.
    pub(crate) async fn end(mut self, copies: &[String]) {
        self.comes_to_rest().await;
        self.goes(copies).await;
    }

    /// Nobody writes or reads any more, and every acknowledged row is there, once, on the same disk.
    pub(crate) async fn comes_to_rest(&mut self) {
        assert_eq!(volumes(self.home, &self.database.volume).await.len(), 1);
        self.is_left_alone().await;
        let client = Client::of(self.home, &self.database, &self.host).await;
        self.seen.all_there(client).await;
    }

    /// Nobody writes or reads any more, whether or not it answers.
    pub(crate) async fn is_left_alone(&mut self) {
        self.seen.ended.store(true, Ordering::SeqCst);
        let (writer, reader) = &mut self.tasks;
        writer.await.unwrap();
        reader.await.unwrap();
    }

    /// Its resource goes, and with it these snapshots and the namespace.
    pub(crate) async fn goes(&self, copies: &[String]) {
        let Ready { namespace, resource, .. } = &self.database;
        remove(self.home, namespace, "questdb", resource).await;
        for copy in copies {
            remove(self.home, namespace, "questdbsnapshot", copy).await;
        }
        kubectl(self.home, &["delete", "namespace", namespace, "--wait=false"]).await.unwrap();
    }
}

/// A condition of a resource.
fn is(resource: &Value, kind: &str) -> String {
    let conditions = resource["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_to_the_next_version_and_back_without_losing_a_row() {
    let _whole = whole().await;
    let used = Used::begin(OLDER).await;
    used.says("9.3.2").await;
    let mut copies = Vec::new();
    for (from, to, says) in [(OLDER, NEWER, "9.3.4"), (NEWER, OLDER, "9.3.2")] {
        used.wish(to).await;
        let status = used.ended(to, "Succeeded").await;
        assert_eq!(status["lastUpgrade"]["from"], format!("questdb/questdb:{from}"), "{status:#}");
        assert_eq!(status["version"], to, "{status:#}");
        copies.push(used.copied_before(&status, from).await);
        used.says(says).await;
        used.seen.wrote(20, &format!("after the upgrade to {to}")).await;
    }
    assert_ne!(copies[0], copies[1]);
    used.end(&copies).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_does_not_start_is_taken_back_without_losing_a_row() {
    let _whole = whole().await;
    let used = Used::begin(NEWER).await;
    used.wish(BROKEN).await;
    let status = used.ended(BROKEN, "RolledBack").await;
    assert_eq!(status["version"], NEWER, "{status:#}");
    assert!(status["lastUpgrade"]["reason"].as_str().is_some_and(|why| !why.is_empty()), "{status:#}");
    let copy = used.copied_before(&status, NEWER).await;
    used.says("9.3.4").await;
    used.seen.wrote(20, "after it was taken back").await;

    // The wish that failed is told until it is taken back too.
    let Ready { namespace, resource, .. } = &used.database;
    let refused = get(used.home, "questdb", namespace, resource).await.unwrap();
    assert_eq!(is(&refused, "ConfigAccepted"), "False", "{refused:#}");
    used.wish(NEWER).await;
    eventually(ROAD, "the end of the complaint", async || {
        let found = get(used.home, "questdb", namespace, resource).await?;
        (is(&found, "ConfigAccepted") == "True" && found["status"]["phase"] == "Ready").then_some(())
    })
    .await;
    used.seen.wrote(20, "after the wish was taken back").await;
    used.end(&[copy]).await;
}
