//! Table `instructions`: every desired state that was minted, never changed afterwards. What nothing can go on from or return to
//! any more is taken away after a while (`history`).

use domain::{ClusterId, DatabaseId, Desired, InstructionId, OperationId, OperationKind, Position, TenantId};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::document::{DesiredDocument, word};
use crate::{Database, Error, Transaction};

/// A minted desired state with all that its record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Identity.
    pub id: InstructionId,
    /// Which database.
    pub database: DatabaseId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it lives.
    pub cluster: ClusterId,
    /// The operation that asked for it.
    pub operation: OperationId,
    /// What that operation asked for, by its class.
    pub operation_kind: OperationKind,
    /// Where it stands.
    pub position: Position,
    /// What should be.
    pub desired: Desired,
    /// When it was minted.
    pub minted_at: Timestamp,
    /// Who asked.
    pub actor: String,
    /// Trace of the request.
    pub traceparent: Option<String>,
    /// Whether the sweep says it again because its cluster does not show it: nobody waits for it at a screen.
    pub said_again: bool,
}

#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    id: Uuid,
    database_id: Uuid,
    tenant_id: String,
    cluster_id: String,
    operation_id: Uuid,
    operation_kind: String,
    epoch: i64,
    seq: i64,
    desired: Json<DesiredDocument>,
    desired_schema: i32,
    minted_at: jiff_sqlx::Timestamp,
    actor: String,
    traceparent: Option<String>,
    said_again: bool,
}

/// What `Row` reads, of `instructions i` joined to `databases d`.
macro_rules! instruction_columns {
    () => {
        "i.id, i.database_id, d.tenant_id, d.cluster_id, i.operation_id, i.operation_kind, i.epoch, i.seq, \
         i.desired, i.desired_schema, i.minted_at, i.actor, i.traceparent, \
         coalesce(d.resent_at >= d.minted_at and d.resent_by is null, false) as said_again"
    };
}
pub(crate) use instruction_columns;

/// A state that a database can return to, or go on from.
#[derive(sqlx::FromRow)]
struct StateRow {
    id: Uuid,
    desired: Json<DesiredDocument>,
    desired_schema: i32,
    doubtful: bool,
}

/// Refused: the operation failed, and not because its time ran out.
macro_rules! refused {
    () => {
        "(o.state = 'failed' and o.failure_code <> 'deadline')"
    };
}
pub(crate) use refused;

/// A cluster was heard to take it. Where it ended since, by its time or by a later one, the first of its steps tells.
macro_rules! was_taken {
    () => {
        "(o.state in ('succeeded', 'running') or o.steps @> '[{\"name\": \"apply\", \"state\": \"succeeded\"}]')"
    };
}

/// No cluster was heard to take it, because a later one took its place on the way, and what was made of it and has no way back of
/// its own was refused: a deletion, or the way back to this very state. Then it is likely that this state is what cannot be taken.
macro_rules! doubtful {
    () => {
        concat!(
            "(not ",
            was_taken!(),
            " and exists (select from operations r \
             where r.database_id = i.database_id and (r.epoch, r.seq) > (i.epoch, i.seq) and r.state = 'failed' \
             and r.failure_code not in ('deadline', 'conflict') and (r.reverts is not null or r.kind = 'delete')))"
        )
    };
}

/// The newest state that compares like this and was not refused; if there is a first order, the newest of those.
macro_rules! unrefused {
    ($compares:literal, $first:literal) => {
        unrefused!($compares, "", $first)
    };
    ($compares:literal, $narrowed:literal, $first:literal) => {
        concat!(
            "select i.id, i.desired, i.desired_schema, ",
            doubtful!(),
            " as doubtful from instructions i join operations o on o.id = i.operation_id \
             where i.database_id = $1 and (i.epoch, i.seq) ",
            $compares,
            " ($2, $3) and not ",
            refused!(),
            $narrowed,
            " order by ",
            $first,
            "i.epoch desc, i.seq desc limit 1"
        )
    };
}

/// The newest state that compares like this and was taken. Of those that are over only what was carried out ([`was_taken`] knows of more):
/// nothing else that ended is kept for this by who takes history away.
macro_rules! taken {
    ($compares:literal) => {
        unrefused!($compares, " and o.state in ('succeeded', 'running')", "")
    };
}

