//! The operator of one cluster: makes machines, disks and names for the QuestDB resources in it, and keeps them so.
//!
//! Five steps a pass, one file each: `observe` → `validate` (crate `plan`) → `plan` (crate `plan`) → `apply` → `report`.
//! Everything here is I/O; every decision is in `plan`. It knows neither Kafka nor Postgres: a broken-in cluster can
//! lie only about itself.
//!
//! *Invariant:* only `apply` and `report` write. *Invariant:* a pass over a settled database sends no request.

mod apply;
mod args;
mod caches;
mod client;
mod context;
mod controller;
mod error;
mod events;
mod lease;
mod memory;
mod metrics;
mod observe;
mod program;
mod reconcile;
mod report;
mod watch;

pub use args::Args;
pub use error::Error;
pub use program::run;
