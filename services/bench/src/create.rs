//! B7a, the throughput of requests: 32 clients, each asking for one database after the other.
//!
//! Product: accepted requests a second, while everything behind the API carries them out. Anchor: the statements of a
//! create, committed by pgbench from as many connections.

use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::ground::Ground;
use crate::pgbench::{MINT, Scratch};
use crate::specimen::Specimen;
use crate::{Results, Slice};

const CLIENTS: u32 = 32;
/// Connections are made and filled before the time that counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let measured = match slice {
        Slice::Product => product(&ground, Duration::from_secs(u64::from(seconds))).await,
        Slice::Anchor => anchor(&ground, seconds).await,
    };
    ground.sweep().await?;
    Ok(Results::from([("commits".to_owned(), measured?)]))
}

async fn product(ground: &Ground, time: Duration) -> anyhow::Result<f64> {
    let begin = Instant::now() + WARM_UP;
    let window = Window { begin, end: begin + time };
    let counts = try_join_all((0..CLIENTS).map(|client| {
        let ground = ground.clone();
        async move { tokio::spawn(ask(ground, client, window)).await? }
    }));
    let accepted: u32 = counts.await?.into_iter().sum();
    // What was accepted and came to nothing would be no throughput.
    ground.settle().await?;
    Ok(f64::from(accepted) / time.as_secs_f64())
}

/// One client: how many of its requests were accepted in the window.
async fn ask(ground: Ground, client: u32, window: Window) -> anyhow::Result<u32> {
    let (mut number, mut accepted) = (0_u32, 0);
    loop {
        let at = ground.create(&format!("c{client}-{number}")).await?.at;
        number += 1;
        if at > window.end {
            return Ok(accepted);
        }
        accepted += u32::from(window.holds(at));
    }
}

async fn anchor(ground: &Ground, seconds: u32) -> anyhow::Result<f64> {
    let specimen = Specimen::make(ground).await?;
    let scratch = Scratch::make(specimen.variables().await?).await?;
    let rate = scratch.throughput(MINT, CLIENTS, seconds).await;
    scratch.drop().await?;
    rate
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
