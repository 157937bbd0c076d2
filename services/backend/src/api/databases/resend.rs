//! `POST /v1/databases/{id}:resend`.

use axum::response::Response;
use domain::DatabaseId;
use wire::http::{Intervention, Problem, Resent};

use super::super::Api;
use super::super::aside::act::{self, Wish};
use super::super::failure::Failure;

/// Say a database's state again
///
/// Its desired state is published once more for its cluster, at the position that it has: nothing is minted and nothing can
/// go back. The database's `published_at` is absent until Kafka took it. A `dry_run` says what would be done and needs no
/// key.
#[utoipa::path(
    post,
    path = "/v1/databases/{id}:resend",
    tag = "databases",
    operation_id = "resend_database",
    request_body = Intervention,
    params(
        ("id" = Uuid, Path, description = "Identity of the database"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters, new for each thing asked for; needed unless it is a dry run"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for"),
    ),
    responses(
        (status = 200, description = "A dry run: what would be done", body = Resent),
        (status = 202, description = "Accepted", body = Resent, headers(
            ("Location" = String, description = "The database"),
            ("Idempotent-Replayed" = Option<String>, description = "`true` where the answer was given before"),
        )),
        (status = 400, description = "No JSON, or a header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The token's role is not sre", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Nothing was sent: the database is `purged`, or its state is `unpublishable`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The reason is missing, or the key was used for something else", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resend(api: &Api, wish: Wish<'_>, id: DatabaseId) -> Result<Response, Failure> {
    act::resend(api, wish, id).await
}
