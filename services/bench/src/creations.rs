//! B8r, two hundred databases at once: how fast one operator makes what Kubernetes needs of them.
//!
//! Product: writes a second that cannot be done without, from the first resource that is applied until all of them have their
//! StatefulSet and their Services, on the real API server, in an AWS region that takes no time. Whoever does them, they count: the
//! resource itself and its machine that joins as a Node are written meanwhile, too. What the operator writes beyond them does not
//! count. Anchor: the lower of two rates: what five times the twenty databases a second take that an operator written with client-go
//! makes at most (it may ask twenty times a second for each kind), and three quarters of what a bare loop of applies reaches on the
//! same API server.
//!
//! `memory`: what another operator takes that began a little before, when all of that was there, as a part of what is promised: 60 MB and two and a
//! half times the bytes of these objects, without what the API server notes of their managers. Databases with all of their objects
//! are measured here alone: those of B9o to B12 are paused.

mod objects;
mod place;

use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::place::Place;
use crate::ground::Ground;
use crate::memory::{BASE, FACTOR};
use crate::meter::real;
use crate::pace::until;
use crate::process::Process;
use crate::resource::Floor;
use crate::specimen::Specimen;
use crate::{Results, Slice};

const DATABASES: usize = 200;
/// Writes that one of them takes at least: by the operator its finalizer and the generation of its machine, Secret, `ConfigMap`,
/// two Services, `NetworkPolicy`, `PodDisruptionBudget`, its Node's labels, disk and claim, and the StatefulSet; by others the
/// resource, its Node and that Node's status.
const NEEDED: usize = 12 + 3;
/// Requests under way at once, beyond which an API server on few processors is only slower.
const IN_FLIGHT: usize = 16;
/// Databases a second that client-go allows by default, five times over.
const LIMITED: f64 = 5.0 * 20.0;
/// Share of a bare loop.
const SHARE: f64 = 0.75;
/// How long all of it may take.
const MADE: Duration = Duration::from_mins(10);
/// How long an operator is left alone before its memory is read.
const SETTLED: Duration = Duration::from_secs(5);

/// What making databases took.
pub(crate) struct Made {
    /// Writes a second that cannot be done without.
    pub(crate) writes: f64,
    /// Memory of another operator that begins with all of them there, as a part of what it may take.
    pub(crate) memory: f64,
}

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let Made { writes, memory } = match slice {
        Slice::Product => make(&ground, DATABASES).await?,
        Slice::Anchor => Made { writes: anchor(&ground).await?, memory: 1.0 },
    };
    Ok(Results::from([("writes".to_owned(), writes), ("memory".to_owned(), memory)]))
}

async fn anchor(ground: &Ground) -> anyhow::Result<f64> {
    let specimen = Specimen::make(ground).await?;
    let floor = Floor::prepare(ground, &specimen).await?;
    let times = floor.saturate(DATABASES * 10, IN_FLIGHT).await;
    floor.clear().await?;
    let times = times?;
    let (first, last) = times.iter().min().zip(times.iter().max()).context("too few resources")?;
    let bare = real(times.len()) / last.duration_since(*first).as_secs_f64();
    ground.sweep().await?;
    Ok((LIMITED * real(NEEDED)).min(SHARE * bare))
}

/// Has an operator make so many databases, and takes them away again.
pub(crate) async fn make(ground: &Ground, count: usize) -> anyhow::Result<Made> {
    let place = Place::prepare(ground, count).await?;
    let made = made(&place).await;
    place.clear().await?;
    made
}

async fn made(place: &Place) -> anyhow::Result<Made> {
    let operator = place.operator().await?;
    let began = Instant::now();
    place.apply().await?;
    place.all_made(&operator).await?;
    let took = began.elapsed();
    operator.kill().await?;
    let writes = real(place.count() * NEEDED) / took.as_secs_f64();
    Ok(Made { writes, memory: memory(place).await? })
}

/// Memory of an operator that begins with all objects there, as a part of what it may take.
async fn memory(place: &Place) -> anyhow::Result<f64> {
    place.free_the_lease().await?;
    let operator = place.operator().await?;
    looks(&operator, place.count()).await?;
    // What its first lists and passes took is given back.
    tokio::time::sleep(SETTLED).await;
    let resident = operator.resident()?;
    operator.kill().await?;
    Ok(resident / (BASE + FACTOR * real(place.bytes().await?) / 1e6))
}

/// Waits for so many more looks at databases.
async fn looks(operator: &Process, more: usize) -> anyhow::Result<()> {
    let passes =
        async || operator.metric("controller_runtime_reconcile_total", "controller=\"questdb\"").await;
    let wanted = passes().await? + real(more);
    until(MADE, "looks at all databases", async || Ok((passes().await? >= wanted).then_some(()))).await
}
