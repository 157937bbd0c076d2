//! Operations whose state lies aside for good: among the dead letters, or as one that cannot be published. Whether a reason
//! is one for good is decided in `domain::operation`; what follows from it is decided elsewhere.
//!
//! Only pending operations: what a cluster has taken is not refused by a copy of its record that cannot be read.

use domain::operation::{FINAL, Failure};
use domain::{DatabaseId, OperationId, Position};
use uuid::Uuid;

use crate::{Due, Error, Store, Transaction};

/// States that lie aside, with `$1` for the codes. A dead letter counts after a moment: what its finder tells of it on the
/// gossip topic says more, and so does whoever took another copy of the record.
macro_rules! aside {
    () => {
        "(select l.database_id, l.epoch, l.seq, l.code, l.message from dead_letters l \
         where l.superseded_at is null and l.database_id is not null and l.code = any($1) \
         and l.received_at < now() - interval '2 seconds' \
         union all select u.database_id, u.epoch, u.seq, u.code, u.message from unpublishable u \
         where u.code = any($1)) a"
    };
}

impl Store {
    /// Pending operations whose state lies aside for good, in the order of their identity, after the given one. Whoever
    /// takes one locks its rows and looks again.
    pub async fn lying_aside(&self, after: Option<OperationId>, limit: u32) -> Result<Vec<Due>, Error> {
        let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(concat!(
            "select distinct o.id, o.database_id from ",
            aside!(),
            " join operations o on o.database_id = a.database_id and o.epoch = a.epoch and o.seq = a.seq \
             where o.ended_at is null and o.state = 'pending' and ($2::uuid is null or o.id > $2) \
             order by o.id limit $3"
        ))
        .bind(FINAL)
        .bind(after.map(OperationId::uuid))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        let due = |(operation, database)| Due {
            operation: OperationId::new(operation),
            database: DatabaseId::new(database),
        };
        Ok(rows.into_iter().map(due).collect())
    }
}

impl Transaction {
    /// Why the state of a locked database at a position lies aside for good, if it does.
    pub async fn why_aside(
        &mut self,
        database: DatabaseId,
        position: Position,
    ) -> Result<Option<Failure>, Error> {
        let found: Option<(String, String)> = sqlx::query_as(concat!(
            "select a.code, a.message from ",
            aside!(),
            " where a.database_id = $2 and a.epoch = $3 and a.seq = $4 limit 1"
        ))
        .bind(FINAL)
        .bind(database.uuid())
        .bind(position.epoch)
        .bind(position.seq)
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(found.map(|(code, message)| Failure { code, message }))
    }
}
