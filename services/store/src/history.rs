//! What is taken away of what happened: events of operations, and instructions. What may go is decided elsewhere; here are the
//! rows.
//!
//! *Invariant:* whatever was decided, no statement here takes the newest state of a database, anything of an operation that has
//! not ended, or the last event of any. *Invariant:* none takes more rows than it is told, and none waits for a lock of
//! `databases` or `operations`: nobody who works is in its way, and it is in nobody's.

use std::time::Duration;

use domain::{InstructionId, OperationId, Position};
use uuid::Uuid;

use crate::instructions::refused;
use crate::rows::age;
use crate::{Error, Store, turns};

/// Name of the row by which replicas take turns.
const TURN: &str = "prune";

/// A state that was minted, as it is judged whether it is still needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// Which.
    pub instruction: InstructionId,
    /// The operation that asked for it.
    pub operation: OperationId,
    /// Where it stands.
    pub position: Position,
    /// Where the newest state of its database stands.
    pub newest: Position,
    /// The newest before that one that was carried out.
    pub good: Option<Position>,
    /// The newest before that one whose operation has ended and was not refused.
    pub accepted: Option<Position>,
    /// How long ago its operation ended and all that follows from it was done, by the database's clock; `None` while not.
    pub over_ago: Option<Duration>,
}

/// Some of what was minted, in a fixed order.
#[derive(Debug, Default)]
pub struct Pasts {
    /// These.
    pub rows: Vec<Past>,
    /// Where the next ones begin; `None` after the last.
    pub next: Option<Mark>,
}

/// A place in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    database: Uuid,
    position: Position,
}

impl Mark {
    /// Before everything.
    const START: Self = Self { database: Uuid::nil(), position: Position { epoch: 0, seq: 0 } };
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    operation_id: Uuid,
    database_id: Uuid,
    epoch: i64,
    seq: i64,
    newest_epoch: i64,
    newest_seq: i64,
    good_epoch: Option<i64>,
    good_seq: Option<i64>,
    accepted_epoch: Option<i64>,
    accepted_seq: Option<i64>,
    over_ago: Option<f64>,
}

/// The newest position before the one of database `d` whose operation `o` is like this. What it says never falls: an end is
/// final, and the newest position only rises.
macro_rules! newest_before {
    ($($like:tt)*) => {
        concat!(
            "left join lateral (select o.epoch, o.seq from operations o where o.database_id = d.id \
             and (o.epoch, o.seq) < (d.epoch, d.seq) and ",
            $($like)*,
            " order by o.epoch desc, o.seq desc limit 1) "
        )
    };
}

impl Store {
    /// Begins the next turn of taking away what was kept long enough, if its time has come and no other replica was quicker.
    pub async fn begin_pruning(&self, period: Duration) -> Result<bool, Error> {
        Ok(turns::begin(&self.pool, TURN, period).await?.is_some())
    }

    /// Some of what was minted, beginning after a place; a database's states in their order.
    pub async fn pasts(&self, after: Option<Mark>, limit: u32) -> Result<Pasts, Error> {
        let Mark { database, position } = after.unwrap_or(Mark::START);
        let rows: Vec<Row> = sqlx::query_as(concat!(
            "with page as materialized (select i.id, i.operation_id, i.database_id, i.epoch, i.seq from instructions i \
             where (i.database_id, i.epoch, i.seq) > ($1, $2, $3) \
             order by i.database_id, i.epoch, i.seq limit $4), \
             subject as materialized (select d.id, d.epoch, d.seq, good.epoch as good_epoch, good.seq as good_seq, \
             accepted.epoch as accepted_epoch, accepted.seq as accepted_seq from databases d ",
            newest_before!("o.state = 'succeeded'"),
            "good on true ",
            newest_before!(concat!("o.ended_at is not null and not ", refused!())),
            "accepted on true where d.id in (select database_id from page)) \
             select p.id, p.operation_id, p.database_id, p.epoch, p.seq, s.epoch as newest_epoch, s.seq as newest_seq, \
             s.good_epoch, s.good_seq, s.accepted_epoch, s.accepted_seq, \
             case when o.ended_at is not null and (o.state <> 'failed' or o.settled_at is not null) \
             then extract(epoch from now() - greatest(o.ended_at, o.settled_at))::float8 end as over_ago \
             from page p join subject s on s.id = p.database_id join operations o on o.id = p.operation_id \
             order by p.database_id, p.epoch, p.seq"
        ))
        .bind(database)
        .bind(position.epoch)
        .bind(position.seq)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        let full = rows.len() as u64 >= u64::from(limit);
        let next = rows.last().filter(|_| full).map(Row::mark);
        Ok(Pasts { rows: rows.iter().map(Past::from).collect(), next })
    }

    /// Takes away events of operations that have ended, but for the last of each: as many as one statement may. Says how many
    /// went.
    pub async fn prune_events(&self, of: &[OperationId], limit: u32) -> Result<u64, Error> {
        if of.is_empty() {
            return Ok(0);
        }
        let ids: Vec<Uuid> = of.iter().map(|id| id.uuid()).collect();
        let done = sqlx::query(
            "delete from operation_events where ctid = any (array(select e.ctid from operations o \
             join operation_events e on e.operation_id = o.id and e.number < o.last_event \
             where o.id = any($1) and o.ended_at is not null limit $2))",
        )
        .bind(ids)
        .bind(i64::from(limit))
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Takes away these states, but for the newest of each database and those of operations that have not ended. Says how many
    /// went.
    pub async fn prune_instructions(&self, these: &[InstructionId]) -> Result<u64, Error> {
        if these.is_empty() {
            return Ok(0);
        }
        let ids: Vec<Uuid> = these.iter().map(|id| id.uuid()).collect();
        let done = sqlx::query(
            "delete from instructions i using databases d, operations o where i.id = any($1) \
             and d.id = i.database_id and (i.epoch, i.seq) < (d.epoch, d.seq) \
             and o.id = i.operation_id and o.ended_at is not null",
        )
        .bind(ids)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }
}

impl Row {
    const fn position(&self) -> Position {
        Position { epoch: self.epoch, seq: self.seq }
    }

    const fn mark(&self) -> Mark {
        Mark { database: self.database_id, position: self.position() }
    }
}

impl From<&Row> for Past {
    fn from(row: &Row) -> Self {
        let place =
            |epoch: Option<i64>, seq: Option<i64>| epoch.zip(seq).map(|(epoch, seq)| Position { epoch, seq });
        Self {
            instruction: InstructionId::new(row.id),
            operation: OperationId::new(row.operation_id),
            position: row.position(),
            newest: Position { epoch: row.newest_epoch, seq: row.newest_seq },
            good: place(row.good_epoch, row.good_seq),
            accepted: place(row.accepted_epoch, row.accepted_seq),
            over_ago: row.over_ago.map(age),
        }
    }
}
