//! Keys of the line protocol over TCP in a real QuestDB: it takes rows from who has one and from nobody else, also while one takes the
//! place of another.

#![cfg(test)]

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

use crate::canary::shown_to_nobody;
use crate::main_job::ready;
use crate::secrets::given;
use crate::support::{ROAD, apply, kubectl, whole};

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
        let mut stream = self.signed(host).await?;
        stream.write_all(format!("{row}\n").as_bytes()).await?;
        stream.shutdown().await?;
        Ok(())
    }

    /// Whether the server hangs up on whoever signs with it, before a row is sent. It says nothing to whom it lets in.
    async fn is_refused(&self, host: Ipv4Addr) -> anyhow::Result<bool> {
        let mut stream = self.signed(host).await?;
        let end = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
        Ok(matches!(end, Ok(Err(_))))
    }

    /// A connection on which the server has its signature.
    async fn signed(&self, host: Ipv4Addr) -> anyhow::Result<BufReader<TcpStream>> {
        let mut stream = BufReader::new(TcpStream::connect((host, 9009)).await?);
        let id = self.jwk["kid"].as_str().context("it has an id")?;
        stream.write_all(format!("{id}\n").as_bytes()).await?;
        let mut challenge = Vec::new();
        tokio::time::timeout(Duration::from_secs(30), stream.read_until(b'\n', &mut challenge)).await??;
        ensure!(challenge.pop() == Some(b'\n'), "it hung up");
        let signature = self.pair.sign(&SystemRandom::new(), &challenge)?;
        stream.write_all(format!("{}\n", STANDARD.encode(signature)).as_bytes()).await?;
        Ok(stream)
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

    // Another key beside it, and then in its place.
    let next = Key::draw("next");
    let both = json!({ "keys": [known.jwk, next.jwk] });
    let keys = given(&database, "keys", "ilp", &json!({ "auth.json": both.to_string() }));
    apply(home, &keys).await.unwrap();
    eventually(ROAD, "a row of the other key", async || {
        next.send(host, "beside price=4.5").await.ok()?;
        database.ask("select count() from beside").await.ok()
    })
    .await;
    known.send(host, "still price=5.5").await.unwrap();
    eventually(ROAD, "a row of the first key", async || database.ask("select count() from still").await.ok())
        .await;
    let keys = given(&database, "keys", "ilp", &json!({ "auth.json": next.jwk.to_string() }));
    apply(home, &keys).await.unwrap();
    // A QuestDB that is being restarted hangs up on everybody.
    eventually(ROAD, "the first key alone to be refused", async || {
        let refused = known.is_refused(host).await.ok()? && !next.is_refused(host).await.ok()?;
        refused.then_some(())
    })
    .await;
    let _ = known.send(host, "late price=6.5").await;
    eventually(ROAD, "a row after it", async || {
        next.send(host, "last price=7.5").await.ok()?;
        database.ask("select count() from last").await.ok()
    })
    .await;
    assert!(database.ask("select count() from late").await.is_err(), "a row of the key that went arrived");

    let namespace = database.namespace.as_str();
    let secrets = [&known, &next].map(|key| key.jwk["d"].as_str().unwrap());
    shown_to_nobody(home, &database, &secrets).await;
    kubectl(home, &["delete", "secret", "keys", "--namespace", namespace]).await.unwrap();
    eventually(ROAD, "the port to be shut", async || {
        database.count().await?;
        TcpStream::connect((host, 9009)).await.is_err().then_some(())
    })
    .await;
    console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
}
