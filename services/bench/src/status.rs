//! B5, the latency of status: a custom resource reports, and its row in Postgres says so.
//!
//! Product: from the sending of a status patch until the row in `observations` is visible to another session. Anchor: the
//! sum of a status patch until a watch tells of it, one record through Kafka and back, and one durable upsert;
//! each of them also by itself.

mod lookout;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::ListParams;
use lookout::Lookout;
use resources::names;
use testkit::stack;

use crate::ground::Ground;
use crate::pgbench::{Scratch, upsert};
use crate::resource::{Floor, report};
use crate::samples::Samples;
use crate::specimen::Specimen;
use crate::{Results, Slice, kafka, pace};

/// Databases that report in turn, so that more than one partition is travelled.
const REPORTERS: u32 = 8;

/// Measures a slice.
pub async fn measure(slice: Slice, seconds: u32) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let measured = match slice {
        Slice::Product => product(&ground, pace::rounds(seconds)).await,
        Slice::Anchor => anchor(&ground, pace::rounds(seconds)).await,
    };
    ground.sweep().await?;
    measured
}

async fn product(ground: &Ground, rounds: u32) -> anyhow::Result<Results> {
    for number in 0..REPORTERS {
        ground.create(&format!("reporter-{number}")).await?;
    }
    ground.settle().await?;
    let api = ground.resources();
    let mut reporters = Vec::new();
    for resource in api.list(&ListParams::default()).await?.items {
        let database =
            resource.labels().get(names::LABEL_DATABASE).context("a resource names its database")?;
        reporters.push((resource.name_any(), database.clone()));
    }
    let mut lookout = Lookout::post(&stack().postgres_bin, &stack().database_url).await?;
    let mut samples = Samples::default();
    let mut beat = pace::product();
    let mut turns = reporters.iter().cycle();
    for round in 0..pace::WARM_UP.max(REPORTERS) + rounds {
        let (name, database) = turns.next().context("there are reporters")?;
        beat.tick().await;
        let mark = format!("round-{round}");
        let waiting = lookout.wait_for(database, &mark).await?;
        let start = lookout::now()?;
        report(&api, name, &mark).await?;
        let seen = waiting.seen().await?;
        if round >= pace::WARM_UP.max(REPORTERS) {
            samples.push(seen.saturating_sub(start));
        }
    }
    let mut results = Results::new();
    samples.write(&mut results, "")?;
    Ok(results)
}

async fn anchor(ground: &Ground, rounds: u32) -> anyhow::Result<Results> {
    let specimen = Specimen::make(ground).await?;
    let floor = Floor::prepare(ground, &specimen).await?;
    let events = floor.status_events(rounds).await;
    floor.clear().await?;
    let records = kafka::round_trips(&stack().kafka_bootstrap, rounds).await?;
    let scratch = Scratch::make(specimen.variables().await?).await?;
    let upserts = scratch.paced(&upsert()?, rounds).await;
    scratch.drop().await?;
    let stages = [events?, records, upserts?];
    let mut results = Results::new();
    Samples::sum(&stages).write(&mut results, "")?;
    for (stage, name) in stages.iter().zip(["watch-", "kafka-", "upsert-"]) {
        stage.write(&mut results, name)?;
    }
    Ok(results)
}
