//! `POST /v1/databases/{id}:pause`, `:resume`, `:restart` and `:undelete`. What follows what is decided in
//! `domain::lifecycle`, under the database's row lock; so it is for `:purge`, which is described in its own file.

use axum::http::HeaderMap;
use axum::response::Response;
use domain::lifecycle::{Next, Present, Refusal, Verb, follow};
use domain::{DatabaseId, Desired, OperationId, OperationState, Rule, Violation};
use serde_json::json;
use store::{Conflict, Database, Page, Transaction};
use utoipa::IntoResponses;
use wire::http::{Accepted, Problem};

use super::super::auth::Caller;
use super::super::body::Body;
use super::super::failure::Failure;
use super::super::{Api, answer, idempotency, precondition};
use super::{accepted, audit_with, etag, mint};

/// What each of these verbs is answered with.
#[derive(IntoResponses)]
#[expect(dead_code, clippy::large_enum_variant, reason = "only described by this, never made of it")]
pub(crate) enum Answers {
    /// Accepted: the database, and the operation that carries this out
    #[response(status = 202, headers(
        ("Location" = String, description = "The operation"),
        ("ETag" = String, description = "The desired state"),
        ("Idempotent-Replayed" = Option<String>, description = "`true` where the answer was given before"),
    ))]
    Accepted(Accepted),
    /// A header is missing
    #[response(status = 400, content_type = "application/problem+json")]
    Header(Problem),
    /// There is none, or it is not the caller's
    #[response(status = 404, content_type = "application/problem+json")]
    Missing(Problem),
    /// The database is `deleted`, `purged` or `paused`, another living database has its name (`name_taken`), or the same
    /// request is under way
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(Problem),
    /// The database changed meanwhile
    #[response(status = 412, content_type = "application/problem+json")]
    Changed(Problem),
    /// The key was used for another request
    #[response(status = 422, content_type = "application/problem+json")]
    Key(Problem),
}

/// Pause a database
///
/// Its machine goes; volume, name, configuration and credentials stay, and nothing but the volume is paid for. Nobody answers
/// to the name meanwhile. Pausing what is paused changes nothing and answers with the operation that asked for what stands now. A pause
/// that is not carried out by its operation's deadline is taken back.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:pause",
    tag = "databases",
    operation_id = "pause_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(Answers)
)]
pub(crate) async fn pause(wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    ask(wish, Verb::Pause, id, None).await
}

/// Resume a paused database
///
/// It gets a new machine and its name again, with the volume that it has. Resuming what runs changes nothing and answers
/// with the operation that asked for what stands now. What is not carried out by its operation's deadline is taken back.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:resume",
    tag = "databases",
    operation_id = "resume_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(Answers)
)]
pub(crate) async fn resume(wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    ask(wish, Verb::Resume, id, None).await
}

/// Restart a database
///
/// QuestDB is stopped and started once, on the machine that it has. Each request is a restart of its own, unless it comes
/// with a key that was used before. A restart is not cancelled.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:restart",
    tag = "databases",
    operation_id = "restart_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each restart"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(Answers)
)]
pub(crate) async fn restart(wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    ask(wish, Verb::Restart, id, None).await
}

/// Bring a deleted database back
///
/// It runs again with the volume that was kept, under its name, unless another living database of the tenant has that
/// meanwhile. What was deleted with its volume is purged and never comes back. What is not deleted stays as it is and is
/// answered with the operation that asked for what stands now.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:undelete",
    tag = "databases",
    operation_id = "undelete_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(Answers)
)]
pub(crate) async fn undelete(wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    ask(wish, Verb::Undelete, id, None).await
}

/// What a request brings along besides the database and the verb.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) api: &'a Api,
    pub(crate) caller: &'a Caller,
    pub(crate) headers: &'a HeaderMap,
}

/// What came in the body of a request that has one.
pub(super) struct Said<'a> {
    /// Its bytes, which the idempotency key stands for too.
    pub(super) body: &'a Body,
    /// The name of the database that is meant.
    pub(super) confirm: String,
    /// Why.
    pub(super) reason: String,
}

