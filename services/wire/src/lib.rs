//! What crosses a process boundary: the protobuf records on Kafka and the HTTP bodies of the API, with their conversions
//! to and from `domain`.
//!
//! *Invariant:* nothing here decides anything; a value that comes out of a conversion has passed `domain`'s parsers.

pub mod decode;
mod desired;
pub mod gossip;
pub mod hash;
pub mod headers;
pub mod http;
pub mod instruction;
pub mod proto;

pub use gossip::{Gossip, Observation, Outcome, OutcomeKind, Said};
pub use instruction::Instruction;

/// The version of the protobuf schema that this build writes and understands in full.
pub const SCHEMA: u32 = 1;
