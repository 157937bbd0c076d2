//! `/v1/unclaimed`, `/v1/parked`, `/v1/dead-letters`: what was set aside, for those who run the fleet. Read only.

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use uuid::Uuid;
use wire::http::{DeadLetterList, ParkedList, Problem, UnclaimedList, aside};

use super::Api;
use super::auth::Caller;
use super::failure::Failure;
use super::query::{Parameters, cut, one_more};

/// List what is unclaimed
///
/// What clusters hold although nobody can say why: databases that are not known, or not theirs, or at positions that were
/// never minted. The latest database first.
#[utoipa::path(
    get,
    path = "/v1/unclaimed",
    tag = "fleet",
    operation_id = "list_unclaimed",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("resolved" = Option<bool>, Query, description = "Also what is no longer so"),
    ),
    responses(
        (status = 200, description = "A page", body = UnclaimedList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn unclaimed(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<UnclaimedList>, Failure> {
    caller.require_sre()?;
    let page = parameters.page()?;
    let resolved = parameters.take_as("resolved", "true or false")?.unwrap_or(false);
    parameters.end()?;
    let rows = api.store().unclaimed(resolved, one_more(page)).await?;
    let (rows, next_cursor) = cut(rows, page.limit, |row| row.database.uuid());
    Ok(Json(UnclaimedList { unclaimed: rows.into_iter().map(show_unclaimed).collect(), next_cursor }))
}

/// List what is parked
///
/// Instructions that wait because their cluster cannot take them now, the latest database first.
#[utoipa::path(
    get,
    path = "/v1/parked",
    tag = "fleet",
    operation_id = "list_parked",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "A page", body = ParkedList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn parked(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<ParkedList>, Failure> {
    caller.require_sre()?;
    let page = parameters.page()?;
    parameters.end()?;
    let rows = api.store().parked(one_more(page)).await?;
    let (rows, next_cursor) = cut(rows, page.limit, |row| row.database);
    Ok(Json(ParkedList { parked: rows.into_iter().map(show_parked).collect(), next_cursor }))
}

/// List dead letters
///
/// Records that cannot be understood or carried out, the latest first.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "fleet",
    operation_id = "list_dead_letters",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("superseded" = Option<bool>, Query, description = "Also those whose place a later record has taken"),
    ),
    responses(
        (status = 200, description = "A page", body = DeadLetterList),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn dead_letters(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<DeadLetterList>, Failure> {
    caller.require_sre()?;
    let page = parameters.page()?;
    let superseded = parameters.take_as("superseded", "true or false")?.unwrap_or(false);
    parameters.end()?;
    let before = page.after.map(|cursor| i64::try_from(cursor.as_u128()).unwrap_or(i64::MAX));
    let rows = api.store().dead_letters(superseded, before, one_more(page).limit).await?;
    // Cursors are made of identities of one form everywhere; these are numbers.
    let (rows, next_cursor) =
        cut(rows, page.limit, |row| Uuid::from_u128(u128::try_from(row.id).unwrap_or_default()));
    Ok(Json(DeadLetterList { dead_letters: rows.into_iter().map(show_letter).collect(), next_cursor }))
}

fn show_unclaimed(row: store::Unclaimed) -> aside::Unclaimed {
    let text = |name: &str| row.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    aside::Unclaimed {
        namespace: text("namespace"),
        resource_name: text("resource_name"),
        database_id: row.database.uuid(),
        cluster: row.cluster,
        code: row.code,
        epoch: row.position.epoch,
        seq: row.position.seq,
        seen: row.seen,
        first_seen: row.first_seen,
        last_seen: row.last_seen,
        resolved_at: row.resolved_at,
    }
}

fn show_parked(row: store::ParkedView) -> aside::Parked {
    aside::Parked {
        database_id: row.database,
        cluster: row.cluster,
        epoch: row.position.epoch,
        seq: row.position.seq,
        code: row.code,
        message: row.message,
        attempts: row.attempts,
        parked_at: row.parked_at,
        retry_at: row.retry_at,
    }
}

fn show_letter(row: store::DeadLetterView) -> aside::DeadLetter {
    let (topic, partition, offset) = row.origin;
    aside::DeadLetter {
        id: row.id,
        topic,
        partition,
        offset,
        database_id: row.database,
        cluster: row.cluster,
        code: row.code,
        message: row.message,
        size: row.size,
        consumer: row.consumer,
        received_at: row.received_at,
        superseded_at: row.superseded_at,
    }
}
