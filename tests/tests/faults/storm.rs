//! Random faults under load, by a seed that can be played again: `SLIPWAY_STORM_SEED` and `SLIPWAY_STORM_SECONDS`.
//!
//! The seed decides which faults come in which order and how long each lasts at least; the clock decides only how many of them
//! fit. Whether anybody met a fault is seen from outside: a proxy broke a connection or lost its server, users got no answer,
//! changes wait for the brokers, a member went that had partitions.

#![cfg(test)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testkit::load::Load;
use testkit::{Mode, Proxy, Random, Server, Spawned, eventually, how_long, partitions};

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, PATIENCE, Rig};

/// How long the storm lasts unless somebody says otherwise.
const STORM: Duration = Duration::from_mins(1);
const STORM_AT_FULL_LENGTH: Duration = Duration::from_mins(10);
/// How much longer than the seed says a fault may last, until somebody meets it.
const NOTICED: Duration = Duration::from_secs(10);

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

    /// What is done, whoever is meant and for how long.
    fn kind(&self) -> String {
        match self {
            Self::KillProvisioner(_) => "kill -9 of a provisioner".to_owned(),
            Self::HaltProvisioner(..) => "SIGSTOP of a provisioner".to_owned(),
            Self::RestartProvisioner(_) => "SIGTERM of a provisioner".to_owned(),
            Self::KillBackend => "kill -9 of the backend".to_owned(),
            Self::RestartBackend => "SIGTERM of the backend".to_owned(),
            Self::Kill(server) => format!("kill -9 of {server}"),
            Self::Halt(server, _) => format!("SIGSTOP of {server}"),
            Self::Postgres(..) => "a sick way to Postgres".to_owned(),
            Self::Near(..) => "a sick way to the near cluster".to_owned(),
            Self::Far(..) => "a sick way to the far cluster".to_owned(),
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
    /// Lets a fault happen and end; whether somebody met it. It lasts until that is seen, or for as long as can be waited.
    async fn strike(&mut self, fault: &Fault, load: &Load) -> bool {
        match fault {
            Fault::KillProvisioner(_) | Fault::HaltProvisioner(..) | Fault::RestartProvisioner(_) => {
                self.strike_member(fault).await
            }
            Fault::KillBackend | Fault::RestartBackend => self.strike_backend(fault, load).await,
            Fault::Kill(name) => {
                let server = Server::named(name);
                let before = self.lost(name);
                server.kill().await.unwrap();
                let met = noticed(async || self.is_missed(name, before).await).await;
                server.ready().await;
                met
            }
            Fault::Halt(name, time) => {
                let halted = Server::named(name).halt().unwrap();
                let before = self.lost(name);
                testkit::lasting(*time).await;
                let met = noticed(async || self.is_missed(name, before).await).await;
                drop(halted);
                met
            }
            Fault::Postgres(mode, time) => sick(&self.rig.postgres, mode, *time).await,
            Fault::Near(mode, time) => sick(&self.rig.near, mode, *time).await,
            Fault::Far(mode, time) => sick(&self.rig.far, mode, *time).await,
        }
    }

    /// A provisioner goes that had partitions: others have to take them, or they wait.
    async fn strike_member(&mut self, fault: &Fault) -> bool {
        let had = |member: &Spawned| !partitions(&member.log()).is_empty();
        match fault {
            Fault::HaltProvisioner(at, time) => {
                let met = had(&self.members[*at]);
                self.members[*at].halt().await.unwrap();
                testkit::lasting(*time).await;
                self.members[*at].resume().await.unwrap();
                met
            }
            Fault::KillProvisioner(at) | Fault::RestartProvisioner(at) => {
                let member = self.members.remove(*at);
                let met = had(&member);
                if matches!(fault, Fault::KillProvisioner(_)) {
                    member.kill().await.unwrap();
                } else {
                    member.terminate(GRACE).await.unwrap();
                }
                self.members.push(self.rig.provisioner().await);
                met
            }
            _ => false,
        }
    }

    /// The only backend goes: users get no answer until the next one is there.
    async fn strike_backend(&mut self, fault: &Fault, load: &Load) -> bool {
        let before = load.unanswered();
        let backend = self.backend.take().unwrap();
        if *fault == Fault::KillBackend {
            backend.kill().await.unwrap();
        } else {
            backend.terminate(GRACE * 2).await.unwrap();
        }
        let met = noticed(async || load.unanswered() > before).await;
        self.backend = Some(self.rig.backend().await);
        met
    }

    /// Waits until all are at work.
    async fn calm(&self) {
        self.rig.recovery().await;
        for member in &self.members {
            let at_work = async || (!partitions(&member.log()).is_empty()).then_some(());
            eventually(PATIENCE, "a member with partitions", at_work).await;
        }
    }

    /// How many connections to a server it has ended or was not there for.
    fn lost(&self, server: &str) -> u64 {
        match server {
            "postgres" => self.rig.postgres.lost(),
            "bare-apiserver" => self.rig.near.lost() + self.rig.far.lost(),
            _ => 0,
        }
    }

    /// Whether anybody misses a server: connections to it broke, or a change waits for the brokers, to which no proxy leads.
    async fn is_missed(&self, server: &str, before: u64) -> bool {
        if server == "kafka" { self.rig.waits_for_brokers().await } else { self.lost(server) > before }
    }
}

/// The way to a server falls ill; whether anybody met that.
async fn sick(proxy: &Proxy, mode: &Mode, time: Duration) -> bool {
    let before = proxy.harmed();
    proxy.set(mode.clone());
    testkit::lasting(time).await;
    let met = noticed(async || proxy.harmed() > before).await;
    proxy.set(Mode::Pass);
    met
}

/// Whether something is seen in time.
async fn noticed(mut is_seen: impl AsyncFnMut() -> bool) -> bool {
    let seen = eventually(PATIENCE, "what a fault does", async || is_seen().await.then_some(()));
    tokio::time::timeout(NOTICED, seen).await.is_ok()
}

/// What was played of a kind of faults.
#[derive(Debug)]
struct Played {
    last: Fault,
    times: usize,
    /// How often somebody met it.
    struck: usize,
}

/// All of it, by kind.
#[derive(Debug, Default)]
struct Book(BTreeMap<String, Played>);

impl Book {
    fn note(&mut self, fault: &Fault, met: bool) {
        let entry = self.0.entry(fault.kind());
        let played = entry.or_insert_with(|| Played { last: fault.clone(), times: 0, struck: 0 });
        played.times += 1;
        played.struck += usize::from(met);
    }

    /// The last of each kind that nobody has met.
    fn missed(&self) -> Vec<Fault> {
        let missed = self.0.values().filter(|played| played.struck == 0);
        missed.map(|played| played.last.clone()).collect()
    }

    /// Of each kind at least one must have struck.
    fn check(&self) {
        for (kind, Played { times, struck, .. }) in &self.0 {
            println!("{kind}: {times} played, {struck} struck");
        }
        assert!(!self.0.is_empty(), "the fault did not fire: there was none");
        let missed = self.missed();
        assert!(missed.is_empty(), "the fault did not fire: nobody met {missed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_survived() {
    let asked = testkit::setting("SLIPWAY_STORM_SECONDS").map(Duration::from_secs);
    let time = asked.unwrap_or_else(|| how_long(STORM, STORM_AT_FULL_LENGTH));
    let seed = testkit::seed("SLIPWAY_STORM_SEED");
    let rig = Rig::new().await;
    let mut random = Random::new(seed);
    let backend = Some(rig.backend().await);
    let mut storm =
        Storm { rig: &rig, backend, members: vec![rig.provisioner().await, rig.provisioner().await] };
    let load = rig.load_during(time, seed);
    load.goes_on(20).await;
    let begun = Instant::now();
    let mut book = Book::default();
    while begun.elapsed() < time {
        let fault = Fault::draw(&mut random);
        println!("{:6.1} s: {fault:?}", begun.elapsed().as_secs_f64());
        let met = storm.strike(&fault, &load).await;
        book.note(&fault, met);
        // Some faults meet each other's aftermath, some a system that had time to breathe.
        load.goes_on(usize::try_from(random.below(15)).unwrap()).await;
    }
    println!("{:6.1} s: {} changes accepted", begun.elapsed().as_secs_f64(), load.accepted());
    // A fault that comes into the aftermath of another one may be met by nobody: it comes once more, when all are at work.
    for fault in book.missed() {
        storm.calm().await;
        println!("{:6.1} s: once more {fault:?}", begun.elapsed().as_secs_f64());
        let met = storm.strike(&fault, &load).await;
        book.note(&fault, met);
    }
    let (_, settled) = rig.proven(load, &[]).await;
    book.check();
    recovered(recoveries::STORM, settled);
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
