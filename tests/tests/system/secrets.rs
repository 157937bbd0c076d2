//! Logins that others give, in a real QuestDB: through a rotation one of them works at every moment at which anything answers.

#![cfg(test)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{Console, cluster, eventually, unique};
use tokio::process::Command;
use tokio::sync::watch;

use crate::canary::shown_to_nobody;
use crate::main_job::{Ready, ready};
use crate::restore::{remove, snapshot};
use crate::support::{ROAD, apply, whole};

/// What became of an attempt to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attempt {
    Entered,
    Denied,
    NobodyThere,
}

/// The old password works and the new one does not, and the other way round.
const BEFORE: (Attempt, Attempt) = (Attempt::Entered, Attempt::Denied);
const AFTER: (Attempt, Attempt) = (Attempt::Denied, Attempt::Entered);

/// Logs in as users of Postgres do.
async fn log_in(host: Ipv4Addr, user: &str, password: &str) -> Attempt {
    let host = host.to_string();
    let output = Command::new("psql")
        .args(["-h", &host, "-p", "8812", "-U", user, "-d", "qdb", "-Atc", "select 1"])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "10")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Attempt::Entered,
        false if said.contains("invalid username/password") => Attempt::Denied,
        false => Attempt::NobodyThere,
    }
}

/// Logs in as users of REST, console and the line protocol over HTTP do.
async fn log_in_by_http(host: Ipv4Addr, user: &str, password: &str) -> Attempt {
    let request = testkit::http().get(format!("http://{host}:9000/exec")).query(&[("query", "select 1")]);
    let request = request.basic_auth(user, Some(password)).timeout(Duration::from_secs(10));
    match request.send().await.map(|answer| answer.status()) {
        Ok(StatusCode::OK) => Attempt::Entered,
        Ok(StatusCode::UNAUTHORIZED) => Attempt::Denied,
        Ok(_) | Err(_) => Attempt::NobodyThere,
    }
}

/// The same as users of Postgres, again until somebody answers.
pub(crate) async fn answered(host: Ipv4Addr, user: &str, password: &str) -> Attempt {
    Login { door: Door::Postgres, user, password: password.to_owned() }.answered(host).await
}

#[derive(Clone, Copy, Debug)]
enum Door {
    Postgres,
    Http,
}

/// Who comes in by which door.
#[derive(Clone, Debug)]
struct Login<'a> {
    door: Door,
    user: &'a str,
    password: String,
}

impl Login<'_> {
    async fn attempt(&self, host: Ipv4Addr) -> Attempt {
        match self.door {
            Door::Postgres => log_in(host, self.user, &self.password).await,
            Door::Http => log_in_by_http(host, self.user, &self.password).await,
        }
    }

    /// The same, again until somebody answers.
    async fn answered(&self, host: Ipv4Addr) -> Attempt {
        eventually(ROAD, "an answer", async || {
            let attempt = self.attempt(host).await;
            (attempt != Attempt::NobodyThere).then_some(attempt)
        })
        .await
    }

    /// Waits until it comes in.
    async fn enters(&self, host: Ipv4Addr) {
        eventually(ROAD, &format!("{self:?} to come in"), async || {
            (self.attempt(host).await == Attempt::Entered).then_some(())
        })
        .await;
    }
}

/// A Secret for a database.
pub(crate) fn given(database: &Ready, name: &str, word: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": database.namespace, "annotations": {
            "crd.questdb.io/name": database.resource, "crd.questdb.io/secret-type": word,
        } },
        "stringData": data,
    })
}

