//! One sick cluster: what goes out to it while it is sick, and what becomes of its work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::ClusterState;
use provisioner::classify::code;
use testkit::eventually;

use wire::{Instruction, OutcomeKind};

use super::rig::{PATIENCE, Rig, Running, name};
use crate::front::{Act, Front, Seen};

/// A rig whose cluster `bare` is behind a front.
pub(super) async fn behind_a_front() -> (Rig, Front) {
    let rig = Rig::new().await;
    let front = Front::of(testkit::bare_cluster()).await;
    rig.credentials_at("bare", front.url());
    (rig, front)
}

pub(super) async fn metric(running: &Running, line: &str) {
    let what = format!("the metric {line}");
    eventually(PATIENCE, &what, async || {
        let metrics = running.metrics.encode().unwrap();
        metrics.lines().any(|found| found == line).then_some(())
    })
    .await;
}

pub(super) fn others(rig: &Rig, count: usize) -> Vec<Instruction> {
    (0..count).map(|_| rig.instruction(1)).collect()
}

pub(super) async fn all(rig: &Rig, instructions: &[Instruction], kind: OutcomeKind) {
    for instruction in instructions {
        rig.outcome(instruction, kind).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_holds_a_key_for_one_call_and_is_then_left_alone() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&["--call-timeout", "4"]);
    let warm = rig.instruction(1);
    rig.publish(&warm).await;
    rig.outcome(&warm, OutcomeKind::Applied).await;
    metric(&running, "provisioner_breaker{cluster=\"bare\"} 0").await;
    // A probe on its way that is answered while the call is not would make that the call's own trouble. After an answer the next one comes
    // in seconds.
    let answered = || front.answers("/version");
    let before = answered();
    eventually(PATIENCE, "a probe answered", async || (answered() > before).then_some(())).await;
    front.set(|_| Act::Hold);
    let first = rig.instruction(1);
    let mine = |seen: &Seen| seen.is_apply() && seen.path.contains(&name(&first));
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Parked).await;
    let tries = front.seen(mine);
    assert_eq!(tries.len(), 1, "one call that is not answered is enough");
    let held = tries[0].at.elapsed();
    // The word of it goes by way of Postgres and Kafka, which may be busy.
    assert!(held < TIMEOUT * 8, "the key was held for {held:?}");
    metric(&running, "provisioner_breaker{cluster=\"bare\"} 2").await;
    // While it is open no work goes out, however much of it comes.
    let (before, more) = (front.applies(), others(&rig, 30));
    for instruction in &more {
        rig.publish(instruction).await;
    }
    all(&rig, &more, OutcomeKind::Parked).await;
    rig.count("select count(*) from parked_instructions", "31").await;
    assert_eq!(front.applies(), before, "nothing went out");
    let probes = || front.seen(|seen| seen.path == "/version").len();
    let asked = probes();
    eventually(PATIENCE, "probes", async || (probes() >= asked + 2).then_some(())).await;
    assert_eq!(front.applies(), before, "nothing went out");
    front.release();
    rig.outcome(&first, OutcomeKind::Applied).await;
    all(&rig, &more, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    metric(&running, "provisioner_breaker{cluster=\"bare\"} 0").await;
    metric(&running, "provisioner_cluster_calls{cluster=\"bare\"} 0").await;
    running.stop().await;
}

