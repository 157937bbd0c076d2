//! `POST /v1/operations/{id}:cancel`.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use domain::recovery::{self, Uncancellable, WayBack};
use domain::{OnFailure, OperationId, OperationState};
use store::{Database, Ended, Minted, OperationRecord, Transaction};
use wire::http::{Accepted, Problem};

use super::auth::Caller;
use super::databases::{accepted, audit, etag, mint};
use super::failure::Failure;
use super::{Api, answer, idempotency, operations};
use crate::way_back;

const ROUTE: &str = "POST /v1/operations/{id}:cancel";

/// What follows an operation's identity in the path.
const VERB: &str = "cancel";

/// Takes what is to be done from the path. The router knows whole segments only, so the verb comes with the identity.
pub(crate) async fn act(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    match text.split_once(':') {
        Some((id, VERB)) => cancel(&api, &caller, operations::id(id)?, &headers).await,
        Some(_) => Err(Failure::no_route()),
        None => Err(Failure::method()),
    }
}

/// Cancel an operation
///
/// Only the newest operation of a database, and only while it is under way. A new database is taken back; a changed one
/// returns to its last good state, but keeps a size that its disk may have, a deletion policy or a protection by which its
/// data is safer, and a pause, a resume or a deletion that was asked for before. That is an operation of its own, which the
/// answer holds and which names the cancelled one in `reverts`; the cancelled one is `superseded` by it at once. A deletion or
/// a restart is not cancelled, nor is what takes back another operation. The same `Idempotency-Key` is answered the same for
/// at least 24 hours.
#[utoipa::path(
    post,
    path = "/v1/operations/{id}:cancel",
    tag = "operations",
    operation_id = "cancel_operation",
    params(
        ("id" = Uuid, Path, description = "Identity of the operation"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each cancellation"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 202, description = "Accepted: the database, and the operation that takes the other one back", body = Accepted, headers(
            ("Location" = String, description = "The operation that takes the other one back"),
            ("ETag" = String, description = "The new desired state"),
            ("Idempotent-Replayed" = Option<String>, description = "`true` where the answer was given before"),
        )),
        (status = 400, description = "A header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended (`operation_ended`), a newer one takes its place (`not_newest`), or there is no way back (`no_way_back`)", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was used for another operation", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    api: &Api,
    caller: &Caller,
    id: OperationId,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let none = || Failure::not_found("operation");
    let seen = api.store().operation(caller.scope()?, id).await?.ok_or_else(none)?;
    let key = idempotency::key_about(headers, caller, &seen.operation.tenant, (ROUTE, &id.to_string()))?;
    let mut transaction = api.store().begin().await?;
    if let Some(before) = idempotency::claim(&mut transaction, &key).await? {
        return Ok(answer::send(before, true));
    }
    let locked = transaction.lock_database(caller.scope()?, seen.operation.database).await?;
    let locked = locked.ok_or_else(none)?;
    api.gate().takes(locked.id)?;
    let record = transaction.lock_operation(id).await?.ok_or_else(none)?;
    let way = recovery::cancel(record.subject(locked.position))
        .map_err(|why| refusal(why, &record, locked.position))?;
    let (minted, ended) = take_back(api, caller, &mut transaction, (&locked, &record, way)).await?;
    let (body, position) = accepted(&mut transaction, locked.id, minted.operation).await?;
    let answer = answer::accepted(&body, etag(position))?;
    transaction.store_answer(&key, &answer).await?;
    audit(&mut transaction, caller, "operations.cancel", &body).await?;
    transaction.commit().await?;
    api.ring();
    api.metrics().operations.ended(&ended);
    tracing::info!(
        operation.id = %minted.operation,
        operation.reverts = %id,
        db.id = %locked.id,
        db.position = %position,
        "operation cancelled"
    );
    Ok(answer::send(answer, false))
}

async fn take_back(
    api: &Api,
    caller: &Caller,
    transaction: &mut Transaction,
    (locked, record, way): (&Database, &OperationRecord, WayBack),
) -> Result<(Minted, Ended), Failure> {
    let desired = way_back::desired(transaction, locked, record, (way, api.hearing())).await?;
    let mut mint = mint(api, caller, recovery::kind_of(&desired), desired);
    mint.terms.on_failure = OnFailure::Keep;
    mint.terms.reverts = Some(record.operation.id);
    let minted = transaction.change(locked, mint).await?;
    let ended = transaction.supersede(record, minted.position).await?;
    Ok((minted, ended))
}

fn refusal(why: Uncancellable, record: &OperationRecord, newest: domain::Position) -> Failure {
    let state = record.operation.state;
    match why {
        Uncancellable::Ended => {
            let by = match (state, record.superseded_by) {
                (OperationState::Superseded, Some(by)) => format!(" by operation {by}"),
                _ => String::new(),
            };
            Failure::uncancellable("operation_ended", &format!("it has ended: it is {state}{by}"))
        }
        Uncancellable::NotNewest => Failure::uncancellable(
            "not_newest",
            &format!(
                "a newer change of the database (at {newest}, this one is at {}) takes its place: cancel that one",
                record.operation.position
            ),
        ),
        Uncancellable::NoWayBack if record.reverts.is_some() => Failure::uncancellable(
            "no_way_back",
            "it takes back another operation; ask for the change that you want instead",
        ),
        Uncancellable::NoWayBack => Failure::uncancellable(
            "no_way_back",
            &format!("a {} is not cancelled: it has no state to return to", record.operation.kind),
        ),
    }
}
