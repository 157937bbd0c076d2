//! B6, gossip into Postgres: a backlog, and how fast it is in the tables.
//!
//! Product: a sink of its own with a database of its own; as `rows` with a hundred thousand observations of as many
//! databases, as `events` with two hundred thousand of ten thousand databases, a tenth of them stale or said again, as `open`
//! with forty thousand of as many databases, each of which ends the database's operation. Anchor, of the first two: rows a
//! second by statements of five hundred rows each, one after the other on one connection; of `open`: the same with the two
//! statements by which operations move, in one transaction; the product has to lock and to ask before it writes.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use store::statements;

use crate::gossip::{AT, CLUSTER, PHASE, TOLD, document, event, record, steps};
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
/// Databases of `open`.
const OPEN: usize = 40_000;
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
/// The databases of a statement of the anchor.
const IDENTITIES: &str = "array(select ('{prefix}' || lpad(to_hex((:n::bigint * 500 + i) % {count}), 12, '0'))::uuid \
    from generate_series(0, 499) i)";
/// How long a backlog may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let settled = scratch(Population::silent(DISTINCT).published()).await?;
    let measured = match slice {
        Slice::Product => product(&settled).await,
        Slice::Anchor => anchor(&settled, seconds).await,
    };
    settled.drop().await?;
    let mut results = measured?;
    let busy = scratch(Population::silent(OPEN).relayed()).await?;
    let measured = match slice {
        Slice::Product => ended(&busy).await,
        Slice::Anchor => moved(&busy, seconds).await,
    };
    busy.drop().await?;
    results.insert("open".to_owned(), measured?);
    Ok(results)
}

/// The most memory that a sink took for a backlog of so many events, in MB.
pub(crate) async fn peak(events: usize) -> anyhow::Result<f64> {
    ensure!(events == TALKATIVE * EACH, "the topic holds {} events", TALKATIVE * EACH);
    let scratch = scratch(Population::silent(DISTINCT).published()).await?;
    let (_, peak) = absorbed(&scratch, &events_topic().await?, events).await?;
    scratch.drop().await?;
    Ok(peak)
}

/// A database in which everything is published and nothing was seen.
async fn scratch(portions: impl Iterator<Item = String>) -> anyhow::Result<Scratch> {
    let variables = vec![
        ("observed", serde_json::to_string(&document()?)?),
        ("steps", serde_json::to_string(&steps())?),
        ("event", event().to_string()),
    ];
    let scratch = Scratch::with_clusters(&[CLUSTER.to_owned()], variables).await?;
    for portion in portions {
        scratch.execute(&portion).await?;
    }
    scratch.execute("vacuum (analyze)").await?;
    Ok(scratch)
}

async fn product(scratch: &Scratch) -> anyhow::Result<Results> {
    let name = "bench.gossip-once";
    topic::filled(name, PARTITIONS, DISTINCT, |number| record(number, 1)).await?;
    let (rows, _) = absorbed(scratch, name, DISTINCT).await?;
    stored(scratch, "select body from observations limit 1", &serde_json::to_value(document()?)?).await?;
    let (events, _) = absorbed(scratch, &events_topic().await?, TALKATIVE * EACH).await?;
    Ok(Results::from([("rows".to_owned(), rows), ("events".to_owned(), events)]))
}

/// Operations a second that the sink ends.
async fn ended(scratch: &Scratch) -> anyhow::Result<f64> {
    let name = "bench.gossip-open";
    topic::filled(name, PARTITIONS, OPEN, |number| record(number, 1)).await?;
    let (rate, _) = absorbed(scratch, name, OPEN).await?;
    let open = scratch.execute("select count(*) from operations where state <> 'succeeded'").await?;
    ensure!(open == "0", "{open} operations have not ended well");
    // The first step began when the operation did, which is another time each.
    let expected = Value::from(&steps()[1..]);
    stored(scratch, "select steps - 0 from operations limit 1", &expected).await?;
    stored(scratch, "select body from operation_events where number = 2 limit 1", &event()).await?;
    Ok(rate)
}

/// Whether the product stores the documents that the anchor is given.
async fn stored(scratch: &Scratch, question: &str, expected: &Value) -> anyhow::Result<()> {
    let stored = scratch.execute(question).await?;
    ensure!(
        serde_json::from_str::<Value>(&stored)? == *expected,
        "the anchor is given another document than the product stores: {stored}"
    );
    Ok(())
}

/// Five hundred observations in one statement, each with a document of its own to read.
fn upsert() -> anyhow::Result<String> {
    let (number, text) =
        (|value: i64| all(&format!("{value}::bigint")), |value: &str| all(&format!("'{value}'::text")));
    let columns = [
        IDENTITIES.to_owned(),
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
    fill(statements::UPSERT, &columns.each_ref().map(String::as_str))
}

/// So many times the same.
fn all(value: &str) -> String {
    format!("array_fill({value}, array[500])")
}

/// What is written of the operations of five hundred databases: how far each is, and all that it told on its way. None ends, so
/// that each can move again.
fn moves() -> anyhow::Result<String> {
    let operations = [
        IDENTITIES.to_owned(),
        all("'running'::text"),
        all("null::text"),
        all("null::text"),
        "array(select d::jsonb from unnest(array_fill(:steps::text, array[500])) d)".to_owned(),
        all(&format!("(:n::bigint + 1) * {TOLD}")),
        all("false"),
        all("null::bigint"),
        all("null::bigint"),
    ];
    let (series, count) = (format!("generate_series(0, {}) i", 500 * TOLD - 1), 500 * TOLD);
    let events = [
        format!(
            "array(select ('{{prefix}}' || lpad(to_hex((:n::bigint * 500 + i / {TOLD}) % {{count}}), 12, '0'))::uuid \
             from {series})"
        ),
        format!("array(select :n::bigint * {TOLD} + i % {TOLD} + 1 from {series})"),
        format!("array_fill('step'::text, array[{count}])"),
        format!("array(select d::jsonb from unnest(array_fill(:event::text, array[{count}])) d)"),
    ];
    let operations = fill(statements::MOVE_OPERATIONS, &operations.each_ref().map(String::as_str))?;
    Ok(operations + &fill(statements::APPEND_EVENTS, &events.each_ref().map(String::as_str))?)
}

async fn anchor(scratch: &Scratch, seconds: u32) -> anyhow::Result<Results> {
    let script = Population::silent(DISTINCT).script(&numbered(&upsert()?));
    let rows = scratch.throughput(&script, 1, seconds).await? * BATCH;
    Ok(Results::from([("rows".to_owned(), rows), ("events".to_owned(), rows)]))
}

async fn moved(scratch: &Scratch, seconds: u32) -> anyhow::Result<f64> {
    let script = numbered(&format!("begin;\n{}{}commit;\n", upsert()?, moves()?));
    Ok(scratch.throughput(&Population::silent(OPEN).script(&script), 1, seconds).await? * BATCH)
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
        let script = Population::silent(DISTINCT).script(&numbered(&upsert().unwrap()));
        assert!(script.starts_with("\\set n :n + 1\ninsert into observations "), "{script}");
        assert!(!script.contains(['{', '}']), "a mark stayed: {script}");
        assert_eq!(script.matches("array[500]").count(), 13, "all but the identities");
        assert_eq!(script.lines().count(), 2, "one statement");
        let script = Population::silent(OPEN).script(&moves().unwrap());
        assert!(!script.contains(['{', '}', '$']), "a mark stayed: {script}");
        assert_eq!(script.matches("array[500]").count(), 8, "all but the identities");
        assert_eq!(script.lines().count(), 2, "operations and events");
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
