//! The backend: HTTP API, outbox relay and gossip sink, any of them in one process.
//!
//! *Invariant:* desired state is minted in one transaction under the database's row lock, and nowhere else. *Invariant:*
//! the roles meet in Postgres only: what one process holds in memory (the doorbell, the streams) is a hint, never needed.
//! All SQL is `store`'s, all Kafka is `bus`'s.

pub mod api;
pub mod args;
pub mod deadlines;
pub mod doorbell;
pub mod heard;
pub mod metrics;
pub mod prune;
pub mod relay;
pub mod serve;
pub mod sink;
pub mod sweep;
mod tidy;
pub mod tokens;
pub mod topics;
mod way_back;
