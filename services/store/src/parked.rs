//! Table `parked_instructions`: what a cluster cannot take now, the newest of each database.

use std::time::Duration;

use domain::{ClusterId, DatabaseId, Position};
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::halves::Asked;
use crate::rows::read;
use crate::{Error, Store};

/// A parked instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Whose it is.
    pub database: DatabaseId,
    /// Where it is to go.
    pub cluster: ClusterId,
    /// Its position.
    pub position: Position,
    /// The record's content as it came from the topic; it may be one that this program cannot read.
    pub payload: Vec<u8>,
    /// Where the record stood; absent in rows of an older program.
    pub origin: Option<Origin>,
    /// Its trace.
    pub traceparent: Option<String>,
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// How often it was tried since it was parked itself.
    pub attempts: i64,
    /// Since when its database waits, in this state or an older one that it took the place of (set by the database).
    pub parked_at: Timestamp,
}

/// Where a record stood on its topic, and what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Topic.
    pub topic: String,
    /// Partition of it.
    pub partition: i32,
    /// Place in the partition.
    pub offset: i64,
    /// Headers as text, in their order.
    pub headers: Vec<(String, String)>,
}

/// Parked instructions that somebody took.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Those that can be read, the longest waiting first.
    pub parked: Vec<Parked>,
    /// Rows that cannot.
    pub unreadable: Vec<Error>,
}

#[derive(sqlx::FromRow)]
struct Row {
    database_id: Uuid,
    cluster_id: String,
    epoch: i64,
    seq: i64,
    payload: Vec<u8>,
    topic: Option<String>,
    kafka_partition: Option<i32>,
    kafka_offset: Option<i64>,
    headers: Json<Vec<(String, String)>>,
    traceparent: Option<String>,
    code: String,
    message: String,
    attempts: i64,
    parked_at: jiff_sqlx::Timestamp,
}

/// Takes what is due, the longest waiting first: of cluster 1, 2 most of them, for 3 seconds.
macro_rules! claim {
    () => {
        "with due as (select database_id from parked_instructions \
         where cluster_id = $1 and retry_at <= now() order by retry_at limit $2 for update skip locked) \
         update parked_instructions p set retry_at = now() + make_interval(secs => $3) \
         from due where p.database_id = due.database_id returning "
    };
}

/// What `Row` reads, of `parked_instructions p`.
macro_rules! columns {
    () => {
        "p.database_id, p.cluster_id, p.epoch, p.seq, p.payload, p.topic, p.kafka_partition, p.kafka_offset, \
         p.headers, p.traceparent, p.code, p.message, p.attempts, p.parked_at"
    };
}

fn by_ids(ids: &[Uuid]) -> Asked {
    sqlx::query(concat!("select ", columns!(), " from parked_instructions p where p.database_id = any($1)"))
        .bind(ids)
}

impl Claimed {
    fn of(rows: &[PgRow]) -> Self {
        let mut claimed = Self::default();
        for row in rows {
            match read::<Row, Parked>(("parked_instructions", "database_id"), row) {
                Ok(parked) => claimed.parked.push(parked),
                Err(error) => claimed.unreadable.push(error),
            }
        }
        claimed
    }
}

impl Store {
    /// Parks an instruction unless the same or a newer one of the database is parked. Says whether it was stored.
    /// `parked_at` and `attempts` are the database's: whatever takes the place of another is tried as if it were the first, and
    /// waits since that one did.
    pub async fn park(&self, parked: &Parked, retry_after: Duration) -> Result<bool, Error> {
        let origin = parked.origin.as_ref();
        let done = sqlx::query(
            "insert into parked_instructions as t (database_id, cluster_id, epoch, seq, payload, traceparent, code, \
             message, retry_at, topic, kafka_partition, kafka_offset, headers) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, now() + make_interval(secs => $9), $10, $11, $12, $13) \
             on conflict (database_id) do update set cluster_id = excluded.cluster_id, epoch = excluded.epoch, \
             seq = excluded.seq, payload = excluded.payload, topic = excluded.topic, \
             kafka_partition = excluded.kafka_partition, kafka_offset = excluded.kafka_offset, \
             headers = excluded.headers, traceparent = excluded.traceparent, \
             code = excluded.code, message = excluded.message, attempts = 0, retry_at = excluded.retry_at \
             where (excluded.epoch, excluded.seq) > (t.epoch, t.seq)",
        )
        .bind(parked.database.uuid())
        .bind(parked.cluster.as_str())
        .bind(parked.position.epoch)
        .bind(parked.position.seq)
        .bind(&parked.payload)
        .bind(&parked.traceparent)
        .bind(&parked.code)
        .bind(&parked.message)
        .bind(retry_after.as_secs_f64())
        .bind(origin.map(|origin| &origin.topic))
        .bind(origin.map(|origin| origin.partition))
        .bind(origin.map(|origin| origin.offset))
        .bind(Json(origin.map(|origin| &*origin.headers).unwrap_or_default()))
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }

