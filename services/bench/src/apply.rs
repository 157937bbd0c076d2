//! B1, saturation: instructions enough for the whole slice lie in the outbox at its start; how fast they become resources.
//!
//! Product: resources seen a second, on a watch of the bench's own, while relay, provisioner, observer and sink do their
//! work; no operator. Anchor: resources seen a second, on a watch as well, while a bare loop with the same rights applies the
//! same bodies, sixteen in flight, beyond which an API server on few processors is only slower, and no program of the
//! product runs in the cluster. Both are counted from the
//! tenth to the ninetieth percent.
//!
//! In both, the cluster's servers have half of the processors for themselves (`processors.rs`): the rate says whether
//! they are kept busy. What that costs is counted beside it: processor time of provisioner and backend, against the time of
//! the cluster's servers for the same resources.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Context as _;
use testkit::stack;

use crate::ground::Ground;
use crate::meter::real;
use crate::populate::Population;
use crate::processors::{self, Apart};
use crate::resource::Floor;
use crate::specimen::Specimen;
use crate::{Results, Slice};

/// Resources for each second of a slice: about what the servers of a small machine take.
const EACH_SECOND: u32 = 600;
/// Applies of the bare loop that are under way at once.
const IN_FLIGHT: usize = 16;
/// What of the stack is the product.
const OURS: [&str; 2] = ["backend", "provisioner"];

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let count = usize::try_from(seconds * EACH_SECOND)?;
    let apart = Apart::begin()?;
    let measured = match slice {
        Slice::Product => product(&ground, count).await,
        Slice::Anchor => anchor(&ground, count).await,
    };
    drop(apart);
    ground.sweep().await?;
    let Measured { applies, cost } = measured?;
    Ok(Results::from([("applies".to_owned(), applies), ("cpu".to_owned(), cost)]))
}

/// What a slice found.
struct Measured {
    /// Resources a second, between the first and the last tenth.
    applies: f64,
    /// Processor time for each of all resources, in milliseconds: of the product's programs, or of the cluster's servers.
    cost: f64,
}

impl Measured {
    fn of(times: Vec<Instant>, seconds: f64) -> anyhow::Result<Self> {
        let cost = seconds * 1_000.0 / real(times.len());
        Ok(Self { applies: rate(times).context("too few resources")?, cost })
    }
}

async fn product(ground: &Ground, count: usize) -> anyhow::Result<Measured> {
    let variables = Specimen::make(ground).await?.variables().await?;
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.clone()).with_context(|| format!("the specimen has a {wanted}"))
    };
    let population = Population::fresh(count, variable("desired")?, variable("hash")?);
    let mut watch = ground.watch().await?;
    let before = processors::cpu(&OURS)?;
    for portion in population.unpublished() {
        testkit::query(&stack().database_url, &portion).await?;
    }
    let (mut seen, mut times) = (BTreeSet::new(), Vec::new());
    while times.len() < count {
        let sighting = watch
            .find("the next resource", |sighting| {
                sighting.database.as_ref().is_some_and(|id| id.starts_with(&population.prefix))
            })
            .await?;
        if seen.insert(sighting.database) {
            times.push(sighting.at);
        }
    }
    // What is still to be told of them costs as well.
    ground.settle().await?;
    Measured::of(times, processors::cpu(&OURS)? - before)
}

async fn anchor(ground: &Ground, count: usize) -> anyhow::Result<Measured> {
    let specimen = Specimen::make(ground).await?;
    // While the provisioner sees it go: taken away while that stands still, it would be missed and sent again.
    ground.sweep().await?;
    let floor = Floor::bare(ground, &specimen).await?;
    let before = processors::cpu(&processors::CLUSTER)?;
    let times = floor.saturate(count, IN_FLIGHT).await;
    let after = processors::cpu(&processors::CLUSTER)?;
    floor.clear().await?;
    Measured::of(times?, after - before)
}

/// How many a second, between the first and the last tenth.
fn rate(mut times: Vec<Instant>) -> Option<f64> {
    times.sort_unstable();
    let (first, last) = (times.len() / 10, times.len() * 9 / 10);
    let elapsed = times.get(last)?.duration_since(*times.get(first)?);
    (last > first).then(|| real(last - first) / elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_middle_counts() {
        let start = Instant::now();
        let mut times: Vec<Instant> =
            (0..100).map(|number| start + Duration::from_millis(1_000 + number * 10)).collect();
        // A slow beginning and a slow end say nothing of the speed.
        times[0] = start;
        times[99] += Duration::from_secs(5);
        let rate = rate(times).unwrap();
        assert!((rate - 100.0).abs() < 0.1, "{rate}");
        assert_eq!(super::rate(Vec::new()), None);
    }
}
