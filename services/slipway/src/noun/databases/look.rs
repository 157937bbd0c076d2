//! The commands that look at databases: get, list, describe.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::Instant;
use wire::http::{Database, DatabaseList, Operation, OperationEvent};

use crate::cli::Format;
use crate::client::Client;
use crate::client::calls::Filter;
use crate::error::Error;
use crate::follow::history;
use crate::render;
use crate::session::{REQUEST, Session, WAITING};

/// Between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(2);
/// How long `describe` waits for the events of an operation that goes on.
const HISTORY: Duration = Duration::from_secs(1);

/// `databases get`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases get trades
  slipway databases get trades quotes -o wide
  slipway databases get trades -o json | jq -r .observed.endpoints.postgres")]
pub struct Get {
    /// Names or ids
    #[arg(required = true)]
    databases: Vec<String>,
}

/// `databases list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases list
  slipway databases list -o wide --limit 500
  slipway databases list --watch
  slipway databases list -o name | xargs slipway databases get")]
pub struct List {
    /// Only of this name
    #[arg(long)]
    name: Option<String>,
    /// Deleted ones too
    #[arg(long)]
    deleted: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on and show what changes, until --timeout or Ctrl-C
    #[arg(short, long)]
    watch: bool,
}

/// `databases describe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases describe trades
  slipway databases describe trades -o yaml")]
pub struct Describe {
    /// Name or id
    database: String,
}

/// Shows databases by name or id.
pub(super) async fn get(session: &Session, command: Get) -> Result<(), Error> {
    let client = session.client(REQUEST)?;
    let mut found = Vec::new();
    for text in &command.databases {
        found.push(client.find_database(text).await?);
    }
    // One thing asked for is one thing shown, not a list of one.
    if let [database] = found.as_slice() {
        return session.output.show(
            database,
            |wide| render::databases::list(&found, session.now, wide),
            || vec![render::databases::name(database)],
        );
    }
    let list = DatabaseList { databases: found, unreadable: Vec::new(), next_cursor: None };
    show(session, &list, session.now)
}

/// Lists databases.
pub(super) async fn list(session: &Session, command: List) -> Result<(), Error> {
    let List { name, deleted, limit, watch } = command;
    let (filter, limit) = (Filter { name, deleted }, limit as usize);
    if watch {
        return watching(session, &filter, limit).await;
    }
    let found = session.client(REQUEST)?.databases(&filter, limit).await?;
    session.output.warn_unreadable("database", &found.unreadable);
    if found.databases.is_empty() && found.unreadable.is_empty() {
        session.output.hint("no databases: make one with `slipway databases create NAME --region REGION`");
    } else if found.databases.len() == limit {
        session.output.hint(&format!("the newest {limit}; there may be more: --limit"));
    }
    show(session, &found, session.now)
}

fn show(session: &Session, list: &DatabaseList, now: jiff::Timestamp) -> Result<(), Error> {
    let empty = list.databases.is_empty();
    if empty && matches!(session.output.format, Format::Table | Format::Wide | Format::Name) {
        return Ok(());
    }
    session.output.data(&form(session, list, now)?)
}

fn form(session: &Session, list: &DatabaseList, now: jiff::Timestamp) -> Result<String, Error> {
    session.output.form(
        list,
        |wide| render::databases::list(&list.databases, now, wide),
        || list.databases.iter().map(render::databases::name).collect(),
    )
}

/// Shows all, then again and again what changed.
async fn watching(session: &Session, filter: &Filter, limit: usize) -> Result<(), Error> {
    let client = session.client(WAITING)?;
    let (mut known, mut told) = (BTreeMap::new(), BTreeSet::new());
    while Instant::now() < client.deadline() {
        let mut found = client.databases(filter, limit).await?;
        found.unreadable.retain(|row| told.insert(row.id));
        session.output.warn_unreadable("database", &found.unreadable);
        found.databases = changed(&mut known, found.databases);
        if !found.databases.is_empty() {
            session.output.more(&form(session, &found, jiff::Timestamp::now())?)?;
        }
        tokio::time::sleep(LOOK).await;
    }
    // Watching for a while is what was asked for.
    Ok(())
}

/// What is new or not what it was. Pure. When something was last seen is no change.
fn changed(known: &mut BTreeMap<uuid::Uuid, Database>, found: Vec<Database>) -> Vec<Database> {
    let timeless = |database: &Database| {
        let mut database = database.clone();
        if let Some(observed) = &mut database.observed {
            observed.as_of = None;
        }
        database
    };
    found
        .into_iter()
        .filter(|database| {
            let now = timeless(database);
            known.insert(database.id, now.clone()) != Some(now)
        })
        .collect()
}

/// Everything about a database, for programs.
#[derive(Debug, Serialize)]
struct Everything {
    database: Database,
    operation: Option<Operation>,
    events: Vec<OperationEvent>,
}

/// Shows everything about a database.
pub(super) async fn describe(session: &Session, command: Describe) -> Result<(), Error> {
    let client = session.client(REQUEST)?;
    let database = client.find_database(&command.database).await?;
    let operation = newest(&client, &database).await?;
    let events = match &operation {
        Some(operation) => history(&client, operation.id, HISTORY).await?,
        None => Vec::new(),
    };
    let all = Everything { database, operation, events };
    session.output.show(
        &all,
        |_| render::describe::describe(&all.database, all.operation.as_ref(), &all.events, session.now),
        || vec![render::databases::name(&all.database)],
    )
}

/// The newest operation, if it is still known.
async fn newest(client: &Client, database: &Database) -> Result<Option<Operation>, Error> {
    let Some(id) = database.operation_id else { return Ok(None) };
    match client.operation(id).await {
        Ok(operation) => Ok(Some(operation)),
        Err(Error::Refused { problem, .. }) if problem.status == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn only_what_changed_is_shown_again() {
        let mut known = BTreeMap::new();
        let mut database = fixture::database();
        assert_eq!(changed(&mut known, vec![database.clone()]).len(), 1);
        database.observed.as_mut().unwrap().as_of = Some(fixture::now());
        assert_eq!(changed(&mut known, vec![database.clone()]).len(), 0);
        database.observed.as_mut().unwrap().phase = "Degraded".to_owned();
        assert_eq!(changed(&mut known, vec![database]).len(), 1);
    }
}
