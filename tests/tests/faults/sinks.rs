//! Sinks that die or stand still inside the transaction of a batch, at its commit, right after it; and a relay that dies
//! between Kafka's word and its own mark.

#![cfg(test)]

use std::time::{Duration, Instant};

use backend::relay::SENT;
use backend::sink::STORED;
use testkit::postgres::Session;
use testkit::{Failpoint, Spawned, Stopwatch, eventually};

use crate::recoveries::{self, recovered};
use crate::rig::{NEAR, PATIENCE, Rig};

/// How long a halted sink is away: longer than its session of six seconds.
const ASLEEP: Duration = Duration::from_secs(9);
/// Connections of the product in this state.
const CONNECTIONS: &str = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'slipway-backend' and ";
/// Those of the sink that wait for somebody inside their transaction: they have moved an offset, or are about to.
const INSIDE: &str = "wait_event_type = 'Lock' and exists (select from pg_locks l where l.pid = pg_stat_activity.pid \
     and l.granted and l.relation = 'consumer_offsets'::regclass)";
/// Those whose commit is under way.
const COMMITTING: &str = "wait_event = 'advisory' and query ilike 'commit%'";
/// Those that hold what they wrote, and do nothing.
const STANDING: &str = "state = 'idle in transaction'";

/// At its very end each commit of events that a sink has written waits, once: for a lock, or for a while.
const AT_THE_COMMIT: &str = "create function at_the_commit() returns trigger language plpgsql as $function$ begin \
     if coalesce(current_setting('test.waited', true), '') = '' then \
     perform set_config('test.waited', 'yes', true); perform $what; end if; return null; end $function$; \
     create constraint trigger at_the_commit after insert on operation_events deferrable initially deferred \
     for each row when (new.number > 1) execute function at_the_commit()";
/// The lock.
const LOCK: &str = "pg_advisory_xact_lock_shared(74)";

impl Rig {
    /// Waits until the product has a connection like this.
    async fn some(&self, like: &str) {
        let statement = format!("{CONNECTIONS}{like}");
        eventually(PATIENCE, like, async || (self.ask(&statement).await != "0").then_some(())).await;
    }

    /// Waits until it has none.
    async fn none(&self, like: &str) {
        let statement = format!("{CONNECTIONS}{like}");
        eventually(PATIENCE, like, async || (self.ask(&statement).await == "0").then_some(())).await;
    }

    /// Where the sink stands, all partitions together.
    async fn taken_in(&self) -> i64 {
        self.ask("select coalesce(sum(next_offset), 0) from consumer_offsets").await.parse().unwrap()
    }

    /// Everything of the backend but the sink.
    async fn without_sink(&self) -> Spawned {
        self.backend_with("api,relay", &[]).await
    }

