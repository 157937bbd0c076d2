//! API servers that are black holes, overloaded or killed: one sick cluster hurts only itself.

#![cfg(test)]

use std::time::{Duration, Instant};

use testkit::load::{Ledger, Load, Plan, percentile};
use testkit::{Mode, Proxy, Server, Stopwatch, at_full_length, eventually, how_long};

use crate::recoveries::{self, recovered};
use crate::rig::{FAR, NEAR, PATIENCE, Rig};

/// How long a cluster is a black hole; usually as long as some changes take.
const AWAY_AT_FULL_LENGTH: Duration = Duration::from_hours(1);
/// How long users work before that at full length.
const CALM_AT_FULL_LENGTH: Duration = Duration::from_mins(10);
/// By how much all but the slowest changes of the other cluster may be slower: a noisy machine, not a queue behind the sick one,
/// whose calls take three seconds. Among thousands of changes there is less noise.
const NOISE: Duration = Duration::from_millis(1_200);
const NOISE_AT_FULL_LENGTH: Duration = Duration::from_millis(500);
/// What is asked for of the sick cluster is not taken back while it is away: that is another promise.
const PATIENT: [&str; 6] = ["--create-deadline", "3h", "--update-deadline", "3h", "--delete-deadline", "3h"];
/// How long a cluster is overloaded.
const OVERLOADED: Duration = Duration::from_secs(10);
/// Requests in a second that it may get then: two or three were measured.
const MOST_ASKED: f64 = 10.0;

impl Rig {
    /// Users who work for an hour at full length: an hour of haste would be more changes than a database can grow by.
    fn steady(&self, away: Duration, seed: u64) -> Load {
        let plan = Plan::new(seed, &[NEAR, FAR]).during(away);
        let pause = how_long(plan.pause, Duration::from_secs(1));
        Load::start(&self.console, &Plan { pause, ..plan })
    }

    /// How long it took from the API's word to the resource, change by change of a region.
    fn times(&self, ledger: &Ledger, region: &str) -> Vec<Duration> {
        let ours = ledger.databases.iter().filter(|(_, entry)| entry.region == region);
        let times = ours.flat_map(|(id, entry)| {
            let prompt = entry.changes.iter().filter(|change| change.prompt);
            prompt.filter_map(move |change| {
                let reached = self.watched.reached(id, change.position)?;
                Some(reached.saturating_duration_since(change.accepted))
            })
        });
        times.collect()
    }

    /// How many databases of a cluster have something parked.
    async fn parked(&self, cluster: &str) -> u64 {
        let rows = format!("select count(*) from parked_instructions where cluster_id = '{cluster}'");
        self.ask(&rows).await.parse().unwrap()
    }

    /// Users at work while a cluster is a black hole: what is asked of it waits, and is drained once it is none any more.
    async fn beside_a_black_hole(&self, away: Duration, seed: u64) -> Ledger {
        let before = self.far.harmed();
        self.far.set(Mode::Hold);
        let begun = Instant::now();
        let load = self.steady(away, seed);
        load.goes_on_for(away, 150).await;
        let parked =
            "select count(*) from parked_instructions where cluster_id = 'far' and code = 'unreachable'";
        eventually(PATIENCE, "something parked", async || (self.ask(parked).await != "0").then_some(()))
            .await;
        assert!(self.far.harmed() > before, "the fault did not fire: nothing was held");
        let ledger = load.stop().await.unwrap();
        self.applied(&ledger, NEAR).await;
        // Of each of its databases the newest state waits, and nothing else.
        let swallowed: Vec<&String> = ledger.of(FAR).collect();
        let all = async || (self.parked("far").await == swallowed.len() as u64).then_some(());
        eventually(PATIENCE, "everything of the sick cluster parked", all).await;
        let early: Vec<&&String> =
            swallowed.iter().filter(|id| !self.watched.states(id).is_empty()).collect();
        assert!(early.is_empty(), "the cluster was not away: it took {early:?}");
        // A machine that stands still makes calls to the other cluster too slow: what is parked for that is drained
        // at once.
        let drained = async || (self.parked("near").await == 0).then_some(());
        eventually(PATIENCE, "nothing of the other cluster parked", drained).await;
        println!(
            "{} databases parked; {} connections at the door after {:?}",
            swallowed.len(),
            self.far.at_the_door(),
            begun.elapsed()
        );

        self.far.set(Mode::Pass);
        let begun = Stopwatch::start();
        self.applied(&ledger, FAR).await;
        recovered(recoveries::BLACK_HOLE, begun.elapsed());
        ledger
    }
}

