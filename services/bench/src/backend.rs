//! B9b, the cost of a record to the backend and the number of databases: it must not grow with it.
//!
//! Product: processor time for a record when there are ten thousand databases. Anchor: when there are ten. Each case is a
//! backend of its own with one role; what its connections use in Postgres counts as its own use does. `relay`: ten states
//! at a time are made unpublished, as they are for somebody who has them sent again, and the next ten once these are
//! published and marked. `sink`: ten observations at a time, each newer than the one before of its database, and the next
//! ten once these are taken in. `mint`: databases are asked for one after the other in a region of two clusters, so that
//! one has to be chosen; they stay, so that there are six hundred more at the end of both sides.
//!
//! What a backend does all the time is in both sides too. Most of it is in `relay`: nobody rings, so its rounds come twice a
//! second, each in the place of a look at which nothing is found. The sweep is in neither: it looks at every database, and
//! that is what it is for.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bus::{Message, Producer};
use serde_json::json;
use testkit::postgres::Session;

use crate::cost::databases;
use crate::fleet::PARTITIONS;
use crate::ground::REGION;
use crate::meter::real;
use crate::pace::until;
use crate::pgbench::Scratch;
use crate::populate::Population;
use crate::process::{self, Process, free_port};
use crate::{Results, Slice, create, drain, gossip, topic};

/// Records of a round.
const AT_ONCE: usize = 10;
/// Rounds before those that count: connections and plans are made there.
const WARM_UP: usize = 10;
/// Rounds of the relay that count, two a second.
const RELAYED: usize = 30;
/// Rounds of the sink that count.
const ABSORBED: usize = 100;
/// Rounds of creates that count.
const MINTED: usize = 50;
/// A cluster of the region beside the one that everything is in.
const SECOND: &str = "bench-second";
/// How long a round may take, or the first word of every database.
const PATIENCE: Duration = Duration::from_mins(1);

/// Operations that have ended, as nearly all have, and a sweep that is not due for as long as a slice lasts.
const AT_REST: &str = "update operations set state = 'succeeded', ended_at = now(); \
    update turns set next_at = now() + interval '1 hour' where name = 'sweep'";
/// Whether everything that the relay published is marked, too.
const MARKED: &str = "select count(*) = 0 from databases where unpublished";
/// Whether a choice was made: where all that was there is in one cluster, what is new goes to the other one first.
const CHOSEN: &str = "select count(distinct cluster_id) = 2 from databases where deleted_at is null";
/// The processes that serve the backend's connections; those of the bench have another name.
const CONNECTIONS: &str = "select pid from pg_stat_activity where datname = current_database() \
    and application_name = 'slipway-backend'";

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let count = databases(slice);
    let (relay, sink, mint) = (relay(count).await?, sink(count).await?, mint(count).await?);
    Ok(Results::from([("relay".to_owned(), relay), ("sink".to_owned(), sink), ("mint".to_owned(), mint)]))
}

async fn relay(count: usize) -> anyhow::Result<f64> {
    let population = drain::population(count).await?;
    let scratch = scratch(&[gossip::CLUSTER], population.relayed()).await?;
    let measured = relayed(&scratch, &population).await;
    scratch.drop().await?;
    measured
}

async fn sink(count: usize) -> anyhow::Result<f64> {
    let scratch = scratch(&[gossip::CLUSTER], Population::silent(count).published()).await?;
    let measured = absorbed(&scratch, count).await;
    scratch.drop().await?;
    measured
}

async fn mint(count: usize) -> anyhow::Result<f64> {
    let scratch = scratch(&[gossip::CLUSTER, SECOND], Population::silent(count).published()).await?;
    let measured = minted(&scratch).await;
    scratch.drop().await?;
    measured
}

/// A database with these clusters and a population that has nothing left to do.
async fn scratch(clusters: &[&str], portions: impl Iterator<Item = String>) -> anyhow::Result<Scratch> {
    let names: Vec<String> = clusters.iter().map(|name| (*name).to_owned()).collect();
    let scratch = Scratch::with_clusters(&names, Vec::new()).await?;
    for portion in portions {
        scratch.execute(&portion).await?;
    }
    scratch.execute(AT_REST).await?;
    scratch.execute("vacuum (analyze)").await?;
    Ok(scratch)
}