    /// Lets a sink come to a place inside its transaction where it has written something and cannot go on. Whoever wants
    /// it to goes on ends the session.
    async fn inside(&self) -> Session {
        let mut session = Session::open(&self.database_url).await.unwrap();
        session.run("begin; lock table operation_events in share mode").await.unwrap();
        self.some(INSIDE).await;
        session
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_dies_inside_its_transaction_leaves_nothing_of_it() {
    let rig = Rig::new().await;
    let _programs = (rig.without_sink().await, rig.provisioner().await);
    let dying = rig.second_backend("sink").await;
    let (load, readers) = rig.followed(81);
    load.goes_on(30).await;
    let session = rig.inside().await;
    dying.kill().await.unwrap();
    let before = rig.taken_in().await;
    drop(session);
    rig.none(INSIDE).await;
    rig.none(STANDING).await;
    assert_eq!(rig.taken_in().await, before, "half a transaction lasts");
    let begun = Stopwatch::start();
    let _heir = rig.second_backend("sink").await;
    rig.recovery().await;
    recovered(recoveries::SINK_DIED_INSIDE, begun.elapsed());
    let (_, settled) = rig.proven(load, &[]).await;
    let (streams, resumed) = readers.check(&rig.database_url, PATIENCE).await.unwrap();
    println!("settled after {settled:?}; {streams} streams showed each event once, {resumed} resumptions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_dies_after_its_commit_has_no_effect_twice() {
    let rig = Rig::new().await;
    let _programs = (rig.without_sink().await, rig.provisioner().await);
    let (load, readers) = rig.followed(82);
    // First while its commit is under way: it lasts, although nobody hears of it.
    let first = rig.second_backend("sink").await;
    load.goes_on(15).await;
    let mut session = Session::open(&rig.database_url).await.unwrap();
    session.run(&AT_THE_COMMIT.replace("$what", LOCK)).await.unwrap();
    session.run("select pg_advisory_lock(74)").await.unwrap();
    rig.some(COMMITTING).await;
    first.kill().await.unwrap();
    let before = rig.taken_in().await;
    drop(session);
    rig.none(COMMITTING).await;
    assert!(rig.taken_in().await > before, "the fault did not fire: no commit was under way");
    testkit::query(&rig.database_url, "drop trigger at_the_commit on operation_events").await.unwrap();

    // Then right after it, in whichever partition comes first.
    let points: Vec<Failpoint> =
        (0..4).map(|partition| Failpoint::abort(STORED, &partition.to_string(), &rig.folder)).collect();
    let second = rig.backend_failing_at("sink", &points.iter().collect::<Vec<_>>()).await;
    second.dies(PATIENCE).await.unwrap();
    assert!(points.iter().any(Failpoint::has_fired), "it died elsewhere");
    rig.none(STANDING).await;
    let stored = rig.taken_in().await;
    let begun = Stopwatch::start();
    let heir = rig.second_backend("sink").await;
    rig.recovery().await;
    recovered(recoveries::SINK_DIED_AFTER, begun.elapsed());
    rig.proven(load, &[]).await;
    let (streams, _) = readers.check(&rig.database_url, PATIENCE).await.unwrap();
    let all = f64::from(i32::try_from(rig.taken_in().await - stored).unwrap());
    let counted = async || {
        let more = heir.metric("gossip_records", "").await - all;
        (more.abs() < 0.5).then_some(())
    };
    eventually(PATIENCE, "the heir took in exactly what the dead one had not", counted).await;
    println!("{all} records were left to the heir; {streams} streams showed each event once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_before_its_mark_publishes_again() {
    let rig = Rig::new().await;
    let _programs = (rig.backend_with("api,sink", &[]).await, rig.provisioner().await);
    let first = rig.second_backend("relay").await;
    let id = rig.victim(NEAR).await;
    rig.settled().await;
    first.kill().await.unwrap();
    let load = rig.load(83);
    let point = Failpoint::abort(SENT, &id, &rig.folder);
    let dying = rig.backend_failing_at("relay", &[&point]).await;
    rig.grow(&id, 1).await;
    dying.dies(PATIENCE).await.unwrap();
    assert!(point.has_fired(), "it died elsewhere");
    let unmarked = format!("select published_epoch || '/' || published_seq from databases where id = '{id}'");
    assert_eq!(rig.ask(&unmarked).await, "1/1", "the fault did not fire: it was marked");
    assert_eq!(rig.published(&id, 2).await, 1, "the fault did not fire: it was not published");
    let begun = Stopwatch::start();
    let _heir = rig.second_backend("relay").await;
    rig.recovery().await;
    recovered(recoveries::RELAY_DIED, begun.elapsed());
    // What Kafka is slow to say of one is heard a round later, when others may be carried out already.
    let marked = async || (rig.ask(&unmarked).await == "1/2").then_some(());
    eventually(PATIENCE, "the mark of the heir", marked).await;
    assert_eq!(rig.published(&id, 2).await, 2, "published again by the heir");
    load.goes_on(20).await;
    rig.proven(load, &[]).await;
    let states: Vec<_> = rig.watched.states(&id).iter().map(|seen| seen.position).collect();
    assert_eq!(states, [(1, 1), (1, 2)], "the second record is dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_two_seconds_are_shown_once() {
    let rig = Rig::new().await;
    let _programs = (rig.without_sink().await, rig.provisioner().await);
    let first = rig.second_backend("sink").await;
    let (load, readers) = rig.followed(84);
    load.goes_on(15).await;
    let slow = AT_THE_COMMIT.replace("$what", "pg_sleep(2)");
    testkit::query(&rig.database_url, &slow).await.unwrap();
    let sleeping = "wait_event = 'PgSleep'";
    rig.some(sleeping).await;
    // Another one takes its share, and then everything, while commits of the first are still under way.
    let _heir = rig.second_backend("sink").await;
    rig.some(sleeping).await;
    first.kill().await.unwrap();
    load.goes_on(20).await;
    rig.some(sleeping).await;
    testkit::query(&rig.database_url, "drop trigger at_the_commit on operation_events").await.unwrap();
    let begun = Stopwatch::start();
    rig.recovery().await;
    recovered(recoveries::SLOW_COMMITS, begun.elapsed());
    rig.proven(load, &[]).await;
    let (streams, resumed) = readers.check(&rig.database_url, PATIENCE).await.unwrap();
    println!("{streams} streams showed each event once, {resumed} resumptions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_stands_still_inside_its_transaction_shows_nothing_twice() {
    let rig = Rig::new().await;
    let _programs = (rig.without_sink().await, rig.provisioner().await);
    let (load, readers) = rig.followed(85);
    let mut sleeper = rig.second_backend("sink").await;
    // Once it wakes with its transaction still there, once Postgres has ended that, as it does by itself in the end.
    let ways = [(false, recoveries::SINK_HALTED), (true, recoveries::SINK_HALTED_AND_ENDED)];
    for (ended, recovery) in ways {
        load.goes_on(15).await;
        let session = rig.inside().await;
        sleeper.halt().await.unwrap();
        let asleep = Instant::now();
        drop(session);
        rig.some(STANDING).await;
        let heir = rig.second_backend("sink").await;
        if ended {
            let end = CONNECTIONS.replace("count(*)", "count(pg_terminate_backend(pid))");
            assert_ne!(rig.ask(&format!("{end}{STANDING}")).await, "0", "the fault did not fire");
        } else {
            // The heir is given the partitions when the sleeper's session is over, and meets its locks.
            let met = async || heir.log().contains("a batch was not stored").then_some(());
            eventually(PATIENCE, "an heir that cannot store", met).await;
        }
        testkit::lasting(ASLEEP.saturating_sub(asleep.elapsed())).await;
        sleeper.resume().await.unwrap();
        let begun = Stopwatch::start();
        rig.recovery().await;
        recovered(recovery, begun.elapsed());
        heir.kill().await.unwrap();
    }
    sleeper.lives().unwrap();
    rig.proven(load, &[]).await;
    let (streams, resumed) = readers.check(&rig.database_url, PATIENCE).await.unwrap();
    println!("{streams} streams showed each event once, {resumed} resumptions");
}
