//! Servers that die, change places or forget: what was acknowledged stays, the pool finds the one that takes writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::store::{Batch, Settings, Store, UnclaimedCode};
use domain::{DatabaseId, TenantId};
use testkit::postgres::{Server, Session, url_of};
use testkit::{Mode, Proxy, eventually};

use super::{Try, at, cluster, observation};
use crate::support::{patient, within};

const PATIENCE: Duration = Duration::from_mins(2);
/// How soon writes go on after another server took over.
const RESUMED: Duration = Duration::from_secs(15);

/// Impatient, so that a test sees many tries.
fn settings() -> Settings {
    Settings { acquire: Duration::from_secs(1), connections: 4, ..Settings::default() }
}

impl Try {
    async fn on(url: String) -> Self {
        let store = Store::connect(&url, &settings()).unwrap();
        let tenant: TenantId = "acme".parse().unwrap();
        eventually(PATIENCE, "tables, a tenant and a cluster", async || {
            store.migrate().await.ok()?;
            store.ensure_tenant(&tenant).await.ok()?;
            store.put_cluster(&cluster("eu-west-1")).await.ok()
        })
        .await;
        Self { store, url, tenant }
    }

    /// Creates one of many; its identity if that was acknowledged.
    async fn try_create_named(&self, number: usize) -> Option<DatabaseId> {
        self.try_create(&format!("many-{number}")).await.ok().map(|created| created.id)
    }

    /// Creates one after the other until the server is about to crash and one fails; those that were acknowledged. Before that a busy
    /// machine may be late with some.
    async fn until_it_breaks(&self, worker: usize, breaks: &AtomicBool) -> Vec<DatabaseId> {
        let (mut made, mut tried) = (Vec::new(), worker * 100_000);
        loop {
            match self.try_create_named(tried).await {
                Some(id) => made.push(id),
                None if breaks.load(Ordering::Relaxed) => return made,
                None => {}
            }
            tried += 1;
        }
    }

    /// Creates one where every server takes writes that is asked: on a busy machine a connection may come too late, which
    /// proves nothing.
    async fn create_unrefused(&self, number: usize) {
        let mut late = 0;
        eventually(PATIENCE, "a commit", async || {
            let Err(error) = self.try_create(&format!("unrefused-{number}-{late}")).await else {
                return Some(());
            };
            assert!(error.is_transient(), "{error:?}");
            assert!(!is_read_only(&error), "a connection of the old server is still in use: {error:?}");
            late += 1;
            None
        })
        .await;
    }

    /// Creates until it is acknowledged; says how long that took and how many tries failed.
    async fn go_on(&self, name: &str) -> (DatabaseId, Duration, usize) {
        let (started, mut failed) = (Instant::now(), 0);
        let created = eventually(PATIENCE, "a commit", async || {
            match self.try_create(&format!("{name}-{failed}")).await {
                Ok(created) => Some(created),
                Err(error) => {
                    assert!(error.is_transient(), "{error:?}");
                    failed += 1;
                    None
                }
            }
        });
        (created.await.id, started.elapsed(), failed)
    }
}

/// Whether it was a server that refuses writes.
fn is_read_only(error: &::store::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string().contains("read-only transaction"))
}

async fn has_all(server: &Server, ids: &[DatabaseId]) -> bool {
    let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    let found =
        server.query(&format!("select count(*) from databases where id in ({})", ids.join(","))).await;
    found.unwrap() == ids.len().to_string()
}

/// Connections of the product.
const CONNECTIONS: &str = "select count(*) from pg_stat_activity where application_name = 'slipway'";

