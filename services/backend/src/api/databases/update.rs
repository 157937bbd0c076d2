//! `PATCH /v1/databases/{id}`.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use domain::request::Change;
use domain::{OperationKind, RunState};
use wire::http::{Accepted, Problem, UpdateDatabase};

use super::super::auth::Caller;
use super::super::body::Body;
use super::super::failure::Failure;
use super::super::{Api, answer, precondition};
use super::{accepted, audit, etag, mint, to_change};

/// Change a database
///
/// What is left out stays as it is; what a cluster refused of an earlier change is gone, but for a deletion policy or a
/// protection by which data is safer. `If-Match` must carry the `ETag` of what the change was decided on. A change that cannot
/// be carried out, or not by its operation's deadline, is taken back, unless `on_failure` says `keep`.
#[utoipa::path(
    patch,
    path = "/v1/databases/{id}",
    tag = "databases",
    operation_id = "update_database",
    request_body = UpdateDatabase,
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("If-Match" = String, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 202, description = "Accepted", body = Accepted, headers(
            ("Location" = String, description = "The operation"),
            ("ETag" = String, description = "The new desired state"),
        )),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The database is deleted", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The database changed meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A rule is broken", body = Problem, content_type = "application/problem+json"),
        (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn update(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let change: Change = body.parse::<UpdateDatabase>()?.into();
    let id = to_change(&api, &text)?;
    let mut transaction = api.store().begin().await?;
    let locked = transaction.lock_database(caller.scope()?, id).await?;
    let locked = locked.ok_or_else(|| Failure::not_found("database"))?;
    precondition::require_match(&headers, locked.position)?;
    match locked.desired.run_state {
        RunState::Running | RunState::Paused => {}
        RunState::Deleted | RunState::Purged => {
            return Err(Failure::conflict(
                "deleted",
                "The database is deleted",
                "a deleted database does not change",
            ));
        }
    }
    // Not from a state that was refused: its bad field would be refused again with every other change. But what keeps data safe
    // was asked for.
    let base = transaction.base(&locked).await?.unwrap_or_else(|| locked.desired.clone());
    let base = base.as_careful_as(&locked.desired);
    let disk = transaction.disk(&locked).await?;
    let desired =
        change.apply(&base, disk, api.offer()).map_err(|violations| Failure::invalid(&violations))?;
    api.gate().fits((&locked.tenant, &locked.cluster), &desired, &caller.actor())?;
    let mut mint = mint(&api, &caller, OperationKind::Update, desired);
    mint.terms.on_failure = change.on_failure();
    let minted = transaction.change(&locked, mint).await?;
    let (body, position) = accepted(&mut transaction, id, minted.operation).await?;
    audit(&mut transaction, &caller, "databases.update", &body).await?;
    transaction.commit().await?;
    api.ring();
    tracing::info!(db.id = %id, db.position = %position, "change asked for");
    Ok(answer::send(answer::accepted(&body, etag(position))?, false))
}
