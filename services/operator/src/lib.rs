//! The operator of one cluster: makes machines, disks and names for the QuestDB resources in it, and keeps them so.
//!
//! Five steps a pass, one file each: `observe` → `validate` (crate `plan`) → `plan` (crate `plan`) → `apply` → `report`.
//! Everything here is I/O; every decision is in `plan`. It knows neither Kafka nor Postgres: a broken-in cluster can
//! lie only about itself.
//!
//! *Invariant:* only `apply` and `report` write, and for the sake of snapshots `snapshots` and `schedules`. *Invariant:* a pass over a settled database sends no request.
//! *Invariant:* no pass goes a step further than this process leads (`turn`).

mod apply;
mod args;
mod caches;
mod client;
mod clock;
mod context;
mod controller;
mod count;
mod database;
mod error;
mod events;
#[cfg(test)]
mod fixture;
mod gather;
mod given;
mod identity;
mod index;
mod kept;
mod lease;
mod memory;
mod metrics;
mod moment;
mod neighbours;
mod observe;
mod pictures;
#[cfg(test)]
mod played;
mod program;
mod questions;
mod queue;
mod rates;
mod reach;
mod reconcile;
mod report;
pub mod rights;
mod schedules;
mod scope;
mod shown;
mod side;
mod slot;
mod snapshots;
mod store;
mod strays;
mod ticket;
mod turn;
mod unclaimed;
mod watch;
mod work;
mod write;

pub use args::Args;
pub use error::Error;
pub use neighbours::NeighbourArgs;
pub use program::run;
pub use scope::Scope;
