//! All SQL of Slipway, one file per table. Postgres is the referee: uniqueness, order and fences are decided there.
//!
//! *Invariant:* whoever changes a database locks its row in `databases` first, API and sink alike. *Invariant:* nothing
//! here knows HTTP, Kafka or Kubernetes; documents that only readers understand pass through as JSON.
//!
//! [`Store`] is a handle to the pool: reads and single statements are its methods. Changes of desired state go through a
//! [`Transaction`], gossip through [`Store::absorb`].

mod audit;
mod clusters;
mod constraint;
mod databases;
mod dead_letters;
mod document;
mod error;
mod events;
mod idempotency;
mod instructions;
mod observations;
mod observers;
mod offsets;
mod operations;
mod outbox;
mod parked;
mod pool;
mod progress;
mod sink;
mod tenants;
mod tokens;
mod transaction;
mod unclaimed;

pub use audit::Audit;
pub use clusters::ClusterRecord;
pub use constraint::Conflict;
pub use databases::{Database, DatabaseView, Page};
pub use dead_letters::DeadLetter;
pub use error::Error;
pub use events::{Event, EventKind};
pub use idempotency::{Answer, Claim, Key};
pub use instructions::Instruction;
pub use observations::{Observation, ObservationView, Step};
pub use observers::Term;
pub use offsets::Advance;
pub use operations::OperationRecord;
pub use outbox::{Backlog, Unpublished};
pub use parked::Parked;
pub use pool::{Settings, Store};
pub use sink::{Batch, Outcome, OutcomeKind, Report};
pub use tokens::{NewToken, Principal, Role};
pub use transaction::{Mint, Minted, NewDatabase, Transaction};
pub use unclaimed::UnclaimedCode;