    /// Takes parked instructions of a cluster whose time has come, the longest waiting first, and keeps others from
    /// taking the same ones for the time of `lease`. They stay until [`Store::unpark`]: whoever takes them applies them
    /// first, and one that dies with them leaves them to the next after the lease. Two that hold the same one all the
    /// same, because a lease ran out, waste a call and do no harm. One that cannot be read, be it that Postgres itself fails at it,
    /// stays as well, and holds up nobody else: it comes again after the lease.
    pub async fn claim_parked(
        &self,
        cluster: &ClusterId,
        limit: u32,
        lease: Duration,
    ) -> Result<Claimed, Error> {
        let rows = sqlx::query(concat!(claim!(), columns!()))
            .bind(cluster.as_str())
            .bind(i64::from(limit))
            .bind(lease.as_secs_f64())
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx);
        let mut claimed = match rows {
            Ok(rows) => Claimed::of(&rows),
            Err(error) if error.is_about_a_row() => self.claim_around(cluster, limit, lease).await?,
            Err(error) => return Err(error),
        };
        claimed.parked.sort_by_key(|parked| parked.parked_at);
        Ok(claimed)
    }

    /// Takes them without a look at what is in them, so that those that Postgres fails at wait for the lease as well, and are in
    /// nobody's way meanwhile; then reads what can be read of it. Where a newer one was parked between the two, that is what is read:
    /// it may be tried twice at once, like one whose lease ran out. A page of the table that is damaged is not read around: no row of
    /// it can be taken.
    async fn claim_around(&self, cluster: &ClusterId, limit: u32, lease: Duration) -> Result<Claimed, Error> {
        let ids: Vec<Uuid> = sqlx::query_scalar(concat!(claim!(), "p.database_id"))
            .bind(cluster.as_str())
            .bind(i64::from(limit))
            .bind(lease.as_secs_f64())
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        let readable = self.read_around(&ids, ids.len(), by_ids).await?;
        let mut claimed = Claimed::of(&readable.rows);
        let damaged = readable.damaged.into_iter();
        claimed
            .unreadable
            .extend(damaged.map(|(which, error)| error.of_row("parked_instructions", ids[which])));
        Ok(claimed)
    }

    /// Counts a try that failed again and says when the next one is due; a newer instruction is not touched.
    pub async fn park_longer(
        &self,
        database: DatabaseId,
        position: Position,
        retry_after: Duration,
        reason: (&str, &str),
    ) -> Result<bool, Error> {
        let done = sqlx::query(
            "update parked_instructions set attempts = attempts + 1, retry_at = now() + make_interval(secs => $4), \
             code = $5, message = $6 where database_id = $1 and epoch = $2 and seq = $3",
        )
        .bind(database.uuid())
        .bind(position.epoch)
        .bind(position.seq)
        .bind(retry_after.as_secs_f64())
        .bind(reason.0)
        .bind(reason.1)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }

    /// Takes away parked instructions that were carried out, each at exactly this position: a newer one stays.
    pub async fn unpark(&self, done: &[(DatabaseId, Position)]) -> Result<u64, Error> {
        let (ids, (epochs, seqs)): (Vec<Uuid>, (Vec<i64>, Vec<i64>)) =
            done.iter().map(|(id, position)| (id.uuid(), (position.epoch, position.seq))).unzip();
        let deleted = sqlx::query(
            "delete from parked_instructions t using unnest($1::uuid[], $2::bigint[], $3::bigint[]) \
             as d (database_id, epoch, seq) \
             where t.database_id = d.database_id and t.epoch = d.epoch and t.seq = d.seq",
        )
        .bind(ids)
        .bind(epochs)
        .bind(seqs)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(deleted.rows_affected())
    }

    /// Takes away what is parked below the position that its cluster is seen to hold. Says how many. What is parked at
    /// exactly that position stays for whoever drains it: its content may be another one. What somebody holds locked is left for
    /// another time: every provisioner asks for this, and none waits for another one.
    pub async fn unpark_passed(&self) -> Result<u64, Error> {
        let deleted = sqlx::query(
            "with passed as (select p.database_id from parked_instructions p \
             join observations o on o.database_id = p.database_id \
             where o.cluster_id = p.cluster_id and o.present and (o.epoch, o.seq) > (p.epoch, p.seq) \
             order by p.database_id for update of p skip locked) \
             delete from parked_instructions p using passed where p.database_id = passed.database_id",
        )
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(deleted.rows_affected())
    }

    /// How many instructions are parked for each cluster.
    pub async fn parked_count(&self) -> Result<Vec<(String, i64)>, Error> {
        sqlx::query_as(
            "select cluster_id, count(*) from parked_instructions group by cluster_id order by cluster_id",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)
    }
}

impl TryFrom<Row> for Parked {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let cluster = row.cluster_id.parse().map_err(|error: domain::id::Error| {
            Error::corrupt("parked_instructions", format!("{}: cluster_id: {error}", row.database_id))
        })?;
        let place = row.topic.zip(row.kafka_partition).zip(row.kafka_offset);
        let origin = place.map(|((topic, partition), offset)| Origin {
            topic,
            partition,
            offset,
            headers: row.headers.0,
        });
        Ok(Self {
            database: DatabaseId::new(row.database_id),
            cluster,
            position: Position { epoch: row.epoch, seq: row.seq },
            payload: row.payload,
            origin,
            traceparent: row.traceparent,
            code: row.code,
            message: row.message,
            attempts: row.attempts,
            parked_at: row.parked_at.to_jiff(),
        })
    }
}
