//! Operations whose time ran out, or whose failure asks for something to follow. What follows is decided elsewhere; here
//! are the rows.
//!
//! *Invariant:* the database's clock judges, and the database's row is locked before the operation's.

use domain::operation::Failure;
use domain::{DatabaseId, OperationId, OperationState, Position};
use uuid::Uuid;

use crate::events::EventKind;
use crate::operations::{self, OperationRecord};
use crate::progress::Moved;
use crate::sink::Ended;
use crate::{Error, Store, Transaction, events};

/// An operation that somebody must decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub operation: OperationId,
    /// Its database.
    pub database: DatabaseId,
}

/// Operations that are late and not known to be, and those that failed without what follows from it: behind operation 1 where it is
/// given, 2 most of them.
pub const DUE: &str = "(select id, database_id from operations where ended_at is null and overdue_since is null \
     and deadline_at <= now() and ($1::uuid is null or id > $1) order by id limit $2) \
     union all \
     (select id, database_id from operations where state = 'failed' and settled_at is null \
     and ($1::uuid is null or id > $1) order by id limit $2) \
     order by id limit $2";

impl Store {
    /// Operations that are late and not known to be, and those that failed without what follows from it; in the order of
    /// their identity, after the given one. Whoever takes one locks its rows and looks again.
    pub async fn due(&self, after: Option<OperationId>, limit: u32) -> Result<Vec<Due>, Error> {
        let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(DUE)
            .bind(after.map(OperationId::uuid))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(rows
            .into_iter()
            .map(|(operation, database)| Due {
                operation: OperationId::new(operation),
                database: DatabaseId::new(database),
            })
            .collect())
    }

    /// How many operations are late and go on.
    pub async fn overdue_count(&self) -> Result<i64, Error> {
        sqlx::query_scalar(
            "select count(*) from operations where ended_at is null and overdue_since is not null",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)
    }
}

impl Transaction {
    /// Ends a locked operation as failed. Nothing happens to one that has ended.
    pub async fn fail(&mut self, record: &OperationRecord, failure: Failure) -> Result<Ended, Error> {
        let told = EventKind::State(Some(failure.clone()));
        let moved = moved(record, OperationState::Failed, told);
        self.end(record, &Moved { failure: Some(failure), ..moved }).await
    }

    /// Ends a locked operation because another one, at `by`, took its place. Nothing happens to one that has ended.
    pub async fn supersede(&mut self, record: &OperationRecord, by: Position) -> Result<Ended, Error> {
        let moved = moved(record, OperationState::Superseded, EventKind::State(None));
        self.end(record, &Moved { superseded_by: Some(by), ..moved }).await
    }

    async fn end(&mut self, record: &OperationRecord, moved: &Moved) -> Result<Ended, Error> {
        operations::update(&mut self.inner, &[(record, moved)]).await?;
        Ok(Ended::of(record, moved))
    }

    /// Notes that a locked operation is late and goes on; its followers are told why.
    pub async fn mark_overdue(&mut self, record: &OperationRecord, why: Failure) -> Result<(), Error> {
        let (id, number) = (record.operation.id, record.last_event + 1);
        let marked = sqlx::query(
            "update operations set overdue_since = now(), last_event = $2 where id = $1 and ended_at is null",
        )
        .bind(id.uuid())
        .bind(number)
        .execute(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        if marked.rows_affected() == 0 {
            return Ok(());
        }
        let told = (record.operation.state, EventKind::State(Some(why)));
        events::append(&mut self.inner, &[(id, number, &[told])]).await
    }

    /// Notes that all that follows from a failure was minted, or that nothing follows.
    pub async fn settle(&mut self, operation: OperationId) -> Result<(), Error> {
        sqlx::query("update operations set settled_at = now() where id = $1 and settled_at is null")
            .bind(operation.uuid())
            .execute(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(())
    }
}

fn moved(record: &OperationRecord, state: OperationState, told: EventKind) -> Moved {
    Moved {
        state,
        failure: None,
        steps: record.steps.clone(),
        events: vec![(state, told)],
        superseded_by: None,
    }
}
