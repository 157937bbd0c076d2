//! The command that destroys the volume which a deletion kept.

use clap::Args;
use uuid::Uuid;
use wire::http::{Database, PurgeDatabase};

use super::change::{agree, read, volume};
use super::{client, finish};
use crate::cli::Wait;
use crate::error::Error;
use crate::session::Session;

/// `databases purge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases list --deleted -o wide
  slipway databases purge trades --reason 'INC-42: the customer left'
  slipway databases purge 0192f3a4-5b6c-7d8e-9f00-112233445566 --reason 'INC-42' --yes --wait

Only a deleted database is purged, whatever its deletion policy says; where that is snapshot, a last
copy is kept. Nothing brings the database back, and a purge is not cancelled. What a name means is the deleted one; where several are, take the id.")]
pub struct Purge {
    /// Name or id
    database: String,
    /// Why, for those who look later
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    wait: Wait,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Destroys the volume of a deleted database, after asking.
pub(super) async fn purge(session: &Session, command: Purge) -> Result<(), Error> {
    let Purge { database, reason, yes, wait, idempotency_key } = command;
    let mut client = client(session, wait)?;
    let found = client.find_deleted(&database).await?;
    let (present, etag) = read(&client, found.id).await?;
    // Of any other one the API says what is in the way.
    if present.run_state == "deleted" {
        client.prolong(agree(session, &consequence(&present), yes).await?);
    }
    let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
    session.output.trace(&format!("idempotency key {key}"));
    let body = PurgeDatabase { confirm: present.name, reason };
    // What was shown is what is destroyed: a change in between makes this a conflict.
    let accepted = client.purge_database(found.id, &body, (&key, etag)).await?;
    if present.operation_id == Some(accepted.operation.id) {
        session
            .output
            .hint(&format!("nothing to purge: operation {} asked for this before", accepted.operation.id));
    }
    finish(session, &client, accepted, wait).await
}

/// What a purge does, in words. Pure.
fn consequence(database: &Database) -> String {
    let since = database.deleted_at.map(|at| format!(" (deleted since {at:.0})")).unwrap_or_default();
    let fate = if database.storage.deletion_policy == "snapshot" {
        "is DESTROYED once a last copy of it is complete. The copy is kept; the database itself cannot be brought back."
    } else {
        "is DESTROYED with all data, and cannot be brought back."
    };
    format!(
        "The {} of database {} ({}) of tenant {} in {}{since} {fate}",
        volume(database),
        database.name,
        database.id,
        database.tenant,
        database.region,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_purge_says_what_is_destroyed() {
        let mut database = fixture::database();
        database.deleted_at = Some(fixture::at("2026-11-21T06:20:00.5Z"));
        let seen = consequence(&database);
        (database.observed, database.deleted_at) = (None, None);
        let plain = consequence(&database);
        database.storage.deletion_policy = "snapshot".to_owned();
        insta::assert_snapshot!([seen, plain, consequence(&database)].join("\n"));
    }
}
