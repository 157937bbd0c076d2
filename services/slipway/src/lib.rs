//! `slipway`: databases, operations and clusters from the command line, through the HTTP API.
//!
//! One file per noun under `noun`; what they show is made by pure functions under `render`; what went wrong becomes an
//! exit code in `exit` alone.
//!
//! *Invariant:* data goes to standard output, everything else to standard error. *Invariant:* a token is never shown, and
//! a token kept in a context is never sent to another address than that context's.

pub mod cli;
pub mod client;
pub mod connection;
pub mod contexts;
pub mod error;
pub mod exit;
pub mod follow;
pub mod noun;
pub mod output;
pub mod progress;
pub mod render;
pub mod session;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::error::Error;
use crate::output::Output;
use crate::session::Session;

/// Reads the command line, does what it asks, answers with the exit code.
pub fn main() -> ExitCode {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    runtime::install_crypto();
    let output = Output::new(&cli.global);
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Start)
        .and_then(|runtime| runtime.block_on(until_interrupted(cli, output, cli::Given::of(&matches))));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, Error::WouldChange | Error::Unread) {
                output.complain(&error);
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

/// What clap has to say: help and versions are no failure.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to be told when even the terminal cannot be written to.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK })
}

async fn until_interrupted(cli: Cli, output: Output, given: cli::Given) -> Result<(), Error> {
    if matches!(&cli.command, Command::Databases(command) if command.ends_by_itself()) {
        return dispatch(cli, output, given).await;
    }
    tokio::select! {
        // The command first: one that follows an operation heeds interrupts too, and says what goes on.
        biased;
        result = dispatch(cli, output, given) => result,
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.map_err(Error::Start)?;
            Err(Error::interrupted())
        }
    }
}

async fn dispatch(cli: Cli, output: Output, given: cli::Given) -> Result<(), Error> {
    let Cli { global, command } = cli;
    let session = Session::new(global, given, output);
    match command {
        Command::Databases(command) => noun::databases::run(&session, *command).await,
        Command::Operations(command) => noun::operations::run(&session, command).await,
        Command::Clusters(command) => noun::clusters::run(&session, command).await,
        Command::DeadLetters(command) => noun::dead_letters::run(&session, command).await,
        Command::Parked(command) => noun::parked::run(&session, command).await,
        Command::Unclaimed(command) => noun::unclaimed::run(&session, command).await,
        Command::Contexts(command) => noun::contexts::run(&session, command),
        Command::Completions(shell) => noun::completions::run(&session, &shell),
        Command::Version => noun::version::run(&session).await,
    }
}
