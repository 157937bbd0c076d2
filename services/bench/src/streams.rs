//! The promise of event streams: every replica shows every change within half a second of its commit, under load.
//!
//! Product: two APIs of its own over a database of its own, one hundred operations, of each a stream at both, so that
//! one process reads two hundred streams. Fifty changes a second are committed by hand, each timed from before its
//! statement is sent until each of its two readers has it; that is a little more than what is promised. Anchor: from
//! before the same statements until another session, which asks just then, sees the change: what no poll can be quicker
//! than; and, beside the slowest event of the product, what is promised. Every event must come once and in order, or there
//! is no figure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use reqwest::Method;
use serde_json::json;
use testkit::postgres::Session;
use testkit::{Console, stack};
use tokio::process::Command;

use crate::ground::TENANT;
use crate::pgbench::Scratch;
use crate::process::{Process, free_port};
use crate::samples::Samples;
use crate::{Results, Slice};

/// How soon after its commit every stream shows an event.
const PROMISED: Duration = Duration::from_millis(500);
/// Operations that are followed.
const OPERATIONS: usize = 100;
/// Replicas of the API, each with a stream of each operation.
const REPLICAS: usize = 2;
/// Changes a second, over all operations.
const RATE: u32 = 50;
/// How long the last events may take to be shown.
const LATE: Duration = Duration::from_secs(10);
/// How long a stream may be open: longer than any bench lasts.
const OPEN: Duration = Duration::from_mins(15);
/// The cluster of the bench's own, and its region.
const CLUSTER: &str = "streams";
const REGION: &str = "bench-1";

/// When each change of each operation was sent to be committed.
type Sent = Arc<Mutex<BTreeMap<(usize, i64), Instant>>>;

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let scratch = Scratch::with_clusters(&[CLUSTER.to_owned()], Vec::new()).await?;
    let measured = run(&scratch, slice, seconds * RATE).await;
    scratch.drop().await?;
    let samples = measured?;
    let mut results = Results::new();
    samples.write(&mut results, "")?;
    let longest = match slice {
        Slice::Product => samples.percentile(100),
        Slice::Anchor => Some(PROMISED.as_secs_f64() * 1_000.0),
    };
    results.extend(longest.map(|longest| ("max".to_owned(), longest)));
    Ok(results)
}

async fn run(scratch: &Scratch, slice: Slice, changes: u32) -> anyhow::Result<Samples> {
    let token = token(scratch).await?;
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Replica::start(scratch, &token).await?);
    }
    let operations = operations(&replicas.first().context("there are replicas")?.console).await?;
    let measured = match slice {
        Slice::Product => product(scratch, &replicas, &operations, changes).await,
        Slice::Anchor => anchor(scratch, &operations, changes).await,
    };
    for replica in replicas {
        replica.process.kill().await?;
    }
    measured
}

/// An API.
struct Replica {
    process: Process,
    console: Console,
}

impl Replica {
    async fn start(scratch: &Scratch, token: &str) -> anyhow::Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let environment = [
            ("DATABASE_URL", scratch.url().to_owned()),
            ("SLIPWAY_ROLES", "api".to_owned()),
            ("SLIPWAY_API_LISTEN", listen.clone()),
        ];
        let process = Process::start("slipway-backend", &["serve"], &environment).await?;
        Ok(Self { process, console: Console::at(&format!("http://{listen}"), token, TENANT) })
    }
}

