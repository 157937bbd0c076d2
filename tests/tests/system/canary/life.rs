//! A database goes through its whole life while every program logs all it can; then each value that its Secrets ever held,
//! drawn by the operator or given by people, good or refused, is looked for in every place.
//!
//! A hit means that whoever may see that place (a reader of logs, of Kafka, of the cluster's objects, of the machine's process
//! list) can log in to the database, and that the value is to be rotated wherever this build ran. A place in which nothing was
//! published means that the search is blind there: what was not found says nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bus::{Connection, Message, Producer};
use resources::names;
use serde_json::{Value, json};
use testkit::{ClusterFacts, Console, Loud, cluster, eventually, stack, unique};

use super::Search;
use crate::main_job::{Ready, ready, ready_of, ready_resource};
use crate::restore::{remove, snapshot};
use crate::secrets::{Attempt, answered, given};
use crate::states::ask;
use crate::support::{ROAD, alone, apply, ended, kubectl, secret};

/// Letters that forms differ in.
const AWKWARD: &str = "+/=&?";
/// Kinds of places that are there as long as the database is, and those that stay.
const WHILE_IT_LIVES: [&str; 5] =
    ["arguments", "environment", "file of a pod", "file of a volume", "thing of AWS"];
const AT_ALL_TIMES: [&str; 13] = [
    "answer",
    "call of AWS",
    "dead letter",
    "event",
    "log of backend",
    "log of eu-west-1-nodes",
    "log of eu-west-1-operator",
    "log of provisioner",
    "object",
    "row",
    "secret beside its values",
    "topic provisioning.gossip",
    "topic provisioning.instructions",
];

impl Search {
    /// Takes in every value that Secrets of a namespace hold by now, and checks that these (by Secret and key) are
    /// among them.
    async fn learn(&mut self, home: &ClusterFacts, namespace: &str, among: &[&str]) {
        let get = ["get", "secrets", "--namespace", namespace, "--output", "json"];
        let all: Value = serde_json::from_str(&kubectl(home, &get).await.unwrap()).unwrap();
        let mut learnt = Vec::new();
        for secret in all["items"].as_array().unwrap() {
            let secret_name = secret["metadata"]["name"].as_str().unwrap();
            let values = secret["data"].as_object().into_iter().flatten();
            for (key, value) in values.filter_map(|(key, value)| Some((key, hidden(key, value)?))) {
                let name = format!("{secret_name}/{key}");
                self.hidden.add(&name, &value);
                learnt.push(name);
            }
        }
        for name in among {
            assert!(learnt.iter().any(|found| found == name), "there is no {name} to look for: {learnt:?}");
        }
    }

    /// Looks wherever something stays.
    async fn everywhere(&mut self, console: &Console) {
        self.rows().await;
        self.topics();
        self.logs();
        for cluster in &stack().clusters {
            self.objects(cluster).await;
        }
        self.metrics().await;
        self.answers(console).await;
        self.cloud().await;
    }
}

/// What of a value of a Secret nobody may see: passwords, and the private half of a key. Names of users and public halves are
/// no secret.
fn hidden(key: &str, value: &Value) -> Option<Vec<u8>> {
    let value = STANDARD.decode(value.as_str()?).unwrap();
    if key.ends_with("password") {
        return Some(value);
    }
    let jwk: Value = serde_json::from_slice(&value).ok()?;
    Some(jwk["d"].as_str()?.as_bytes().to_vec())
}

/// A record that nobody understands, which tells what is published in its key, its value and a header. It becomes a dead letter.
async fn nonsense(published: &str) {
    let producer = Producer::new(&Connection::new(&stack().kafka_bootstrap, "test")).unwrap();
    let payload = [&[0xff][..], published.as_bytes()].concat();
    let headers = vec![("note".to_owned(), published.as_bytes().to_vec())];
    let topic = "provisioning.instructions".to_owned();
    producer.send(Message { topic, key: published.to_owned(), payload, headers }).await.unwrap();
    let count = format!("select count(*) from dead_letters where key = convert_to('{published}', 'UTF8')");
    eventually(ROAD, "a dead letter", async || {
        let count = testkit::query(&stack().database_url, &count).await.ok()?;
        (count == "1").then_some(())
    })
    .await;
}