/// The same, to a server.
async fn connections(server: &Server) -> String {
    server.query(CONNECTIONS).await.unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_survives_the_primary() {
    within(RESUMED, writes_after_a_crash).await;
}

/// How long it takes until writes go on.
async fn writes_after_a_crash() -> Duration {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    old.require_standby().await.unwrap();
    let scene = Try::on(url_of(&[&old, &new])).await;
    let mut kept = Vec::new();
    for number in 0..20 {
        kept.push(scene.go_on(&format!("before-{number}")).await.0);
    }
    // The crash comes while others commit.
    let breaks = AtomicBool::new(false);
    let storm = futures::future::join_all((1..=4).map(|worker| scene.until_it_breaks(worker, &breaks)));
    let crash = async {
        let under_way = "select count(*) > 60 from databases";
        old.wait_for("t", under_way).await;
        breaks.store(true, Ordering::Relaxed);
        old.stop("immediate").await
    };
    let (stormed, stopped) = tokio::join!(storm, crash);
    stopped.unwrap();
    kept.extend(stormed.into_iter().flatten());
    assert!(kept.len() > 50, "the crash came in the middle: {}", kept.len());
    assert!(scene.try_create("meanwhile").await.is_err(), "nobody takes writes");
    new.promote().await.unwrap();
    let (id, took, _) = scene.go_on("after").await;
    eprintln!("writes went on {took:?} after the promotion");
    kept.push(id);
    assert!(has_all(&new, &kept).await, "an acknowledged commit is gone");
    // The old primary wakes as if nothing had happened.
    old.start().await.unwrap();
    for number in 0..10 {
        kept.push(scene.go_on(&format!("later-{number}")).await.0);
    }
    assert!(has_all(&new, &kept).await);
    assert_eq!(connections(&old).await, "0", "nobody goes back to an older timeline");
    let fresh = Store::connect(&scene.url, &settings()).unwrap();
    let scene = Try { store: fresh, ..scene };
    eventually(PATIENCE, "a fresh pool finds the newer of two primaries", async || {
        scene.store.clusters().await.ok()?;
        (connections(&old).await == "0").then_some(())
    })
    .await;
    took
}

#[tokio::test]
async fn a_server_that_refuses_writes_is_left() {
    within(RESUMED, writes_after_a_refusal).await;
}

/// The same where the old server stays up.
async fn writes_after_a_refusal() -> Duration {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let scene = Try::on(url_of(&[&old, &new])).await;
    eventually(PATIENCE, "connections of the old one", async || {
        futures::future::join_all((0..4).map(|number| scene.try_create_named(number))).await;
        (connections(&old).await != "0").then_some(())
    })
    .await;
    // Planned: the old one refuses writes first, so that nothing is lost; it stays up.
    old.refuse_writes(true).await.unwrap();
    old.followed_by(&new).await.unwrap();
    new.promote().await.unwrap();
    let (_, took, _) = scene.go_on("after").await;
    eprintln!("writes went on {took:?} after the change");
    for round in 0..5 {
        let all = (0..8).map(|number| scene.create_unrefused(round * 8 + number));
        futures::future::join_all(all).await;
    }
    old.wait_for("0", CONNECTIONS).await;
    took
}

/// Whoever started later would find the newer one: two processes of ours would write to two servers.
#[tokio::test]
async fn a_primary_that_goes_on_beside_a_newer_one_is_left() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let scene = Try::on(url_of(&[&old, &new])).await;
    scene.go_on("before").await;
    old.followed_by(&new).await.unwrap();
    // Whoever promotes it does not reach the old one, which goes on as if nothing had happened.
    new.promote().await.unwrap();
    // Nobody is there for a moment either while a connection that came too late is made again.
    eventually(PATIENCE, "nobody at the older of two primaries", async || {
        scene.store.clusters().await.ok()?;
        (connections(&old).await == "0" && connections(&new).await != "0").then_some(())
    })
    .await;
    let (id, ..) = scene.go_on("after").await;
    assert!(has_all(&new, &[id]).await);
}

