//! Credentials that others give, in a real QuestDB: through a rotation one of them works at every moment at which anything
//! answers, and the line protocol over TCP takes rows from who has a key and from nobody else.

#![cfg(test)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use testkit::{Console, cluster, eventually, unique};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::watch;

use crate::canary::shown_to_nobody;
use crate::main_job::{Ready, ready};
use crate::support::{ROAD, apply, kubectl, whole};

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

/// The same, again until somebody answers.
pub(crate) async fn answered(host: Ipv4Addr, user: &str, password: &str) -> Attempt {
    eventually(ROAD, "an answer", async || {
        let attempt = log_in(host, user, password).await;
        (attempt != Attempt::NobodyThere).then_some(attempt)
    })
    .await
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

/// A key pair of the line protocol over TCP.
pub(crate) struct Key {
    pair: EcdsaKeyPair,
    jwk: Value,
}

impl Key {
    /// One of a test.
    pub(crate) fn draw(id: &str) -> Self {
        use aws_lc_rs::encoding::AsBigEndian as _;
        use aws_lc_rs::signature::KeyPair as _;
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        let d = URL_SAFE_NO_PAD.encode(pair.private_key().as_be_bytes().unwrap().as_ref());
        let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": id, "d": d, "x": x, "y": y });
        Self { pair, jwk }
    }

    /// One that was handed out, as a JSON Web Key.
    pub(crate) fn read(text: &[u8]) -> Self {
        let jwk: Value = serde_json::from_slice(text).unwrap();
        let part = |field: &str| URL_SAFE_NO_PAD.decode(jwk[field].as_str().unwrap()).unwrap();
        // Uncompressed: 4, x, y.
        let public = [vec![4], part("x"), part("y")].concat();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &part("d"), &public).unwrap();
        Self { pair, jwk }
    }

    /// Sends a row as clients of the line protocol over TCP do: the server asks for a signature first.
    pub(crate) async fn send(&self, host: Ipv4Addr, row: &str) -> anyhow::Result<()> {
        let mut stream = BufReader::new(TcpStream::connect((host, 9009)).await?);
        let id = self.jwk["kid"].as_str().context("it has an id")?;
        stream.write_all(format!("{id}\n").as_bytes()).await?;
        let mut challenge = Vec::new();
        tokio::time::timeout(Duration::from_secs(30), stream.read_until(b'\n', &mut challenge)).await??;
        ensure!(challenge.pop() == Some(b'\n'), "it hung up");
        let signature = self.pair.sign(&SystemRandom::new(), &challenge)?;
        stream.write_all(format!("{}\n{row}\n", STANDARD.encode(signature)).as_bytes()).await?;
        stream.shutdown().await?;
        Ok(())
    }
}

/// Sends a row as whoever has no key does, and waits until the server hangs up.
pub(crate) async fn send_without_a_key(host: Ipv4Addr, row: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect((host, 9009)).await?;
    stream.write_all(format!("{row}\n").as_bytes()).await?;
    stream.shutdown().await?;
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Tries both passwords again and again, until the second alone works.
async fn attempt(
    host: Ipv4Addr,
    [old, new]: [String; 2],
    teller: watch::Sender<BTreeSet<(Attempt, Attempt)>>,
) {
    let mut pair = BEFORE;
    while pair != AFTER {
        pair = (log_in(host, "ada", &old).await, log_in(host, "ada", &new).await);
        assert_ne!(pair, (Attempt::Denied, Attempt::Denied), "somebody answers and neither password works");
        teller.send_modify(|seen| seen.extend([pair]));
    }
}

#[tokio::test]
async fn one_password_or_the_other_works_at_every_moment_of_a_rotation() {
    let _whole = whole().await;
    let console = Console::of(&unique("rotate"));
    let home = cluster("eu-west-1");
    let database = ready(&console, home, "rotated", "delete").await;
    let host = database.host();
    let (old, new) = (unique("old"), unique("new"));
    let login = |password: &str| {
        given(&database, "login", "psql", &json!({ "username": "ada", "password": password }))
    };
    apply(home, &login(&old)).await.unwrap();
    eventually(ROAD, "the first password", async || {
        (log_in(host, "ada", &old).await == Attempt::Entered).then_some(())
    })
    .await;
    assert_eq!(answered(host, "admin", "quest").await, Attempt::Denied);

    // Whoever tries both comes in at every moment at which anybody answers.
    let (teller, seen) = watch::channel(BTreeSet::new());
    let attempts = tokio::spawn(attempt(host, [old.clone(), new.clone()], teller));
    let until = |pair| {
        let mut seen = seen.clone();
        async move { tokio::time::timeout(ROAD, seen.wait_for(|seen| seen.contains(&pair))).await.map(drop) }
    };
    until(BEFORE).await.expect("the first password alone works");
    apply(home, &login(&new)).await.unwrap();
    until(AFTER).await.expect("the second password alone works");
    attempts.await.unwrap();

    // A reader may read and nothing else.
    let reader =
        given(&database, "reader", "psql-readonly", &json!({ "username": "bob", "password": "reads" }));
    apply(home, &reader).await.unwrap();
    eventually(ROAD, "the reader", async || {
        (log_in(host, "bob", "reads").await == Attempt::Entered).then_some(())
    })
    .await;
    assert_eq!(answered(host, "ada", &new).await, Attempt::Entered);
    shown_to_nobody(home, &database, &[&old, &new]).await;
    console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
}

#[tokio::test]
async fn rows_come_in_over_the_line_protocol_with_a_key_and_not_without() {
    let _whole = whole().await;
    let console = Console::of(&unique("keys"));
    let home = cluster("us-east-1");
    let database = ready(&console, home, "keyed", "delete").await;
    let host = database.host();
    assert!(TcpStream::connect((host, 9009)).await.is_err(), "it listens without a key");
    let (known, unknown) = (Key::draw("known"), Key::draw("known"));
    let keys = given(&database, "keys", "ilp", &json!({ "auth.json": known.jwk.to_string() }));
    apply(home, &keys).await.unwrap();
    eventually(ROAD, "a row that was sent", async || {
        known.send(host, "trades price=1.5").await.ok()?;
        (database.count().await? > 0).then_some(())
    })
    .await;
    // Another key of that id is refused: nothing of it arrives.
    let _ = unknown.send(host, "forged price=2.5").await;
    known.send(host, "after price=3.5").await.unwrap();
    eventually(ROAD, "a row after it", async || database.ask("select count() from after").await.ok()).await;
    assert!(database.ask("select count() from forged").await.is_err(), "a forged row arrived");

    let namespace = database.namespace.as_str();
    shown_to_nobody(home, &database, &[known.jwk["d"].as_str().unwrap()]).await;
    kubectl(home, &["delete", "secret", "keys", "--namespace", namespace]).await.unwrap();
    eventually(ROAD, "the port to be shut", async || {
        database.count().await?;
        TcpStream::connect((host, 9009)).await.is_err().then_some(())
    })
    .await;
    console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
}
