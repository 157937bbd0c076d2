//! Table `heard`: up to when all that clusters said in a partition of gossip was taken in. Written by those who read gossip and
//! asked the brokers how far it reaches; read by whoever concludes something from what was not said.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use domain::{DatabaseId, OperationId, Position};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, Store, Transaction};

/// Where a database is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ear<'a> {
    /// Topic of gossip.
    pub topic: &'a str,
    /// Its partition.
    pub partition: i32,
    /// Of how many, which is why it is this one.
    pub partitions: i32,
}

/// What is known of operations' deadlines, each with the partition in which its database is told of.
macro_rules! heard {
    () => {
        "select o.id, coalesce(k.up_to >= o.deadline_at, false), extract(epoch from now() - k.up_to)::float8 \
         from unnest($1::uuid[], $2::int[]) as q (id, kafka_partition) join operations o on o.id = q.id \
         join databases d on d.id = o.database_id left join lateral ( \
         select least(h.up_to, (select coalesce(c.confirmed_at, 'epoch') from cluster_observers c \
         where c.cluster_id = d.cluster_id and c.expires_at > now())) as up_to from heard h \
         where h.topic = $3 and h.kafka_partition = q.kafka_partition and h.partitions = $4) k on true"
    };
}

/// What is known of an operation's deadline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard {
    /// Whether all was heard that was said by its deadline, and all was said: where an observer holds the cluster, it has told
    /// that nothing which it saw by the deadline waits to be said.
    pub through: bool,
    /// Seconds since the moment by which that is so; `None`: nobody ever listened to the end.
    pub ago: Option<f64>,
}

impl Store {
    /// The database's own time.
    pub async fn clock(&self) -> Result<Timestamp, Error> {
        let micros: i64 =
            sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
                .fetch_one(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        Timestamp::from_microsecond(micros).map_err(|_| Error::corrupt("clock", "no time that there can be"))
    }

    /// Notes that all that was said up to a moment was heard, of those partitions of which `consumer` has taken in what they
    /// have: their first record and the one after their last, as the brokers told them. Answers of how many that holds.
    pub async fn note_heard(
        &self,
        (consumer, topic, of): (&str, &str, i32),
        reach: &BTreeMap<i32, Range<i64>>,
        up_to: Timestamp,
    ) -> Result<u64, Error> {
        let partitions: Vec<i32> = reach.keys().copied().collect();
        let starts: Vec<i64> = reach.values().map(|range| range.start).collect();
        let ends: Vec<i64> = reach.values().map(|range| range.end).collect();
        let done = sqlx::query(
            "insert into heard (topic, kafka_partition, partitions, up_to) \
             select $2, r.kafka_partition, $7, to_timestamp($6::bigint / 1000000.0) \
             from unnest($3::int[], $4::bigint[], $5::bigint[]) as r (kafka_partition, first, stop) \
             left join consumer_offsets o \
             on o.consumer = $1 and o.topic = $2 and o.kafka_partition = r.kafka_partition \
             where r.stop <= r.first or o.next_offset >= r.stop order by r.kafka_partition \
             on conflict (topic, kafka_partition) do update set partitions = excluded.partitions, \
             up_to = case when heard.partitions = excluded.partitions \
             then greatest(heard.up_to, excluded.up_to) else excluded.up_to end",
        )
        .bind(consumer)
        .bind(topic)
        .bind(partitions)
        .bind(starts)
        .bind(ends)
        .bind(up_to.as_microsecond())
        .bind(of)
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Of these operations, each with the partition in which its database is told of, those that go on, are not known to be late, and
    /// by whose deadline not all was heard that was said. Nothing is locked.
    pub async fn unheard(
        &self,
        (topic, partitions): (&str, i32),
        asked: &[(OperationId, i32)],
    ) -> Result<BTreeMap<OperationId, Heard>, Error> {
        let (ids, places): (Vec<Uuid>, Vec<i32>) =
            asked.iter().map(|(operation, partition)| (operation.uuid(), *partition)).unzip();
        let rows: Vec<(Uuid, bool, Option<f64>)> = sqlx::query_as(concat!(
            heard!(),
            " where o.ended_at is null and o.overdue_since is null and (k.up_to >= o.deadline_at) is not true"
        ))
        .bind(ids)
        .bind(places)
        .bind(topic)
        .bind(partitions)
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        let heard = |(id, through, ago)| (OperationId::new(id), Heard { through, ago });
        Ok(rows.into_iter().map(heard).collect())
    }
}

impl Transaction {
    /// Whether all that was said of an operation's database by its deadline was heard.
    pub async fn heard(&mut self, operation: OperationId, ear: Ear<'_>) -> Result<Heard, Error> {
        let row: Option<(Uuid, bool, Option<f64>)> = sqlx::query_as(heard!())
            .bind(vec![operation.uuid()])
            .bind(vec![ear.partition])
            .bind(ear.topic)
            .bind(ear.partitions)
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        let (_, through, ago) = row.unwrap_or_default();
        Ok(Heard { through, ago })
    }

    /// Whether it is known how a locked database is in its cluster, as of no longer ago than this: it was seen at a position
    /// or a later one, its cluster is being watched and nothing of it waits to be said, and all that was said was heard. Nor
    /// was it told of last longer ago than four times this.
    pub async fn is_known(
        &mut self,
        (database, position): (DatabaseId, Position),
        ear: Ear<'_>,
        within: Duration,
    ) -> Result<bool, Error> {
        sqlx::query_scalar(
            "select exists (select 1 from observations s join databases d on d.id = s.database_id \
             join cluster_observers o on o.cluster_id = d.cluster_id \
             join heard h on h.topic = $5 and h.kafka_partition = $6 and h.partitions = $7 \
             where s.database_id = $1 and (s.epoch, s.seq) >= ($2, $3) and s.present \
             and s.term = o.term and o.listed_term = o.term \
             and o.confirmed_at > now() - make_interval(secs => $4) \
             and h.up_to > now() - make_interval(secs => $4) \
             and s.received_at > now() - 4 * make_interval(secs => $4))",
        )
        .bind(database.uuid())
        .bind(position.epoch)
        .bind(position.seq)
        .bind(within.as_secs_f64())
        .bind(ear.topic)
        .bind(ear.partition)
        .bind(ear.partitions)
        .fetch_one(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)
    }
}
