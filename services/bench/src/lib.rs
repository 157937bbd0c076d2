//! The benches that `cargo xtask bench` calls: what the product takes for a piece of work, and what the bare servers take
//! for the same, measured side by side on a running stack.
//!
//! Development only. Each program measures one slice, product or anchor, and prints one JSON object, case → number; it
//! never judges. What a slice made is taken away again before the program ends, so that the next slice begins where this
//! one began.
//!
//! *Invariant:* nothing here makes a machine: databases are asked for in a cluster without an operator.

pub mod create;
mod ground;
mod kafka;
mod pace;
mod pgbench;
mod program;
pub mod request;
mod resource;
mod samples;
mod specimen;
pub mod status;
mod watch;

pub use program::{Results, Slice, run};