async fn token(scratch: &Scratch) -> anyhow::Result<String> {
    let made = Command::new(stack().programs.join("slipway-backend"))
        .args(["tokens", "create", "--role", "console", "--name", "bench"])
        .env("DATABASE_URL", scratch.url())
        .output()
        .await?;
    ensure!(made.status.success(), "no token: {}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout)?;
    Ok(text.lines().last().context("a token is printed")?.trim().to_owned())
}

/// Operations that nothing moves but the bench.
async fn operations(console: &Console) -> anyhow::Result<Vec<String>> {
    let mut operations = Vec::new();
    for number in 0..OPERATIONS {
        let wish = json!({"name": format!("db-{number}"), "region": REGION});
        let made = console.post("/v1/databases", &wish).await?;
        let operation = made["operation"]["id"].as_str().context("an accepted wish has an operation")?;
        operations.push(operation.to_owned());
    }
    Ok(operations)
}

async fn product(
    scratch: &Scratch,
    replicas: &[Replica],
    operations: &[String],
    changes: u32,
) -> anyhow::Result<Samples> {
    let sent = Sent::default();
    let each = i64::from(changes) / i64::try_from(OPERATIONS)?;
    let mut readers = Vec::new();
    for replica in replicas {
        for (at, operation) in operations.iter().enumerate() {
            let mut reader = Reader::open(&replica.console, operation).await?;
            ensure!(reader.next().await? == 1, "a stream begins with the first event");
            let sent = Arc::clone(&sent);
            readers.push(tokio::spawn(async move { reader.follow(at, each, &sent).await }));
        }
    }
    let mut session = Session::open(scratch.url()).await?;
    paced(operations, each, async |at, operation, number| {
        sent.lock().unwrap_or_else(PoisonError::into_inner).insert((at, number), Instant::now());
        session.run(&change(operation)).await.map(drop)
    })
    .await?;
    let shown = tokio::time::timeout(LATE, try_join_all(readers)).await.context("an event is not shown")?;
    let shown: anyhow::Result<Vec<Vec<Duration>>> = shown?.into_iter().collect();
    Ok(shown?.into_iter().flatten().collect())
}

async fn anchor(scratch: &Scratch, operations: &[String], changes: u32) -> anyhow::Result<Samples> {
    let mut writer = Session::open(scratch.url()).await?;
    let mut reader = Session::open(scratch.url()).await?;
    let mut samples = Samples::default();
    let each = i64::from(changes) / i64::try_from(OPERATIONS)?;
    paced(operations, each, async |_, operation, number| {
        let start = Instant::now();
        writer.run(&change(operation)).await?;
        let newest = format!("select max(number) from operation_events where operation_id = '{operation}'");
        let seen = reader.run(&newest).await?;
        ensure!(seen == number.to_string(), "event {number} is committed, and {seen} is seen");
        samples.push(start.elapsed());
        Ok(())
    })
    .await?;
    Ok(samples)
}

/// Changes the operations in turn, at the rate of the bench; the first change of each has the number 2.
async fn paced(
    operations: &[String],
    each: i64,
    mut change: impl AsyncFnMut(usize, &str, i64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / RATE);
    for number in 2..2 + each {
        for (at, operation) in operations.iter().enumerate() {
            beat.tick().await;
            change(at, operation, number).await?;
        }
    }
    Ok(())
}

/// The next event of an operation, numbered under its row as the product does.
fn change(operation: &str) -> String {
    format!(
        "with moved as (update operations set last_event = last_event + 1 where id = '{operation}' \
         returning id, last_event) insert into operation_events (operation_id, number, kind, body) \
         select id, last_event, 'state', '{{\"state\": \"running\"}}' from moved"
    )
}

/// A stream.
struct Reader {
    response: reqwest::Response,
    buffer: String,
}

impl Reader {
    async fn open(console: &Console, operation: &str) -> anyhow::Result<Self> {
        let path = format!("/v1/operations/{operation}/events");
        let request = console.request(Method::GET, &path).timeout(OPEN);
        let response = request.send().await?.error_for_status()?;
        Ok(Self { response, buffer: String::new() })
    }

    /// How long each event took, from the second on.
    async fn follow(&mut self, at: usize, each: i64, sent: &Sent) -> anyhow::Result<Vec<Duration>> {
        let mut delays = Vec::new();
        for number in 2..2 + each {
            let shown = self.next().await?;
            ensure!(shown == number, "event {number} should follow, and {shown} is shown");
            let sent = sent.lock().unwrap_or_else(PoisonError::into_inner).get(&(at, number)).copied();
            delays.push(sent.context("what is shown was sent")?.elapsed());
        }
        Ok(delays)
    }

    /// The number of the next event.
    async fn next(&mut self) -> anyhow::Result<i64> {
        loop {
            let frame = self.frame().await?;
            if let Some(number) = number(&frame)? {
                return Ok(number);
            }
        }
    }

    async fn frame(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                return Ok(self.buffer.drain(..end + 2).collect());
            }
            let chunk = self.response.chunk().await?.context("the stream has ended")?;
            self.buffer.push_str(std::str::from_utf8(&chunk)?);
        }
    }
}

/// The number of an event; what only keeps the stream alive has none.
fn number(frame: &str) -> anyhow::Result<Option<i64>> {
    let id = frame.lines().find_map(|line| line.strip_prefix("id:"));
    id.map(|id| id.trim().parse().context("the number of an event")).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_have_numbers() {
        assert_eq!(number("id: 7\nevent: state\ndata: {}\n\n").unwrap(), Some(7));
        assert_eq!(number(": alive\n\n").unwrap(), None);
        assert!(number("id: x\n\n").is_err());
    }
}
