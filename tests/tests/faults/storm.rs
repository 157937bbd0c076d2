//! Random faults under load, by a seed that can be played again: `SLIPWAY_STORM_SEED` and `SLIPWAY_STORM_SECONDS`.
//!
//! The seed decides which faults come in which order and how long each lasts; the clock decides only how many of them fit.

#![cfg(test)]

use std::time::{Duration, Instant};

use testkit::{Mode, Random, Server, Spawned};

use crate::rig::{GRACE, Rig, recovered};

/// How long the storm lasts unless somebody says otherwise.
const SECONDS: u64 = 60;

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    KillProvisioner(usize),
    HaltProvisioner(usize, Duration),
    RestartProvisioner(usize),
    KillBackend,
    RestartBackend,
    Kill(&'static str),
    Halt(&'static str, Duration),
    Postgres(Mode, Duration),
    Near(Mode, Duration),
    Far(Mode, Duration),
}

impl Fault {
    fn draw(random: &mut Random) -> Self {
        let member = usize::try_from(random.below(2)).unwrap();
        let long = Duration::from_millis(500 + random.below(8_500));
        let short = long / 3;
        let modes = [Mode::Hold, Mode::Cut, Mode::Refuse, Mode::Slow(Duration::from_millis(150))];
        let mode = random.pick(&modes).unwrap().clone();
        match random.below(14) {
            0 | 1 => Self::KillProvisioner(member),
            2 | 3 => Self::HaltProvisioner(member, long),
            4 => Self::RestartProvisioner(member),
            5 => Self::KillBackend,
            6 => Self::RestartBackend,
            7 => Self::Kill("kafka"),
            8 => Self::Halt("kafka", short),
            9 => Self::Kill("postgres"),
            10 => Self::Postgres(mode, short),
            11 => Self::Near(mode, long),
            12 => Self::Far(mode, long),
            _ => Self::Kill("bare-apiserver"),
        }
    }
}

/// The programs that the storm takes and gives back.
struct Storm<'a> {
    rig: &'a Rig,
    backend: Option<Spawned>,
    members: Vec<Spawned>,
}

impl Storm<'_> {
    /// Lets a fault happen and end.
    async fn strike(&mut self, fault: &Fault) {
        match fault {
            Fault::KillProvisioner(member) => {
                self.members.remove(*member).kill().await.unwrap();
                self.members.push(self.rig.provisioner().await);
            }
            Fault::HaltProvisioner(member, time) => {
                self.members[*member].halt().await.unwrap();
                testkit::lasting(*time).await;
                self.members[*member].resume().await.unwrap();
            }
            Fault::RestartProvisioner(member) => {
                self.members.remove(*member).terminate(GRACE).await.unwrap();
                self.members.push(self.rig.provisioner().await);
            }
            Fault::KillBackend => {
                self.backend.take().unwrap().kill().await.unwrap();
                self.backend = Some(self.rig.backend().await);
            }
            Fault::RestartBackend => {
                self.backend.take().unwrap().terminate(GRACE * 2).await.unwrap();
                self.backend = Some(self.rig.backend().await);
            }
            Fault::Kill(server) => {
                let server = Server::named(server);
                server.kill().await.unwrap();
                server.ready().await;
            }
            Fault::Halt(server, time) => {
                let halted = Server::named(server).halt().unwrap();
                testkit::lasting(*time).await;
                drop(halted);
            }
            Fault::Postgres(mode, time) => sick(&self.rig.postgres, mode, *time).await,
            Fault::Near(mode, time) => sick(&self.rig.near, mode, *time).await,
            Fault::Far(mode, time) => sick(&self.rig.far, mode, *time).await,
        }
    }
}

async fn sick(proxy: &testkit::Proxy, mode: &Mode, time: Duration) {
    proxy.set(mode.clone());
    testkit::lasting(time).await;
    proxy.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_survived() {
    let time = Duration::from_secs(testkit::setting("SLIPWAY_STORM_SECONDS").unwrap_or(SECONDS));
    let seed = testkit::seed("SLIPWAY_STORM_SEED");
    let rig = Rig::new().await;
    let mut random = Random::new(seed);
    let backend = Some(rig.backend().await);
    let mut storm =
        Storm { rig: &rig, backend, members: vec![rig.provisioner().await, rig.provisioner().await] };
    let load = rig.load(seed);
    load.goes_on(20).await;
    let begun = Instant::now();
    let mut faults = 0;
    while begun.elapsed() < time {
        let fault = Fault::draw(&mut random);
        println!("{:6.1} s: {fault:?}", begun.elapsed().as_secs_f64());
        storm.strike(&fault).await;
        faults += 1;
        // Some faults meet each other's aftermath, some a system that had time to breathe.
        load.goes_on(usize::try_from(random.below(15)).unwrap()).await;
    }
    println!(
        "{:6.1} s: {faults} faults, {} changes accepted",
        begun.elapsed().as_secs_f64(),
        load.accepted()
    );
    assert!(faults > 0, "the fault did not fire");
    let (_, settled) = rig.proven(load, &[]).await;
    recovered("a storm of random faults: everything settled", settled);
}

#[test]
fn a_seed_is_the_same_storm_again() {
    let storm = |seed| {
        let mut random = Random::new(seed);
        (0..30).map(|_| Fault::draw(&mut random)).collect::<Vec<_>>()
    };
    assert_eq!(storm(1), storm(1));
    assert_ne!(storm(1), storm(2));
}
