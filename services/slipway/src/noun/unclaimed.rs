//! What is unclaimed: list. Nothing is ever deleted for standing there, so there is nothing to do here but to look.

use clap::{Args, Subcommand};
use wire::http::UnclaimedList;

use super::find::Narrow;
use crate::cli::Format;
use crate::client::aside::Which;
use crate::error::Error;
use crate::render;
use crate::session::{REQUEST, Session};

/// What can be done with what is unclaimed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List what clusters hold although nobody can say why
    #[command(visible_alias = "ls")]
    List(List),
}

/// `unclaimed list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway unclaimed list
  slipway unclaimed list --code ahead -o wide
  slipway unclaimed list --resolved")]
pub struct List {
    #[command(flatten)]
    narrow: Narrow,
    /// What is no longer so, too
    #[arg(long)]
    resolved: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    let Command::List(List { narrow, resolved, limit }) = command;
    let client = session.client(REQUEST)?;
    let which = Which { over: resolved, ..narrow.which(&client).await? };
    let unclaimed = client.unclaimed(&which, limit as usize).await?;
    if unclaimed.is_empty() {
        session.output.hint("nothing is unclaimed");
        if matches!(session.output.format, Format::Table | Format::Wide | Format::Name) {
            return Ok(());
        }
    } else if unclaimed.len() == limit as usize {
        session.output.hint(&format!("the latest {limit}; there may be more: --limit"));
    }
    let list = UnclaimedList { unclaimed, next_cursor: None };
    session.output.show(
        &list,
        |wide| render::aside::unclaimed(&list.unclaimed, session.now, wide),
        || list.unclaimed.iter().map(render::aside::unclaimed_name).collect(),
    )
}
