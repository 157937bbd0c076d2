//! `/v1/operations`: what was asked for and how far it came.

use axum::Json;
use axum::extract::{Path, State};
use domain::{DatabaseId, OperationId, OperationState, Rule};
use store::{OperationFilter, OperationRecord};
use wire::http::{Operation, OperationList, Problem};

use super::auth::Caller;
use super::failure::Failure;
use super::query::{Parameters, cut, one_more};
use super::unreadable::sorted;
use super::{Api, present};

/// An operation's identity in a path: what is none belongs to nobody.
pub(crate) fn id(text: &str) -> Result<OperationId, Failure> {
    text.parse().map_err(|_| Failure::not_found("operation"))
}

/// Show an operation
#[utoipa::path(
    get,
    path = "/v1/operations/{id}",
    tag = "operations",
    operation_id = "get_operation",
    params(
        ("id" = Uuid, Path, description = "Identity of the operation"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "The operation", body = Operation),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<Operation>, Failure> {
    let record = api.store().operation(caller.scope()?, id(&text)?).await?;
    Ok(Json(present::operation(record.ok_or_else(|| Failure::not_found("operation"))?)))
}

/// List operations
///
/// Newest first. One that cannot be read is in `unreadable`, and hides no other.
#[utoipa::path(
    get,
    path = "/v1/operations",
    tag = "operations",
    operation_id = "list_operations",
    params(
        ("limit" = Option<u32>, Query, description = "Rows of a page, 1 to 100; 20 unless given", minimum = 1, maximum = 100),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("database" = Option<Uuid>, Query, description = "Only operations of this database"),
        ("state" = Option<String>, Query, description = "Only operations in this state"),
        ("overdue" = Option<bool>, Query, description = "Only operations that are past their deadline and go on"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "A page", body = OperationList),
        (status = 400, description = "A parameter is wrong", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut parameters: Parameters,
) -> Result<Json<OperationList>, Failure> {
    let page = parameters.page()?;
    let database: Option<DatabaseId> = parameters.take_as("database", "the identity of a database")?;
    let state = parameters.take("state").map(|text| state(&text)).transpose()?;
    let overdue = parameters.take_as("overdue", "true or false")?.unwrap_or(false);
    parameters.end()?;
    let filter = OperationFilter { database, state, overdue };
    let rows = api.store().operations(caller.scope()?, filter, one_more(page)).await?;
    let id = |record: &OperationRecord| record.operation.id.uuid();
    let (rows, next_cursor) = cut(rows, page.limit, |row| row.as_ref().map_or_else(|row| row.id, id));
    let (operations, unreadable) = sorted(&api, "operations", rows, present::operation);
    Ok(Json(OperationList { operations, unreadable, next_cursor }))
}

fn state(text: &str) -> Result<OperationState, Failure> {
    OperationState::parse(text).ok_or_else(|| {
        let words: Vec<&str> = OperationState::ALL.iter().map(|state| state.as_str()).collect();
        Failure::bad_query("state", Rule::Unknown, &format!("must be one of: {}", words.join(", ")))
    })
}
