//! B4, the latency of a request: one create at a time, at a steady pace, against the running API.
//!
//! Product: from the acceptance (202 received) until the custom resource is seen on a watch of the bench's own; as `sent-…`
//! from the moment the request is sent, so that the request's own commit is part of it. Anchor, of both: the sum of one
//! durable commit of the statements of a create, one record through Kafka and back, and one server-side apply; each of
//! them also by itself, for those who look for the reason of a ratio.

use crate::ground::Ground;
use crate::pgbench::{Scratch, mint};
use crate::resource::Floor;
use crate::samples::Samples;
use crate::specimen::Specimen;
use crate::{Results, Slice, kafka, pace};

/// The same numbers, counted from the sending of the request.
const SENT: &str = "sent-";

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
    let (mut accepted, mut sent) = (Samples::default(), Samples::default());
    let mut watch = ground.watch().await?;
    let mut beat = pace::product();
    for round in 0..pace::WARM_UP + rounds {
        beat.tick().await;
        let database = ground.create(&format!("round-{round}")).await?;
        let seen = watch
            .find("the resource of a database", |sighting| sighting.database.as_ref() == Some(&database.id))
            .await?;
        if round >= pace::WARM_UP {
            // The answer may still be on its way to us when the resource is there already.
            accepted.push(seen.at.saturating_duration_since(database.at));
            sent.push(seen.at.duration_since(database.sent));
        }
    }
    results(&accepted, &sent)
}

async fn anchor(ground: &Ground, rounds: u32) -> anyhow::Result<Results> {
    let specimen = Specimen::make(ground).await?;
    let scratch = Scratch::make(specimen.variables().await?).await?;
    let commits = scratch.paced(&mint()?, rounds).await;
    scratch.drop().await?;
    let records = kafka::round_trips(&testkit::stack().kafka_bootstrap, rounds).await?;
    let floor = Floor::prepare(ground, &specimen).await?;
    let applies = floor.applies(rounds).await;
    floor.clear().await?;
    let stages = [commits?, records, applies?];
    let sum = Samples::sum(&stages);
    let mut results = results(&sum, &sum)?;
    for (stage, name) in stages.iter().zip(["commit-", "kafka-", "apply-"]) {
        stage.write(&mut results, name)?;
    }
    Ok(results)
}

fn results(accepted: &Samples, sent: &Samples) -> anyhow::Result<Results> {
    let mut results = Results::new();
    accepted.write(&mut results, "")?;
    sent.write(&mut results, SENT)?;
    Ok(results)
}
