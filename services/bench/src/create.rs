//! B7a, the throughput of requests: 32 clients, each asking for one database after the other.
//!
//! Product: accepted requests a second by an API of its own with a database of its own, its settings those that it comes
//! with, and nothing behind it: what carries requests out is measured as B1, and would only share the processors here.
//! Anchor: the statements of a create, committed by pgbench from 32 connections, in the same kind of database.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::json;
use testkit::stack;

use crate::ground::{Ground, REGION, TENANT};
use crate::line::Line;
use crate::pgbench::{Scratch, mint};
use crate::process::{Process, free_port};
use crate::specimen::Specimen;
use crate::{Results, Slice};

const CLIENTS: u32 = 32;
/// Connections are made and filled before the time that counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let variables = Specimen::make(&ground).await?.variables().await;
    ground.sweep().await?;
    let scratch = Scratch::make(variables?).await?;
    let measured = match slice {
        Slice::Product => product(&scratch, Duration::from_secs(u64::from(seconds))).await,
        Slice::Anchor => scratch.throughput(&mint()?, CLIENTS, seconds).await,
    };
    scratch.drop().await?;
    Ok(Results::from([("commits".to_owned(), measured?)]))
}

async fn product(scratch: &Scratch, time: Duration) -> anyhow::Result<f64> {
    let listen = format!("127.0.0.1:{}", free_port()?);
    let mut environment =
        vec![("DATABASE_URL", scratch.url().to_owned()), ("SLIPWAY_ROLES", "api".to_owned())];
    environment.extend(settings(&listen));
    let api = Process::start("slipway-backend", &["serve"], &environment).await?;
    let token = token(scratch).await?;
    let before: u32 = minted(scratch).await?;
    let lines = try_join_all((0..CLIENTS).map(|_| line(&listen, &token))).await?;
    let begin = Instant::now() + WARM_UP;
    let window = Window { begin, end: begin + time };
    let counts = try_join_all(
        lines
            .into_iter()
            .zip(0..)
            .map(|(line, client)| async move { tokio::spawn(ask(line, client, window)).await? }),
    );
    let counts = counts.await;
    api.kill().await?;
    let (asked, accepted) = counts?
        .into_iter()
        .fold((0, 0), |(asked, accepted), one| (asked + one.asked, accepted + one.accepted));
    let there = minted(scratch).await? - before;
    ensure!(there == asked, "{asked} databases were accepted and {there} are there");
    Ok(f64::from(accepted) / time.as_secs_f64())
}

/// The settings of an API at this address with nothing behind it.
pub(crate) fn settings(listen: &str) -> [(&'static str, String); 3] {
    [
        ("SLIPWAY_API_LISTEN", listen.to_owned()),
        // Nothing is published here: what waits is no reason to refuse.
        ("SLIPWAY_BACKLOG_DATABASES", u32::MAX.to_string()),
        ("SLIPWAY_BACKLOG_SECONDS", u32::MAX.to_string()),
    ]
}

/// A connection on which databases are asked for.
pub(crate) async fn line(listen: &str, token: &str) -> anyhow::Result<Line> {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("slipway-tenant", TENANT),
        ("content-type", "application/json"),
    ];
    Line::open(listen, "POST /v1/databases", &headers).await
}

/// Makes the stack's token valid in a database of the bench.
pub(crate) async fn token(scratch: &Scratch) -> anyhow::Result<String> {
    let row = "select jsonb_agg(t) from tokens t where role = 'sre' and revoked_at is null";
    let rows = testkit::query(&stack().database_url, row).await?;
    let copy = "insert into tokens select * from jsonb_populate_recordset(null::tokens, ";
    scratch.execute(&format!("{copy}$json${rows}$json$)")).await?;
    stack().token.clone().context("the programs of Slipway run in this stack")
}

/// Operations that were minted.
async fn minted(scratch: &Scratch) -> anyhow::Result<u32> {
    Ok(scratch.execute("select count(*) from operations").await?.parse()?)
}

/// What a client came to.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Databases that it was given.
    asked: u32,
    /// Those of them within the window.
    accepted: u32,
}

/// One client: how many of its requests were accepted.
async fn ask(mut line: Line, client: u32, window: Window) -> anyhow::Result<Count> {
    let mut count = Count::default();
    loop {
        let name = format!("c{client}-{}", count.asked);
        let body = json!({"name": name, "region": REGION}).to_string();
        let status = line.ask(("idempotency-key", &name), &body).await?;
        ensure!(status == 202, "a database was not accepted: {status}");
        let at = Instant::now();
        count.asked += 1;
        if at > window.end {
            return Ok(count);
        }
        count.accepted += u32::from(window.holds(at));
    }
}

/// The time that counts.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    fn holds(&self, at: Instant) -> bool {
        (self.begin..=self.end).contains(&at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_accepted_in_the_window_counts() {
        let now = Instant::now();
        let millisecond = Duration::from_millis(1);
        let begin = now + millisecond;
        let window = Window { begin, end: begin + Duration::from_secs(2) };
        for (at, expect) in [
            (now, false),
            (begin, true),
            (begin + Duration::from_secs(1), true),
            (window.end, true),
            (window.end + millisecond, false),
        ] {
            assert_eq!(window.holds(at), expect, "{at:?} in {window:?}");
        }
    }
}
