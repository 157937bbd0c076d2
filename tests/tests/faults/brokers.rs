//! Brokers of the test's own: too few copies of what is written, rights taken away, passwords that hold no more.

#![cfg(test)]

use std::time::Duration;

use bus::Connection;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::kafka::Broker;
use testkit::{Spawned, Stopwatch, eventually, unique};

use crate::recoveries::{self, recovered};
use crate::rig::{Ground, NEAR, PATIENCE, Rig};

/// Changes that may wait for Kafka before the API refuses further ones.
const BOUND: i64 = 25;

impl Rig {
    /// A rig whose topics have a copy on each of two brokers.
    pub(crate) async fn on_two(first: &Broker) -> Self {
        let connection = Connection::new(first.bootstrap(), "test");
        both_are_there(&connection).await;
        Self::on(Ground { kafka: Some((connection, 2)), ..Ground::default() }).await
    }

    async fn waiting(&self) -> i64 {
        self.ask("select count(*) from databases where unpublished").await.parse().unwrap()
    }

    /// Asks for databases until the API refuses one because of what waits; its answer. Any other refusal passes, such
    /// as one while Postgres stands still.
    async fn refusal(&self) -> (u16, Option<String>, Value) {
        eventually(PATIENCE, "a refusal", async || {
            let body = json!({"name": unique("pressing"), "region": NEAR});
            let request = self.console.request(Method::POST, "/v1/databases").json(&body);
            let answer = request.header("Idempotency-Key", unique("key")).send().await.ok()?;
            let status = answer.status().as_u16();
            let after = answer.headers().get("retry-after").map(|text| text.to_str().unwrap().to_owned());
            let body: Value = answer.json().await.ok()?;
            (body["code"] == "backlog").then_some((status, after, body))
        })
        .await
    }

    /// The API goes on, up to its bound; then it says when to come again.
    async fn refuses_beyond_the_bound(&self) {
        let (status, after, body) = self.refusal().await;
        assert_eq!(status, 503, "{body}");
        assert!(after.is_some(), "a 503 says when to come again");
        let waiting = self.waiting().await;
        assert!(waiting > BOUND, "the fault did not fire: {waiting} changes wait");
    }
}

/// Waits until a pair of brokers takes a topic that has a copy on each.
async fn both_are_there(connection: &Connection) {
    let brokers = bus::Admin::new(connection).unwrap();
    eventually(PATIENCE, "both brokers", async || {
        let copied = [bus::TopicSettings::new("on-both", 1, 2)];
        brokers.ensure_topics(&copied, Duration::from_secs(10)).await.ok()
    })
    .await;
}

