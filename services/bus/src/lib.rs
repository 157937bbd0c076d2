//! Everything of Kafka: producing, administration, and two ways of consuming.
//!
//! - [`Producer`]: idempotent, every delivery awaited, heals itself after a fatal error.
//! - [`Admin`]: topics ensured and checked, partitions asked about.
//! - [`consumer`]: keys in parallel, each key in order and only its newest record; offsets live in Kafka.
//! - [`sink`]: partitions in parallel, each in order by batches; offsets live where the batches are stored.
//!
//! *Invariant:* no other crate links the Kafka library. *Invariant:* a poll loop never waits for work, and a rebalance
//! callback never waits at all. Bytes only: what a record means, and what is to be done about it, is the programs' business.

pub mod admin;
pub mod ahead;
pub mod connection;
pub mod consumer;
mod error;
pub mod groups;
pub mod lanes;
#[cfg(test)]
mod liar;
mod pace;
mod partition;
mod polling;
pub mod producer;
pub mod record;
pub mod sink;
pub mod tracker;

pub use admin::{Admin, TopicSettings};
pub use connection::Connection;
pub use consumer::{Disposition, Handler};
pub use error::Error;
pub use pace::Pace;
pub use partition::partition_of;
pub use producer::{Delivered, Pending, Producer};
pub use record::{Message, Record};
pub use sink::{Batch, Sink, Stored};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// An error of the code that bus calls.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Locks a mutex whose holder may have panicked: our critical sections leave no half-made state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