impl Transaction {
    /// What the next change of a locked database starts from: what it should be, unless that was refused; then the newest
    /// state that was not, so that a bad field is in the way of nothing that is asked for later. `None` where all were. A state that
    /// nobody took, and that what was made of it was refused with, gives way to the newest that was taken: nothing was heard of it by
    /// itself. So it is for those below.
    pub async fn base(&mut self, locked: &Database) -> Result<Option<Desired>, Error> {
        self.state((unrefused!("<=", ""), taken!("<=")), locked, locked.position).await
    }

    /// The newest state of a locked database before a position that was not refused, carried out or not: what the one at that
    /// position started from. `None` where there never was one.
    pub async fn before(&mut self, locked: &Database, position: Position) -> Result<Option<Desired>, Error> {
        self.state((unrefused!("<", ""), taken!("<")), locked, position).await
    }

    /// The last good state of a locked database before a position: the newest that was carried out or still is; else the
    /// newest that was not refused. `None` where there never was one.
    pub async fn last_good(&mut self, locked: &Database, before: Position) -> Result<Option<Desired>, Error> {
        let statement = unrefused!("<", "o.state in ('succeeded', 'pending', 'running') desc, ");
        self.state((statement, taken!("<")), locked, before).await
    }

    /// Whether no cluster ever took any state of a locked database, by all that was heard.
    pub async fn is_untaken(&mut self, locked: &Database) -> Result<bool, Error> {
        sqlx::query_scalar(concat!(
            "select not exists (select from observations where database_id = $1 and present) \
             and not exists (select from operations o where o.database_id = $1 and ",
            was_taken!(),
            ")"
        ))
        .bind(locked.id.uuid())
        .fetch_one(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)
    }

    /// The state that the first statement finds. Where that is doubtful, the one that was taken instead, which the second one finds,
    /// if there is any: but in the run state that was found, and no less careful. That it runs, is paused or ends was asked for all
    /// the same.
    async fn state(
        &mut self,
        (statement, taken): (&'static str, &'static str),
        locked: &Database,
        position: Position,
    ) -> Result<Option<Desired>, Error> {
        let Some(row) = self.state_row(statement, locked, position).await? else { return Ok(None) };
        let doubtful = row.doubtful;
        let found = Desired::try_from(row)?;
        if !doubtful {
            return Ok(Some(found));
        }
        let taken = self.state_row(taken, locked, position).await?.map(Desired::try_from).transpose()?;
        Ok(Some(match taken {
            Some(taken) => Desired { run_state: found.run_state, ..taken }.as_careful_as(&found),
            None => found,
        }))
    }

    async fn state_row(
        &mut self,
        statement: &'static str,
        locked: &Database,
        position: Position,
    ) -> Result<Option<StateRow>, Error> {
        sqlx::query_as(statement)
            .bind(locked.id.uuid())
            .bind(position.epoch)
            .bind(position.seq)
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)
    }
}

impl TryFrom<StateRow> for Desired {
    type Error = Error;

    fn try_from(row: StateRow) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("instructions", format!("{}: {what}", row.id));
        row.desired.0.read(row.desired_schema).map_err(corrupt)
    }
}

impl TryFrom<Row> for Instruction {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("instructions", format!("{}: {what}", row.id));
        let label = |error: domain::id::Error| corrupt(error.to_string());
        Ok(Self {
            id: InstructionId::new(row.id),
            database: DatabaseId::new(row.database_id),
            tenant: row.tenant_id.parse().map_err(label)?,
            cluster: row.cluster_id.parse().map_err(label)?,
            operation: OperationId::new(row.operation_id),
            operation_kind: word("operation_kind", &row.operation_kind, OperationKind::parse)
                .map_err(corrupt)?,
            position: Position { epoch: row.epoch, seq: row.seq },
            desired: row.desired.0.read(row.desired_schema).map_err(corrupt)?,
            minted_at: row.minted_at.to_jiff(),
            actor: row.actor,
            traceparent: row.traceparent,
            said_again: row.said_again,
        })
    }
}
