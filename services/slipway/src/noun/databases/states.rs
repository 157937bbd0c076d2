//! The commands that move a database between its run states: pause, resume, restart, undelete.

use clap::Args;
use domain::lifecycle::Verb;
use uuid::Uuid;

use super::{client, finish};
use crate::cli::Wait;
use crate::error::Error;
use crate::session::Session;

/// `databases pause`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases pause trades --wait

Its machine and its DNS name go until it is resumed; volume, configuration and credentials stay.")]
pub struct Pause {
    #[command(flatten)]
    target: Target,
}

/// `databases resume`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases resume trades --wait")]
pub struct Resume {
    #[command(flatten)]
    target: Target,
}

/// `databases restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases restart trades --wait

QuestDB is stopped and started once on the machine that it has. A restart is not cancelled.")]
pub struct Restart {
    #[command(flatten)]
    target: Target,
}

/// `databases undelete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases list --deleted
  slipway databases undelete trades --wait
  slipway databases undelete 0192f3a4-5b6c-7d8e-9f00-112233445566

It runs again with the volume that was kept (--deletion-policy retain), under its old name if no
other database has that meanwhile. What was deleted with its volume does not come back.")]
pub struct Undelete {
    #[command(flatten)]
    target: Target,
}

/// Which database, and how to go about it.
#[derive(Debug, Args)]
struct Target {
    /// Name or id
    database: String,
    #[command(flatten)]
    wait: Wait,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Stops a database.
pub(super) async fn pause(session: &Session, command: Pause) -> Result<(), Error> {
    ask(session, Verb::Pause, command.target).await
}

/// Lets a paused database run again.
pub(super) async fn resume(session: &Session, command: Resume) -> Result<(), Error> {
    ask(session, Verb::Resume, command.target).await
}

/// Restarts a database.
pub(super) async fn restart(session: &Session, command: Restart) -> Result<(), Error> {
    ask(session, Verb::Restart, command.target).await
}

/// Brings a deleted database back.
pub(super) async fn undelete(session: &Session, command: Undelete) -> Result<(), Error> {
    ask(session, Verb::Undelete, command.target).await
}

async fn ask(session: &Session, verb: Verb, target: Target) -> Result<(), Error> {
    let Target { database, wait, idempotency_key } = target;
    let client = client(session, wait)?;
    let found = match verb {
        Verb::Undelete | Verb::Purge => client.find_deleted(&database).await?,
        Verb::Pause | Verb::Resume | Verb::Restart => client.find_database(&database).await?,
    };
    let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
    session.output.trace(&format!("idempotency key {key}"));
    let before = found.operation_id;
    let accepted = client.ask_state(found.id, verb, &key).await?;
    if before == Some(accepted.operation.id) {
        session
            .output
            .hint(&format!("nothing to {verb}: operation {} asked for this before", accepted.operation.id));
    }
    finish(session, &client, accepted, wait).await
}