async fn relayed(scratch: &Scratch, population: &Population) -> anyhow::Result<f64> {
    let name = testkit::unique("bench.cost");
    topic::empty(&name, PARTITIONS).await?;
    let settings = [("SLIPWAY_INSTRUCTIONS_TOPIC", name.clone())];
    let mut backend = Backend::start(scratch, "relay", &settings).await?;
    let mut session = Session::open(scratch.url()).await?;
    let cost = backend
        .cost(RELAYED, async |round| {
            let changed = session.run(&again(population, round)).await?;
            ensure!(changed == AT_ONCE.to_string(), "{changed} states were made unpublished");
            comes(&mut session, MARKED).await
        })
        .await;
    backend.kill().await?;
    let cost = cost?;
    let (there, sent) = (topic::end(&name, PARTITIONS).await?, (WARM_UP + RELAYED) * AT_ONCE);
    ensure!(usize::try_from(there) == Ok(sent), "{sent} states were made unpublished and {there} published");
    Ok(cost)
}

async fn absorbed(scratch: &Scratch, count: usize) -> anyhow::Result<f64> {
    let name = testkit::unique("bench.cost");
    topic::empty(&name, PARTITIONS).await?;
    let settings = [("SLIPWAY_GOSSIP_TOPIC", name.clone()), ("SLIPWAY_SINK_GROUP", testkit::unique("bench"))];
    let mut backend = Backend::start(scratch, "sink", &settings).await?;
    let mut session = Session::open(scratch.url()).await?;
    // A word of every database is there before the time that counts: from then on rows are only changed.
    let first = (0..count).map(|number| gossip::record(number, 1));
    topic::write(&topic::connection(), &name, first).await?;
    comes(&mut session, &taken_in(&name, count)).await?;
    scratch.execute("vacuum (analyze)").await?;
    let producer = Producer::new(&topic::connection())?;
    let cost = backend
        .cost(ABSORBED, async |round| {
            for number in turn(round, count) {
                let (key, payload) = gossip::record(number, u64::try_from(round)? + 2)?;
                let message = Message { topic: name.clone(), key, payload, headers: Vec::new() };
                // That it arrived is seen from the offsets.
                drop(producer.enqueue(&message)?);
            }
            comes(&mut session, &taken_in(&name, count + (round + 1) * AT_ONCE)).await
        })
        .await;
    backend.kill().await?;
    cost
}

async fn minted(scratch: &Scratch) -> anyhow::Result<f64> {
    let listen = format!("127.0.0.1:{}", free_port()?);
    let mut backend = Backend::start(scratch, "api", &create::settings(&listen)).await?;
    let mut line = create::line(&listen, &create::token(scratch).await?).await?;
    let cost = backend
        .cost(MINTED, async |round| {
            for place in 0..AT_ONCE {
                let name = format!("m{round}-{place}");
                let body = json!({"name": name, "region": REGION}).to_string();
                let status = line.ask(("idempotency-key", &name), &body).await?;
                ensure!(status == 202, "a database was not accepted: {status}");
            }
            Ok(())
        })
        .await;
    backend.kill().await?;
    let cost = cost?;
    let chosen = scratch.execute(CHOSEN).await?;
    ensure!(chosen == "t", "all databases went to one cluster");
    Ok(cost)
}

/// Waits until Postgres says yes.
async fn comes(session: &mut Session, question: &str) -> anyhow::Result<()> {
    until(PATIENCE, question, async || Ok((session.run(question).await? == "t").then_some(()))).await
}

/// Whether so many records of a topic are taken in.
fn taken_in(name: &str, records: usize) -> String {
    format!("select coalesce(sum(next_offset), 0) >= {records} from consumer_offsets where topic = '{name}'")
}

/// Makes the states of a round unpublished at their positions, as the product does where somebody asks for that; answers
/// how many.
fn again(population: &Population, round: usize) -> String {
    let prefix = &population.prefix;
    let identities: Vec<String> =
        turn(round, population.count).map(|number| format!("'{prefix}{number:012x}'")).collect();
    format!(
        "with again as (update databases set published_epoch = 0, published_seq = 0, resent_at = clock_timestamp(), \
         resent_by = 'bench', resends = resends + 1 where id in ({}) and not unpublished returning id) \
         select count(*) from again",
        identities.join(", ")
    )
}

/// The databases of a round, by number: far from each other, and others than in the round before where there are more.
fn turn(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..AT_ONCE).map(move |place| (round + place * (count / AT_ONCE)) % count)
}

/// A backend of the bench's own.
struct Backend {
    process: Process,
    session: Session,
    connections: Connections,
}

