//! The provisioner, whole but for its process, against real Kafka, Postgres and API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod access;
mod answers;
mod bulkhead;
mod crash;
mod definitions;
mod deleting;
mod failing;
mod fairness;
mod fencing;
mod flow;
pub(crate) mod healing;
mod managers;
mod names;
mod observing;
mod outage;
mod parked;
mod partitions;
mod plugins;
mod redriving;
pub(crate) mod rig;
mod rolls;
mod states;
mod trouble;
mod watching;
