//! `DELETE /v1/databases/{id}`.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use domain::recovery::{Evidence, take_back};
use domain::{DeletionPolicy, Desired, OperationKind, RunState};
use store::Database;
use wire::http::{Accepted, Problem};

use super::super::auth::Caller;
use super::super::failure::Failure;
use super::super::{Api, answer, precondition};
use super::{accepted, audit, etag, id, mint};

/// Delete a database
///
/// Its machine and its name go. Its volume goes only where the deletion policy is `delete`; what is kept goes by a purge
/// alone. Deleting what is deleted answers with the operation that did it.
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
        (status = 412, description = "The database changed meanwhile", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Path(text): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let id = id(&text)?;
    let mut transaction = api.store().begin().await?;
    let locked = transaction.lock_database(caller.scope()?, id).await?;
    let locked = locked.ok_or_else(|| Failure::not_found("database"))?;
    let base = transaction.base(&locked).await?;
    let Some(desired) = base.as_ref().map_or_else(|| Some(never_taken(&locked)), gone) else {
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

/// The end of a database of which no cluster ever took any state.
fn never_taken(locked: &Database) -> Desired {
    let provisioned = locked.provisioned || locked.desired.storage.provisioned;
    take_back(&locked.desired, Evidence { provisioned, seen: false, refused: true })
}

/// The desired state after a deletion; `None` where the database is deleted already.
fn gone(current: &Desired) -> Option<Desired> {
    let run_state = match (current.run_state, current.storage.deletion_policy) {
        (RunState::Deleted | RunState::Purged, _) => return None,
        (RunState::Running | RunState::Paused, DeletionPolicy::Retain) => RunState::Deleted,
        (RunState::Running | RunState::Paused, DeletionPolicy::Delete) => RunState::Purged,
    };
    Some(Desired { run_state, ..current.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::request::Create;

    fn desired(run_state: RunState, deletion_policy: DeletionPolicy) -> Desired {
        let cluster = domain::Cluster {
            id: "a".parse().unwrap(),
            region: "r".to_owned(),
            account: String::new(),
            zones: std::collections::BTreeMap::new(),
            hosted_zone_id: String::new(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: domain::ClusterState::Active,
            credentials: String::new(),
        };
        let create = Create { name: "a".to_owned(), region: "r".to_owned(), ..Create::default() };
        let mut desired = create.validate().unwrap().place(domain::DatabaseId::mint(), &cluster);
        desired.run_state = run_state;
        desired.storage.deletion_policy = deletion_policy;
        desired
    }

    #[test]
    fn only_the_policy_decides_about_the_volume() {
        let table = [
            (RunState::Running, DeletionPolicy::Retain, Some(RunState::Deleted)),
            (RunState::Running, DeletionPolicy::Delete, Some(RunState::Purged)),
            (RunState::Paused, DeletionPolicy::Retain, Some(RunState::Deleted)),
            (RunState::Paused, DeletionPolicy::Delete, Some(RunState::Purged)),
            (RunState::Deleted, DeletionPolicy::Delete, None),
            (RunState::Purged, DeletionPolicy::Delete, None),
        ];
        for (from, policy, to) in table {
            let before = desired(from, policy);
            let next = gone(&before);
            assert_eq!(next.as_ref().map(|desired| desired.run_state), to, "{from} {policy}");
            if let Some(next) = next {
                assert_eq!(Desired { run_state: from, ..next }, before, "nothing else changes");
            }
        }
    }
}
