//! `POST /v1/databases`.

use std::time::Instant;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use domain::request::Create;
use domain::{Cluster, OperationKind, TenantId, placement};
use store::{NewDatabase, Transaction};
use wire::http::{Accepted, CreateDatabase, Problem};

use super::super::auth::Caller;
use super::super::body::Body;
use super::super::failure::Failure;
use super::super::{Api, answer, idempotency, unreadable};
use super::{accepted, audit, etag, mint};

const ROUTE: &str = "POST /v1/databases";

/// Ask for a database
///
/// Answers at once: the database is on its way, and the operation tells how far. The same `Idempotency-Key` with the same
/// body is answered the same for at least 24 hours and makes nothing twice. A database that cannot be made, or not by its
/// operation's deadline, is taken back, unless `on_failure` says `keep`.
#[utoipa::path(
    post,
    path = "/v1/databases",
    tag = "databases",
    operation_id = "create_database",
    request_body = CreateDatabase,
    params(
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, new for each database"),
        ("Slipway-Tenant" = Option<String>, Header, description = "Tenant to act for; needed unless the token is a tenant's"),
    ),
    responses(
        (status = 202, description = "Accepted", body = Accepted, headers(
            ("Location" = String, description = "The operation"),
            ("ETag" = String, description = "The desired state"),
            ("Idempotent-Replayed" = Option<String>, description = "`true` where the answer was given before"),
        )),
        (status = 400, description = "No JSON, or a header is missing", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The name is taken, the region takes no new databases, or the same request is under way", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A rule is broken, or the key was used with another body", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let tenant = caller.tenant()?;
    let key = idempotency::key(&headers, &caller, tenant, ROUTE, &body)?;
    let wish: Create = body.parse::<CreateDatabase>()?.into();
    let mut transaction = api.store().begin().await?;
    if let Some(before) = idempotency::claim(&mut transaction, &key).await? {
        return Ok(answer::send(before, true));
    }
    let valid = wish.validate(api.offer()).map_err(|violations| Failure::invalid(&violations))?;
    let cluster = place(&api, &mut transaction, tenant, &valid.region).await?;
    let new = NewDatabase { id: api.gate().mint(), tenant: tenant.clone(), cluster: cluster.id.clone() };
    let desired = valid.place(new.id, &cluster);
    api.gate().fits((&new.tenant, &new.cluster), &desired, &caller.actor())?;
    let mut mint = mint(&api, &caller, OperationKind::Create, desired);
    mint.terms.on_failure = wish.change.on_failure();
    let minted = transaction.create(&new, mint).await?;
    let (body, position) = accepted(&mut transaction, new.id, minted.operation).await?;
    let answer = answer::accepted(&body, etag(position))?;
    transaction.store_answer(&key, &answer).await?;
    audit(&mut transaction, &caller, "databases.create", &body).await?;
    transaction.commit().await?;
    api.ring();
    tracing::info!(db.id = %new.id, db.name = body.database.name, cluster.name = %cluster.id, "database asked for");
    Ok(answer::send(answer, false))
}

/// Where a new database of a tenant goes in a region: a cluster that stays open until the end of the transaction.
async fn place(
    api: &Api,
    transaction: &mut Transaction,
    tenant: &TenantId,
    region: &str,
) -> Result<Cluster, Failure> {
    let registry = transaction.clusters().await?;
    let unreadable = unreadable::clusters(api, registry.unreadable);
    let clusters: Vec<Cluster> = registry.clusters.into_iter().map(|record| record.cluster).collect();
    let now = Instant::now();
    if placement::leaves_choice(region, &clusters) && api.census().is_due(now) {
        api.census().counted(transaction.database_counts().await?, now);
    }
    let cluster = api.census().place(region, clusters).map_err(|no| {
        let unread = unreadable.iter().find(|cluster| cluster.region == region);
        unread.map_or_else(|| Failure::no_place(&no), Failure::place_unread)
    })?;
    if transaction.hold_open(&cluster.id, tenant).await? {
        Ok(cluster)
    } else {
        Err(Failure::place_closing(region))
    }
}
