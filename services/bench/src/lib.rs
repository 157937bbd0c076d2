//! The benches that `cargo xtask bench` calls: what the product takes for a piece of work, and what the bare servers take
//! for the same, measured side by side on a running stack.
//!
//! Development only. The program measures one slice, product or anchor, and prints one JSON object, case → number; it
//! never judges. What a slice made is taken away again before the program ends, so that the next slice begins where this
//! one began; only topics stay, filled once and read by all slices.
//!
//! - Against the whole running product: [`apply`], [`request`], [`status`].
//! - Against one of its programs with a database and topics of its own: [`create`], [`ingest`], [`drain`], [`blast`],
//!   [`cost`], [`backend`], [`backlog`], [`streams`].
//! - Against the operator with an API server of the stack and an AWS region that is none: [`creations`],
//!   [`serving`].
//! - Against the operator with an API server and an AWS account that are none ([`passes`], [`idle`], [`memory`],
//!   [`cold`]).
//! - Against the consumer engine in this process: [`engine`], [`partitions`], [`parallel`].
//!
//! *Invariant:* nothing here makes a machine: databases are asked for in a cluster without an operator, and an operator
//! in an AWS that is none.

mod account;
pub mod apply;
mod aws;
pub mod backend;
pub mod backlog;
pub mod blast;
pub mod cold;
pub mod cost;
pub mod create;
pub mod creations;
pub mod drain;
pub mod engine;
mod fake;
mod fleet;
mod gossip;
mod ground;
mod herd;
pub mod idle;
pub mod ingest;
mod kafka;
mod keeper;
mod line;
pub mod memory;
mod meter;
mod pace;
pub mod parallel;
pub mod partitions;
pub mod passes;
mod pgbench;
mod populate;
mod pretence;
mod process;
mod processors;
mod program;
mod region;
pub mod request;
mod resource;
mod samples;
pub mod serving;
mod specimen;
pub mod status;
pub mod streams;
mod topic;
mod watch;

pub use program::{Results, Slice, run};