/// People give two Secrets that cannot be used, and are told so: the complaint is about a private key and a password.
async fn refused(home: &ClusterFacts, database: &Ready, search: &mut Search) {
    let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": "bad", "d": format!("{}{AWKWARD}", unique("private")), "x": "no", "y": "no" });
    let key = given(database, "badkey", "ilp", &json!({ "auth.json": jwk.to_string() }));
    let login = json!({ "username": "co:lon", "password": format!("{}{AWKWARD}", unique("refused")) });
    let login = given(database, "badlogin", "http", &login);
    for secret in [&key, &login] {
        apply(home, secret).await.unwrap();
    }
    search.learn(home, &database.namespace, &["badkey/auth.json", "badlogin/password"]).await;
    let path = r#"jsonpath={.status.conditions[?(@.type=="CredentialsAccepted")].message}"#;
    let get = ["get", "questdb", &database.resource, "--namespace", &database.namespace, "--output", path];
    eventually(ROAD, "a complaint about both", async || {
        let said = kubectl(home, &get).await.ok()?;
        ["badkey", "badlogin"].iter().all(|name| said.contains(name)).then_some(())
    })
    .await;
    for name in ["badkey", "badlogin"] {
        remove(home, &database.namespace, "secret", name).await;
    }
}

/// Connected to with what was drawn, then with what is given in its place.
async fn rotated(home: &ClusterFacts, database: &Ready, search: &mut Search) {
    let (host, namespace) = (database.host(), database.namespace.as_str());
    let own = names::credentials(&database.resource);
    let [http, pg] = ["http-password", "pg-password"].map(|key| format!("{own}/{key}"));
    search.learn(home, namespace, &[&http, &pg]).await;
    let drawn = secret(home, namespace, &own, "pg-password").await.unwrap();
    assert_eq!(answered(host, "admin", &drawn).await, Attempt::Entered);
    refused(home, database, search).await;
    let reader = format!("{}{AWKWARD}", unique("reader"));
    let reader = json!({ "username": "bob", "password": reader });
    apply(home, &given(database, "reader", "psql-readonly", &reader)).await.unwrap();
    let password = format!("{}{AWKWARD}", unique("given"));
    let login = json!({ "username": "ada", "password": password });
    apply(home, &given(database, "login", "psql", &login)).await.unwrap();
    search.learn(home, namespace, &["login/password", "reader/password"]).await;
    eventually(ROAD, "the given password", async || {
        (answered(host, "ada", &password).await == Attempt::Entered).then_some(())
    })
    .await;
}

/// Another database from a snapshot, with a key that the operator draws.
async fn restored(home: &ClusterFacts, database: &Ready, copy: &str) -> Ready {
    snapshot(home, database, copy).await;
    let name = unique("again");
    let spec = json!({
        "storage": { "sizeGib": 20, "deletionPolicy": "Delete", "source": { "snapshot": copy } },
        "credentials": { "ilp": { "drawn": ["k1"] } },
    });
    let again = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB", "spec": spec,
        "metadata": { "name": name, "namespace": database.namespace },
    });
    apply(home, &again).await.unwrap();
    let again = ready_resource(home, &database.namespace, &name).await;
    eventually(ROAD, "the published row", async || again.ask("select * from published").await.ok()).await;
    again
}

#[tokio::test]
async fn no_value_of_a_secret_is_shown_anywhere_in_a_databases_life() {
    let _alone = alone().await;
    let loud = Loud::begin().await.unwrap();
    let mut search = Search::new();
    let console = Console::of(&unique("canary"));
    let home = cluster("eu-west-1");
    let published = unique("published");
    nonsense(&published).await;
    let database = ready(&console, home, &published, "delete").await;
    for (name, value) in [("name", &published), ("id", &database.id), ("volume", &database.volume)] {
        search.published.add(name, value.as_bytes());
    }
    let table = "create table published (ts timestamp, word varchar) timestamp(ts) partition by day wal";
    database.ask(table).await.unwrap();
    database.ask(&format!("insert into published values (now(), '{published}')")).await.unwrap();
    rotated(home, &database, &mut search).await;
    let accepted = ask(&console, &database.id, "restart").await;
    let database = ready_of(&console, home, &accepted).await;
    let copy = unique("copy");
    let again = restored(home, &database, &copy).await;
    let drawn = format!("{}/auth.json", names::drawn_key(&again.resource, "k1"));
    let password = format!("{}/http-password", names::credentials(&again.resource));
    search.learn(home, &database.namespace, &[&drawn, &password]).await;

    search.processes();
    search.containers(home, &[&database.volume, &again.volume]);
    search.everywhere(&console).await;
    search.end(&[&WHILE_IT_LIVES[..], &AT_ALL_TIMES].concat());

    for (kind, name) in [("questdb", &again.resource), ("questdbsnapshot", &copy)] {
        remove(home, &database.namespace, kind, name).await;
    }
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    let operation = ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
    assert_eq!(operation["state"], "succeeded", "{operation:#}");
    // What was found of the living says nothing of what is left.
    search.alive.clear();
    search.everywhere(&console).await;
    // Two drawn of each database and a key, two given, two refused.
    assert!(search.hidden.len() >= 9, "only {} values were looked for", search.hidden.len());
    loud.end().await.unwrap();
    search.end(&AT_ALL_TIMES);
}