/// Of two pools of a program one may not reach the newer server, and would write to the older one for ever.
#[tokio::test]
async fn a_primary_that_another_pool_knows_to_be_old_is_left() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let one = Try::on(url_of(&[&old, &new])).await;
    let straight = new.url();
    let (_, host) = straight.rsplit_once('@').unwrap();
    let proxy = Proxy::to(host.split_once('/').unwrap().0.parse().unwrap()).await.unwrap();
    proxy.set(Mode::Refuse);
    let first = old.url();
    let (before, name) = first.rsplit_once('/').unwrap();
    let url = format!("{before},{}/{name}", proxy.address());
    let other = Try { store: one.store.beside(&url, &settings()).unwrap(), url, tenant: one.tenant.clone() };
    other.go_on("before").await;
    old.followed_by(&new).await.unwrap();
    new.promote().await.unwrap();
    let mut number = 0;
    eventually(PATIENCE, "nobody at the older of two primaries", async || {
        number += 1;
        one.store.clusters().await.ok()?;
        let refused = other.try_create(&format!("left-{number}")).await.is_err();
        (refused && connections(&old).await == "0").then_some(())
    })
    .await;
}

/// Who uses the chosen server learns of its end no later because another one answers slowly, or not at all.
#[tokio::test]
async fn the_chosen_server_is_asked_while_another_is_slow_to_answer() {
    let server = Server::primary().await.unwrap();
    let straight = Try::on(server.url()).await.url;
    let (login, host) = straight.rsplit_once('@').unwrap();
    let (address, name) = host.split_once('/').unwrap();
    let proxy = Proxy::to(address.parse().unwrap()).await.unwrap();
    proxy.set(Mode::Slow(Duration::from_millis(200)));
    let url = format!("{login}@{address},{}/{name}", proxy.address());
    let store = Store::connect(&url, &settings()).unwrap();
    eventually(PATIENCE, "a connection", async || store.clusters().await.ok()).await;
    // How many are being asked, and since when the one that was chosen first is not.
    let watched = "select count(*), extract(epoch from clock_timestamp() - min(state_change)) \
                   from pg_stat_activity where application_name = 'slipway watch'";
    let (mut were, mut rounds, mut longest) = (0, Vec::new(), 0.0_f64);
    // A machine that stands still for a moment does so in one of them.
    let soon = |rounds: &[f64]| rounds.iter().any(|longest| *longest < 1.4);
    eventually(PATIENCE, "the other one asked some times", async || {
        let answer = server.query(watched).await.ok()?;
        let (count, since) = answer.split_once('|')?;
        let count: u32 = count.parse().ok()?;
        longest = longest.max(since.parse().ok()?);
        if were == 2 && count == 1 {
            rounds.push(std::mem::take(&mut longest));
        }
        were = count;
        (soon(&rounds) || rounds.len() == 8).then_some(())
    })
    .await;
    assert!(soon(&rounds), "the chosen one was not asked for {rounds:?} s");
}

#[tokio::test]
async fn behind_one_address_connections_that_became_read_only_are_closed() {
    let server = Server::primary().await.unwrap();
    let scene = Try::on(server.url()).await;
    let settings = Settings { connections: 1, application: "single".to_owned(), ..settings() };
    let scene = Try { store: Store::connect(&scene.url, &settings).unwrap(), ..scene };
    scene.go_on("before").await;
    let before = server
        .query("select string_agg(pid::text, ',') from pg_stat_activity where application_name = 'single'")
        .await
        .unwrap();
    server.refuse_writes(true).await.unwrap();
    let error = scene.try_create("refused").await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    // As when the name leads to the new primary: the same connections would still be the old server's.
    server.refuse_writes(false).await.unwrap();
    scene.go_on("after").await;
    let left = format!("select count(*) from pg_stat_activity where pid in ({before})");
    // Given out again, a connection that refused writes would be there for good.
    server.wait_for("0", &left).await;
}