/// Tries both logins again and again, until the second alone works.
async fn attempt(
    host: Ipv4Addr,
    [old, new]: [Login<'static>; 2],
    teller: watch::Sender<BTreeSet<(Attempt, Attempt)>>,
) {
    let mut pair = BEFORE;
    while pair != AFTER {
        pair = (old.attempt(host).await, new.attempt(host).await);
        assert_ne!(pair, (Attempt::Denied, Attempt::Denied), "somebody answers and neither login works");
        teller.send_modify(|seen| seen.extend([pair]));
    }
}

/// Whoever tries both logins comes in at every moment at which anybody answers, while `rotate` gives the second in place of the first.
async fn rotated(host: Ipv4Addr, logins: [Login<'static>; 2], rotate: impl Future<Output = ()>) {
    let (teller, seen) = watch::channel(BTreeSet::new());
    let attempts = tokio::spawn(attempt(host, logins, teller));
    let until = |pair| {
        let mut seen = seen.clone();
        async move { tokio::time::timeout(ROAD, seen.wait_for(|seen| seen.contains(&pair))).await.map(drop) }
    };
    until(BEFORE).await.expect("the first login alone works");
    rotate.await;
    until(AFTER).await.expect("the second login alone works");
    attempts.await.unwrap();
}

#[tokio::test]
async fn one_password_or_the_other_works_at_every_moment_of_a_rotation() {
    let _whole = whole().await;
    let console = Console::of(&unique("rotate"));
    let home = cluster("eu-west-1");
    let database = ready(&console, home, "rotated", "delete").await;
    let host = database.host();
    let ada = |word: &str| Login { door: Door::Postgres, user: "ada", password: unique(word) };
    let (old, new) = (ada("old"), ada("new"));
    let secret = |login: &Login<'_>| {
        given(&database, "login", "psql", &json!({ "username": login.user, "password": login.password }))
    };
    apply(home, &secret(&old)).await.unwrap();
    old.enters(host).await;
    assert_eq!(answered(host, "admin", "quest").await, Attempt::Denied);
    let give = async { apply(home, &secret(&new)).await.unwrap() };
    rotated(host, [old.clone(), new.clone()], give).await;

    // A reader may read and nothing else.
    let reader =
        given(&database, "reader", "psql-readonly", &json!({ "username": "bob", "password": "reads" }));
    apply(home, &reader).await.unwrap();
    Login { door: Door::Postgres, user: "bob", password: "reads".to_owned() }.enters(host).await;
    assert_eq!(new.answered(host).await, Attempt::Entered);
    shown_to_nobody(home, &database, &[&old.password, &new.password]).await;
    console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
}

/// It is the operator's own login as well: what it asks of QuestDB it asks by HTTP.
#[tokio::test]
async fn another_login_of_http_is_everybodys_and_the_operators_at_once() {
    let _whole = whole().await;
    let console = Console::of(&unique("http"));
    let home = cluster("us-east-1");
    let mut database = ready(&console, home, "entered", "delete").await;
    let host = database.host();
    let of = |user: &'static str| Login { door: Door::Http, user, password: unique(user) };
    let (old, new) = (of("carol"), of("dan"));
    let secret = |login: &Login<'_>| {
        given(&database, "web", "http", &json!({ "username": login.user, "password": login.password }))
    };
    apply(home, &secret(&old)).await.unwrap();
    old.enters(host).await;
    let drawn = Login { door: Door::Http, user: &database.user, password: database.password.clone() };
    assert_eq!(
        drawn.answered(host).await,
        Attempt::Denied,
        "what was drawn is in force beside what was given"
    );
    let give = async { apply(home, &secret(&new)).await.unwrap() };
    rotated(host, [old.clone(), new.clone()], give).await;

    // A checkpoint is made and released by whoever comes in.
    new.user.clone_into(&mut database.user);
    database.password.clone_from(&new.password);
    let copy = unique("after");
    snapshot(home, &database, &copy).await;
    let held = database.ask("select * from checkpoint_status()").await.unwrap();
    assert_eq!(held["dataset"][0][0], json!(false), "{held:#}");
    shown_to_nobody(home, &database, &[&old.password, &new.password]).await;
    remove(home, &database.namespace, "questdbsnapshot", &copy).await;
    console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
}
