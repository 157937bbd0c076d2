//! B9, the cost of an instruction and the number of databases: it must not grow with it.
//!
//! Product: processor time of the provisioner for an instruction when its cluster has ten thousand databases, all of them
//! in use. Anchor: when it has ten. Ten instructions are under way at any time in both; the cluster is a `fake`,
//! which tells the provisioner's watch of everything.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;

use crate::fake::Manner;
use crate::fleet::{self, Fleet};
use crate::meter::real;
use crate::{Results, Slice, topic};

const FEW: usize = 10;
const MANY: usize = 10_000;
/// Instructions that count.
const COUNTED: usize = 10_000;
const UNDER_WAY: usize = 10;

/// Measures a slice.
pub async fn measure(slice: Slice) -> anyhow::Result<Results> {
    let databases = databases(slice);
    let mut fleet = Fleet::start(&[Manner::Answers(Duration::from_millis(1))], None).await?;
    // Everything is there once before the time that counts; and code and connections are warm where that is quickly done.
    instruct(&mut fleet, databases, databases.max(1_000)).await?;
    let before = fleet.provisioner.cpu()?;
    instruct(&mut fleet, databases, COUNTED).await?;
    let used = fleet.provisioner.cpu()? - before;
    fleet.end().await?;
    Ok(Results::from([("cpu".to_owned(), used * 1_000.0 / real(COUNTED))]))
}

/// How many databases there are on which side.
pub(crate) const fn databases(slice: Slice) -> usize {
    match slice {
        Slice::Product => MANY,
        Slice::Anchor => FEW,
    }
}

/// Has so many instructions carried out, a few at a time, for the databases in turn; each only after the one before of its
/// database, which it would supersede.
async fn instruct(fleet: &mut Fleet, databases: usize, count: usize) -> anyhow::Result<()> {
    let producer = bus::Producer::new(&topic::connection())?;
    let mut idle: VecDeque<usize> = (0..databases).collect();
    let (mut sent, mut done) = (0, 0);
    while done < count {
        while sent < count
            && sent - done < UNDER_WAY
            && let Some(database) = idle.pop_front()
        {
            let (key, payload) = fleet::record(database, 0)?;
            let message =
                bus::Message { topic: fleet.instructions.clone(), key, payload, headers: Vec::new() };
            // That it arrived is seen from the apply.
            drop(producer.enqueue(&message)?);
            sent += 1;
        }
        let applied = fleet.next().await?;
        idle.push_back(fleet::number(&applied.name).context("a resource of the bench")?);
        done += 1;
    }
    Ok(())
}
