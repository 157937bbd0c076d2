//! B9o, the cost of an operator's pass and the number of databases: it must not grow with it.
//!
//! Product: processor time of a pass over a paused database at rest when there are ten thousand. Anchor: when there are ten. The
//! passes are asked for by changes of the resources, so many a second in both; what an operator does all the time is in
//! both too, for each of its databases.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::herd::{self, Herd, found_at_rest};
use crate::{Results, Slice};

const FEW: usize = 10;
const MANY: usize = 10_000;
/// Changes a second.
const RATE: u32 = 500;

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let databases = match slice {
        Slice::Product => MANY,
        Slice::Anchor => FEW,
    };
    let herd = Herd::new(databases).await?;
    let operator = herd.at_rest().await?;
    // Code and caches are warm before the time that counts.
    touch(&herd, databases, Duration::from_secs(2)).await;
    let (before, passes) = (operator.cpu()?, found_at_rest(&operator).await?);
    let writes = herd.keeper.asked().writes;
    touch(&herd, databases, Duration::from_secs(u64::from(seconds))).await;
    let (used, passes) = (operator.cpu()? - before, found_at_rest(&operator).await? - passes);
    ensure!(passes >= f64::from(seconds), "the changes led to {passes} passes only");
    ensure!(herd.keeper.asked().writes == writes, "a pass over a database at rest wrote something");
    operator.kill().await?;
    Ok(Results::from([("cpu".to_owned(), used * 1_000.0 / passes)]))
}

/// Changes one resource after the other, in a way that means nothing.
async fn touch(herd: &Herd, databases: usize, length: Duration) {
    let mut beat = interval(Duration::from_secs(1) / RATE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (began, mut number) = (Instant::now(), 0_usize);
    while began.elapsed() < length {
        beat.tick().await;
        let patch = json!({ "metadata": { "annotations": { "touched": number.to_string() } } });
        herd.keeper.patch(&herd::place(number % databases), patch);
        number += 1;
    }
}
