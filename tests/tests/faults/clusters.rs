//! API servers that are black holes, overloaded or killed: one sick cluster hurts only itself.

#![cfg(test)]

use std::time::{Duration, Instant};

use testkit::load::{Ledger, percentile};
use testkit::{Mode, Proxy, Server, eventually};

use crate::rig::{FAR, NEAR, PATIENCE, Rig, recovered};

/// By how much nine of ten changes of the other cluster may be slower: a noisy machine, not a queue behind the sick one,
/// whose calls take three seconds.
const NOISE: Duration = Duration::from_millis(1_200);
/// How long a cluster is overloaded.
const OVERLOADED: Duration = Duration::from_secs(10);

impl Rig {
    /// How long it took from the API's word to the resource, for nine of ten changes of a region: of less than a hundred, the
    /// slowest is the machine's.
    fn p90(&self, ledger: &Ledger, region: &str) -> Duration {
        let ours = ledger.databases.iter().filter(|(_, entry)| entry.region == region);
        let times = ours.flat_map(|(id, entry)| {
            let prompt = entry.changes.iter().filter(|change| change.prompt);
            prompt.filter_map(move |change| {
                let reached = self.watched.reached(id, change.position)?;
                Some(reached.saturating_duration_since(change.accepted))
            })
        });
        percentile(times.collect(), 90)
    }

    /// How many databases of a cluster have something parked.
    async fn parked(&self, cluster: &str) -> u64 {
        let rows = format!("select count(*) from parked_instructions where cluster_id = '{cluster}'");
        self.ask(&rows).await.parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_swallows_only_its_own() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await, rig.provisioner().await);
    let load = rig.load(31);
    load.goes_on(150).await;
    let (well, _) = rig.proven(load, &[]).await;

    let before = rig.far.harmed();
    rig.far.set(Mode::Hold);
    let load = rig.load(32);
    load.goes_on(150).await;
    let parked = "select count(*) from parked_instructions where cluster_id = 'far' and code = 'unreachable'";
    eventually(PATIENCE, "something parked", async || (rig.ask(parked).await != "0").then_some(())).await;
    assert!(rig.far.harmed() > before, "the fault did not fire: nothing was held");
    let mut ledger = load.stop().await.unwrap();
    rig.applied(&ledger, NEAR).await;
    // A busy machine may make a single call to the other cluster too slow.
    let (far, near) = (rig.parked("far").await, rig.parked("near").await);
    assert!(far >= 10 * near, "{near} of the other cluster were parked beside {far} of the sick one");

    rig.far.set(Mode::Pass);
    let begun = Instant::now();
    rig.applied(&ledger, FAR).await;
    recovered("API server of a cluster is a black hole: its instructions drained", begun.elapsed());
    let (calm, sick) = (rig.p90(&well, NEAR), rig.p90(&ledger, NEAR));
    println!("p90 of the other cluster: {calm:?} before, {sick:?} beside the sick one");
    assert!(sick < calm + NOISE, "the other cluster's p90 was {calm:?} before, {sick:?} beside the sick one");
    ledger.merge(well);
    rig.proven_of(&ledger, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_api_server_loses_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(33);
    load.goes_on(30).await;
    let server = Server::named("bare-apiserver");
    server.kill().await.unwrap();
    let begun = Instant::now();
    load.goes_on(15).await;
    server.ready().await;
    let back = begun.elapsed();
    rig.recovery().await;
    recovered("kill -9 of an API server: listening again", back);
    recovered("kill -9 of an API server: everything flows again", begun.elapsed());
    rig.proven(load, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_api_server_is_given_time() {
    let rig = Rig::new().await;
    let proxy = Proxy::of_api_server(&testkit::bare_cluster().provisioner_kubeconfig).await.unwrap();
    rig.register("far", FAR, &format!("http://{}", proxy.address())).await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(34);
    load.goes_on(30).await;
    assert!(proxy.connections() > 0, "the cluster is not reached by way of the proxy");
    for (status, retry_after) in [(429, 2), (503, 1)] {
        let before = proxy.harmed();
        proxy.set(Mode::Answer { status, retry_after });
        let begun = Instant::now();
        load.goes_on(40).await;
        testkit::lasting(OVERLOADED.saturating_sub(begun.elapsed())).await;
        let (asked, time) = (proxy.harmed() - before, begun.elapsed());
        assert!(asked > 0, "the fault did not fire: nobody was told {status}");
        proxy.set(Mode::Pass);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = asked as f64 / time.as_secs_f64();
        println!("{asked} requests in {time:?} to a server that answers {status}: {rate:.1} a second");
        assert!(rate < 60.0, "{rate} requests a second to a server that asks for patience");
        let recovery = rig.recovery().await;
        recovered(&format!("API server answers {status}"), recovery);
    }
    rig.proven(load, &[]).await;
}
