//! Table `operations`: what was asked for and how far it came.

mod moves;

use domain::operation::Failure;
use domain::recovery::Subject;
use domain::{
    DatabaseId, OnFailure, Operation, OperationId, OperationKind, OperationState, Position, TenantId,
};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::databases::Page;
use crate::document::word;
use crate::observations::{Step, StepDocument};
use crate::rows::{Listed, listed, read};
use crate::{Error, Store, Transaction};

pub(crate) use moves::update;

const TABLE: &str = "operations";

/// An operation with its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRecord {
    /// What was asked for, and its state.
    pub operation: Operation,
    /// Name of the database.
    pub database_name: String,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Number of its newest event.
    pub last_event: i64,
    /// Who asked.
    pub actor: String,
    /// Trace of the request.
    pub traceparent: Option<String>,
    /// When.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
    /// When it reached its end.
    pub ended_at: Option<Timestamp>,
    /// What to do if it fails for good.
    pub on_failure: OnFailure,
    /// By when it should be done.
    pub deadline_at: Timestamp,
    /// Whether that moment had passed when the row was read, by the database's clock.
    pub late: bool,
    /// Since when it is known to be late and goes on all the same.
    pub overdue_since: Option<Timestamp>,
    /// The operation that it takes back.
    pub reverts: Option<OperationId>,
    /// The operation that took its place.
    pub superseded_by: Option<OperationId>,
    /// Whether all that follows from its failure was minted.
    pub settled: bool,
}

impl OperationRecord {
    /// What decisions about it look at; `newest` is the position of its database.
    pub fn subject(&self, newest: Position) -> Subject {
        Subject {
            kind: self.operation.kind,
            state: self.operation.state,
            on_failure: self.on_failure,
            reverts: self.reverts.is_some(),
            newest: self.operation.position == newest,
        }
    }
}

/// Which operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationFilter {
    /// Only of this database.
    pub database: Option<DatabaseId>,
    /// Only in this state.
    pub state: Option<OperationState>,
    /// Only those that are late and go on.
    pub overdue: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    tenant_id: String,
    database_id: Uuid,
    database_name: String,
    kind: String,
    verb: Option<String>,
    epoch: i64,
    seq: i64,
    state: String,
    failure_code: Option<String>,
    failure_message: Option<String>,
    steps: Json<Vec<StepDocument>>,
    last_event: i64,
    actor: String,
    traceparent: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
    ended_at: Option<jiff_sqlx::Timestamp>,
    on_failure: String,
    deadline_at: jiff_sqlx::Timestamp,
    late: bool,
    overdue_since: Option<jiff_sqlx::Timestamp>,
    reverts: Option<Uuid>,
    superseded_by: Option<Uuid>,
    settled: bool,
}

macro_rules! select {
    () => {
        "select o.id, o.tenant_id, o.database_id, d.name as database_name, o.kind, o.verb, \
         o.epoch, o.seq, o.state, \
         o.failure_code, o.failure_message, o.steps, o.last_event, o.actor, o.traceparent, o.created_at, o.updated_at, \
         o.ended_at, o.on_failure, o.deadline_at, o.deadline_at <= now() as late, o.overdue_since, o.reverts, \
         o.superseded_by, o.settled_at is not null as settled \
         from operations o join databases d on d.id = o.database_id "
    };
}

/// Writes what moved in operations that have not ended, of which 1 to 9 list, each an array: identities, states, codes and
/// messages of failures, steps, numbers of the last events, whether they end, and the positions (epochs, seqs) that took their
/// place.
pub const MOVE: &str = "update operations o set state = m.state, \
     failure_code = m.failure_code, failure_message = m.failure_message, steps = m.steps, \
     last_event = m.last_event, updated_at = now(), ended_at = case when m.ended then now() end, \
     superseded_by = (select s.id from operations s \
     where s.database_id = o.database_id and s.epoch = m.epoch and s.seq = m.seq) \
     from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::bigint[], $7::boolean[], \
     $8::bigint[], $9::bigint[]) \
     as m (id, state, failure_code, failure_message, steps, last_event, ended, epoch, seq) \
     where o.id = m.id and o.ended_at is null returning o.id";

/// Operation 1 with the name of its database.
pub const READ: &str = concat!(select!(), "where o.id = $1");

/// Operations, newest first: where given, 1 of a tenant, 2 of a database, 3 in a state, 4 before an operation; 5 most of them, 6
/// whether only those that go on, 7 whether only those that are late.
// Those that go on have an index, which Postgres would not find by the words for their states.
pub const LIST: &str = concat!(
    select!(),
    "where ($1::text is null or o.tenant_id = $1) and ($2::uuid is null or o.database_id = $2) \
     and ($3::text is null or o.state = $3) and (not $6 or o.ended_at is null) \
     and (not $7 or o.overdue_since is not null) and ($4::uuid is null or o.id < $4) order by o.id desc limit $5"
);

