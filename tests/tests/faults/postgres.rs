//! Postgres killed, cut off, silent and stopped, and a transaction that does not end.

#![cfg(test)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use testkit::postgres::{self, Session};
use testkit::{Mode, Server, Spawned, Stopwatch, eventually, handlings, how_long, unique};

use crate::recoveries::{self, recovered};
use crate::rig::{Ground, NEAR, PARTITIONS, PATIENCE, Rig};

/// How long Postgres is stopped; usually until it was seen what becomes of that.
const STOPPED_AT_FULL_LENGTH: Duration = Duration::from_mins(5);
/// How long the transaction of somebody else stays open. Others take less.
const OPEN: Duration = Duration::from_secs(10);
const OPEN_AT_FULL_LENGTH: Duration = Duration::from_mins(1);
/// Patience with one answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Pause between two questions while Postgres is away for long.
const PAUSE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_loses_nothing_that_was_accepted() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(21);
    load.goes_on(30).await;
    let postgres = Server::named("postgres");
    let before = rig.postgres.lost();
    postgres.kill().await.unwrap();
    let begun = Stopwatch::start();
    postgres.ready().await;
    let (starts, back) = (begun.elapsed(), Stopwatch::start());
    rig.recovery().await;
    assert!(rig.postgres.lost() > before, "the fault did not fire: nobody lost a connection");
    recovered(recoveries::POSTGRES_STARTS, starts);
    recovered(recoveries::POSTGRES_KILLED, back.elapsed());
    rig.proven(load, &[]).await;
}

/// What is done to Postgres, or to the way to it.
#[derive(Debug, Clone, Copy)]
enum Away {
    /// Connections are cut, new ones too.
    Cut,
    /// It takes connections and says nothing.
    Silent,
    /// It is stopped as by a crash.
    Stopped,
}

impl Rig {
    /// Takes Postgres away for so long, or until that is noticed; from then on the API says all the time that it cannot, and when to
    /// come again.
    async fn without_postgres(&self, server: &postgres::Server, away: Away, time: Duration) {
        let begun = Instant::now();
        match away {
            Away::Cut => self.postgres.set(Mode::Cut),
            Away::Silent => self.postgres.set(Mode::Hold),
            Away::Stopped => server.stop("immediate").await.unwrap(),
        }
        let what = format!("503 while Postgres is {away:?}");
        let said = eventually(PATIENCE, &what, async || {
            let (status, when) = self.ask_api(Method::GET).await.ok()?;
            (status == 503).then_some(when)
        })
        .await;
        assert!(said, "a 503 says when to come again");
        let mut asked = 0;
        while begun.elapsed() < time {
            for method in [Method::GET, Method::POST] {
                let answer = self.ask_api(method.clone()).await.unwrap();
                let told = format!("{method} when Postgres was {away:?} for {:?}", begun.elapsed());
                assert_eq!(answer, (503, true), "{told}");
            }
            asked += 2;
            testkit::lasting(PAUSE).await;
        }
        println!("Postgres {away:?} for {:?}: {asked} more questions answered so", begun.elapsed());
    }

