//! The provisioner, whole but for its process, against real Kafka, Postgres and API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod answers;
mod crash;
mod flow;
mod observing;
mod outage;
mod rig;
mod trouble;
