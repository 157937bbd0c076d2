//! Table `operations`: what was asked for and how far it came.

use domain::operation::Failure;
use domain::{DatabaseId, Operation, OperationId, OperationKind, OperationState, Position, TenantId};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::databases::Page;
use crate::document::word;
use crate::observations::{Step, StepDocument};
use crate::progress::Moved;
use crate::{Error, Store, Transaction};

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
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    tenant_id: String,
    database_id: Uuid,
    database_name: String,
    kind: String,
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
}

macro_rules! select {
    () => {
        "select o.id, o.tenant_id, o.database_id, d.name as database_name, o.kind, o.epoch, o.seq, o.state, \
         o.failure_code, o.failure_message, o.steps, o.last_event, o.actor, o.traceparent, o.created_at, o.updated_at, \
         o.ended_at from operations o join databases d on d.id = o.database_id "
    };
}

impl Store {
    /// One operation; for a tenant only its own.
    pub async fn operation(
        &self,
        scope: Option<&TenantId>,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, Error> {
        let row: Option<Row> =
            sqlx::query_as(concat!(select!(), "where o.id = $1 and ($2::text is null or o.tenant_id = $2)"))
                .bind(id.uuid())
                .bind(scope.map(TenantId::as_str))
                .fetch_optional(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        row.map(OperationRecord::try_from).transpose()
    }

    /// Operations, newest first; for a tenant only its own, of one database if asked for.
    pub async fn operations(
        &self,
        scope: Option<&TenantId>,
        database: Option<DatabaseId>,
        state: Option<OperationState>,
        page: Page,
    ) -> Result<Vec<OperationRecord>, Error> {
        let rows: Vec<Row> = sqlx::query_as(concat!(
            select!(),
            "where ($1::text is null or o.tenant_id = $1) and ($2::uuid is null or o.database_id = $2) \
             and ($3::text is null or o.state = $3) and ($4::uuid is null or o.id < $4) order by o.id desc limit $5"
        ))
        .bind(scope.map(TenantId::as_str))
        .bind(database.map(DatabaseId::uuid))
        .bind(state.map(OperationState::as_str))
        .bind(page.after)
        .bind(i64::from(page.limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        rows.into_iter().map(OperationRecord::try_from).collect()
    }
}

impl Transaction {
    /// Writes a new operation; its first event is its caller's to write.
    pub(crate) async fn insert_operation(
        &mut self,
        operation: &Operation,
        actor: &str,
        traceparent: Option<&str>,
    ) -> Result<(), Error> {
        sqlx::query(
            "insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor, traceparent, \
             last_event) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1)",
        )
        .bind(operation.id.uuid())
        .bind(operation.tenant.as_str())
        .bind(operation.database.uuid())
        .bind(operation.kind.as_str())
        .bind(operation.position.epoch)
        .bind(operation.position.seq)
        .bind(operation.state.as_str())
        .bind(actor)
        .bind(traceparent)
        .execute(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(())
    }

    /// The newest operation of a kind that a database has.
    pub async fn newest_operation(
        &mut self,
        database: DatabaseId,
        kind: OperationKind,
    ) -> Result<Option<OperationRecord>, Error> {
        let row: Option<Row> = sqlx::query_as(concat!(
            select!(),
            "where o.database_id = $1 and o.kind = $2 order by o.epoch desc, o.seq desc limit 1"
        ))
        .bind(database.uuid())
        .bind(kind.as_str())
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        row.map(OperationRecord::try_from).transpose()
    }

    /// One operation as this transaction has it.
    pub async fn operation(&mut self, id: OperationId) -> Result<Option<OperationRecord>, Error> {
        let row: Option<Row> = sqlx::query_as(concat!(select!(), "where o.id = $1"))
            .bind(id.uuid())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        row.map(OperationRecord::try_from).transpose()
    }
}

/// Locks the operations of these databases that have not reached their end. One that cannot be read holds up nobody else.
pub(crate) async fn lock_open(
    connection: &mut PgConnection,
    databases: &[Uuid],
) -> Result<Vec<Result<OperationRecord, Error>>, Error> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        select!(),
        "where o.database_id = any($1) and o.ended_at is null order by o.id for no key update of o"
    ))
    .bind(databases)
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(rows.into_iter().map(OperationRecord::try_from).collect())
}

/// Writes what moved in an operation whose row is locked.
pub(crate) async fn update(
    connection: &mut PgConnection,
    id: OperationId,
    moved: &Moved,
    last_event: i64,
) -> Result<(), Error> {
    let documents: Vec<StepDocument> = moved.steps.iter().map(StepDocument::from).collect();
    sqlx::query(
        "update operations set state = $2, failure_code = $3, failure_message = $4, steps = $5, last_event = $6, \
         updated_at = now(), ended_at = case when $7 then now() end where id = $1 and ended_at is null",
    )
    .bind(id.uuid())
    .bind(moved.state.as_str())
    .bind(moved.failure.as_ref().map(|failure| &failure.code))
    .bind(moved.failure.as_ref().map(|failure| &failure.message))
    .bind(Json(documents))
    .bind(last_event)
    .bind(moved.state.is_terminal())
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(())
}

impl TryFrom<Row> for OperationRecord {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("operations", format!("{}: {what}", row.id));
        let steps =
            row.steps.0.into_iter().map(StepDocument::read).collect::<Result<_, _>>().map_err(corrupt)?;
        let failure =
            row.failure_code.map(|code| Failure { code, message: row.failure_message.unwrap_or_default() });
        Ok(Self {
            operation: Operation {
                id: OperationId::new(row.id),
                kind: word("kind", &row.kind, OperationKind::parse).map_err(corrupt)?,
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
        })
    }
}
