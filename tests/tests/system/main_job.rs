//! The main job: a database asked for over HTTP becomes a QuestDB that answers, keeps its rows, and goes away again.

#![cfg(test)]

use std::net::Ipv4Addr;

use cloud::{Cloud as _, Instance, Select, VolumeId};
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, cluster, eventually, stack, unique};

use crate::support::{ROAD, answered, change, create, ended, kubectl, objects, secret, sql, whole};

/// A database that the API says is ready, as its user sees it.
pub(crate) struct Ready {
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    endpoint: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) volume: String,
}

/// Creates a database and waits until it is ready.
pub(crate) async fn ready(console: &Console, cluster: &ClusterFacts, name: &str, policy: &str) -> Ready {
    let accepted = create(console, name, cluster, policy).await.unwrap();
    ready_of(console, cluster, &accepted).await
}

/// Waits until an accepted database is ready.
pub(crate) async fn ready_of(console: &Console, cluster: &ClusterFacts, accepted: &Value) -> Ready {
    let operation = ended(console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let id = accepted["database"]["id"].as_str().unwrap().to_owned();
    // Where something beside it has just died it may be less than ready for a moment.
    let database = eventually(ROAD, &format!("database {id} ready"), async || {
        let database = console.get(&format!("/v1/databases/{id}")).await.ok()?;
        (database["observed"]["phase"] == "Ready").then_some(database)
    })
    .await;
    let observed = &database["observed"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, credentials) = (text(&observed["namespace"]), text(&observed["credentials_secret"]));
    Ready {
        user: secret(cluster, &namespace, &credentials, "http-user").await.unwrap(),
        password: secret(cluster, &namespace, &credentials, "http-password").await.unwrap(),
        resource: text(&observed["resource_name"]),
        // By address: nobody outside the AWS endpoint resolves the names of its zones.
        endpoint: format!("http://{}:9000", text(&observed["node"]["address"])),
        volume: text(&observed["volume_id"]),
        namespace,
        id,
    }
}

/// A database that people wrote down as a resource, once it is ready.
pub(crate) async fn ready_resource(cluster: &ClusterFacts, namespace: &str, name: &str) -> Ready {
    let get = ["get", "questdb", name, "--namespace", namespace, "--output", "json"];
    let found = eventually(ROAD, &format!("QuestDB {name} ready"), async || {
        let found: Value = serde_json::from_str(&kubectl(cluster, &get).await.ok()?).ok()?;
        (found["status"]["phase"] == "Ready").then_some(found)
    })
    .await;
    let status = &found["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let credentials = text(&status["credentialsSecret"]);
    Ready {
        id: text(&status["databaseId"]),
        user: secret(cluster, namespace, &credentials, "http-user").await.unwrap(),
        password: secret(cluster, namespace, &credentials, "http-password").await.unwrap(),
        endpoint: format!("http://{}:9000", text(&status["node"]["ip"])),
        volume: text(&status["volume"]["id"]),
        namespace: namespace.to_owned(),
        resource: name.to_owned(),
    }
}

impl Ready {
    /// The address of its machine.
    pub(crate) fn host(&self) -> Ipv4Addr {
        let host = self.endpoint.trim_start_matches("http://").split(':').next();
        host.and_then(|host| host.parse().ok()).expect("an address")
    }

    pub(crate) async fn ask(&self, statement: &str) -> anyhow::Result<Value> {
        sql(&self.endpoint, &self.user, &self.password, statement).await
    }

    pub(crate) async fn count(&self) -> Option<i64> {
        self.ask("select count() from trades").await.ok()?["dataset"][0][0].as_i64()
    }
}

/// A volume as EC2 shows it, once that has the patience: operators and all tests ask the same one.
pub(crate) async fn volumes(cluster: &ClusterFacts, id: &str) -> Vec<cloud::Volume> {
    let (aws, one) = (aws(cluster).await, Select::one(VolumeId::new(id)));
    eventually(ROAD, "the volume at EC2", async || aws.describe_volumes(&one).await.ok()).await
}

/// The machines of a database that are not ending, likewise.
pub(crate) async fn machines(cluster: &ClusterFacts, database: &str) -> Vec<Instance> {
    let (aws, its) = (aws(cluster).await, Select::database(&cluster.name, database));
    let mut found = eventually(ROAD, "its machines", async || aws.describe_instances(&its).await.ok()).await;
    found.retain(|machine| !machine.state.is_ending());
    found
}

/// The volumes that have the tags of a database, likewise.
pub(crate) async fn disks(cluster: &ClusterFacts, database: &str) -> Vec<cloud::Volume> {
    let (aws, its) = (aws(cluster).await, Select::database(&cluster.name, database));
    eventually(ROAD, "its volumes", async || aws.describe_volumes(&its).await.ok()).await
}

/// EC2 and Route 53 of a cluster's region.
pub(crate) async fn aws(cluster: &ClusterFacts) -> cloud_aws::Aws {
    let mut settings = cloud_aws::Settings::new(cluster.region.clone());
    settings.endpoint = Some(stack().aws_endpoint_url.clone());
    settings.credentials =
        cloud_aws::Credentials::Fixed { key_id: "test".to_owned(), secret: "test".to_owned() };
    cloud_aws::Aws::connect(settings).await
}

#[tokio::test]
async fn a_database_is_born_keeps_its_rows_and_dies() {
    let _whole = whole().await;
    let console = Console::of(&unique("acme"));
    let home = cluster("eu-west-1");
    let database = ready(&console, home, "trades", "delete").await;

    // A real QuestDB answers, and only with the generated password.
    database
        .ask("create table trades (ts timestamp, price double) timestamp(ts) partition by day wal")
        .await
        .unwrap();
    database.ask("insert into trades values (now(), 1.5), (now(), 2.5)").await.unwrap();
    eventually(ROAD, "the inserted rows", async || (database.count().await? == 2).then_some(())).await;
    assert!(sql(&database.endpoint, &database.user, "wrong", "select 1").await.is_err());

    // The rows outlive the pod.
    let pod = format!("{}-0", database.resource);
    let uid =
        ["get", "pod", &pod, "--namespace", &database.namespace, "--output", "jsonpath={.metadata.uid}"];
    let before = kubectl(home, &uid).await.unwrap();
    kubectl(home, &["delete", "pod", &pod, "--namespace", &database.namespace, "--wait=false"])
        .await
        .unwrap();
    eventually(ROAD, "another pod", async || kubectl(home, &uid).await.ok().filter(|now| *now != before))
        .await;
    eventually(ROAD, "the same rows in another pod", async || (database.count().await? == 2).then_some(()))
        .await;

    // Everybody's tools see it: rows in Postgres, the volume on EC2.
    let row = format!("SELECT seq FROM databases WHERE id = '{}'", database.id);
    assert_eq!(testkit::query(&stack().database_url, &row).await.unwrap(), "1");
    let volumes = volumes(home, &database.volume).await;
    assert_eq!(volumes.len(), 1);

    // Deleted by policy: nothing is left but the tombstone.
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    for kind in ["statefulset,service,configmap,secret,pvc,pod", "pv", "node"] {
        eventually(ROAD, &format!("no {kind} left"), async || {
            objects(home, kind, &database.id).await.ok()?.is_empty().then_some(())
        })
        .await;
    }
    let phase = [
        "get",
        "questdb",
        &database.resource,
        "--namespace",
        &database.namespace,
        "--output",
        "jsonpath={.status.phase}",
    ];
    assert_eq!(kubectl(home, &phase).await.unwrap(), "Deleted");
}

#[tokio::test]
async fn a_retained_volume_survives_its_database() {
    let _whole = whole().await;
    let console = Console::of(&unique("keep"));
    let home = cluster("us-east-1");
    let database = ready(&console, home, "kept", "retain").await;
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    let volumes = volumes(home, &database.volume).await;
    assert_eq!(volumes.len(), 1, "a retained volume is never destroyed");
    assert!(volumes[0].attachments.is_empty(), "{volumes:?}");
}

#[tokio::test]
async fn an_operation_can_be_followed_to_its_end() {
    let _whole = whole().await;
    let console = Console::of(&unique("watch"));
    let accepted = create(&console, "watched", cluster("eu-west-1"), "delete").await.unwrap();
    let path = format!("/v1/operations/{}/events", accepted["operation"]["id"].as_str().unwrap());
    let stream = answered(&console.request(reqwest::Method::GET, &path).timeout(ROAD)).await;
    // The server closes the stream after the last event, so the body has an end.
    let text = tokio::time::timeout(ROAD, stream.text()).await.unwrap().unwrap();
    let numbers: Vec<i64> =
        text.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
    assert!(numbers.len() > 2, "{text}");
    assert_eq!(
        numbers,
        (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>(),
        "numbered without gaps"
    );
    assert!(text.contains("succeeded"), "{text}");

    // Resumed in the middle: the rest and nothing else.
    let rest = console.request(reqwest::Method::GET, &path).header("Last-Event-ID", "2").timeout(ROAD);
    let rest = answered(&rest).await;
    let rest = tokio::time::timeout(ROAD, rest.text()).await.unwrap().unwrap();
    let again: Vec<i64> =
        rest.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
    assert_eq!(again, numbers[2..], "{rest}");

    let id = accepted["database"]["id"].as_str().unwrap();
    let accepted = console.delete(&format!("/v1/databases/{id}")).await.unwrap();
    ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
}

#[tokio::test]
async fn a_change_of_configuration_reaches_the_database() {
    let _whole = whole().await;
    let console = Console::of(&unique("change"));
    let home = cluster("us-east-1");
    let database = ready(&console, home, "tuned", "delete").await;
    let path = format!("/v1/databases/{}", database.id);
    let shown = async |key: &str| {
        let shown = database.ask(&format!("(show parameters) where property_path = '{key}'")).await.unwrap();
        shown["dataset"][0][2].as_str().unwrap().to_owned()
    };
    change(&console, &path, json!({"config": {"shared.worker.count": "3"}})).await;
    assert_eq!(shown("shared.worker.count").await, "3");

    // What QuestDB reads again restarts nobody, and so it is to be its own word which keys these are. That it is ready
    // comes and goes where it stands still for a moment.
    let (started, pod) =
        (["containerID", "restartCount", "state.running.startedAt"], format!("{}-0", database.resource));
    let started = started.map(|field| format!("{{.status.containerStatuses[*].{field}}} ")).concat();
    let paths = format!("jsonpath={{.metadata.uid}} {started}");
    let process = ["get", "pod", &pod, "--namespace", &database.namespace, "--output", &paths];
    let before = kubectl(home, &process).await.unwrap();
    let keys = json!({"shared.worker.count": "3", "http.net.connection.limit": "80"});
    change(&console, &path, json!({"config": keys})).await;
    assert_eq!(shown("http.net.connection.limit").await, "80");
    assert_eq!(kubectl(home, &process).await.unwrap(), before, "it was restarted");
    let reloadable =
        database.ask("select property_path from (show parameters) where reloadable").await.unwrap();
    let rows = reloadable["dataset"].as_array().unwrap();
    let is_known = |key: &&&str| rows.iter().any(|row| row[0] == **key);
    let unknown: Vec<_> = domain::catalogue::RELOADABLE.iter().filter(|key| !is_known(key)).collect();
    assert_eq!(unknown, [&""; 0]);
    let accepted = console.delete(&path).await.unwrap();
    ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
}