impl Store {
    /// One operation; for a tenant only its own.
    pub async fn operation(
        &self,
        scope: Option<&TenantId>,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, Error> {
        let row: Option<PgRow> =
            sqlx::query(concat!(select!(), "where o.id = $1 and ($2::text is null or o.tenant_id = $2)"))
                .bind(id.uuid())
                .bind(scope.map(TenantId::as_str))
                .fetch_optional(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_operation).transpose()
    }

    /// Operations, newest first; for a tenant only its own. One that cannot be read hides no other.
    pub async fn operations(
        &self,
        scope: Option<&TenantId>,
        filter: OperationFilter,
        page: Page,
    ) -> Result<Vec<Listed<OperationRecord>>, Error> {
        let goes_on = filter.overdue || filter.state.is_some_and(|state| !state.is_terminal());
        let rows: Vec<PgRow> = sqlx::query(LIST)
            .bind(scope.map(TenantId::as_str))
            .bind(filter.database.map(DatabaseId::uuid))
            .bind(filter.state.map(OperationState::as_str))
            .bind(page.after)
            .bind(i64::from(page.limit))
            .bind(goes_on)
            .bind(filter.overdue)
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        rows.iter().map(|row| listed::<Row, OperationRecord>(TABLE, row)).collect()
    }
}

impl Transaction {
    /// The newest operation of a kind's class that a database has.
    pub async fn newest_operation(
        &mut self,
        database: DatabaseId,
        kind: OperationKind,
    ) -> Result<Option<OperationRecord>, Error> {
        let row: Option<PgRow> = sqlx::query(concat!(
            select!(),
            "where o.database_id = $1 and o.kind = $2 order by o.epoch desc, o.seq desc limit 1"
        ))
        .bind(database.uuid())
        .bind(kind.class().as_str())
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_operation).transpose()
    }

    /// Locks an operation until the end of the transaction. Its database must be locked first.
    pub async fn lock_operation(&mut self, id: OperationId) -> Result<Option<OperationRecord>, Error> {
        let row: Option<PgRow> = sqlx::query(concat!(select!(), "where o.id = $1 for no key update of o"))
            .bind(id.uuid())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_operation).transpose()
    }

    /// One operation as this transaction has it.
    pub async fn operation(&mut self, id: OperationId) -> Result<Option<OperationRecord>, Error> {
        let row: Option<PgRow> = sqlx::query(READ)
            .bind(id.uuid())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_operation).transpose()
    }
}

/// Locks the operations of these databases that have not reached their end. One that cannot be read holds up nobody else.
pub(crate) async fn lock_open(
    connection: &mut PgConnection,
    databases: &[Uuid],
) -> Result<Vec<Result<OperationRecord, Error>>, Error> {
    let rows: Vec<PgRow> = sqlx::query(concat!(
        select!(),
        "where o.database_id = any($1) and o.ended_at is null order by o.id for no key update of o"
    ))
    .bind(databases)
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(rows.iter().map(read_operation).collect())
}

fn read_operation(row: &PgRow) -> Result<OperationRecord, Error> {
    read::<Row, OperationRecord>((TABLE, "id"), row)
}

impl TryFrom<Row> for OperationRecord {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt(TABLE, format!("{}: {what}", row.id));
        let steps =
            row.steps.0.into_iter().map(StepDocument::read).collect::<Result<_, _>>().map_err(corrupt)?;
        // A word that only a newer program knows is read as its class.
        let kind = match row.verb.as_deref().and_then(OperationKind::parse) {
            Some(verb) => verb,
            None => word("kind", &row.kind, OperationKind::parse).map_err(corrupt)?,
        };
        let failure =
            row.failure_code.map(|code| Failure { code, message: row.failure_message.unwrap_or_default() });
        Ok(Self {
            operation: Operation {
                id: OperationId::new(row.id),
                kind,
                tenant: row
                    .tenant_id
                    .parse()
                    .map_err(|error: domain::id::Error| corrupt(error.to_string()))?,
                database: DatabaseId::new(row.database_id),
                position: Position { epoch: row.epoch, seq: row.seq },
                state: word("state", &row.state, OperationState::parse).map_err(corrupt)?,
            },
            database_name: row.database_name,
            failure,
            steps,
            last_event: row.last_event,
            actor: row.actor,
            traceparent: row.traceparent,
            created_at: row.created_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
            ended_at: row.ended_at.map(jiff_sqlx::Timestamp::to_jiff),
            on_failure: word("on_failure", &row.on_failure, OnFailure::parse).map_err(corrupt)?,
            deadline_at: row.deadline_at.to_jiff(),
            late: row.late,
            overdue_since: row.overdue_since.map(jiff_sqlx::Timestamp::to_jiff),
            reverts: row.reverts.map(OperationId::new),
            superseded_by: row.superseded_by.map(OperationId::new),
            settled: row.settled,
        })
    }
}
