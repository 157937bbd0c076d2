//! B11, what the operator keeps in memory of databases that are paused; of those with all of their objects B11s has it.
//!
//! `growth`: memory with ten thousand databases beyond that with none, against the bytes of their objects as the API server
//! sends them. `total`: memory with a thousand databases, against what is promised: 60 MB and two and a half times those
//! bytes. That what is not ours costs nothing is a test on a real API server (`quiet` of the operator's integration tests).

use crate::herd::{Herd, KINDS};
use crate::meter::real;
use crate::{Results, Slice};

const MANY: usize = 10_000;
const SOME: usize = 1_000;
/// What an operator may take without any database, in MB.
pub(crate) const BASE: f64 = 60.0;
/// What it may take for each byte.
pub(crate) const FACTOR: f64 = 2.5;

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let (growth, total) = match slice {
        Slice::Product => {
            let none = resident(0).await?.0;
            (resident(MANY).await?.0 - none, resident(SOME).await?.0)
        }
        Slice::Anchor => (resident(MANY).await?.1, BASE + FACTOR * resident(SOME).await?.1),
    };
    Ok(Results::from([("growth".to_owned(), growth), ("total".to_owned(), total)]))
}

/// Memory of an operator with so many databases at rest, and the bytes of their objects; both in MB.
async fn resident(databases: usize) -> anyhow::Result<(f64, f64)> {
    let herd = Herd::new(databases).await?;
    let operator = herd.afresh().await?;
    let resident = operator.resident()?;
    operator.kill().await?;
    Ok((resident, real(herd.keeper.bytes(&KINDS)) / 1e6))
}
