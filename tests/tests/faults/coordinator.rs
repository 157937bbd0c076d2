//! Programs that are told to end while the broker that coordinates their group is away: they end in time and well, and
//! nothing of their work is lost.

#![cfg(test)]

use std::time::Duration;

use testkit::kafka::Broker;
use testkit::{Server, Stopwatch};

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, Rig};

impl Rig {
    /// Tells all to end; how long the slowest took.
    async fn end_all(&self, programs: Vec<testkit::Spawned>) -> Duration {
        let begun = Stopwatch::start();
        let ending = programs.into_iter().map(|program| program.terminate(GRACE));
        for ended in futures::future::join_all(ending).await {
            ended.unwrap();
        }
        begun.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_end_in_time_while_the_broker_is_silent() {
    let rig = Rig::new().await;
    let programs = vec![rig.backend().await, rig.provisioner().await, rig.provisioner().await];
    let load = rig.load(111);
    load.goes_on(30).await;
    let silent = Server::named("kafka").halt().unwrap();
    // Work is under way, and what waits for Kafka waits.
    load.goes_on(15).await;
    assert_ne!(
        rig.ask("select count(*) from databases where unpublished").await,
        "0",
        "the fault did not fire: everything was published"
    );
    let slowest = rig.end_all(programs).await;
    drop(silent);
    let begun = Stopwatch::start();
    let _programs = (rig.backend().await, rig.provisioner().await);
    rig.recovery().await;
    recovered(recoveries::BROKER_SILENT_ENDS, slowest);
    recovered(recoveries::ENDED_WHILE_SILENT, begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_end_in_time_while_no_broker_is_there() {
    let (mut first, mut second) = Broker::pair().await.unwrap();
    let rig = Rig::on_two(&first).await;
    let programs = vec![rig.backend().await, rig.provisioner().await, rig.provisioner().await];
    let load = rig.load(112);
    load.goes_on(30).await;
    second.kill().await.unwrap();
    first.kill().await.unwrap();
    load.goes_on(15).await;
    assert_ne!(
        rig.ask("select count(*) from databases where unpublished").await,
        "0",
        "the fault did not fire: everything was published"
    );
    let slowest = rig.end_all(programs).await;
    tokio::try_join!(first.start(), second.start()).unwrap();
    let begun = Stopwatch::start();
    let _programs = (rig.backend().await, rig.provisioner().await);
    rig.recovery().await;
    recovered(recoveries::NO_BROKER_ENDS, slowest);
    recovered(recoveries::ENDED_WITHOUT_BROKER, begun.elapsed());
    rig.proven(load, &[]).await;
}