/// There is never a long row of failures, since each fifth call goes well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_one_call_in_five_is_left_alone() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    let calls = AtomicUsize::new(1);
    front.set(move |seen| {
        let is_well = !seen.is_apply() || calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
        if is_well { Act::Pass } else { Act::Answer(503, None) }
    });
    let instructions = others(&rig, 40);
    for instruction in &instructions {
        rig.publish(instruction).await;
    }
    metric(&running, "provisioner_breaker{cluster=\"bare\"} 2").await;
    front.release();
    all(&rig, &instructions, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

/// A proxy, say, that has lost its way to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_answers_in_the_place_of_a_server_neither_refuses_nor_applies_anything() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    for (status, document) in [(200, "{}"), (400, "<html><title>400 Bad Request</title></html>")] {
        let before = front.harmed();
        front.set(move |seen| if seen.is_apply() { Act::Say(status, document) } else { Act::Pass });
        let instruction = rig.instruction(1);
        rig.publish(&instruction).await;
        let told = rig.outcome(&instruction, OutcomeKind::Parked).await;
        assert!(front.harmed() > before, "the fault did not fire: {status}");
        assert_eq!(told.code, code::UNAVAILABLE, "{status}: {}", told.message);
        front.release();
        rig.outcome(&instruction, OutcomeKind::Applied).await;
        assert_eq!(rig.resource(&instruction, 1).await.spec.version, instruction.desired.version);
    }
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_patience_that_a_server_asks_for_is_given_and_others_go_on() {
    const ASKED: u32 = 6;
    let (rig, front) = behind_a_front().await;
    rig.credentials_at("well", &testkit::bare_cluster().server);
    rig.register_as("well", ClusterState::Active).await;
    let running = rig.start(&[]);
    let warm = rig.instruction(1);
    rig.publish(&warm).await;
    rig.outcome(&warm, OutcomeKind::Applied).await;
    let before = front.applies();
    // The first one is asked for patience, and whoever comes too early would be again, or before it was looked at.
    let (since, looked): (Mutex<Option<Instant>>, _) = (Mutex::new(None), Arc::new(AtomicBool::new(false)));
    let is_enough = Arc::clone(&looked);
    front.set(move |seen| {
        let mut since = since.lock().unwrap();
        let is_over = since.is_some_and(|since| since.elapsed() >= Duration::from_secs(ASKED.into()));
        if !seen.is_apply() || (is_over && is_enough.load(Ordering::Relaxed)) {
            return Act::Pass;
        }
        since.get_or_insert(seen.at);
        Act::Answer(429, Some(ASKED))
    });
    let sick = others(&rig, 20);
    for instruction in &sick {
        rig.publish(instruction).await;
    }
    front.fired(1).await;
    metric(&running, "provisioner_gate_closed{cluster=\"bare\"} 1").await;
    // What was under way when the first was answered has come by then.
    metric(&running, "provisioner_cluster_calls{cluster=\"bare\"} 0").await;
    let quiet = Instant::now();
    let mut well = rig.instruction(1);
    well.cluster = "well".parse().unwrap();
    rig.publish(&well).await;
    rig.outcome(&well, OutcomeKind::Applied).await;
    metric(&running, "provisioner_gate_closed{cluster=\"well\"} 0").await;
    looked.store(true, Ordering::Relaxed);
    all(&rig, &sick, OutcomeKind::Applied).await;
    let applies = front.seen(Seen::is_apply);
    let first = applies[before].at;
    let early = applies[before..].iter().filter(|seen| seen.at < first + Duration::from_secs(5)).count();
    // What was under way already when the first was answered.
    assert!(early <= 20, "{early} came although patience was asked for");
    let again = first + Duration::from_secs(ASKED.into());
    let in_the_rest = applies.iter().filter(|seen| seen.at > quiet && seen.at < again);
    assert_eq!(in_the_rest.count(), 0, "nothing went out in the time that was asked for");
    metric(&running, "provisioner_gate_closed{cluster=\"bare\"} 0").await;
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}

/// As a newer program may register it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_that_cannot_be_read_holds_back_what_is_meant_for_its_cluster_alone() {
    let rig = Rig::new().await;
    let register = async |name: &str| {
        rig.credentials_at(name, &testkit::bare_cluster().server);
        rig.register_as(name, ClusterState::Active).await;
        let mut instruction = rig.instruction(1);
        instruction.cluster = name.parse().unwrap();
        instruction
    };
    let zones = async |zones: &str| {
        let statement = format!("update clusters set zones = '{zones}' where id = 'newer'");
        testkit::query(&rig.database_url, &statement).await.unwrap();
    };
    let held = register("newer").await;
    zones("{\"a\": {\"subnet\": \"s\"}}").await;
    let running = rig.start(&[]);
    let well = rig.instruction(1);
    for instruction in [&held, &well] {
        rig.publish(instruction).await;
    }
    rig.outcome(&well, OutcomeKind::Applied).await;
    let told = rig.outcome(&held, OutcomeKind::Parked).await;
    assert_eq!(told.code, code::REGISTRATION);
    assert!(told.message.contains("newer") && told.message.contains("zones"), "{}", told.message);
    metric(&running, "provisioner_clusters_unreadable 1").await;
    let shown = running.health.readiness.to_json().to_string();
    assert!(shown.contains("cluster/newer"), "{shown}");
    // Whoever is registered meanwhile is found.
    let later = register("later").await;
    rig.publish(&later).await;
    rig.outcome(&later, OutcomeKind::Applied).await;
    zones("{}").await;
    rig.outcome(&held, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.count("select count(*) from dead_letters", "0").await;
    metric(&running, "provisioner_clusters_unreadable 0").await;
    running.stop().await;
}

