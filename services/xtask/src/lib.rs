//! The project's own commands: `cargo xtask up | down | status | test | bench | generate`.
//!
//! Compiles in seconds, so it links no client of any server: what needs one runs as a program of the workspace.

mod bench;
mod cli;
mod down;
mod generate;
mod status;
mod terminal;
mod test;
pub mod tidy;
mod up;
mod workspace;

pub use cli::main;
