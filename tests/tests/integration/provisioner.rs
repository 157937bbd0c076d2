//! The provisioner, whole but for its process, against real Kafka, Postgres and API server.

mod answers;
mod flow;
mod observing;
mod rig;
mod trouble;
