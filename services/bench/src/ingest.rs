//! B6, gossip into Postgres: a backlog, and how fast it is in the tables.
//!
//! Product: a sink of its own with a database of its own; as `rows` with a hundred thousand observations of as many
//! databases, as `events` with two hundred thousand of ten thousand databases, a tenth of them stale or said again. Anchor,
//! of both: rows a second by statements of five hundred rows each, one after the other on one connection.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use store::statements;

use crate::gossip::{AT, CLUSTER, PHASE, document, record};
use crate::pace::until;
use crate::pgbench::{Scratch, fill, numbered};
use crate::populate::Population;
use crate::process::Process;
use crate::{Results, Slice, topic};

/// Databases of `rows`.
const DISTINCT: usize = 100_000;
/// Databases of `events`.
const TALKATIVE: usize = 10_000;
/// Observations of each of them.
const EACH: usize = 20;
/// Rows of one statement of the anchor.
const BATCH: f64 = 500.0;
const PARTITIONS: i32 = 8;

/// Waits for a while until so many records are taken in; answers how many are, and when that was, by the clock of the
/// server.
const RACE: &str = "create function pg_temp.race(wanted bigint) returns text language plpgsql as $$
declare there bigint; enough timestamptz := clock_timestamp() + interval '10 s';
begin
  loop
    select coalesce(sum(next_offset), 0) into there from consumer_offsets where topic = '{topic}';
    if there >= wanted or clock_timestamp() > enough then
      return there || ' ' || extract(epoch from clock_timestamp());
    end if;
    perform pg_sleep(0.005);
  end loop;
end $$;
select pg_temp.race({wanted})";
/// How long a backlog may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let scratch = scratch().await?;
    let measured = match slice {
        Slice::Product => product(&scratch).await,
        Slice::Anchor => anchor(&scratch, seconds).await,
    };
    scratch.drop().await?;
    measured
}

/// The most memory that a sink took for a backlog of so many events, in MB.
pub(crate) async fn peak(events: usize) -> anyhow::Result<f64> {
    ensure!(events == TALKATIVE * EACH, "the topic holds {} events", TALKATIVE * EACH);
    let scratch = scratch().await?;
    let (_, peak) = absorbed(&scratch, &events_topic().await?, events).await?;
    scratch.drop().await?;
    Ok(peak)
}

/// A database in which everything is published and nothing was seen.
async fn scratch() -> anyhow::Result<Scratch> {
    let variables = vec![("observed", serde_json::to_string(&document()?)?)];
    let scratch = Scratch::with_clusters(&[CLUSTER.to_owned()], variables).await?;
    for portion in Population::silent(DISTINCT).published() {
        scratch.execute(&portion).await?;
    }
    scratch.execute("vacuum (analyze)").await?;
    Ok(scratch)
}

async fn product(scratch: &Scratch) -> anyhow::Result<Results> {
    let name = "bench.gossip-once";
    topic::filled(name, PARTITIONS, DISTINCT, |number| record(number, 1)).await?;
    let (rows, _) = absorbed(scratch, name, DISTINCT).await?;
    let stored = scratch.execute("select body from observations limit 1").await?;
    let expected = serde_json::to_value(document()?)?;
    ensure!(
        serde_json::from_str::<serde_json::Value>(&stored)? == expected,
        "the anchor is given another document than the product stores: {stored}"
    );
    let (events, _) = absorbed(scratch, &events_topic().await?, TALKATIVE * EACH).await?;
    Ok(Results::from([("rows".to_owned(), rows), ("events".to_owned(), events)]))
}

