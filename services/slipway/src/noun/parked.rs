//! What is parked: list, look at. It is carried out by itself when its cluster can take it.

use clap::{Args, Subcommand};
use wire::http::ParkedList;

use super::find::{Narrow, identity};
use crate::cli::Format;
use crate::client::aside::Which;
use crate::error::Error;
use crate::render;
use crate::session::{REQUEST, Session};

/// What can be done with what is parked.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List instructions that wait because their cluster cannot take them now
    #[command(visible_alias = "ls")]
    List(List),
    /// Show why a database's state waits, and what is tried when
    Describe(Describe),
}

/// `parked list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway parked list
  slipway parked list --cluster eu-west-1 -o wide

What is parked is carried out by itself as soon as its cluster takes it: see to the cluster.")]
pub struct List {
    #[command(flatten)]
    narrow: Narrow,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// `parked describe`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway parked describe trades")]
pub struct Describe {
    /// Name or id of the database
    database: String,
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    let client = session.client(REQUEST)?;
    match command {
        Command::List(List { narrow, limit }) => {
            let parked = client.parked(&narrow.which(&client).await?, limit as usize).await?;
            if parked.is_empty() {
                session.output.hint("nothing is parked");
                if matches!(session.output.format, Format::Table | Format::Wide | Format::Name) {
                    return Ok(());
                }
            } else if parked.len() == limit as usize {
                session.output.hint(&format!("the latest {limit}; there may be more: --limit"));
            }
            let list = ParkedList { parked, next_cursor: None };
            session.output.show(
                &list,
                |wide| render::aside::parked(&list.parked, session.now, wide),
                || list.parked.iter().map(render::aside::parked_name).collect(),
            )
        }
        Command::Describe(Describe { database }) => {
            let which = Which { database: Some(identity(&client, &database).await?), ..Which::default() };
            let found = client.parked(&which, 1).await?.pop().ok_or_else(|| Error::NotFound {
                what: format!("a parked instruction of database {database}"),
                hint: "nothing of it waits for its cluster: `slipway databases describe` shows how it is"
                    .to_owned(),
            })?;
            session.output.show(
                &found,
                |_| render::aside::describe_parked(&found, session.now),
                || vec![render::aside::parked_name(&found)],
            )
        }
    }
}
