//! `POST /v1/databases/{id}:purge`: the only word by which a volume goes that a deletion kept.

use axum::response::Response;
use domain::DatabaseId;
use domain::lifecycle::Verb;
use wire::http::{Accepted, Problem, PurgeDatabase};

use super::super::body::{self, Body};
use super::super::failure::Failure;
use super::states::{Said, Wish, ask};

/// Purge a deleted database
///
/// The volume that its deletion kept is destroyed with all data, whatever the deletion policy says; where that is `snapshot`,
/// once a last copy of the volume is complete, which stays. From then on nothing brings the database back: an undelete is
/// refused, and the purge is neither cancelled nor given up. Only a deleted database is purged, and only by its name in
/// `confirm`. Purging what is purged changes nothing and answers with the operation that asked for it.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:purge",
    tag = "databases",
    operation_id = "purge_database",
    request_body = PurgeDatabase,
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for"),
        ("If-Match" = Option<String>, Header, description = "`ETag` of the database as it was read"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for; needed unless the token is a tenant's"),
    ),
    responses(
        (status = 202, description = "Accepted: the database, and the operation that carries this out", body = Accepted, headers(
            ("Location" = String, description = "The operation"),
            ("ETag" = String, description = "The desired state"),
            ("Idempotent-Replayed" = Option<String>, description = "`true` where the answer was given before"),
        )),
        (status = 400, description = "No JSON, or a header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none, or it is not the caller's", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The database is not deleted (`living`), or it is protected (`protected`), or the same request is under way", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The database changed meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The name is another one, the reason is missing, or the key was used for another request", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn purge(wish: Wish<'_>, id: DatabaseId, body: &Body) -> Result<Response, Failure> {
    // Who sees the databases of all tenants says whose is meant: an identity that was mistyped destroys nothing.
    wish.caller.tenant()?;
    let PurgeDatabase { confirm, reason } = body.parse()?;
    let reason = body::reason(&reason, true)?;
    ask(wish, Verb::Purge, id, Some(Said { body, confirm, reason })).await
}
