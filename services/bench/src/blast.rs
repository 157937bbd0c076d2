//! B15, one sick thing hurts only itself: sixteen clusters, of which one takes calls and never answers, one refuses with
//! 429 and one is ten times slower than the others.
//!
//! Product: with the three sick. Anchor: with sixteen healthy. Both counted on the thirteen that are healthy in both:
//! applies a second when all clusters have a backlog, and the 99th percentile of the time from record to answered apply
//! at a steady pace.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::MissedTickBehavior;

use crate::fake::Manner;
use crate::fleet::{self, Fleet};
use crate::meter::real;
use crate::samples::Samples;
use crate::{Results, Slice, topic};

const CLUSTERS: usize = 16;
/// The sick ones come first.
const SICK: [Manner; 3] = [Manner::Silent, Manner::Refuses, Manner::Answers(SLOW)];
const LATENCY: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_millis(200);
/// Records a second for each cluster at the steady pace.
const PACE: usize = 15;
/// Records of each cluster's backlog.
const BACKLOG: usize = 400;

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let manners: Vec<Manner> = (0..CLUSTERS)
        .map(|number| match (slice, SICK.get(number)) {
            (Slice::Product, Some(manner)) => *manner,
            _ => Manner::Answers(LATENCY),
        })
        .collect();
    let mut fleet = Fleet::start(&manners, None).await?;
    // Connections are made, that to the brokers too, and what the sick clusters do is known, before the time that counts.
    let producer = bus::Producer::new(&topic::connection())?;
    paced(&mut fleet, &producer, 0, PACE * 2).await?;
    let rounds = PACE * usize::try_from(seconds)?;
    let latencies = paced(&mut fleet, &producer, PACE * 2, rounds).await?;
    let throughput = saturated(&mut fleet, PACE * 2 + rounds).await?;
    fleet.end().await?;
    let mut results = Results::from([("applies".to_owned(), throughput)]);
    latencies.write(&mut results, "")?;
    Ok(results)
}

/// A new database in every cluster each round; how long those of healthy clusters took.
async fn paced(
    fleet: &mut Fleet,
    producer: &bus::Producer,
    from: usize,
    rounds: usize,
) -> anyhow::Result<Samples> {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / u32::try_from(PACE)?);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent: HashMap<usize, Instant> = HashMap::new();
    let mut samples = Samples::default();
    let (mut round, healthy) = (0, CLUSTERS - SICK.len());
    while samples.len() < rounds * healthy {
        tokio::select! {
            _ = beat.tick(), if round < rounds => {
                for cluster in 0..CLUSTERS {
                    let database = number(from + round, cluster);
                    let (key, payload) = fleet::record(database, cluster)?;
                    let topic = fleet.instructions.clone();
                    sent.insert(database, Instant::now());
                    // That it arrived is seen from the apply.
                    drop(producer.enqueue(&bus::Message { topic, key, payload, headers: Vec::new() })?);
                }
                round += 1;
            }
            applied = fleet.next() => {
                let applied = applied?;
                let number = fleet::number(&applied.name).context("a resource of the bench")?;
                // What slow clusters still had to do is not of this part.
                if applied.server >= SICK.len() && let Some(start) = sent.remove(&number) {
                    samples.push(applied.at.duration_since(start));
                }
            }
        }
    }
    Ok(samples)
}

/// A backlog for every cluster at once; applies a second of the healthy ones.
async fn saturated(fleet: &mut Fleet, from: usize) -> anyhow::Result<f64> {
    let records = (0..BACKLOG * CLUSTERS).map(|index| fleet::record(number(from, index), index % CLUSTERS));
    topic::write(&topic::connection(), &fleet.instructions, records).await?;
    let mut times = Vec::new();
    while times.len() < BACKLOG * (CLUSTERS - SICK.len()) {
        let applied = fleet.next().await?;
        if applied.server >= SICK.len() {
            times.push(applied.at);
        }
    }
    times.sort_unstable();
    // Those that came while the backlog was still being written count as well: it is written in a moment.
    let (first, last) = (times.first().context("applies")?, times.last().context("applies")?);
    Ok(real(times.len()) / last.duration_since(*first).as_secs_f64())
}

const fn number(round: usize, cluster: usize) -> usize {
    round * CLUSTERS + cluster
}
