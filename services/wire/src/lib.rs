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

/// The version of the protobuf schema that this build understands in full. Records are written in the oldest that has everything
/// that is in them.
pub const SCHEMA: u32 = 2;

/// Schema versions of one generation: a later generation begins at the next multiple of this. Within one, fields are only
/// added; from one to the next they may change their meaning, except the first two of a record, `schema` and `min_reader`.
pub const GENERATION: u32 = 1_000;

/// The generation that a schema version belongs to.
pub const fn generation(schema: u32) -> u32 {
    schema / GENERATION
}

#[cfg(test)]
mod golden;