/// Follows a verb.
pub(super) async fn ask(
    Wish { api, caller, headers }: Wish<'_>,
    verb: Verb,
    id: DatabaseId,
    said: Option<Said<'_>>,
) -> Result<Response, Failure> {
    let none = || Failure::not_found("database");
    let seen = api.store().database(caller.scope()?, id).await?.ok_or_else(none)?;
    let route = format!("POST /v1/databases/{{id}}:{verb}");
    let (tenant, subject) = (&seen.database.tenant, id.to_string());
    let about = (route.as_str(), subject.as_str());
    let key = match &said {
        Some(said) => idempotency::key_of(headers, caller, tenant, about, said.body)?,
        None => idempotency::key_about(headers, caller, tenant, about)?,
    };
    if let Some(said) = &said {
        confirm(&said.confirm, seen.database.desired.name.as_str())?;
    }
    let mut transaction = api.store().begin().await?;
    if let Some(before) = idempotency::claim(&mut transaction, &key).await? {
        return Ok(answer::send(before, true));
    }
    let locked = transaction.lock_database(caller.scope()?, id).await?.ok_or_else(none)?;
    precondition::allow_match(headers, locked.position)?;
    let newest = newest(&mut transaction, id).await?;
    let minted = match decide(&mut transaction, verb, &locked, newest.1).await? {
        Some(desired) => {
            api.gate().fits((&locked.tenant, &locked.cluster), &desired, &caller.actor())?;
            let minted = transaction.change(&locked, mint(api, caller, verb.kind(), desired)).await;
            match minted {
                Err(store::Error::Conflict(Conflict::NameTaken)) => {
                    // Nobody waits for a second connection while it holds one.
                    drop(transaction);
                    return Err(taken(api, &locked).await);
                }
                minted => Some(minted?.operation),
            }
        }
        None => None,
    };
    let (body, position) = accepted(&mut transaction, id, minted.unwrap_or(newest.0)).await?;
    let answer = answer::accepted(&body, etag(position))?;
    transaction.store_answer(&key, &answer).await?;
    if minted.is_some() {
        // What is destroyed is told beside why: nothing else remembers it for ever.
        let volume = body.database.observed.as_ref().and_then(|seen| seen.volume_id.as_deref());
        let detail = said.map_or_else(|| json!({}), |said| json!({"reason": said.reason, "volume": volume}));
        audit_with(&mut transaction, caller, &format!("databases.{verb}"), (&body, detail)).await?;
    }
    transaction.commit().await?;
    if minted.is_some() {
        api.ring();
        tracing::info!(db.id = %id, db.position = %position, operation.kind = %verb, "change of run state asked for");
    }
    Ok(answer::send(answer, false))
}

/// Whoever names another database means another one.
fn confirm(said: &str, name: &str) -> Result<(), Failure> {
    if said == name {
        return Ok(());
    }
    let detail = format!("must be the database's name, {name}: is another one meant?");
    Err(Failure::violation(Violation::new("/confirm", Rule::Conflict, detail)))
}

/// The operation that asked for what should be now, and how far it came.
async fn newest(
    transaction: &mut Transaction,
    id: DatabaseId,
) -> Result<(OperationId, OperationState), Failure> {
    let nobody = || Failure::internal(format!("database {id} was asked for by nobody"));
    let view = transaction.database(id).await?.ok_or_else(nobody)?;
    let operation = view.operation.ok_or_else(nobody)?;
    let record = transaction.operation(operation).await?.ok_or_else(nobody)?;
    Ok((operation, record.operation.state))
}

/// The state that follows; `None` where it is asked for already.
async fn decide(
    transaction: &mut Transaction,
    verb: Verb,
    locked: &Database,
    newest: OperationState,
) -> Result<Option<Desired>, Failure> {
    let base = transaction.base(locked).await?;
    let present = Present {
        wanted: &locked.desired,
        base: base.as_ref().unwrap_or(&locked.desired),
        failed: newest == OperationState::Failed,
    };
    // A nonce that was never used, and that says when.
    let nonce = OperationId::mint().to_string();
    match follow(verb, present, &nonce) {
        Ok(Next::Mint(desired)) => Ok(Some(*desired)),
        Ok(Next::Stands) => Ok(None),
        Err(why) => Err(refusal(why)),
    }
}

/// Why a verb is not followed.
pub(super) fn refusal(why: Refusal) -> Failure {
    let title = match why {
        Refusal::Deleted => "The database is deleted",
        Refusal::Purged => "The database is purged",
        Refusal::Paused => "The database is paused",
        Refusal::Living => "The database is not deleted",
        Refusal::Protected => "The database is protected from deletion",
    };
    Failure::conflict(why.code(), title, why.detail())
}

/// Its name belongs to another one, which is named if it is still there.
async fn taken(api: &Api, locked: &Database) -> Failure {
    let mut failure = Failure::from(Conflict::NameTaken);
    let name = locked.desired.name.as_str();
    let page = Page { after: None, limit: 1 };
    let others = api.store().databases(Some(&locked.tenant), Some(name), false, page).await;
    let other = others.ok().and_then(|mut others| others.pop());
    let id = other.map(|other| other.map_or_else(|row| row.database, |view| view.database.id));
    let by = id.map_or_else(|| "another one".to_owned(), |id| format!("database {id}"));
    let detail = format!("its name {name} belongs to {by} now: delete that one first, or go on with it");
    failure.problem.detail.clone_from(&detail);
    failure.problem.errors.iter_mut().for_each(|error| error.detail.clone_from(&detail));
    failure
}
