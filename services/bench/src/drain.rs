//! B7b, the outbox: a backlog of unpublished states, and how fast it comes to stand in Kafka.
//!
//! Product: records a second that a relay of its own writes. Anchor: the slower of Postgres (a relay's statements, run by
//! pgbench) and Kafka (records of the same size by a producer with nothing else to do); each of them also by itself.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use store::statements;

use crate::ground::Ground;
use crate::meter::real;
use crate::pace::until;
use crate::pgbench::{Scratch, fill};
use crate::populate::Population;
use crate::process::Process;
use crate::specimen::Specimen;
use crate::{Results, Slice, topic};

/// States that wait.
const STATES: usize = 50_000;
/// Those of one round of the product.
const ROUND: usize = 500;
/// The same to pgbench: identities of states that wait, which the relay would have read, and their position, the first.
const WAITING: &str =
    "array(select id from databases where unpublished order by greatest(minted_at, resent_at) limit 500)";
const FIRST: &str = "array_fill(1::bigint, array[500])";
const PARTITIONS: i32 = 8;
/// How long the backlog may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// How often Kafka is asked.
const LOOK: Duration = Duration::from_millis(20);
/// About the size of an instruction.
const PAYLOAD: usize = 600;

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let population = population(STATES).await?;
    match slice {
        Slice::Product => {
            let (rate, _) = product(&population).await?;
            Ok(Results::from([("drain".to_owned(), rate)]))
        }
        Slice::Anchor => anchor(&population).await,
    }
}

/// The most memory that a relay took for a backlog of so many states, in MB.
pub(crate) async fn peak(states: usize) -> anyhow::Result<f64> {
    Ok(product(&population(states).await?).await?.1)
}

/// States as the product mints them.
pub(crate) async fn population(count: usize) -> anyhow::Result<Population> {
    let ground = Ground::prepare().await?;
    let variables = Specimen::make(&ground).await?.variables().await?;
    ground.sweep().await?;
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.clone()).with_context(|| format!("the specimen has a {wanted}"))
    };
    Ok(Population::fresh(count, variable("desired")?, variable("hash")?))
}

/// A database with a backlog.
async fn scratch(population: &Population) -> anyhow::Result<Scratch> {
    let scratch = Scratch::with_clusters(&["bench".to_owned()], Vec::new()).await?;
    for portion in population.unpublished() {
        scratch.execute(&portion).await?;
    }
    scratch.execute("vacuum (analyze)").await?;
    Ok(scratch)
}

/// Records a second, and the most memory.
async fn product(population: &Population) -> anyhow::Result<(f64, f64)> {
    let scratch = scratch(population).await?;
    let name = testkit::unique("bench.drain");
    topic::empty(&name, PARTITIONS).await?;
    let environment = [
        ("DATABASE_URL", scratch.url().to_owned()),
        ("SLIPWAY_ROLES", "relay".to_owned()),
        ("SLIPWAY_INSTRUCTIONS_TOPIC", name.clone()),
        ("SLIPWAY_TOPIC_PARTITIONS", PARTITIONS.to_string()),
    ];
    let relay = Process::start("slipway-backend", &["serve"], &environment).await?;
    let rate = drained(&name, population.count).await;
    let peak = relay.peak();
    relay.kill().await?;
    scratch.drop().await?;
    Ok((rate?, peak?))
}

/// Records a second from the first look at which there are some to that at which all are there.
async fn drained(name: &str, count: usize) -> anyhow::Result<f64> {
    let mut first: Option<(Instant, usize)> = None;
    let mut last = Instant::now();
    let all = until(PATIENCE, "the backlog to stand in Kafka", async || {
        tokio::time::sleep(LOOK).await;
        let there = usize::try_from(topic::end(name, PARTITIONS).await?)?;
        last = Instant::now();
        if there > 0 && first.is_none() {
            first = Some((last, there));
        }
        Ok((there >= count).then_some(there))
    })
    .await?;
    let (start, already) = first.context("records came")?;
    Ok(real(all - already) / last.duration_since(start).as_secs_f64())
}

/// A round of a relay without a relay: five hundred unpublished states are read, and marked.
fn script() -> anyhow::Result<String> {
    let read = fill(statements::UNPUBLISHED, &["500::bigint", "1::int", "'{}'::uuid[]"])?;
    Ok(read + &fill(statements::MARK, &[WAITING, FIRST, FIRST])?)
}

async fn anchor(population: &Population) -> anyhow::Result<Results> {
    let scratch = scratch(population).await?;
    let rounds = scratch.repeated(&script()?, population.count / ROUND).await;
    scratch.drop().await?;
    let postgres = rounds? * real(ROUND);
    let name = testkit::unique("bench.drain");
    topic::empty(&name, PARTITIONS).await?;
    let records = (0..population.count).map(|number| Ok((format!("key-{number}"), vec![7; PAYLOAD])));
    let elapsed = topic::write(&topic::connection(), &name, records).await?;
    let kafka = real(population.count) / elapsed.as_secs_f64();
    Ok(Results::from([
        ("drain".to_owned(), postgres.min(kafka)),
        ("drain-postgres".to_owned(), postgres),
        ("drain-kafka".to_owned(), kafka),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_reads_and_marks() {
        let script = script().unwrap();
        let [read, mark] = script.lines().collect::<Vec<_>>()[..] else { panic!("two statements: {script}") };
        assert!(read.starts_with("select ") && read.ends_with(" limit (500::bigint);"), "{read}");
        assert!(mark.contains(" update databases ") && mark.contains(WAITING), "{mark}");
        assert!(WAITING.contains(&format!("limit {ROUND})")) && FIRST.contains(&ROUND.to_string()));
    }
}
