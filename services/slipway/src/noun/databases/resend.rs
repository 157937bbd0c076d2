//! The command that has a database's state published again.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;
use uuid::Uuid;
use wire::http::{Intervention, Resent};

use super::client;
use crate::cli::Wait;
use crate::client::Client;
use crate::error::Error;
use crate::render;
use crate::session::Session;

/// Between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(300);

/// `databases resend`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases resend trades --reason 'INC-42: its cluster was restored'
  slipway databases resend trades --reason 'INC-42' --wait
  slipway databases resend trades --dry-run

The state that the database has is said again at the position that it has: nothing changes, nothing
can go back, and a cluster that holds it already does nothing.")]
pub struct Resend {
    /// Name or id
    database: String,
    /// Why, for those who look later
    #[arg(
        long,
        value_name = "TEXT",
        required_unless_present = "dry_run",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Wait until it is on its way; for 30m unless --timeout says otherwise
    #[arg(long)]
    wait: bool,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Has a database's state published again.
pub(super) async fn resend(session: &Session, command: Resend) -> Result<(), Error> {
    let client = way(session, &command)?;
    let Resend { database, reason, dry_run, wait, idempotency_key } = command;
    let found = client.find_database(&database).await?;
    let wish = Intervention { reason, dry_run };
    let key = (!dry_run).then(|| idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string()));
    let mut resent = client.resend_database(found.id, &wish, key.as_deref()).await?;
    if wait && !dry_run {
        resent.database = published(&client, &resent).await?;
    }
    session.output.show(
        &resent,
        |_| render::databases::resent(&resent, session.now),
        || vec![render::databases::name(&resent.database)],
    )?;
    if !wait && !dry_run {
        session.output.hint(&format!("when it went is seen with: slipway databases describe {}", found.id));
    }
    Ok(())
}

/// The way to the API, open for as long as the command may take. Nothing comes of a dry run that could be waited for.
fn way(session: &Session, command: &Resend) -> Result<Client, Error> {
    client(session, Wait { wait: command.wait && !command.dry_run })
}

/// The database, once its state is on its way.
async fn published(client: &Client, resent: &Resent) -> Result<wire::http::Database, Error> {
    let id = resent.database.id;
    while Instant::now() < client.deadline() {
        let database = client.database(id).await?.body;
        if database.published_at.is_some() {
            return Ok(database);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(Error::TimedOut {
        doing: format!("the state of {} waits to be published", resent.database.name),
        hint: "it goes by itself as soon as Kafka takes it".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::session::tests::session;
    use crate::session::{REQUEST, WAITING};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        resend: Resend,
    }

    #[test]
    fn who_waits_has_the_time_of_all_who_wait() {
        runtime::install_crypto();
        let left = |given: &[&str], global: &[&str]| {
            let words = [&["resend", "trades", "--reason=INC-42"], given].concat();
            let line = Line::try_parse_from(words).unwrap();
            let session = session(&[&["--api-url=http://127.0.0.1:1", "--token=swordfish"], global].concat());
            way(&session, &line.resend).unwrap().deadline() - Instant::now()
        };
        assert!(left(&["--wait"], &[]) > WAITING / 2);
        assert!(left(&[], &[]) <= REQUEST);
        assert!(left(&["--wait", "--dry-run"], &[]) <= REQUEST, "there is nothing to wait for");
        assert!(left(&["--wait"], &["--timeout=1s"]) < REQUEST, "what was asked for counts");
    }
}
