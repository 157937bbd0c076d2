//! `DELETE /v1/databases/{id}`.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use domain::recovery::{Evidence, take_back};
use domain::{Desired, OperationKind, lifecycle};
use store::Database;
use wire::http::{Accepted, Problem};

use super::super::auth::Caller;
use super::super::failure::Failure;
use super::super::{Api, answer, precondition};
use super::states::refusal;
use super::{accepted, audit, etag, mint, to_change};

/// Delete a database
///
/// Its machine and its name go. What becomes of its volume the deletion policy says: `retain` keeps it, until a purge;
/// `snapshot` destroys it once a last copy of it is complete, and keeps that; `delete` destroys it. What is protected from
/// deletion is not deleted. Deleting what is deleted answers with the operation that did it.
#[utoipa::path(
    delete,
    path = "/v1/databases/{id}",
    tag = "databases",
    operation_id = "delete_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 202, description = "Accepted", body = Accepted, headers(("Location" = String, description = "The operation"))),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The database is protected from deletion (`protected`)", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The database changed meanwhile", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let id = to_change(&api, &text)?;
    let mut transaction = api.store().begin().await?;
    let locked = transaction.lock_database(caller.scope()?, id).await?;
    let locked = locked.ok_or_else(|| Failure::not_found("database"))?;
    let base = transaction.base(&locked).await?;
    let next = match &base {
        Some(base) => lifecycle::delete(&locked.desired, base).map_err(refusal)?,
        None => never_taken(&locked)?,
    };
    let is_living = base.as_ref().is_some_and(|base| !base.run_state.is_end());
    let next = if locked.desired.run_state.is_end() && is_living && transaction.is_untaken(&locked).await? {
        next.as_ref().map(bare)
    } else {
        next
    };
    let Some(desired) = next else {
        let before = transaction.newest_operation(id, OperationKind::Delete).await?;
        let before =
            before.ok_or_else(|| Failure::internal(format!("database {id} was deleted by nobody")))?;
        let (body, position) = accepted(&mut transaction, id, before.operation.id).await?;
        return Ok(answer::send(answer::accepted(&body, etag(position))?, false));
    };
    precondition::allow_match(&headers, locked.position)?;
    let minted = transaction.change(&locked, mint(&api, &caller, OperationKind::Delete, desired)).await?;
    let (body, position) = accepted(&mut transaction, id, minted.operation).await?;
    audit(&mut transaction, &caller, "databases.delete", &body).await?;
    transaction.commit().await?;
    api.ring();
    tracing::info!(db.id = %id, db.position = %position, "deletion asked for");
    Ok(answer::send(answer::accepted(&body, etag(position))?, false))
}

/// A deletion again, where it was refused and no cluster is known to have taken anything: what it was made of may be just what is
/// refused, so nothing of that is left. What becomes of a volume stays as it was asked for: silence is no proof that there is none.
fn bare(again: &Desired) -> Desired {
    let evidence = Evidence { provisioned: again.storage.provisioned, seen: false, refused: true };
    Desired { run_state: again.run_state, ..take_back(again, evidence) }
}

/// The end of a database of which no cluster ever took any state. Its protection is one all the same.
fn never_taken(locked: &Database) -> Result<Option<Desired>, Failure> {
    lifecycle::delete(&locked.desired, &locked.desired).map_err(refusal)?;
    let provisioned = locked.provisioned || locked.desired.storage.provisioned;
    Ok(Some(take_back(&locked.desired, Evidence { provisioned, seen: false, refused: true })))
}
