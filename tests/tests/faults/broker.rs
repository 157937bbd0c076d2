//! The broker killed and halted while records are produced, and a group's offsets lost.

#![cfg(test)]

use testkit::{Server, Stopwatch, eventually};

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, PATIENCE, Rig};

impl Rig {
    /// Kills the broker, and waits until a change waits for it; since when it is away. One that is back before that,
    /// because those who ask for changes stood still, is killed again: so far nobody has met the fault.
    async fn missed(&self, kafka: &Server) -> Stopwatch {
        kafka.kill().await.unwrap();
        let mut begun = Stopwatch::start();
        eventually(PATIENCE, "the fault to fire: a change that waits for the broker", async || {
            if self.waits_for_brokers().await {
                return Some(begun);
            }
            if kafka.is_ready() {
                kafka.kill().await.unwrap();
                begun = Stopwatch::start();
            }
            None
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await, rig.provisioner().await);
    let load = rig.load(11);
    load.goes_on(30).await;
    let kafka = Server::named("kafka");
    // Nothing that people ask for waits for Kafka; what they ask for does, for as long as it is away.
    let begun = rig.missed(&kafka).await;
    load.goes_on(10).await;
    kafka.ready().await;
    let (starts, back) = (begun.elapsed(), Stopwatch::start());
    rig.recovery().await;
    recovered(recoveries::BROKER_STARTS, starts);
    recovered(recoveries::BROKER_KILLED, back.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_silent_broker_leaves_in_doubt_is_sent_again() {
    let rig = Rig::new().await;
    let backend = rig.backend().await;
    let _provisioner = rig.provisioner().await;
    let load = rig.load(12);
    load.goes_on(20).await;
    let silent = Server::named("kafka").halt().unwrap();
    load.goes_on(20).await;
    // Longer than a send is waited for: what was on its way then may be in the log, or not.
    let doubt = async || backend.log().contains("outcome unknown").then_some(());
    eventually(PATIENCE, "sends in doubt", doubt).await;
    let waiting = rig.ask("select count(*) from databases where unpublished").await;
    assert_ne!(waiting, "0", "the fault did not fire: everything was published");
    drop(silent);
    let recovery = rig.recovery().await;
    recovered(recoveries::BROKER_SILENT, recovery);
    rig.proven(load, &[]).await;
    drop(backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_offsets_are_told_and_not_guessed() {
    let rig = Rig::new().await;
    let _backend = rig.backend().await;
    let provisioner = rig.provisioner().await;
    let load = rig.load(13);
    load.goes_on(40).await;
    let (ledger, _) = rig.proven(load, &[]).await;
    provisioner.terminate(GRACE).await.unwrap();
    let admin = bus::Admin::new(&rig.connection).unwrap();
    // A broker that stood still while the provisioner left counts it as a member until its session is over.
    let forgotten = async || admin.forget_group(&rig.group, PATIENCE).await.ok();
    eventually(PATIENCE, "a group that is forgotten", forgotten).await;

    let lost = rig.provisioner_with(&[]);
    let (well, said) = lost.end(PATIENCE).await.unwrap();
    assert!(!well, "it must not go on as if nothing had been lost");
    assert!(said.contains(&rig.group) && said.contains(&rig.instructions), "{said}");

    // Told to read everything again, it changes nothing.
    let before: Vec<_> = ledger.databases.keys().map(|id| rig.watched.states(id)).collect();
    let begun = Stopwatch::start();
    let _again = rig.provisioner().await;
    let started = begun.elapsed();
    let settled = rig.proven_of(&ledger, &[]).await;
    recovered(recoveries::OFFSETS_LOST, started + settled);
    let after: Vec<_> = ledger.databases.keys().map(|id| rig.watched.states(id)).collect();
    assert_eq!(before, after, "what is read again changes nothing");
}