/// Five hundred observations in one statement, each with a document of its own to read.
fn script() -> anyhow::Result<String> {
    let all = |value: &str| format!("array_fill({value}, array[500])");
    let (number, text) =
        (|value: i64| all(&format!("{value}::bigint")), |value: &str| all(&format!("'{value}'::text")));
    let columns = [
        "array(select ('{prefix}' || lpad(to_hex((:n::bigint * 500 + i) % {count}), 12, '0'))::uuid \
         from generate_series(0, 499) i)"
            .to_owned(),
        text(CLUSTER),
        number(1),
        number(1),
        number(1),
        all(":n::bigint"),
        all("true"),
        text("{hash}"),
        text(PHASE),
        number(1),
        number(1),
        "array(select d::jsonb from unnest(array_fill(:observed::text, array[500])) d)".to_owned(),
        all("1::int"),
        number(AT),
    ];
    let columns = columns.each_ref().map(String::as_str);
    Ok(numbered(&fill(statements::UPSERT, &columns)?))
}

async fn anchor(scratch: &Scratch, seconds: u32) -> anyhow::Result<Results> {
    let script = Population::silent(DISTINCT).script(&script()?);
    let rows = scratch.throughput(&script, 1, seconds).await? * BATCH;
    Ok(Results::from([("rows".to_owned(), rows), ("events".to_owned(), rows)]))
}

/// Records a second that a sink takes in, and the most memory it took.
async fn absorbed(scratch: &Scratch, name: &str, count: usize) -> anyhow::Result<(f64, f64)> {
    let environment = [
        ("DATABASE_URL", scratch.url().to_owned()),
        ("SLIPWAY_ROLES", "sink".to_owned()),
        ("SLIPWAY_GOSSIP_TOPIC", name.to_owned()),
        ("SLIPWAY_TOPIC_PARTITIONS", PARTITIONS.to_string()),
        ("SLIPWAY_SINK_GROUP", testkit::unique("bench")),
    ];
    let sink = Process::start("slipway-backend", &["serve"], &environment).await?;
    let rate = rate(scratch, name, count).await;
    let peak = sink.peak();
    sink.kill().await?;
    Ok((rate?, peak?))
}

/// Records a second from the first that are taken in to the last.
async fn rate(scratch: &Scratch, name: &str, count: usize) -> anyhow::Result<f64> {
    let (already, begun) = race(scratch, name, 1).await?;
    let (there, ended) = race(scratch, name, count).await?;
    Ok((there - already) / (ended - begun))
}

/// How many records were taken in when there were so many, and when that was, in seconds.
async fn race(scratch: &Scratch, name: &str, wanted: usize) -> anyhow::Result<(f64, f64)> {
    let statements = RACE.replace("{topic}", name).replace("{wanted}", &wanted.to_string());
    until(PATIENCE, "records to be taken in", async || {
        let answer = scratch.execute(&statements).await?;
        let (there, at) = answer.split_once(' ').context("an answer of two numbers")?;
        let (there, at): (f64, f64) = (there.parse()?, at.parse()?);
        Ok((there >= crate::meter::real(wanted)).then_some((there, at)))
    })
    .await
}

/// The topic in which every database is spoken of again and again.
async fn events_topic() -> anyhow::Result<String> {
    let name = "bench.gossip-again".to_owned();
    topic::filled(&name, PARTITIONS, TALKATIVE * EACH, |number| {
        let (round, database) = (number / TALKATIVE, number % TALKATIVE);
        record(database, version(round))
    })
    .await?;
    Ok(name)
}

/// Of twenty rounds one is said again and one comes late.
const fn version(round: usize) -> u64 {
    match round {
        7 => 8,
        13 => 5,
        other => other as u64 + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_the_anchor_is_whole() {
        let script = Population::silent(DISTINCT).script(&script().unwrap());
        assert!(script.starts_with("\\set n :n + 1\ninsert into observations "), "{script}");
        assert!(!script.contains(['{', '}']), "a mark stayed: {script}");
        assert_eq!(script.matches("array[500]").count(), 13, "all but the identities");
        assert_eq!(script.lines().count(), 2, "one statement");
    }

    #[test]
    fn a_tenth_is_no_news() {
        let mut newest = 0;
        let news = (0..EACH).filter(|round| {
            let news = version(*round) > newest;
            newest = newest.max(version(*round));
            news
        });
        assert_eq!(news.count(), EACH - EACH / 10);
    }
}
