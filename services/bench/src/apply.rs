//! B1, saturation: instructions enough for the whole slice lie in the outbox at its start; how fast they become resources.
//!
//! Product: resources seen a second, on a watch of the bench's own, while relay, provisioner, observer and sink do their
//! work; no operator. Anchor: resources seen a second, on a watch as well, while a bare loop with the same rights applies the
//! same bodies, sixteen in flight, beyond which an API server on few processors is only slower. Both are counted from the
//! tenth to the ninetieth percent.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Context as _;
use testkit::stack;

use crate::ground::Ground;
use crate::meter::real;
use crate::populate::Population;
use crate::resource::Floor;
use crate::specimen::Specimen;
use crate::{Results, Slice};

/// Resources for each second of a slice: about what the servers of a small machine take.
const EACH_SECOND: u32 = 600;
/// Applies of the bare loop that are under way at once.
const IN_FLIGHT: usize = 16;

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let count = usize::try_from(seconds * EACH_SECOND)?;
    let measured = match slice {
        Slice::Product => product(&ground, count).await,
        Slice::Anchor => anchor(&ground, count).await,
    };
    ground.sweep().await?;
    Ok(Results::from([("applies".to_owned(), measured?)]))
}

async fn product(ground: &Ground, count: usize) -> anyhow::Result<f64> {
    let variables = Specimen::make(ground).await?.variables().await?;
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.clone()).with_context(|| format!("the specimen has a {wanted}"))
    };
    let population = Population::fresh(count, variable("desired")?, variable("hash")?);
    let mut watch = ground.watch().await?;
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
    ground.settle().await?;
    rate(times).context("too few resources")
}

async fn anchor(ground: &Ground, count: usize) -> anyhow::Result<f64> {
    let specimen = Specimen::make(ground).await?;
    let floor = Floor::prepare(ground, &specimen).await?;
    let times = floor.saturate(count, IN_FLIGHT).await;
    floor.clear().await?;
    rate(times?).context("too few resources")
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
