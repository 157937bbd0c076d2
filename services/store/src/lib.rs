//! All SQL of Slipway, one file per table. Postgres is the referee: uniqueness, order and fences are decided there.
//!
//! *Invariant:* whoever changes a database locks its row in `databases` first, API and sink alike. *Invariant:* nothing
//! here knows HTTP, Kafka or Kubernetes; documents that only readers understand pass through as JSON.
//!
//! [`Store`] is a handle to the pool: reads and single statements are its methods. Changes of desired state go through a
//! [`Transaction`], gossip through [`Store::absorb`].

mod aside;
mod audit;
mod clusters;
mod constraint;
mod databases;
mod dead_letters;
mod document;
mod endings;
mod error;
mod events;
mod halves;
mod heard;
mod history;
mod hosts;
mod idempotency;
mod instructions;
mod letters;
mod mint;
mod observations;
mod observers;
mod offsets;
mod operations;
mod outbox;
mod over;
mod parked;
mod pool;
mod programs;
mod progress;
mod rows;
mod schema;
mod sink;
mod standing;
pub mod statements;
mod sweep;
mod tenants;
mod tokens;
mod tombstones;
mod transaction;
mod turns;
mod unclaimed;

pub use aside::{About, AsideFilter, ParkedView};
pub use audit::Audit;
pub use clusters::{ClusterRecord, Registered, Registry, UnreadableCluster};
pub use constraint::Conflict;
pub use databases::{Database, DatabaseView, Page};
pub use dead_letters::{DeadLetter, Taken};
pub use document::storable;
pub use endings::Due;
pub use error::Error;
pub use events::{Event, EventKind, Events, UnreadableEvent};
pub use heard::{Ear, Heard};
pub use history::{Mark, Past, Pasts};
pub use idempotency::{Answer, Claim, Key};
pub use instructions::Instruction;
pub use letters::{DeadLetterView, LetterContent, Settled, Settlement};
pub use observations::{Body, Observation, ObservationView, Step};
pub use observers::Term;
pub use offsets::Advance;
pub use operations::{OperationFilter, OperationRecord};
pub use outbox::{Backlog, SetAside, Unpublished, Unreadable};
pub use parked::{Claimed, Origin, Parked};
pub use pool::{Settings, Store, in_time};
pub use programs::Program;
pub use rows::{Listed, UnreadableRow};
pub use schema::Schema;
pub use sink::{Batch, Ended, Outcome, OutcomeKind, Report};
pub use standing::Standing;
pub use sweep::{Divergence, Letters, Listing, Sighting, Subject, Subjects, Turn};
pub use tokens::{NewToken, Principal, Role};
pub use tombstones::Tombstone;
pub use transaction::{Mint, Minted, NewDatabase, Terms, Transaction};
pub use unclaimed::{Unclaimed, UnclaimedCode};
