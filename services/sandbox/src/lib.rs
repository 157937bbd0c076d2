//! The local stack: installing its servers, describing its programs, keeping them running, taking it all away.
//!
//! Uses only the standard library's threads and a few light crates, because `cargo xtask` must compile in seconds. It
//! knows how programs are started and configured, never what they do.

pub mod bring_up;
pub mod clock;
pub mod command;
pub mod http;
pub mod install;
pub mod process;
pub mod progress;
mod set_up;
pub mod stack;
pub mod supervisor;
pub mod tear_down;
