//! Table `tombstones`: purged databases whose custom resource may go. The resource of a deleted database is its tombstone:
//! it refuses whatever older instruction still comes. The sweep asks for its removal when none can come any more.

use std::time::Duration;

use domain::{ClusterId, DatabaseId, DatabaseName, Position, TenantId};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::rows::read;
use crate::{Error, Store};

/// A tombstone to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// Of which database.
    pub database: DatabaseId,
    /// Its name, which the resource's begins with.
    pub name: DatabaseName,
    /// Whose it was.
    pub tenant: TenantId,
    /// The position that the resource must hold and have carried out.
    pub position: Position,
    /// How often its removal was tried, this time included.
    pub attempts: i64,
}

#[derive(sqlx::FromRow)]
struct Row {
    database_id: Uuid,
    name: String,
    tenant_id: String,
    epoch: i64,
    seq: i64,
    attempts: i64,
}

impl Store {
    /// Asks for the removal of tombstones, each at the position that was judged.
    pub async fn bury(&self, judged: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        let (ids, epochs, seqs) = columns(judged);
        let done = sqlx::query(
            "insert into tombstones (database_id, cluster_id, epoch, seq) \
             select d.id, d.cluster_id, d.epoch, d.seq from databases d \
             join unnest($1::uuid[], $2::bigint[], $3::bigint[]) as s (id, epoch, seq) \
             on s.id = d.id and s.epoch = d.epoch and s.seq = d.seq where not d.unpublished order by d.id \
             on conflict (database_id) do nothing",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Notes that nothing is left of purged databases, each at the position that was judged; what others hold locked is left.
    pub async fn mark_purged(&self, judged: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        self.set_purged(judged, true).await
    }

    /// Notes that a purged database shows again: something of it is left to be taken away.
    pub async fn unmark_purged(&self, judged: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        self.set_purged(judged, false).await
    }

    // Who takes away what was asked for of many holds their databases first, or waits for nobody: else two of them would wait for
    // each other.
    async fn set_purged(&self, judged: &[(DatabaseId, Position)], purged: bool) -> Result<u64, Error> {
        let (ids, epochs, seqs) = columns(judged);
        let done = sqlx::query(
            "with judged as (select d.id from databases d \
             join unnest($1::uuid[], $2::bigint[], $3::bigint[]) as s (id, epoch, seq) \
             on s.id = d.id and s.epoch = d.epoch and s.seq = d.seq order by d.id \
             for no key update of d skip locked), \
             forgotten as (delete from tombstones t using judged where t.database_id = judged.id) \
             update databases d set purged_at = case when $4 then now() end from judged \
             where d.id = judged.id and (d.purged_at is not null) <> $4",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .bind(purged)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Takes back what was asked for of databases that must keep their tombstone after all; what others hold locked is left.
    pub async fn keep_tombstones(&self, databases: &[DatabaseId]) -> Result<u64, Error> {
        let ids: Vec<Uuid> = databases.iter().map(|id| id.uuid()).collect();
        let done = sqlx::query(
            "with kept as (select database_id from tombstones where database_id = any($1) for update skip locked) \
             delete from tombstones t using kept where t.database_id = kept.database_id",
        )
        .bind(ids)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Takes tombstones of a cluster whose time has come, the longest waiting first, and keeps others from taking the same
    /// ones for the time of `lease`. They stay until the cluster no longer shows the resource. An error within is about one of
    /// them.
    pub async fn claim_tombstones(
        &self,
        cluster: &ClusterId,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<Result<Tombstone, Error>>, Error> {
        let rows: Vec<PgRow> = sqlx::query(
            "with due as (select t.database_id, d.name, d.tenant_id from tombstones t \
             join databases d on d.id = t.database_id and d.epoch = t.epoch and d.seq = t.seq \
             where t.cluster_id = $1 and t.retry_at <= now() order by t.retry_at limit $2 \
             for update of t skip locked) \
             update tombstones t set attempts = t.attempts + 1, retry_at = now() + make_interval(secs => $3) \
             from due where t.database_id = due.database_id \
             returning t.database_id, due.name, due.tenant_id, t.epoch, t.seq, t.attempts",
        )
        .bind(cluster.as_str())
        .bind(i64::from(limit))
        .bind(lease.as_secs_f64())
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.iter().map(|row| read::<Row, Tombstone>(("tombstones", "database_id"), row)).collect())
    }
}

fn columns(judged: &[(DatabaseId, Position)]) -> (Vec<Uuid>, Vec<i64>, Vec<i64>) {
    let (ids, (epochs, seqs)) =
        judged.iter().map(|(id, position)| (id.uuid(), (position.epoch, position.seq))).unzip();
    (ids, epochs, seqs)
}

impl TryFrom<Row> for Tombstone {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt =
            |error: domain::id::Error| Error::corrupt("tombstones", format!("{}: {error}", row.database_id));
        Ok(Self {
            database: DatabaseId::new(row.database_id),
            name: row.name.parse().map_err(corrupt)?,
            tenant: row.tenant_id.parse().map_err(corrupt)?,
            position: Position { epoch: row.epoch, seq: row.seq },
            attempts: row.attempts,
        })
    }
}
