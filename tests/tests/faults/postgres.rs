//! Postgres killed, cut off and silent, and a transaction that does not end.

#![cfg(test)]

use std::time::{Duration, Instant};

use reqwest::Method;
use testkit::{Mode, Server, eventually};

use crate::rig::{NEAR, PATIENCE, Rig, recovered};

/// How long the transaction of somebody else stays open.
const OPEN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_loses_nothing_that_was_accepted() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(21);
    load.goes_on(30).await;
    let postgres = Server::named("postgres");
    postgres.kill().await.unwrap();
    let begun = Instant::now();
    postgres.ready().await;
    let back = begun.elapsed();
    rig.recovery().await;
    recovered("kill -9 of Postgres: answering again", back);
    recovered("kill -9 of Postgres: everything flows again", begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_the_api_says_so_and_comes_back() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(22);
    for mode in [Mode::Cut, Mode::Hold, Mode::Refuse] {
        load.goes_on(15).await;
        rig.postgres.set(mode.clone());
        let what = format!("503 with Retry-After while Postgres is {mode:?}");
        let said = eventually(PATIENCE, &what, async || {
            let request = rig.console.request(Method::GET, "/v1/databases").timeout(Duration::from_secs(20));
            let answer = request.send().await.ok()?;
            (answer.status() == 503).then(|| answer.headers().contains_key("retry-after"))
        })
        .await;
        assert!(said, "a 503 says when to come again");
        rig.postgres.set(Mode::Pass);
        let recovery = rig.recovery().await;
        recovered(&format!("Postgres unreachable ({mode:?})"), recovery);
    }
    assert!(rig.postgres.harmed() > 0, "the fault did not fire");
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_left_open_delays_nobody_else() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let held = rig.create("held", NEAR).await;
    let id = held["database"]["id"].as_str().unwrap().to_owned();
    // Nothing is to be said of it any more: who has something to say of a locked row waits for it, and rightly so.
    let ended = format!("select count(*) from operations where database_id = '{id}' and state = 'succeeded'");
    eventually(PATIENCE, "the database there", async || (rig.ask(&ended).await == "1").then_some(())).await;
    let load = rig.load(23);
    load.goes_on(10).await;
    let statement = format!(
        "begin; update databases set minted_at = minted_at where id = '{id}'; select pg_sleep({}); commit",
        OPEN.as_secs()
    );
    let url = rig.database_url.clone();
    let open = tokio::spawn(async move { testkit::query(&url, &statement).await });
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    eventually(PATIENCE, "the open transaction", async || (rig.ask(waiting).await == "1").then_some(()))
        .await;
    let passed = rig.recovery().await;
    assert_eq!(rig.ask(waiting).await, "1", "the fault was over before others had passed");
    assert!(passed < OPEN, "others waited for the open transaction");
    recovered("a transaction of somebody else left open: others pass", passed);
    open.await.unwrap().unwrap();
    rig.proven(load, &[]).await;
}
