//! What a mint writes, in one statement: the state in `databases`, the operation that asked for it with its first event, and
//! the history row. Everything that is minted comes by here.
//!
//! *Invariant:* no part of the statement reads what another part writes, since each sees the tables as they were before it:
//! what they share are parameters. Foreign keys are looked at when all of it is written.

use domain::{InstructionId, OperationId, OperationState, Position, RunState};
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::document::{DesiredDocument, written_in};
use crate::events::{Document, EventKind};
use crate::{Database, Error, Mint, Minted, NewDatabase};

/// Whose state is minted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// A database that is not there yet.
    New(&'a NewDatabase),
    /// One that is, locked.
    Locked(&'a Database),
}

/// The whole around a statement that writes the state. Its parameters: 1 to 3 database and position, 4 to 6 the state, 7 the
/// operation, 8 to 16 what is asked for, 17 and 18 the event, 19 the instruction; those behind are the inner statement's own.
macro_rules! with_state {
    ($write:literal) => {
        concat!(
            "with state as (",
            $write,
            "), asked as (insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor, traceparent, \
             last_event, deadline_at, on_failure, reverts, verb) \
             values ($7, $8, $1, $9, $2, $3, $10, $11, $12, 1, now() + make_interval(secs => $13), $14, $15, $16)), \
             told as (insert into operation_events (operation_id, number, kind, body) values ($7, 1, $17, $18)) \
             insert into instructions (id, database_id, epoch, seq, operation_id, operation_kind, desired, \
             desired_schema, content_hash, actor, traceparent) \
             values ($19, $1, $2, $3, $7, $9, $4, $5, $6, $11, $12)"
        )
    };
}

/// The first state of a new database: behind the others 20 its cluster, 21 its name.
pub const CREATE: &str = with_state!(
    "insert into databases (id, tenant_id, cluster_id, name, desired, desired_schema, content_hash, epoch, seq) \
     values ($1, $8, $20, $21, $4, $5, $6, $2, $3)"
);

/// The next state of a database whose row is locked: behind the others 20 whether it is gone for its users.
// The transaction began before its row was locked: by that time, whatever the sweep sent again meanwhile would be newer.
const CHANGE: &str = with_state!(
    "update databases set desired = $4, desired_schema = $5, content_hash = $6, epoch = $2, seq = $3, \
     minted_at = clock_timestamp(), deleted_at = case when $20 then coalesce(deleted_at, now()) end where id = $1"
);

/// Writes a state at a position, with its operation, event and history row.
pub(crate) async fn write(
    connection: &mut PgConnection,
    place: Place<'_>,
    position: Position,
    mint: &Mint,
) -> Result<Minted, Error> {
    let (statement, id, tenant) = match place {
        Place::New(new) => (CREATE, new.id, &new.tenant),
        Place::Locked(database) => (CHANGE, database.id, &database.tenant),
    };
    let (desired, terms, operation) = (&mint.desired, mint.terms, OperationId::mint());
    // Programs that do not know the word treat it by its class, and rightly.
    let class = mint.kind.class();
    let (state, event) = (OperationState::Pending, EventKind::State(None));
    let query = sqlx::query(statement)
        .bind(id.uuid())
        .bind(position.epoch)
        .bind(position.seq)
        .bind(Json(DesiredDocument::from(desired)))
        .bind(written_in(desired))
        .bind((mint.hash)(desired))
        .bind(operation.uuid())
        .bind(tenant.as_str())
        .bind(class.as_str())
        .bind(state.as_str())
        .bind(&mint.actor)
        .bind(&mint.traceparent)
        .bind(terms.deadline.as_secs_f64())
        .bind(terms.on_failure.as_str())
        .bind(terms.reverts.map(OperationId::uuid))
        .bind((mint.kind != class).then_some(mint.kind.as_str()))
        .bind(event.as_str())
        .bind(Json(Document::new(state, &event)))
        .bind(InstructionId::mint().uuid());
    let query = match place {
        Place::New(new) => query.bind(new.cluster.as_str()).bind(desired.name.as_str()),
        Place::Locked(_) => query.bind(is_gone(desired.run_state)),
    };
    query.execute(connection).await.map_err(Error::from_sqlx)?;
    Ok(Minted { position, operation })
}

/// Whether a run state means that the database is gone for its users.
const fn is_gone(state: RunState) -> bool {
    match state {
        RunState::Running | RunState::Paused => false,
        RunState::Deleted | RunState::Purged => true,
    }
}