#[tokio::test]
async fn an_acknowledgement_never_outruns_the_standby() {
    let primary = Server::primary().await.unwrap();
    let standby = primary.standby().await.unwrap();
    primary.require_standby().await.unwrap();
    let scene = Try::on(primary.url()).await;
    let settings = Settings { statement: Duration::from_millis(300), ..settings() };
    let scene = Try { store: Store::connect(&scene.url, &settings).unwrap(), ..scene };
    scene.go_on("before").await;
    standby.stop("fast").await.unwrap();
    // The server waits for the standby without an end, whatever the patience of a statement.
    let limit = settings.statement * 8;
    let acknowledged = tokio::time::timeout(limit, scene.try_create("alone")).await;
    assert!(!matches!(acknowledged, Ok(Ok(_))), "acknowledged without the standby");
    standby.start().await.unwrap();
    let (id, ..) = scene.go_on("together").await;
    primary.stop("immediate").await.unwrap();
    standby.promote().await.unwrap();
    assert!(has_all(&standby, &[id]).await, "an acknowledged commit is gone");
}

#[tokio::test]
async fn commits_that_an_asynchronous_standby_lost_show_as_positions_ahead() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let scene = Try::on(url_of(&[&old, &new])).await;
    let scene = Try { store: Store::connect(&scene.url, &patient()).unwrap(), ..scene };
    let created = scene.create("trades").await;
    old.followed_by(&new).await.unwrap();
    new.stop("fast").await.unwrap();
    let lost = scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    assert_eq!(lost.position, at(2));
    assert_eq!(scene.store.mark(&[(created.id, at(2))]).await.unwrap().len(), 1, "its cluster has it");
    old.stop("immediate").await.unwrap();
    new.start().await.unwrap();
    new.promote().await.unwrap();
    let database = eventually(PATIENCE, "the database on the new server", async || {
        scene.store.database(None, created.id).await.ok().flatten()
    })
    .await
    .database;
    assert_eq!(database.position, at(1), "the change is lost");
    assert_eq!(scene.store.mark(&[(created.id, at(2))]).await.unwrap().len(), 0);
    let ahead = observation(created.id, at(2));
    let batch = Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        observations: vec![ahead],
        ..Batch::default()
    };
    let report = scene.store.absorb(&batch).await.unwrap();
    let codes: Vec<UnclaimedCode> = report.unclaimed.iter().map(|(_, _, code)| *code).collect();
    assert!(matches!(codes[..], [UnclaimedCode::Ahead]), "{codes:?}");
}

#[tokio::test]
async fn a_server_that_falls_silent_keeps_no_place_in_the_pool() {
    let server = Server::primary().await.unwrap();
    let straight = Try::on(server.url()).await.url;
    let (login, host) = straight.rsplit_once('@').unwrap();
    let (address, name) = host.split_once('/').unwrap();
    let proxy = Proxy::to(address.parse().unwrap()).await.unwrap();
    // There only once the first way is silent: on a busy machine one whose answer is late for a moment is left for the
    // other.
    let other = Proxy::to(address.parse().unwrap()).await.unwrap();
    other.set(Mode::Refuse);
    let url = format!("{login}@{},{}/{name}", proxy.address(), other.address());
    let store =
        Store::connect(&url, &Settings { application: "one".to_owned(), connections: 1, ..settings() })
            .unwrap();
    eventually(PATIENCE, "a connection", async || store.clusters().await.ok()).await;
    let mut lock = Session::open(&straight).await.unwrap();
    lock.run("begin; lock table clusters in access exclusive mode").await.unwrap();
    let asking = store.clone();
    // Again where it was given up for lack of a connection or of the lock.
    let asked = tokio::spawn(async move {
        while asking.clusters().await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    let waits =
        "select count(*) from pg_stat_activity where application_name = 'one' and wait_event_type = 'Lock'";
    server.wait_for("1", waits).await;
    // Given up in the middle, the connection would wait for an answer that is never heard, in the only place there is.
    proxy.set(Mode::Hold);
    other.set(Mode::Pass);
    asked.abort();
    lock.run("rollback").await.unwrap();
    eventually(PATIENCE, "a connection by the other way", async || store.clusters().await.ok()).await;
    assert!(proxy.harmed() > 0, "the fault did not fire");
}
