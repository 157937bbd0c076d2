//! Table `dead_letters`: records that cannot be understood or carried out, with their bytes and the reason.
//!
//! One is settled when a later record of its database was taken: by its position where its headers say it, by its place
//! on the topic or the time at which the later one was minted otherwise. A conflict is settled only by a higher position: the
//! equal one is what it quarrels with. *Invariant:* whoever settles several locks them in the order of their identity, so that no
//! two wait for each other.

use domain::{ClusterId, DatabaseId, Position};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Store};

/// Dead letters that are settled in one statement.
const AT_ONCE: i64 = 10_000;

/// A record that cannot be understood or carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetter {
    /// Topic it came from.
    pub topic: String,
    /// Partition it came from.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its bytes.
    pub payload: Option<Vec<u8>>,
    /// Its headers as text (lossy), in their order.
    pub headers: Vec<(String, String)>,
    /// The cluster it was for, where a header says so.
    pub cluster: Option<ClusterId>,
    /// The database it was about, where its key says so.
    pub database: Option<DatabaseId>,
    /// The position of its instruction, where its headers say so.
    pub position: Option<Position>,
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// Who set it aside.
    pub consumer: String,
}

/// A record that was taken: applied, or parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken<'a> {
    /// Position of its instruction.
    pub position: Position,
    /// Topic it stands in.
    pub topic: &'a str,
    /// Partition of it.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
}

impl Store {
    /// Keeps a record that cannot be understood. A record that comes again is kept once; says whether it is new.
    pub async fn dead_letter(&self, letter: &DeadLetter) -> Result<bool, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        insert(&mut connection, letter).await
    }

    /// Databases with dead letters that nothing has superseded yet, the latest first.
    pub async fn open_dead_letters(&self, limit: u32) -> Result<Vec<DatabaseId>, Error> {
        let ids: Vec<Uuid> = sqlx::query_scalar(
            "select database_id from dead_letters where superseded_at is null and database_id is not null \
             group by database_id order by max(id) desc limit $1",
        )
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(ids.into_iter().map(DatabaseId::new).collect())
    }

    /// A record of this database was taken: what it supersedes is settled. Says how many dead letters that are.
    pub async fn supersede_dead_letters(&self, database: DatabaseId, by: &Taken<'_>) -> Result<u64, Error> {
        let done = sqlx::query(
            "with due as (select id from dead_letters where database_id = $1 and superseded_at is null \
             and case when epoch is null then topic = $4 and kafka_partition = $5 and kafka_offset < $6 \
             else (epoch, seq) < ($2, $3) or ((epoch, seq) = ($2, $3) and code <> 'conflict') end \
             order by id for no key update) \
             update dead_letters d set superseded_at = now() from due where d.id = due.id",
        )
        .bind(database.uuid())
        .bind(by.position.epoch)
        .bind(by.position.seq)
        .bind(by.topic)
        .bind(by.partition)
        .bind(by.offset)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Settles dead letters whose database is seen, or parked, at a higher position; where their headers say none, at the position of
    /// an instruction that was minted after they were kept. What somebody holds locked is left for another time. Says how many.
    // Some at a time: what many had in common may pass for all of them at once, and no statement runs out of its time.
    pub async fn settle_dead_letters(&self) -> Result<u64, Error> {
        let mut settled = 0;
        loop {
            let done = self.settle_some().await?;
            settled += done;
            if done < AT_ONCE.unsigned_abs() {
                return Ok(settled);
            }
        }
    }

    async fn settle_some(&self) -> Result<u64, Error> {
        let done = sqlx::query(
            "with passed as materialized (select d.id from dead_letters d \
             where d.superseded_at is null and d.database_id is not null and exists (select from \
             (select database_id, epoch, seq from observations \
             union all select database_id, epoch, seq from parked_instructions) k \
             where k.database_id = d.database_id and case when d.epoch is not null \
             then (k.epoch, k.seq) > (d.epoch, d.seq) \
             else exists (select from instructions i where i.database_id = d.database_id \
             and i.minted_at > d.received_at and (i.epoch, i.seq) <= (k.epoch, k.seq)) end)), \
             due as (select d.id from dead_letters d where d.superseded_at is null \
             and d.id in (select id from passed order by id limit $1) order by d.id for no key update of d skip locked) \
             update dead_letters d set superseded_at = now() from due where d.id = due.id",
        )
        .bind(AT_ONCE)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// How many dead letters there are.
    pub async fn dead_letter_count(&self) -> Result<i64, Error> {
        sqlx::query_scalar("select count(*) from dead_letters")
            .fetch_one(&self.pool)
            .await
            .map_err(Error::from_sqlx)
    }
}

pub(crate) async fn insert(connection: &mut PgConnection, letter: &DeadLetter) -> Result<bool, Error> {
    let done = sqlx::query(
        "insert into dead_letters (topic, kafka_partition, kafka_offset, key, payload, headers, cluster_id, \
         database_id, code, message, consumer, epoch, seq) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
         on conflict on constraint dead_letters_record_key do nothing",
    )
    .bind(&letter.topic)
    .bind(letter.partition)
    .bind(letter.offset)
    .bind(&letter.key)
    .bind(&letter.payload)
    .bind(Json(&letter.headers))
    .bind(letter.cluster.as_ref().map(ClusterId::as_str))
    .bind(letter.database.map(DatabaseId::uuid))
    .bind(&letter.code)
    .bind(&letter.message)
    .bind(&letter.consumer)
    .bind(letter.position.map(|position| position.epoch))
    .bind(letter.position.map(|position| position.seq))
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(done.rows_affected() == 1)
}
