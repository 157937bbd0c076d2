//! B8r, two hundred databases at once: how fast one operator makes what Kubernetes needs of them.
//!
//! Product: writes a second that cannot be done without, from the first resource that is applied until all of them have their StatefulSet
//! and their Services, on the real API server, in an AWS region that takes no time. Whoever does them, they count: the resource itself and
//! its machine that joins as a Node are written meanwhile, too. So does the first status of each, by which people see that it is being
//! made, most often together with its disk. What the operator writes beyond them does not count. Anchor: the lower of two rates: what five
//! times the twenty databases a second take that an operator written with client-go makes at most (it may ask twenty times a second for
//! each kind), and three quarters of the bare rate.
//!
//! The bare rate is that of the same writes by a loop that knows nothing (`bare.rs`): all sixteen for each of as many databases, with the
//! bodies of an operator, in its order, one after the other for a database, and as many databases at once as resources are applied at
//! once. It has no watch, reads nothing, decides nothing and says no more of how far it is than that first status does. A loop that applies
//! resources alone, as B1 has it, is no measure of this: its writes are others, all of one kind, and one of them costs the API server less
//! than one of these does on average. A Service takes an address, which is more than one write to etcd, and every other kind is decoded,
//! defaulted, validated and merged in its own way.
//!
//! `requests` (B8): requests by which the operator wrote to the API server meanwhile, for each database. All of them count, also those that
//! were refused and those that say how far a database is; only its Lease is nobody's. Anchor: those that are needed. The phase Ready and
//! its event are beyond the end of this: no pod is made here. That a whole create keeps to the same bound is a test (`frugal` of the
//! operator's integration tests).
//!
//! Once the operator has nothing more to say, another one begins. It must write nothing (B8): neither at its looks at databases of which
//! everything is there (a resync), nor when every resource is applied once more (a redelivery).
//!
//! `memory`: what that other operator takes a little after its start, as a part of what is promised: 60 MB and two and a half times the
//! bytes of these objects, without what the API server notes of their managers. [`crate::serving`] has the same of more of them; the
//! databases of B9o to B12 are paused.

mod bare;
mod objects;
mod place;
mod said;
mod written;

use std::time::{Duration, Instant};

use anyhow::ensure;

use self::place::Place;
use crate::ground::Ground;
use crate::memory::{BASE, FACTOR};
use crate::meter::real;
use crate::pace::until;
use crate::process::Process;
use crate::{Results, Slice};

const DATABASES: usize = 200;
/// Writes of the operator's that make one of them: its finalizer and the generation of its machine, Secret, `ConfigMap`, two Services,
/// `NetworkPolicy`, `PodDisruptionBudget`, its Node's labels, disk and claim, and the StatefulSet.
const OBJECTS: usize = 12;
/// Writes that an operator needs for one of them: those, and the phase Provisioning, which people see.
const LEAST: usize = OBJECTS + 1;
/// Writes that one of them takes at least: those, and by others the resource, its Node and that Node's status.
const NEEDED: usize = LEAST + 3;
/// Requests under way at once, beyond which an API server on few processors is only slower.
const IN_FLIGHT: usize = 16;
/// Databases a second that client-go allows by default, five times over.
const LIMITED: f64 = 5.0 * 20.0;
/// Share of the bare rate.
const SHARE: f64 = 0.75;
/// How long all of it may take.
const MADE: Duration = Duration::from_mins(10);
/// An operator that has written nothing for so long has nothing more to say: it keeps back for at most twenty seconds how far a database is.
const SILENCE: Duration = Duration::from_secs(30);
/// How long an operator is left alone before its memory is read.
const SETTLED: Duration = Duration::from_secs(5);

/// What making databases took.
pub(crate) struct Made {
    /// Writes a second that cannot be done without.
    pub(crate) writes: f64,
    /// Requests of the operator's for each of them by which something was written.
    pub(crate) requests: f64,
    /// Memory of another operator that begins with all of them there, as a part of what it may take.
    pub(crate) memory: f64,
}

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let ground = Ground::prepare().await?;
    let Made { writes, requests, memory } = match slice {
        Slice::Product => make(&ground, DATABASES).await?,
        Slice::Anchor => Made { writes: anchor(&ground).await?, requests: real(LEAST), memory: 1.0 },
    };
    let results = [("writes", writes), ("requests", requests), ("memory", memory)];
    Ok(results.map(|(case, number)| (case.to_owned(), number)).into())
}

async fn anchor(ground: &Ground) -> anyhow::Result<f64> {
    let place = Place::prepare(ground, bare::specimen()).await?;
    let bare = bare::rate(&place, DATABASES).await;
    place.clear().await?;
    Ok((LIMITED * real(NEEDED)).min(SHARE * bare?))
}

/// Has an operator make so many databases, and takes them away again.
pub(crate) async fn make(ground: &Ground, count: usize) -> anyhow::Result<Made> {
    let place = Place::prepare(ground, place::numbered(count)).await?;
    let made = made(&place).await;
    place.clear().await?;
    made
}

async fn made(place: &Place) -> anyhow::Result<Made> {
    let operator = place.operator().await?;
    let began = Instant::now();
    place.apply().await?;
    place.all_made(&operator).await?;
    let (took, requests) = (began.elapsed(), operator.writes().await?);
    let (all, count) = (silent(&operator).await?, place.count());
    // Not of those until then: what is there may not be answered yet, and is counted once it is.
    ensure!(all >= count * LEAST, "{all} writes were counted, and it takes more to make {count}");
    operator.kill().await?;
    let memory = again(place).await?;
    let writes = real(count * NEEDED) / took.as_secs_f64();
    Ok(Made { writes, requests: real(requests) / real(count), memory })
}

/// Waits until an operator has said of all databases what is to be said of them; how often it has written by then.
async fn silent(operator: &Process) -> anyhow::Result<usize> {
    let (mut known, mut since) = (operator.writes().await?, Instant::now());
    until(MADE, "an operator that has nothing more to write", async || {
        let writes = operator.writes().await?;
        if writes != known {
            (known, since) = (writes, Instant::now());
        }
        Ok((since.elapsed() >= SILENCE).then_some(writes))
    })
    .await
}

/// Memory of another operator that begins with all objects there, as a part of what it may take; it must write nothing.
async fn again(place: &Place) -> anyhow::Result<f64> {
    place.free_the_lease().await?;
    let operator = place.operator().await?;
    looks(&operator, place.count()).await?;
    // What its first lists and passes took is given back.
    tokio::time::sleep(SETTLED).await;
    let resident = operator.resident()?;
    place.apply().await?;
    looks(&operator, 2 * place.count()).await?;
    let writes = operator.writes().await?;
    operator.kill().await?;
    ensure!(writes == 0, "an operator wrote {writes} times although everything was there");
    Ok(resident / (BASE + FACTOR * real(place.bytes().await?) / 1e6))
}

/// Waits for so many more looks at databases.
async fn looks(operator: &Process, more: usize) -> anyhow::Result<()> {
    let passes =
        async || operator.metric("controller_runtime_reconcile_total", "controller=\"questdb\"").await;
    let wanted = passes().await? + real(more);
    until(MADE, "looks at all databases", async || Ok((passes().await? >= wanted).then_some(()))).await
}
