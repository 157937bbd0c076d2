//! Table `consumer_offsets`: where a consumer goes on. Moved by compare-and-set in the transaction of the effect, so two
//! consumers of one partition can never both count.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::{Error, Store};

/// A partition's move from the offset a batch began at to the one behind its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Advance {
    /// Partition.
    pub partition: i32,
    /// What the consumer believes is stored; `None`: nothing yet.
    pub from: Option<i64>,
    /// Where to go on.
    pub to: i64,
}

impl Store {
    /// Where to go on in each partition; those that were never consumed are absent.
    pub async fn offsets(
        &self,
        consumer: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, i64>, Error> {
        let rows: Vec<(i32, i64)> = sqlx::query_as(
            "select kafka_partition, next_offset from consumer_offsets \
             where consumer = $1 and topic = $2 and kafka_partition = any($3)",
        )
        .bind(consumer)
        .bind(topic)
        .bind(partitions)
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().collect())
    }

    /// Forgets where a consumer was: it begins with the oldest records that the topic still has. Only for consumers
    /// whose effects bear repetition.
    pub async fn forget_offsets(&self, consumer: &str, topic: &str) -> Result<u64, Error> {
        let done = sqlx::query("delete from consumer_offsets where consumer = $1 and topic = $2")
            .bind(consumer)
            .bind(topic)
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }
}

/// Moves an offset from where it should stand; else nothing of the transaction may last.
pub(crate) async fn advance(
    connection: &mut PgConnection,
    consumer: &str,
    topic: &str,
    advance: Advance,
) -> Result<(), Error> {
    let statement = if advance.from.is_some() {
        "update consumer_offsets set next_offset = $4, updated_at = now() \
         where consumer = $1 and topic = $2 and kafka_partition = $3 and next_offset = $5"
    } else {
        "insert into consumer_offsets (consumer, topic, kafka_partition, next_offset) \
         select $1, $2, $3, $4 where $5::bigint is null on conflict do nothing"
    };
    let moved = sqlx::query(statement)
        .bind(consumer)
        .bind(topic)
        .bind(advance.partition)
        .bind(advance.to)
        .bind(advance.from)
        .execute(connection)
        .await
        .map_err(Error::from_sqlx)?;
    if moved.rows_affected() == 1 { Ok(()) } else { Err(Error::OffsetsMoved) }
}
