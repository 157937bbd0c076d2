//! Lays a person's hand on what was set aside: the one place that does.
//!
//! *Invariant:* what is decided is decided under the lock of the database's row, and letter, state and audit are written
//! in one transaction.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::DatabaseId;
use serde::Serialize;
use serde_json::json;
use store::{Answer, Audit, Key, Transaction};
use wire::http::{Intervention, Resent, SettledLetter};

use super::super::auth::Caller;
use super::super::body::{self, Body};
use super::super::failure::Failure;
use super::super::{Api, answer, idempotency, present};
use super::decide::{self, Refusal, Verb};
use super::show;

/// Who wants it, and how they asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Body,
}

/// Deals with a dead letter.
pub(crate) async fn settle(api: &Api, wish: Wish<'_>, id: i64, verb: Verb) -> Result<Response, Failure> {
    wish.caller.require_sre()?;
    let Intervention { reason, dry_run } = read(wish.body)?;
    let none = || Failure::not_found("dead letter");
    let seen = api.store().letter(id).await?.ok_or_else(none)?;
    let mut transaction = api.store().begin().await?;
    let key = key(wish, (verb.route(), &id.to_string()), dry_run)?;
    if let Some(before) = claim(&mut transaction, key.as_ref()).await? {
        return Ok(answer::send(before, true));
    }
    let standing = match seen.database {
        Some(database) => transaction.lock_standing(database).await?,
        None => None,
    };
    let letter = transaction.lock_letter(id).await?.ok_or_else(none)?;
    let plan = decide::plan(verb, &letter, standing.as_ref(), api.gossip_topic())
        .map_err(|refusal| refused(&refusal))?;
    let (outcome, message) = (plan.settles.as_str().to_owned(), plan.message);
    let Some(key) = key else {
        let dead_letter = show::letter(letter, api.gossip_topic());
        return Ok(Json(SettledLetter { dead_letter, outcome, message, dry_run }).into_response());
    };
    let actor = wish.caller.actor();
    transaction.settle_letter(id, plan.settles, (&actor, &reason)).await?;
    if let Some(standing) = standing.as_ref().filter(|_| plan.publishes) {
        transaction.resend(standing, &actor).await?;
    }
    let code = letter.code;
    let letter = transaction.lock_letter(id).await?.ok_or_else(none)?;
    let subject = format!("dead-letters/{id}");
    let detail = json!({
        "reason": reason, "outcome": outcome, "code": code, "database": letter.database.map(DatabaseId::uuid),
        "letter": letter.position.map(|position| position.to_string()),
        "minted": standing.as_ref().map(|standing| standing.minted.to_string()),
    });
    let tenant = standing.map(|standing| standing.tenant);
    transaction.audit(&Audit { tenant, ..wish.caller.entry(verb.action(), subject, detail) }).await?;
    let dead_letter = show::letter(letter, api.gossip_topic());
    let answer = stored(&SettledLetter { dead_letter, outcome, message, dry_run }, None)?;
    transaction.store_answer(&key, &answer).await?;
    transaction.commit().await?;
    api.ring();
    tracing::info!(letter.id = id, action = verb.action(), by = actor, reason, "dead letter settled");
    Ok(answer::send(answer, false))
}

/// Has the state of a database published again.
pub(crate) async fn resend(api: &Api, wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    const ACTION: &str = "databases.resend";
    wish.caller.require_sre()?;
    let Intervention { reason, dry_run } = read(wish.body)?;
    let none = || Failure::not_found("database");
    let mut transaction = api.store().begin().await?;
    let key = key(wish, ("POST /v1/databases/{id}:resend", &id.to_string()), dry_run)?;
    if let Some(before) = claim(&mut transaction, key.as_ref()).await? {
        return Ok(answer::send(before, true));
    }
    let standing = transaction.lock_standing(id).await?;
    let scope = wish.caller.scope()?;
    let standing = standing.filter(|found| scope.is_none_or(|own| *own == found.tenant)).ok_or_else(none)?;
    let message = decide::resend(&standing).map_err(|refusal| refused(&refusal))?;
    let Some(key) = key else {
        let database = present::database(transaction.database(id).await?.ok_or_else(none)?);
        return Ok(Json(Resent { database, message, dry_run }).into_response());
    };
    let actor = wish.caller.actor();
    transaction.resend(&standing, &actor).await?;
    let database = present::database(transaction.database(id).await?.ok_or_else(none)?);
    let detail = json!({"reason": reason, "minted": standing.minted.to_string(), "waited": standing.waits});
    let entry = wish.caller.entry(ACTION, id.to_string(), detail);
    transaction.audit(&Audit { tenant: Some(standing.tenant), ..entry }).await?;
    let answer = stored(&Resent { database, message, dry_run }, Some(format!("/v1/databases/{id}")))?;
    transaction.store_answer(&key, &answer).await?;
    transaction.commit().await?;
    api.ring();
    tracing::info!(db.id = %id, db.position = %standing.minted, by = actor, reason, "state is published again");
    Ok(answer::send(answer, false))
}

impl Verb {
    const fn route(self) -> &'static str {
        match self {
            Self::Redrive => "POST /v1/dead-letters/{id}:redrive",
            Self::Discard => "POST /v1/dead-letters/{id}:discard",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Redrive => "dead_letters.redrive",
            Self::Discard => "dead_letters.discard",
        }
    }
}

/// What is asked for. A reason is for people who look later: without one nothing is done.
fn read(body: &Body) -> Result<Intervention, Failure> {
    let mut wish: Intervention = body.parse()?;
    wish.reason = body::reason(&wish.reason, !wish.dry_run)?;
    Ok(wish)
}

/// The key of a request; a dry run needs none.
fn key(wish: Wish<'_>, about: (&str, &str), dry_run: bool) -> Result<Option<Key>, Failure> {
    if dry_run {
        return Ok(None);
    }
    idempotency::key_of_the_fleet(wish.headers, wish.caller, about, wish.body).map(Some)
}

async fn claim(transaction: &mut Transaction, key: Option<&Key>) -> Result<Option<Answer>, Failure> {
    match key {
        Some(key) => idempotency::claim(transaction, key).await,
        None => Ok(None),
    }
}

fn refused(refusal: &Refusal) -> Failure {
    let detail = refusal.to_string();
    match refusal {
        Refusal::UnknownDatabase => Failure::unknown_database(&detail),
        _ => Failure::conflict(refusal.code(), "Nothing was sent", &detail),
    }
}

fn stored(body: &impl Serialize, location: Option<String>) -> Result<Answer, Failure> {
    let body = serde_json::to_value(body).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(Answer { status: StatusCode::ACCEPTED.as_u16(), location, etag: None, body })
}