/// A replica of ours cannot reach the cluster, another one can: it does not matter who parked, nor who observes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_replica_reaches_the_cluster_drains() {
    let rig = Rig::new().await;
    rig.keep_observers().await;
    rig.credentials_of_nobody();
    let away = rig.start(&["--call-timeout", "2"]);
    let parked = others(&rig, 10);
    for instruction in &parked {
        rig.publish(instruction).await;
    }
    all(&rig, &parked, OutcomeKind::Parked).await;
    // The observer's row is the first one's and stays so.
    rig.count("select count(*) from cluster_observers", "1").await;
    let holder = testkit::query(&rig.database_url, "select holder from cluster_observers").await.unwrap();
    let near = rig.other_credentials("bare", &testkit::bare_cluster().server);
    let other = rig.start_with(&near, &[]);
    all(&rig, &parked, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    let now = testkit::query(&rig.database_url, "select holder from cluster_observers").await.unwrap();
    assert_eq!(now, holder, "the one that cannot reach the cluster still speaks for it");
    away.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_what_is_parked() {
    const DATABASES: usize = 80;
    let (rig, front) = behind_a_front().await;
    front.set(|_| Act::Answer(503, None));
    let one = rig.start(&[]);
    let parked = others(&rig, DATABASES);
    for instruction in &parked {
        rig.publish(instruction).await;
    }
    all(&rig, &parked, OutcomeKind::Parked).await;
    // Whoever is given the partition reads what is not committed again, and does that again.
    rig.committed().await;
    let other = rig.start(&[]);
    let ready = |running: &Running| running.health.readiness.report().contains_key("cluster/bare");
    eventually(PATIENCE, "the other replica", async || ready(&other).then_some(())).await;
    let before = front.applies();
    front.release();
    all(&rig, &parked, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    let calls = front.applies() - before;
    assert!(calls < DATABASES * 3 / 2, "{calls} calls for {DATABASES} parked instructions: done twice");
    one.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_others_write_all_the_time_hurts_nobody_else() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    let contended = rig.instruction(1);
    let path = name(&contended);
    let mine = path.clone();
    front.set(
        move |seen| {
            if seen.is_apply() && seen.path.contains(&mine) { Act::Answer(409, None) } else { Act::Pass }
        },
    );
    rig.publish(&contended).await;
    assert_eq!(rig.outcome(&contended, OutcomeKind::Parked).await.code, "contended");
    // What was parked is tried again soon: that is not at once.
    let asked = Instant::now();
    let age = "select extract(epoch from clock_timestamp() - parked_at) from parked_instructions";
    let age: f64 = testkit::query(&rig.database_url, age).await.unwrap().parse().unwrap();
    let age = Duration::from_secs_f64(age);
    let of_it = |seen: &Seen| seen.is_apply() && seen.path.contains(&path);
    let at_once = front.seen(|seen| of_it(seen) && seen.at + age < asked).len();
    assert!(at_once <= 3, "tried {at_once} times at once");
    let well = others(&rig, 10);
    for instruction in &well {
        rig.publish(instruction).await;
    }
    all(&rig, &well, OutcomeKind::Applied).await;
    metric(&running, "provisioner_breaker{cluster=\"bare\"} 0").await;
    front.fired(4).await;
    front.release();
    rig.outcome(&contended, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}
