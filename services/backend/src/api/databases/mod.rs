//! `/v1/databases`.

pub(crate) mod act;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod purge;
pub(crate) mod read;
pub(crate) mod resend;
pub(crate) mod states;
pub(crate) mod update;

use domain::{DatabaseId, Desired, OperationId, OperationKind, Position};
use serde_json::{Value, json};
use store::{Audit, Mint, Terms, Transaction};
use wire::http::Accepted;

use super::auth::Caller;
use super::failure::Failure;
use super::{Api, precondition, present};

/// A database's identity in a path: what is none belongs to nobody.
fn id(text: &str) -> Result<DatabaseId, Failure> {
    text.parse().map_err(|_| Failure::not_found("database"))
}

/// The same of one that is to change: nothing is promised of which nobody could be told now.
fn to_change(api: &Api, text: &str) -> Result<DatabaseId, Failure> {
    let id = id(text)?;
    api.gate().takes(id)?;
    Ok(id)
}

/// A mint in the name of a caller, with the usual terms.
pub(crate) fn mint(api: &Api, caller: &Caller, kind: OperationKind, desired: Desired) -> Mint {
    Mint {
        kind,
        desired,
        actor: caller.actor(),
        traceparent: runtime::TraceContext::current().map(|context| context.to_header()),
        hash: wire::hash::of,
        terms: Terms::within(api.deadlines().of(kind)),
    }
}

/// The body of an accepted change, as the transaction has it.
pub(crate) async fn accepted(
    transaction: &mut Transaction,
    database: DatabaseId,
    operation: OperationId,
) -> Result<(Accepted, Position), Failure> {
    let gone = || Failure::internal(format!("database {database} is not in its own transaction"));
    let view = transaction.database(database).await?.ok_or_else(gone)?;
    let record = transaction.operation(operation).await?.ok_or_else(gone)?;
    let position = view.database.position;
    Ok((Accepted { database: present::database(view), operation: present::operation(record) }, position))
}

/// Writes who asked for the change.
pub(crate) async fn audit(
    transaction: &mut Transaction,
    caller: &Caller,
    action: &str,
    body: &Accepted,
) -> Result<(), Failure> {
    audit_with(transaction, caller, action, (body, json!({}))).await
}

/// The same with what else is worth keeping.
async fn audit_with(
    transaction: &mut Transaction,
    caller: &Caller,
    action: &str,
    (body, mut detail): (&Accepted, Value),
) -> Result<(), Failure> {
    let database = &body.database;
    detail["name"] = json!(database.name);
    detail["epoch"] = json!(database.epoch);
    detail["seq"] = json!(database.seq);
    let entry = Audit {
        tenant: body.database.tenant.parse().ok(),
        operation: Some(OperationId::new(body.operation.id)),
        ..caller.entry(action, body.database.id.to_string(), detail)
    };
    Ok(transaction.audit(&entry).await?)
}

/// The entity tag of a position.
pub(crate) fn etag(position: Position) -> String {
    precondition::etag(position)
}
