//! Databases: create, look at, change, delete, pause, connect to. Nothing is decided here that the API decides.

mod change;
mod connect;
mod diff;
pub mod kubectl;
mod look;
mod purge;
mod resend;
mod states;
mod wishes;

use clap::Subcommand;
use wire::http::Accepted;

use crate::cli::Wait;
use crate::client::Client;
use crate::error::Error;
use crate::follow::attend;
use crate::noun::operations::outcome;
use crate::output::Output;
use crate::progress::Display;
use crate::render;
use crate::session::{REQUEST, Session, WAITING};

/// What can be done with databases.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a database
    Create(change::Create),
    /// Show databases by name or id
    Get(look::Get),
    /// List databases, newest first
    #[command(visible_alias = "ls")]
    List(look::List),
    /// Show everything about a database: what should be, what is, and what happened
    Describe(look::Describe),
    /// Change a database; what is not named stays
    Update(change::Update),
    /// Show what a change would take, without doing it
    Diff(diff::Diff),
    /// Delete a database
    #[command(visible_alias = "rm")]
    Delete(change::Delete),
    /// Bring a deleted database back, with the volume that was kept
    Undelete(states::Undelete),
    /// Destroy the volume of a deleted database, for good
    Purge(purge::Purge),
    /// Stop a database; its volume stays
    Pause(states::Pause),
    /// Let a paused database run again
    Resume(states::Resume),
    /// Restart a database once
    Restart(states::Restart),
    /// Have a database's state published again, as it is
    Resend(resend::Resend),
    /// Show how to connect to a database
    Connect(connect::Connect),
}

impl Command {
    /// Whether it heeds interrupts itself, because it has something to put right before it ends.
    pub const fn ends_by_itself(&self) -> bool {
        matches!(self, Self::Diff(_))
    }
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    match command {
        Command::Create(command) => change::create(session, command).await,
        Command::Get(command) => look::get(session, command).await,
        Command::List(command) => look::list(session, command).await,
        Command::Describe(command) => look::describe(session, command).await,
        Command::Update(command) => change::update(session, command).await,
        Command::Diff(command) => diff::diff(session, command).await,
        Command::Delete(command) => change::delete(session, command).await,
        Command::Undelete(command) => states::undelete(session, command).await,
        Command::Purge(command) => purge::purge(session, command).await,
        Command::Pause(command) => states::pause(session, command).await,
        Command::Resume(command) => states::resume(session, command).await,
        Command::Restart(command) => states::restart(session, command).await,
        Command::Resend(command) => resend::resend(session, command).await,
        Command::Connect(command) => connect::connect(session, command).await,
    }
}

/// The way to the API for a command that may wait.
fn client(session: &Session, wait: Wait) -> Result<Client, Error> {
    session.client(if wait.wait { WAITING } else { REQUEST })
}

/// Shows what was accepted, after its end if that is to be waited for.
pub(super) async fn finish(
    session: &Session,
    client: &Client,
    accepted: Accepted,
    wait: Wait,
) -> Result<(), Error> {
    let (id, name) = (accepted.operation.id, accepted.database.name.clone());
    if !wait.wait {
        show(session.output, &accepted)?;
        session.output.hint(&format!("follow it with: slipway operations watch {id}"));
        return Ok(());
    }
    let kind = accepted.operation.kind.clone();
    session.output.progress(&format!("{kind} of {name} accepted: operation {id}"));
    let mut display = Display::new(session.output);
    let operation = attend(client, id, &mut |event| {
        display.event(event);
        Ok(())
    })
    .await?;
    drop(display);
    let database = match client.database(accepted.database.id).await {
        Ok(answer) => answer.body,
        // A deleted database may be gone from sight.
        Err(Error::Refused { problem, .. }) if problem.status == 404 => accepted.database,
        Err(error) => return Err(error),
    };
    let accepted = Accepted { database, operation };
    outcome(session.output, &accepted.operation)?;
    show(session.output, &accepted)?;
    if kind == "create" {
        session.output.hint(&format!("connect to it with: slipway databases connect {name}"));
    }
    Ok(())
}

fn show(output: Output, accepted: &Accepted) -> Result<(), Error> {
    output.show(
        accepted,
        |wide| render::databases::accepted(accepted, wide),
        || vec![render::databases::name(&accepted.database)],
    )
}