/// All but the slowest: nine of ten, because of less than a hundred the slowest is the machine's; of thousands 99 in a hundred.
fn most(times: &[Duration]) -> Duration {
    let (percent, least) = if at_full_length() { (99, 500) } else { (90, 20) };
    assert!(times.len() >= least, "{} changes say nothing", times.len());
    let at = |percent| percentile(times.to_vec(), percent);
    println!("{} changes: half {:?}, p90 {:?}, p99 {:?}", times.len(), at(50), at(90), at(99));
    at(percent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_swallows_only_its_own() {
    let calm = how_long(Duration::ZERO, CALM_AT_FULL_LENGTH);
    let away = how_long(Duration::ZERO, AWAY_AT_FULL_LENGTH);
    let rig = Rig::new().await;
    let backend = rig.backend_with("api,relay,sink", &PATIENT).await;
    let _programs = (backend, rig.provisioner().await, rig.provisioner().await);
    let load = rig.steady(away, 31);
    load.goes_on_for(calm, 150).await;
    let (well, _) = rig.proven(load, &[]).await;

    let mut ledger = rig.beside_a_black_hole(away, 32).await;
    let (calm, mut sick) = (most(&rig.times(&well, NEAR)), most(&rig.times(&ledger, NEAR)));
    let noise = how_long(NOISE, NOISE_AT_FULL_LENGTH);
    // A machine that stands still for some seconds, or partitions that move, slow more than a tenth of so few
    // changes: as a rule not each time, which a queue behind the sick one does.
    for seed in [35, 36] {
        if sick < calm + noise || at_full_length() {
            break;
        }
        let again = rig.beside_a_black_hole(away, seed).await;
        sick = sick.min(most(&rig.times(&again, NEAR)));
        ledger.merge(again);
    }
    assert!(sick < calm + noise, "the other cluster took {calm:?} before, {sick:?} beside the sick one");
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
    let lost = || (rig.near.lost(), rig.far.lost());
    let before = lost();
    server.kill().await.unwrap();
    let begun = Stopwatch::start();
    load.goes_on(15).await;
    server.ready().await;
    let (starts, back) = (begun.elapsed(), Stopwatch::start());
    rig.recovery().await;
    let (near, far) = lost();
    assert!(near > before.0 && far > before.1, "the fault did not fire: nobody lost a connection");
    recovered(recoveries::API_SERVER_STARTS, starts);
    recovered(recoveries::API_SERVER_KILLED, back.elapsed());
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
    let ways = [(429, 2, recoveries::TOO_MANY_REQUESTS), (503, 1, recoveries::UNAVAILABLE)];
    for (status, retry_after, recovery) in ways {
        let before = proxy.harmed();
        proxy.set(Mode::Answer { status, retry_after });
        let begun = Instant::now();
        load.goes_on(40).await;
        testkit::lasting(OVERLOADED.saturating_sub(begun.elapsed())).await;
        let what = format!("the fault to fire: somebody who is told {status}");
        eventually(PATIENCE, &what, async || (proxy.harmed() > before).then_some(())).await;
        let (asked, time) = (proxy.harmed() - before, begun.elapsed());
        proxy.set(Mode::Pass);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = asked as f64 / time.as_secs_f64();
        println!("{asked} requests in {time:?} to a server that answers {status}: {rate:.1} a second");
        assert!(rate < MOST_ASKED, "{rate} requests a second to a server that asks for patience");
        recovered(recovery, rig.recovery().await);
    }
    rig.proven(load, &[]).await;
}
