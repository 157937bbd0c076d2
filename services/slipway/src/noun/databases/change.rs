//! The commands that change databases: create, update, delete.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use reqwest::header::HeaderValue;
use uuid::Uuid;
use wire::http::{Database, UpdateDatabase};

use super::wishes::Wishes;
use super::{client, finish};
use crate::cli::Wait;
use crate::client::{Answer, Client};
use crate::error::Error;
use crate::session::Session;

/// `databases create`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases create trades --region eu-west-1 --wait
  slipway databases create trades --region eu-west-1 --instance-type r7i.2xlarge --size-gib 500 \\
      --iops 7000 --throughput 500 --config shared.worker.count=8 --allow-cidr 10.0.0.0/8
  slipway databases create trades --region us-east-1 -o json | jq -r .operation.id")]
pub struct Create {
    /// Name: lower-case letters, digits and '-', at most 40
    name: String,
    /// AWS region
    #[arg(long)]
    region: String,
    #[command(flatten)]
    wishes: Wishes,
    #[command(flatten)]
    wait: Wait,
    /// Key under which the API does this once, however often it is asked [default: a new one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// `databases update`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases update trades --size-gib 200 --wait
  slipway databases update trades --config shared.worker.count=4 --unset-config old.key
  slipway databases update trades --allow-cidr 10.0.0.0/8 --allow-cidr 192.168.0.0/16

Keys of server.conf that are not named keep their values; --allow-cidr replaces the whole list.
A change that somebody else made in between is never overwritten (exit code 5).")]
pub struct Update {
    /// Name or id
    database: String,
    #[command(flatten)]
    wishes: Wishes,
    /// A key of server.conf to take out; may be repeated
    #[arg(long, value_name = "KEY")]
    unset_config: Vec<String>,
    #[command(flatten)]
    wait: Wait,
}

/// `databases delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway databases delete trades
  slipway databases delete trades --yes --wait

What becomes of the volume the deletion policy says (databases update --deletion-policy). What is
protected is not deleted: databases update --no-deletion-protection first.")]
pub struct Delete {
    /// Name or id
    database: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    wait: Wait,
}

/// Asks for a database.
pub(super) async fn create(session: &Session, command: Create) -> Result<(), Error> {
    let Create { name, region, wishes, wait, idempotency_key } = command;
    let client = client(session, wait)?;
    let key = idempotency_key.unwrap_or_else(|| Uuid::now_v7().to_string());
    session.output.trace(&format!("idempotency key {key}"));
    let accepted = client.create_database(&wishes.create(name, region), &key).await?;
    finish(session, &client, accepted, wait).await
}

/// Asks for a change of what was read just now.
pub(super) async fn update(session: &Session, command: Update) -> Result<(), Error> {
    let Update { database, wishes, unset_config, wait } = command;
    if wishes == Wishes::default() && unset_config.is_empty() {
        return Err(Error::Usage {
            message: "nothing to change".to_owned(),
            hint: "slipway databases update --help".to_owned(),
        });
    }
    let client = client(session, wait)?;
    let found = client.find_database(&database).await?;
    let (present, etag) = read(&client, found.id).await?;
    let body: UpdateDatabase = wishes.update(&present.config, &unset_config);
    let accepted = client.update_database(found.id, &body, etag).await?;
    finish(session, &client, accepted, wait).await
}

/// Deletes a database, after asking.
pub(super) async fn delete(session: &Session, command: Delete) -> Result<(), Error> {
    let Delete { database, yes, wait } = command;
    let mut client = client(session, wait)?;
    let found = client.find_database(&database).await?;
    let (present, etag) = read(&client, found.id).await?;
    // Of what is protected the API says what is in the way.
    if !present.deletion_protection {
        client.prolong(agree(session, &consequence(&present), yes).await?);
    }
    // The policy that was shown is the one that is carried out: a change in between makes this a conflict.
    let accepted = client.delete_database(found.id, etag).await?;
    let kept = accepted.database.run_state == "deleted";
    finish(session, &client, accepted, wait).await?;
    if kept {
        let id = found.id;
        session.output.hint(&format!(
            "its volume is kept and paid for: bring it back with `slipway databases undelete {id}`, \
             destroy it with `slipway databases purge {id} --reason …`"
        ));
    }
    Ok(())
}

/// Goes on only if that is agreed to. Answers how long somebody took to do so.
pub(super) async fn agree(session: &Session, consequence: &str, yes: bool) -> Result<Duration, Error> {
    if yes {
        session.output.progress(consequence);
        Ok(Duration::ZERO)
    } else if std::io::stdin().is_terminal() {
        session.output.confirm(&format!("{consequence} Go on?")).await?.ok_or(Error::Declined)
    } else {
        Err(Error::Usage {
            message: format!("{consequence} Nobody is there to be asked"),
            hint: "add --yes if that is what you want".to_owned(),
        })
    }
}

/// A database and the version that was read.
pub(super) async fn read(client: &Client, id: Uuid) -> Result<(Database, HeaderValue), Error> {
    let Answer { body, etag } = client.database(id).await?;
    let etag = etag.ok_or_else(|| Error::Answer {
        request: format!("GET /v1/databases/{id}"),
        source: "it has no ETag, so a change could overwrite that of somebody else".into(),
    })?;
    Ok((body, etag))
}

/// What a delete does, in words. Pure.
fn consequence(database: &Database) -> String {
    let volume = volume(database);
    let fate = match database.storage.deletion_policy.as_str() {
        "delete" => format!("Its {volume} is DESTROYED with all data, and cannot be brought back."),
        "snapshot" => format!(
            "Its {volume} is DESTROYED once a last copy of it is complete. The copy is kept; the database itself cannot be \
             brought back."
        ),
        "retain" => format!("Its {volume} is kept, with all data."),
        other => format!("Its {volume} is treated by the policy {other:?}."),
    };
    format!(
        "Database {} ({}) of tenant {} in {} stops serving and loses its name. {fate}",
        database.name, database.id, database.tenant, database.region
    )
}

/// The volume of a database, in words. Pure.
pub(super) fn volume(database: &Database) -> String {
    let size = database.storage.size_gib;
    match database.observed.as_ref().and_then(|seen| seen.volume_id.as_deref()) {
        Some(id) => format!("{size} GiB volume {id}"),
        None => format!("{size} GiB volume"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_delete_says_what_becomes_of_the_volume() {
        let mut database = fixture::database();
        let kept = consequence(&database);
        database.storage.deletion_policy = "delete".to_owned();
        database.observed = None;
        let destroyed = consequence(&database);
        database.storage.deletion_policy = "snapshot".to_owned();
        let copied = consequence(&database);
        insta::assert_snapshot!([kept, destroyed, copied].join("\n"));
    }
}
