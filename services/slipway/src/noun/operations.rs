//! Operations: list, look at, follow, cancel.

use clap::{Args, Subcommand};
use uuid::Uuid;
use wire::http::{Operation, OperationEvent, OperationList};

use crate::cli::{Format, Wait};
use crate::client::calls::{Operations, operation_id};
use crate::error::Error;
use crate::follow::attend;
use crate::noun::databases;
use crate::output::{Colour, Output};
use crate::progress::Display;
use crate::render;
use crate::session::{REQUEST, Session, WAITING};

/// What can be done with operations.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List operations, newest first
    #[command(visible_alias = "ls")]
    List(List),
    /// Show operations
    Get(Get),
    /// Follow an operation to its end
    Watch(Watch),
    /// Cancel an operation that is under way
    Cancel(Cancel),
}

/// `operations list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway operations list
  slipway operations list --database trades -o wide
  slipway operations list --state running
  slipway operations list --overdue -o wide")]
pub struct List {
    /// Only those of a database, by name or id
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Only those in this state: pending, running, succeeded, failed or superseded
    #[arg(long)]
    state: Option<String>,
    /// Only those that are past their deadline and go on
    #[arg(long)]
    overdue: bool,
    /// At most so many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// `operations get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway operations get 0192f3a4-5b6c-7d8e-9f00-112233445566 -o yaml")]
pub struct Get {
    /// Ids
    #[arg(required = true, value_name = "ID")]
    operations: Vec<String>,
}

/// `operations watch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway operations watch 0192f3a4-5b6c-7d8e-9f00-112233445566
  slipway operations watch operations/0192f3a4-5b6c-7d8e-9f00-112233445566 --timeout 10m
  slipway operations watch 0192f3a4-5b6c-7d8e-9f00-112233445566 -o json | jq -r .step.name

Steps are shown on standard error, the operation at its end on standard output; with -o json each event is
a line of JSON on standard output. The exit code is 0 only for an operation that succeeded.")]
pub struct Watch {
    /// Id
    #[arg(value_name = "ID")]
    operation: String,
}

/// `operations cancel`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway operations cancel 0192f3a4-5b6c-7d8e-9f00-112233445566
  slipway operations cancel operations/0192f3a4-5b6c-7d8e-9f00-112233445566 --wait

A new database is taken back, a changed one returns to its last good state. That is an operation
of its own, which is shown (and with --wait followed to its end). Deletions are not cancelled.")]
pub struct Cancel {
    /// Id
    #[arg(value_name = "ID")]
    operation: String,
    #[command(flatten)]
    wait: Wait,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    match command {
        Command::List(command) => list(session, command).await,
        Command::Get(command) => get(session, command).await,
        Command::Watch(command) => watch(session, command).await,
        Command::Cancel(command) => cancel(session, command).await,
    }
}

async fn list(session: &Session, command: List) -> Result<(), Error> {
    let List { database, state, overdue, limit } = command;
    let client = session.client(REQUEST)?;
    let database = match database {
        Some(text) => Some(client.find_database(&text).await?.id),
        None => None,
    };
    let found = client.operations(&Operations { database, state, overdue }, limit as usize).await?;
    session.output.warn_unreadable("an operation of", &found.unreadable);
    if found.operations.is_empty() && found.unreadable.is_empty() {
        session.output.hint("no operations");
    } else if found.operations.len() == limit as usize {
        session.output.hint(&format!("the newest {limit}; there may be more: --limit"));
    }
    show(session, &found)
}

fn show(session: &Session, list: &OperationList) -> Result<(), Error> {
    let empty = list.operations.is_empty();
    if empty && matches!(session.output.format, Format::Table | Format::Wide | Format::Name) {
        return Ok(());
    }
    session.output.show(
        list,
        |wide| render::operations::list(&list.operations, session.now, wide),
        || list.operations.iter().map(render::operations::name).collect(),
    )
}

async fn get(session: &Session, command: Get) -> Result<(), Error> {
    let client = session.client(REQUEST)?;
    let mut found = Vec::new();
    for text in &command.operations {
        found.push(client.operation(operation_id(text)?).await?);
    }
    if let [operation] = found.as_slice() {
        return show_one(session, operation);
    }
    let list = OperationList { operations: found, unreadable: Vec::new(), next_cursor: None };
    show(session, &list)
}

fn show_one(session: &Session, operation: &Operation) -> Result<(), Error> {
    session.output.show(
        operation,
        |wide| render::operations::list(std::slice::from_ref(operation), session.now, wide),
        || vec![render::operations::name(operation)],
    )
}

async fn watch(session: &Session, command: Watch) -> Result<(), Error> {
    let id = operation_id(&command.operation)?;
    let client = session.client(WAITING)?;
    let lines = session.output.format == Format::Json;
    let mut display = Display::new(session.output);
    let operation = attend(&client, id, &mut |event| {
        if lines {
            return session.output.more(&line(event)?);
        }
        display.event(event);
        Ok(())
    })
    .await?;
    drop(display);
    if !lines {
        show_one(session, &operation)?;
    }
    outcome(session.output, &operation)
}

async fn cancel(session: &Session, command: Cancel) -> Result<(), Error> {
    let Cancel { operation, wait, idempotency_key } = command;
    let id = operation_id(&operation)?;
    let client = session.client(if wait.wait { WAITING } else { REQUEST })?;
    let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
    session.output.trace(&format!("idempotency key {key}"));
    let accepted = client.cancel_operation(id, &key).await?;
    databases::finish(session, &client, accepted, wait).await
}

/// An event as one line of JSON.
fn line(event: &OperationEvent) -> Result<String, Error> {
    serde_json::to_string(event).map_err(|error| Error::Render(Box::new(error)))
}

/// Says how an operation ended; anything but success is an error.
pub fn outcome(output: Output, operation: &Operation) -> Result<(), Error> {
    if operation.state != "succeeded" {
        return Err(Error::Ended { operation: Box::new(operation.clone()) });
    }
    let length = operation.ended_at.and_then(|end| end.duration_since(operation.created_at).try_into().ok());
    let length = length.map(|length| format!(" in {}", render::text::took(length))).unwrap_or_default();
    let mark = output.paint(Colour::Green, "✔");
    output.progress(&format!("{mark} {} of {} succeeded{length}", operation.kind, operation.database_name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::render::fixture;
    use clap::Parser;

    #[test]
    fn only_success_is_a_success() {
        let output = Output::new(&Cli::parse_from(["slipway", "--quiet", "version"]).global);
        for (state, expected) in
            [("succeeded", true), ("failed", false), ("superseded", false), ("running", false)]
        {
            assert_eq!(outcome(output, &fixture::operation(state)).is_ok(), expected, "{state}");
        }
    }

    #[test]
    fn an_event_is_one_line() {
        for event in fixture::events() {
            let line = line(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<OperationEvent>(&line).unwrap(), event);
        }
    }
}