/// Waits until a program says that it is not ready, and why.
async fn until_ill(program: &Spawned, why: &str) {
    let not_ready = async || (!program.is_ready().await).then_some(());
    eventually(PATIENCE, "a program that says it is not ready", not_ready).await;
    let told = async || program.log().contains(why).then_some(());
    eventually(PATIENCE, "a program that says why", told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_copies_hold_changes_back_and_lose_none() {
    let (first, mut second) = Broker::pair().await.unwrap();
    let rig = Rig::on_two(&first).await;
    let bound = BOUND.to_string();
    let backend = rig.backend_with("api,relay,sink", &["--backlog-databases", &bound]).await;
    let _provisioner = rig.provisioner().await;
    let load = rig.load(101);
    load.goes_on(20).await;
    second.kill().await.unwrap();
    load.goes_on(10).await;
    rig.refuses_beyond_the_bound().await;
    let shown = async || (backend.metric("outbox_pending", "").await > 0.0).then_some(());
    eventually(PATIENCE, "the backlog as a metric", shown).await;

    second.start().await.unwrap();
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::TOO_FEW_COPIES, begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disks_of_the_brokers_hold_changes_back_and_lose_none() {
    let (mut first, mut second) = Broker::pair().await.unwrap();
    let rig = Rig::on_two(&first).await;
    let bound = BOUND.to_string();
    let mut backend = rig.backend_with("api,relay,sink", &["--backlog-databases", &bound]).await;
    let mut provisioner = rig.provisioner().await;
    let load = rig.load(105);
    load.goes_on(20).await;
    // While something is written: that no file can grow ends a broker at its next record.
    let (one, other) = tokio::join!(first.fill_disk(), second.fill_disk());
    one.and(other).unwrap();
    rig.refuses_beyond_the_bound().await;
    backend.lives().unwrap();
    provisioner.lives().unwrap();

    tokio::try_join!(first.start(), second.start()).unwrap();
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::DISKS_FULL, begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_are_told_and_waited_for() {
    let (first, _second) = Broker::pair().await.unwrap();
    let rig = Rig::on_two(&first).await;
    let mut backend = rig.backend().await;
    let mut provisioner = rig.provisioner().await;
    let load = rig.load(102);
    load.goes_on(20).await;
    let nobody = ["--deny-principal", "User:ANONYMOUS", "--operation", "All"];
    let topics = ["--topic", &rig.instructions, "--topic", &rig.gossip];
    first.rights(&[&["--add"][..], &nobody, &topics].concat()).await.unwrap();
    // What is asked for is accepted and waits; nobody dies, and everybody says why nothing goes on.
    load.goes_on(20).await;
    for program in [&backend, &provisioner] {
        until_ill(program, "TopicAuthorizationFailed").await;
    }
    assert!(rig.waiting().await > 0, "the fault did not fire: everything was published");
    backend.lives().unwrap();
    provisioner.lives().unwrap();
    first.rights(&[&["--remove"][..], &nobody, &topics].concat()).await.unwrap();
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::RIGHTS_TAKEN, begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_holds_no_more_is_told_and_the_next_is_read_without_a_restart() {
    let broker = Broker::locked().await.unwrap();
    broker.password("slipway", "swordfish-1").await.unwrap();
    let file = broker.login("slipway", "swordfish-1").unwrap();
    let connection = Connection { file: Some(file), ..Connection::new(broker.bootstrap(), "test") };
    let rig = Rig::on(Ground { kafka: Some((connection, 1)), ..Ground::default() }).await;
    let mut backend = rig.backend().await;
    let mut provisioner = rig.provisioner().await;
    let load = rig.load(103);
    load.goes_on(20).await;
    broker.password("slipway", "swordfish-2").await.unwrap();
    // What is asked for is accepted and waits; nobody dies, and everybody says why nothing goes on.
    load.goes_on(20).await;
    for program in [&backend, &provisioner] {
        until_ill(program, "Kafka refuses the connection").await;
        assert!(!program.log().contains("swordfish"), "a log holds a password");
    }
    assert!(rig.waiting().await > 0, "the fault did not fire: everything was published");
    backend.lives().unwrap();
    provisioner.lives().unwrap();
    broker.login("slipway", "swordfish-2").unwrap();
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::PASSWORD_ENDED, begun.elapsed());
    rig.proven(load, &[]).await;
}

/// Logins that hold as long as their connections: the broker that starts again refuses the old password, and no other does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_one_broker_refuses_is_read_again() {
    let (first, mut second) = Broker::locked_pair().await.unwrap();
    // While both brokers find each other, a tool of Kafka may wait for ever.
    eventually(PATIENCE, "a password", async || first.password("slipway", "swordfish-1").await.ok()).await;
    let file = first.login("slipway", "swordfish-1").unwrap();
    let connection = Connection { file: Some(file), ..Connection::new(first.bootstrap(), "test") };
    both_are_there(&connection).await;
    let rig = Rig::on(Ground { kafka: Some((connection, 1)), ..Ground::default() }).await;
    let mut backend = rig.backend().await;
    let mut provisioner = rig.provisioner().await;
    let load = rig.load(104);
    load.goes_on(20).await;
    first.password("slipway", "swordfish-2").await.unwrap();
    first.login("slipway", "swordfish-2").unwrap();
    second.kill().await.unwrap();
    second.start().await.unwrap();
    let begun = Stopwatch::start();
    for program in [&backend, &provisioner] {
        let told = async || program.log().contains("Kafka refuses the connection").then_some(());
        eventually(PATIENCE, "a program that a broker refuses", told).await;
    }
    rig.recovery().await;
    recovered(recoveries::PASSWORD_REFUSED, begun.elapsed());
    backend.lives().unwrap();
    provisioner.lives().unwrap();
    rig.proven(load, &[]).await;
}
