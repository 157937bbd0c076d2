//! Asks Kafka and Postgres on a period, and watches that the consumer's loop turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::consumer::State;
use runtime::{CancellationToken, Health};
use store::Store;

use crate::fleet::Fleet;
use crate::gossip::Teller;
use crate::metrics::Metrics;

const EVERY: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(5);
/// How long the consumer's loop may stand still before the process counts as stuck.
const STUCK: Duration = Duration::from_mins(2);

/// Asks Kafka for both topics until the program stops: brokers that answer are not enough where rights are missing.
pub async fn kafka(
    admin: bus::Admin,
    topics: [String; 2],
    partitions: i32,
    health: Health,
    stop: CancellationToken,
) {
    let component = health.readiness.component("kafka");
    let check = async || {
        for topic in &topics {
            admin.check_partitions(topic, partitions, LIMIT).await?;
        }
        Ok::<(), bus::Error>(())
    };
    loop {
        component.set(check().await);
        if !runtime::backoff::sleep(EVERY, &stop).await {
            return;
        }
    }
}

/// Says to Postgres that the program runs, until it stops, and counts what is parked.
pub async fn postgres(
    (store, program): (Store, store::Program),
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let component = health.readiness.component("postgres");
    loop {
        match runtime::deadline(LIMIT, "Postgres", store.attend(&program)).await {
            Ok(answer) => component.set(answer),
            Err(late) => component.set_failing(late.to_string()),
        }
        if let Ok(Ok(counts)) = runtime::deadline(LIMIT, "Postgres", store.parked_count()).await {
            metrics.parked(&counts);
        }
        if !runtime::backoff::sleep(EVERY, &stop).await {
            // Without a word it counts as running for another minute, which only migrations notice.
            let _ = runtime::deadline(LIMIT, "Postgres", store.leave(&program)).await;
            return;
        }
    }
}

/// Copies what the consumer does to metrics and liveness until the program stops.
pub async fn consumer(state: Arc<State>, health: Health, metrics: Metrics, stop: CancellationToken) {
    let heartbeat = health.liveness.heartbeat("consumer", STUCK);
    let mut rounds = None;
    loop {
        let snapshot = state.snapshot();
        // Before its first round it is waiting for Kafka, and after its last for what keeps it from going on, such as the right
        // number of partitions: no reason to restart.
        if snapshot.rounds == 0 || rounds != Some(snapshot.rounds) {
            heartbeat.beat();
        }
        rounds = Some(snapshot.rounds);
        metrics.consumer(&snapshot);
        if !runtime::backoff::sleep(Duration::from_secs(1), &stop).await {
            return;
        }
    }
}

/// Copies what stands before each cluster to metrics until the program stops.
pub async fn guards(fleet: Arc<Fleet>, metrics: Metrics, stop: CancellationToken) {
    loop {
        for member in fleet.members() {
            metrics.guard(&member.cluster, &member.guard);
        }
        if !runtime::backoff::sleep(Duration::from_secs(1), &stop).await {
            return;
        }
    }
}

/// Has the teller forget what it found of partitions long ago, until the program stops.
pub async fn gossip(teller: Teller, stop: CancellationToken) {
    while runtime::backoff::sleep(EVERY, &stop).await {
        teller.forget(Instant::now());
    }
}
