//! What was set aside, for people: pages of `parked_instructions` and `dead_letters`, without the bytes.

use domain::Position;
use jiff::Timestamp;
use uuid::Uuid;

use crate::databases::Page;
use crate::{Error, Store};

/// An instruction that waits for its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedView {
    /// Of which database.
    pub database: Uuid,
    /// Where it is to go.
    pub cluster: String,
    /// Its position.
    pub position: Position,
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// How often it was tried since.
    pub attempts: i64,
    /// Since when it waits.
    pub parked_at: Timestamp,
    /// When it is tried next.
    pub retry_at: Timestamp,
}

/// A record among the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterView {
    /// Identity.
    pub id: i64,
    /// Topic, partition and offset it came from.
    pub origin: (String, i32, i64),
    /// The database, where its key says so.
    pub database: Option<Uuid>,
    /// The cluster, where a header says so.
    pub cluster: Option<String>,
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// Bytes of its content.
    pub size: i64,
    /// Who set it aside.
    pub consumer: String,
    /// When.
    pub received_at: Timestamp,
    /// Since when a later record has taken its place.
    pub superseded_at: Option<Timestamp>,
}

#[derive(sqlx::FromRow)]
struct ParkedRow {
    database_id: Uuid,
    cluster_id: String,
    epoch: i64,
    seq: i64,
    code: String,
    message: String,
    attempts: i64,
    parked_at: jiff_sqlx::Timestamp,
    retry_at: jiff_sqlx::Timestamp,
}

#[derive(sqlx::FromRow)]
struct LetterRow {
    id: i64,
    topic: String,
    kafka_partition: i32,
    kafka_offset: i64,
    database_id: Option<Uuid>,
    cluster_id: Option<String>,
    code: String,
    message: String,
    size: i64,
    consumer: String,
    received_at: jiff_sqlx::Timestamp,
    superseded_at: Option<jiff_sqlx::Timestamp>,
}

impl Store {
    /// What is parked, the latest database first.
    pub async fn parked(&self, page: Page) -> Result<Vec<ParkedView>, Error> {
        let rows: Vec<ParkedRow> = sqlx::query_as(
            "select database_id, cluster_id, epoch, seq, code, message, attempts, parked_at, retry_at \
             from parked_instructions where $1::uuid is null or database_id < $1 order by database_id desc limit $2",
        )
        .bind(page.after)
        .bind(i64::from(page.limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().map(ParkedView::from).collect())
    }

    /// Dead letters, the latest first, before the one of identity `before`; superseded ones only if asked for.
    pub async fn dead_letters(
        &self,
        with_superseded: bool,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<DeadLetterView>, Error> {
        let rows: Vec<LetterRow> = sqlx::query_as(
            "select id, topic, kafka_partition, kafka_offset, database_id, cluster_id, code, message, \
             coalesce(length(payload), 0)::bigint as size, consumer, received_at, superseded_at from dead_letters \
             where ($1 or superseded_at is null) and ($2::bigint is null or id < $2) order by id desc limit $3",
        )
        .bind(with_superseded)
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().map(DeadLetterView::from).collect())
    }
}

impl From<ParkedRow> for ParkedView {
    fn from(row: ParkedRow) -> Self {
        Self {
            database: row.database_id,
            cluster: row.cluster_id,
            position: Position { epoch: row.epoch, seq: row.seq },
            code: row.code,
            message: row.message,
            attempts: row.attempts,
            parked_at: row.parked_at.to_jiff(),
            retry_at: row.retry_at.to_jiff(),
        }
    }
}

impl From<LetterRow> for DeadLetterView {
    fn from(row: LetterRow) -> Self {
        Self {
            id: row.id,
            origin: (row.topic, row.kafka_partition, row.kafka_offset),
            database: row.database_id,
            cluster: row.cluster_id,
            code: row.code,
            message: row.message,
            size: row.size,
            consumer: row.consumer,
            received_at: row.received_at.to_jiff(),
            superseded_at: row.superseded_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}
