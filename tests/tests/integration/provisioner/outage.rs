//! Postgres away: what needs no parking goes on; what does is held, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use domain::Position;
use testkit::postgres::Session;
use testkit::{Mode, eventually};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use wire::OutcomeKind;

use super::rig::{PATIENCE, Rig, Running};

/// Passes connections on while it is whole; cut, it ends them all and takes no new ones.
struct Proxy {
    whole: watch::Sender<bool>,
    port: u16,
}

impl Proxy {
    fn to(port: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let proxy = Self { whole: watch::Sender::new(true), port: listener.local_addr().unwrap().port() };
        let whole = proxy.whole.subscribe();
        tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(pass(inner, port, whole.clone()));
            }
        });
        proxy
    }
}

async fn pass(mut inner: TcpStream, port: u16, mut whole: watch::Receiver<bool>) {
    if !*whole.borrow() {
        return;
    }
    let Ok(mut outer) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut inner, &mut outer) => {}
        _ = whole.wait_for(|whole| !whole) => {}
    }
}

async fn postgres_is(running: &Running, ready: bool) {
    let what = format!("readiness {ready}");
    eventually(PATIENCE, &what, async || {
        let report = running.health.readiness.report();
        let postgres = report.get("postgres")?;
        ((postgres.state == runtime::health::State::Ok) == ready).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_applying_goes_on_and_parking_waits() {
    let mut proxy = None;
    let rig = Arc::new(Rig::with_database_at(|port| proxy.insert(Proxy::to(port)).port).await);
    let proxy = proxy.unwrap();
    let running = rig.start(&["--call-timeout", "1"]);
    let first = rig.instruction(1);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Applied).await;
    // It was parked before if it was not done in time, and is told as applied before that is forgotten.
    rig.count("select count(*) from parked_instructions", "0").await;
    proxy.whole.send_replace(false);
    postgres_is(&running, false).await;
    let mut second = first.clone();
    second.position = Position { epoch: 1, seq: 2 };
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    rig.credentials_of_nobody();
    eventually(PATIENCE, "the cluster to be away", async || {
        let report = running.health.readiness.report();
        let cluster = report.get("cluster/bare")?;
        (cluster.state != runtime::health::State::Ok).then_some(())
    })
    .await;
    let mut third = first.clone();
    third.position = Position { epoch: 1, seq: 3 };
    rig.publish(&third).await;
    eventually(PATIENCE, "the third to be held", async || {
        let metrics = running.metrics.encode().unwrap();
        metrics.contains("disposition=\"held_park\"").then_some(())
    })
    .await;
    rig.publish_bytes("poison", vec![1, 2, 3]).await;
    assert_eq!(
        testkit::query(&rig.database_url, "select count(*) from parked_instructions").await.unwrap(),
        "0"
    );
    proxy.whole.send_replace(true);
    postgres_is(&running, true).await;
    rig.outcome(&third, OutcomeKind::Parked).await;
    rig.count("select code from dead_letters", "undecodable").await;
    rig.good_credentials();
    rig.outcome(&third, OutcomeKind::Applied).await;
    rig.resource(&first, 3).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    tokio::time::timeout(Duration::from_secs(30), running.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_falls_silent_while_it_is_asked_holds_no_record_for_ever() {
    let rig = Rig::new().await;
    let proxy = testkit::Proxy::to(rig.database_address()).await.unwrap();
    // There only once the first way is silent: on a busy machine one whose answer is late for a moment is left for the
    // other.
    let other = testkit::Proxy::to(rig.database_address()).await.unwrap();
    other.set(Mode::Refuse);
    let rig = Arc::new(rig.by_way_of([proxy.address(), other.address()]));
    rig.credentials_of_nobody();
    let running = rig.start(&["--call-timeout", "1"]);
    postgres_is(&running, true).await;
    let mut lock = Session::open(&rig.database_url).await.unwrap();
    lock.run("begin; lock table parked_instructions in exclusive mode").await.unwrap();
    let wanted = rig.instruction(1);
    rig.publish(&wanted).await;
    let parking = "select count(*) > 0 from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock' and query like 'insert into parked_instructions%'";
    rig.count(parking, "t").await;
    // What Postgres says now is never heard, and the connection lives on.
    proxy.set(Mode::Hold);
    other.set(Mode::Pass);
    lock.run("rollback").await.unwrap();
    rig.outcome(&wanted, OutcomeKind::Parked).await;
    rig.good_credentials();
    rig.outcome(&wanted, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    assert!(proxy.harmed() > 0, "the fault did not fire");
    tokio::time::timeout(Duration::from_secs(30), running.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_the_schema_has_outgrown_does_not_start() {
    let rig = Rig::new().await;
    let grown =
        ::store::Schema::shipped().and(901, "nickname", "alter table tenants add column nickname text;").and(
            902,
            "no nickname",
            "-- contract: needs schema >= 901\nalter table tenants drop column nickname;",
        );
    rig.store.migrate_to(&grown).await.unwrap();
    let wanted = rig.instruction(1);
    rig.publish(&wanted).await;
    let mut old = rig.start_process();
    let ended = tokio::time::timeout(PATIENCE, old.wait()).await.expect("it ends").unwrap();
    assert!(!ended.success(), "{ended}");
    let log = std::fs::read_to_string(rig.credentials.join("log")).unwrap();
    assert!(log.contains("asks for programs that know schema 901"), "{log}");
    assert!(rig.heard.about(wanted.database).is_empty(), "it did something first");
    rig.count("select count(*) from programs", "0").await;
}
