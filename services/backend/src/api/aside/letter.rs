//! `/v1/dead-letters/{id}`: one dead letter, and what a person does about it.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use wire::http::{Intervention, Problem, SettledLetter, WholeLetter};

use super::super::Api;
use super::super::auth::Caller;
use super::super::body::Body;
use super::super::failure::Failure;
use super::act::{self, Wish};
use super::decide::{self, Verb};
use super::show;

/// Show a dead letter
///
/// With its key, its headers, its bytes, what the instruction in it says, and what a redrive would come to now.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    tag = "fleet",
    operation_id = "get_dead_letter",
    params(("id" = i64, Path, description = "Identity of the dead letter")),
    responses(
        (status = 200, description = "The dead letter", body = WholeLetter),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<WholeLetter>, Failure> {
    caller.require_sre()?;
    let (id, none) = (id(&text)?, || Failure::not_found("dead letter"));
    let letter = api.store().letter(id).await?.ok_or_else(none)?;
    let content = api.store().letter_content(id).await?.ok_or_else(none)?;
    let standing = match letter.database {
        Some(database) => api.store().standing(database).await?,
        None => None,
    };
    let redrive = decide::plan(Verb::Redrive, &letter, standing.as_ref(), api.gossip_topic());
    Ok(Json(show::whole(show::letter(letter, api.gossip_topic()), content, redrive)))
}

/// Takes what is to be done from the path. The router knows whole segments only, so the verb comes with the identity.
pub(crate) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let wish = Wish { caller: &caller, headers: &headers, body: &body };
    match text.split_once(':') {
        Some((text, "redrive")) => redrive(&api, wish, id(text)?).await,
        Some((text, "discard")) => discard(&api, wish, id(text)?).await,
        Some(_) => Err(Failure::no_route()),
        None => Err(Failure::method()),
    }
}

/// Redrive a dead letter
///
/// The letter itself is never sent again. Where its database is known, the newest state of that is published once more, at
/// its own position, and the letter is settled: as `redriven` where it stood for that state, as `superseded` where it is
/// older. A database of which nothing is left is not brought back. A `dry_run` says what would be done and needs no key.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}:redrive",
    tag = "fleet",
    operation_id = "redrive_dead_letter",
    request_body = Intervention,
    params(
        ("id" = i64, Path, description = "Identity of the dead letter"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for; needed unless it is a dry run"),
    ),
    responses(
        (status = 200, description = "A dry run: what would be done", body = SettledLetter),
        (status = 202, description = "Accepted: the newest state of its database is published again", body = SettledLetter),
        (status = 400, description = "No JSON, or a header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none (`not_found`), or nobody knows its database (`unknown_database`)", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Nothing was sent: it is `settled`, its database is `purged`, it is `never_minted`, it names `no_database` or `two_databases`, it is `no_instruction`, or the state of its database is `unpublishable`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The reason is missing, or the key was used for something else", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn redrive(api: &Api, wish: Wish<'_>, id: i64) -> Result<Response, Failure> {
    act::settle(api, wish, id, Verb::Redrive).await
}

/// Discard a dead letter
///
/// Nothing is sent. The letter is kept with the reason and counts no more: it no longer holds back the end of a purged
/// database. A `dry_run` says what would be done and needs no key.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}:discard",
    tag = "fleet",
    operation_id = "discard_dead_letter",
    request_body = Intervention,
    params(
        ("id" = i64, Path, description = "Identity of the dead letter"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for; needed unless it is a dry run"),
    ),
    responses(
        (status = 200, description = "A dry run: what would be done", body = SettledLetter),
        (status = 202, description = "Discarded", body = SettledLetter),
        (status = 400, description = "No JSON, or a header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is `settled`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The reason is missing, or the key was used for something else", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn discard(api: &Api, wish: Wish<'_>, id: i64) -> Result<Response, Failure> {
    act::settle(api, wish, id, Verb::Discard).await
}

/// A letter's identity in a path: what is none belongs to none.
fn id(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::not_found("dead letter"))
}
