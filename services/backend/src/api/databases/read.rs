//! `GET /v1/databases` and `GET /v1/databases/{id}`.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use store::DatabaseView;
use wire::http::{Database, DatabaseList, Problem};

use super::super::auth::Caller;
use super::super::failure::Failure;
use super::super::query::{Parameters, cut, one_more};
use super::super::unreadable::sorted;
use super::super::{Api, answer, present};
use super::{etag, id};

/// Show a database
///
/// What should be, and what is seen of it. The `ETag` stands for what should be: send it as `If-Match` with a change.
#[utoipa::path(
    get,
    path = "/v1/databases/{id}",
    tag = "databases",
    operation_id = "get_database",
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "The database", body = Database, headers(("ETag" = String, description = "The desired state"))),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Response, Failure> {
    let view = api.store().database(caller.scope()?, id(&text)?).await?;
    let view = view.ok_or_else(|| Failure::not_found("database"))?;
    let tag = etag(view.database.position);
    Ok(answer::tagged(&present::database(view), &tag))
}

/// List databases
///
/// Newest first. Deleted ones come only if asked for. One that cannot be read is in `unreadable`, and hides no other.
#[utoipa::path(
    get,
    path = "/v1/databases",
    tag = "databases",
    operation_id = "list_databases",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("name" = Option<String>, Query, description = "Only databases of this name"),
        ("deleted" = Option<bool>, Query, description = "`true`: deleted ones too"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "A page", body = DatabaseList),
        (status = 400, description = "A parameter is wrong", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<DatabaseList>, Failure> {
    let page = parameters.page()?;
    let name = parameters.take("name");
    let deleted = parameters.take_as::<bool>("deleted", "true or false")?.unwrap_or(false);
    parameters.end()?;
    let rows = api.store().databases(caller.scope()?, name.as_deref(), deleted, one_more(page)).await?;
    let id = |view: &DatabaseView| view.database.id.uuid();
    let (rows, next_cursor) = cut(rows, page.limit, |row| row.as_ref().map_or_else(|row| row.id, id));
    let (databases, unreadable) = sorted(&api, "databases", rows, present::database);
    Ok(Json(DatabaseList { databases, unreadable, next_cursor }))
}