    /// Status of the API's answer about databases, and whether it says when to come again.
    async fn ask_api(&self, method: Method) -> reqwest::Result<(u16, bool)> {
        let request = self.console.request(method, "/v1/databases").header("Idempotency-Key", unique("key"));
        let request = request.json(&json!({"name": unique("db"), "region": NEAR})).timeout(ANSWER);
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.headers().contains_key("retry-after")))
    }

    /// How many records of gossip there are.
    async fn gossip_said(&self) -> i64 {
        let admin = bus::Admin::new(&self.connection).unwrap();
        let mut said = 0;
        for partition in 0..PARTITIONS {
            said += admin.end_offset(&self.gossip, partition, ANSWER).await.unwrap();
        }
        said
    }

    /// A change of a database that is published, and that nobody reads before the provisioner goes on.
    async fn published_and_unread(&self, provisioner: &mut Spawned, id: &str) {
        provisioner.halt().await.unwrap();
        self.grow(id, 1).await;
        let waits = format!("select unpublished from databases where id = '{id}'");
        eventually(PATIENCE, "a change published", async || (self.ask(&waits).await == "f").then_some(()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_the_api_says_so_and_comes_back() {
    let lasts = how_long(Duration::ZERO, STOPPED_AT_FULL_LENGTH);
    let server = postgres::Server::primary().await.unwrap();
    let rig = Rig::on(Ground { postgres: Some(server.url()), ..Ground::default() }).await;
    let (mut backend, mut provisioner) = (rig.backend().await, rig.provisioner().await);
    let id = rig.victim(NEAR).await;
    let load = rig.load_during(lasts, 22);
    let ways = [(Away::Cut, recoveries::POSTGRES_CUT), (Away::Silent, recoveries::POSTGRES_SILENT)];
    for (away, recovery) in ways {
        load.goes_on(15).await;
        let before = rig.postgres.harmed();
        rig.without_postgres(&server, away, Duration::ZERO).await;
        assert!(rig.postgres.harmed() > before, "the fault did not fire: nobody met {away:?}");
        rig.postgres.set(Mode::Pass);
        recovered(recovery, rig.recovery().await);
    }

    load.goes_on(15).await;
    rig.published_and_unread(&mut provisioner, &id).await;
    let said = rig.gossip_said().await;
    let outage = rig.without_postgres(&server, Away::Stopped, lasts);
    let meanwhile = async {
        // So that what is carried out now is carried out without Postgres.
        eventually(PATIENCE, "Postgres stopped", async || {
            server.query("select 1").await.is_err().then_some(())
        })
        .await;
        provisioner.resume().await.unwrap();
        let applied = async || rig.watched.reached(&id, (1, 2));
        eventually(PATIENCE, "what Kafka had, applied without Postgres", applied).await;
        let told = async || (rig.gossip_said().await > said).then_some(());
        eventually(PATIENCE, "gossip that is kept in Kafka", told).await;
    };
    tokio::join!(outage, meanwhile);
    server.start().await.unwrap();
    recovered(recoveries::POSTGRES_STOPPED, rig.recovery().await);
    rig.proven(load, &[]).await;
    backend.lives().unwrap();
    provisioner.lives().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_left_open_delays_nobody_else() {
    let rig = Rig::new().await;
    let (_backend, provisioner) = (rig.backend().await, rig.provisioner().await);
    // Nothing is to be said of it any more: who has something to say of a locked row waits for it, and rightly so.
    let id = rig.victim(NEAR).await;
    let lasts = how_long(OPEN, OPEN_AT_FULL_LENGTH);
    let load = rig.load_during(lasts, 23);
    load.goes_on(10).await;
    // It writes into a row what makes it wait to be published, and what nobody sees before all that is written meanwhile.
    let mut open = Session::open(&rig.database_url).await.unwrap();
    let write = format!(
        "begin; update databases set published_epoch = 0, published_seq = 0, resent_at = clock_timestamp(), \
         resends = resends + 1 where id = '{id}'; \
         select unpublished from databases where id = '{id}'"
    );
    assert_eq!(open.run(&write).await.unwrap(), "t");
    let begun = Instant::now();
    let (mut slowest, mut rounds) = (Duration::ZERO, 0);
    while rounds == 0 || begun.elapsed() < lasts {
        let passed = rig.recovery().await;
        let is_open = open.run("select pg_current_xact_id_if_assigned() is not null").await.unwrap();
        assert_eq!(is_open, "t", "the fault was over before others had passed");
        assert!(passed < OPEN, "others waited for the open transaction: {passed:?}");
        slowest = slowest.max(passed);
        load.goes_on(20).await;
        rounds += 1;
    }
    assert!(begun.elapsed() >= lasts, "it was open for {:?} only", begun.elapsed());
    open.run("commit").await.unwrap();
    println!("others passed {rounds} times in {:?}, the slowest within {slowest:?}", begun.elapsed());
    recovered(recoveries::LEFT_OPEN, slowest);
    rig.proven(load, &[]).await;
    // A provisioner whose partitions move may have one record in its hands twice.
    let places: BTreeSet<_> = handlings(&provisioner.log()).of(&id).iter().map(|one| one.place).collect();
    assert_eq!(places.len(), 2, "what was written first and seen last was skipped");
}