impl Backend {
    /// Starts it with one role, over a database of its own.
    async fn start(scratch: &Scratch, role: &str, settings: &[(&str, String)]) -> anyhow::Result<Self> {
        let mut environment = vec![
            ("DATABASE_URL", scratch.url().to_owned()),
            ("SLIPWAY_ROLES", role.to_owned()),
            ("SLIPWAY_TOPIC_PARTITIONS", PARTITIONS.to_string()),
        ];
        environment.extend_from_slice(settings);
        let process = Process::start("slipway-backend", &["serve"], &environment).await?;
        let session = Session::open(scratch.url()).await?;
        Ok(Self { process, session, connections: Connections::default() })
    }

    /// Milliseconds of processor time for a record, over so many rounds after those that do not count.
    async fn cost(
        &mut self,
        rounds: usize,
        mut work: impl AsyncFnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let (mut before, mut after) = (0.0, 0.0);
        for round in 0..WARM_UP + rounds {
            work(round).await?;
            // Each time: of a connection that ends no more is lost than it used in a round.
            after = self.cpu().await?;
            if round < WARM_UP {
                before = after;
            }
        }
        Ok((after - before) * 1_000.0 / real(rounds * AT_ONCE))
    }

    /// Processor time used so far by it and by its connections, in seconds.
    async fn cpu(&mut self) -> anyhow::Result<f64> {
        let pids = self.session.run(CONNECTIONS).await?;
        let served = self.connections.look(&pids, |pid| process::cpu(pid).ok())?;
        ensure!(served > 0.0, "nothing is known of the backend's connections");
        Ok(self.process.cpu()? + served)
    }

    async fn kill(self) -> anyhow::Result<()> {
        self.process.kill().await
    }
}

/// What each connection had used when it was last looked at, in seconds, by the process that serves it. Connections that
/// have ended stay, so that the sum never falls; new ones begin with nothing, so that all of theirs is in it.
#[derive(Debug, Default)]
struct Connections(BTreeMap<u32, f64>);

impl Connections {
    /// Looks at these, one a line; what all that were ever looked at have used. `cpu` knows what a process has used that
    /// has not ended.
    fn look(&mut self, pids: &str, cpu: impl Fn(u32) -> Option<f64>) -> anyhow::Result<f64> {
        for line in pids.lines() {
            let pid: u32 = line.parse().with_context(|| format!("not a process: {line}"))?;
            self.0.extend(cpu(pid).map(|used| (pid, used)));
        }
        Ok(self.0.values().sum())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_round_is_of_ten_databases_and_the_next_of_others() {
        for round in 0..12 {
            assert_eq!(turn(round, 10).collect::<BTreeSet<_>>(), (0..10).collect(), "round {round}");
        }
        let many: BTreeSet<usize> = (0..WARM_UP + ABSORBED).flat_map(|round| turn(round, 10_000)).collect();
        assert_eq!(many.len(), (WARM_UP + ABSORBED) * AT_ONCE, "none comes twice");
        assert!(many.iter().all(|number| *number < 10_000));
    }

    #[test]
    fn the_states_of_a_round_are_named() {
        let statement = again(&Population::silent(10_000), 1);
        for identity in ["'01900000-0000-7000-8000-000000000001'", "'01900000-0000-7000-8000-000000002329'"] {
            assert!(statement.contains(identity), "{statement}");
        }
        assert_eq!(statement.matches("'01900000-").count(), AT_ONCE);
        assert!(statement.contains(" and not unpublished returning "), "{statement}");
    }

    #[test]
    fn connections_that_come_and_go_are_counted() {
        let mut connections = Connections::default();
        let sum = |connections: &mut Connections, pids: &str, used: &[(u32, f64)]| {
            let used: BTreeMap<u32, f64> = used.iter().copied().collect();
            connections.look(pids, |pid| used.get(&pid).copied()).unwrap()
        };
        let table = [
            ("", vec![], 0.0),
            ("7\n8", vec![(7, 1.0), (8, 2.0)], 3.0),
            // One has ended, and another began.
            ("7\n9", vec![(7, 1.5), (9, 0.5)], 4.0),
            // One ended after it was named.
            ("7\n9", vec![(9, 1.0)], 4.5),
            ("", vec![], 4.5),
        ];
        for (pids, used, expected) in table {
            let sum = sum(&mut connections, pids, &used);
            assert!((sum - expected).abs() < f64::EPSILON, "{sum} after '{pids}'");
        }
        assert!(connections.look("nobody", |_| None).is_err());
    }
}
