//! Dead letters as people deal with them, in table `dead_letters`: one is looked at with all that came with it, and
//! settled once, by name and with a reason. What is done about its database is decided elsewhere.
//!
//! *Invariant:* the database's row is locked before the letter's, as everybody else locks.

use domain::{DatabaseId, Position};
use jiff::Timestamp;
use sqlx::types::Json;
use uuid::Uuid;

use crate::aside::{About, AboutColumns, about_columns};
use crate::document::word;
use crate::{Error, Store, Transaction};

/// A record among the dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterView {
    /// Identity.
    pub id: i64,
    /// Topic, partition and offset it came from.
    pub origin: (String, i32, i64),
    /// The database, where its key says so.
    pub database: Option<DatabaseId>,
    /// What is known of that database.
    pub about: Option<About>,
    /// The cluster, where a header says so.
    pub cluster: Option<String>,
    /// The position of its instruction, where its headers say so.
    pub position: Option<Position>,
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
    /// What became of it, where it is settled.
    pub settled: Option<Settled>,
}

/// What came with a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterContent {
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its bytes.
    pub payload: Option<Vec<u8>>,
    /// Its headers as text, in their order.
    pub headers: Vec<(String, String)>,
}

/// What became of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// How.
    pub how: Settlement,
    /// Since when.
    pub at: Timestamp,
    /// Who did it; nobody where a later record took its place.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// How a dead letter can be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// A later state of its database takes its place.
    Superseded,
    /// The state of its database is published again.
    Redriven,
    /// It is given up.
    Discarded,
}

impl Settlement {
    /// The word in the table and over HTTP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Redriven => "redriven",
            Self::Discarded => "discarded",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Superseded, Self::Redriven, Self::Discarded].into_iter().find(|how| how.as_str() == text)
    }
}

#[derive(sqlx::FromRow)]
pub(crate) struct LetterRow {
    id: i64,
    topic: String,
    kafka_partition: i32,
    kafka_offset: i64,
    database_id: Option<Uuid>,
    cluster_id: Option<String>,
    epoch: Option<i64>,
    seq: Option<i64>,
    code: String,
    message: String,
    size: i64,
    consumer: String,
    received_at: jiff_sqlx::Timestamp,
    superseded_at: Option<jiff_sqlx::Timestamp>,
    settled_as: Option<String>,
    settled_by: Option<String>,
    settled_reason: Option<String>,
    #[sqlx(flatten)]
    about: AboutColumns,
}

/// What `LetterRow` reads, of `dead_letters l`.
macro_rules! letter {
    () => {
        concat!(
            "select l.id, l.topic, l.kafka_partition, l.kafka_offset, l.database_id, l.cluster_id, l.epoch, l.seq, \
             l.code, l.message, coalesce(length(l.payload), 0)::bigint as size, l.consumer, l.received_at, \
             l.superseded_at, l.settled_as, l.settled_by, l.settled_reason, ",
            about_columns!(),
            " from dead_letters l left join databases d on d.id = l.database_id "
        )
    };
}
pub(crate) use letter;

impl Store {
    /// One dead letter.
    pub async fn letter(&self, id: i64) -> Result<Option<DeadLetterView>, Error> {
        let row: Option<LetterRow> = sqlx::query_as(concat!(letter!(), "where l.id = $1"))
            .bind(id)
            .fetch_optional(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        row.map(DeadLetterView::try_from).transpose()
    }

    /// What came with a dead letter.
    pub async fn letter_content(&self, id: i64) -> Result<Option<LetterContent>, Error> {
        type Content = (Option<Vec<u8>>, Option<Vec<u8>>, Json<Vec<(String, String)>>);
        let row: Option<Content> =
            sqlx::query_as("select key, payload, headers from dead_letters where id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        Ok(row.map(|(key, payload, Json(headers))| LetterContent { key, payload, headers }))
    }
}

impl Transaction {
    /// Locks a dead letter until the end of the transaction.
    pub async fn lock_letter(&mut self, id: i64) -> Result<Option<DeadLetterView>, Error> {
        let row: Option<LetterRow> =
            sqlx::query_as(concat!(letter!(), "where l.id = $1 for no key update of l"))
                .bind(id)
                .fetch_optional(&mut *self.inner)
                .await
                .map_err(Error::from_sqlx)?;
        row.map(DeadLetterView::try_from).transpose()
    }

    /// Settles a dead letter that is open. Says whether it was.
    pub async fn settle_letter(
        &mut self,
        id: i64,
        how: Settlement,
        (by, reason): (&str, &str),
    ) -> Result<bool, Error> {
        let done = sqlx::query(
            "update dead_letters set superseded_at = now(), settled_as = $2, settled_by = $3, settled_reason = $4 \
             where id = $1 and superseded_at is null",
        )
        .bind(id)
        .bind(how.as_str())
        .bind(by)
        .bind(reason)
        .execute(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }
}

impl TryFrom<LetterRow> for DeadLetterView {
    type Error = Error;

    fn try_from(row: LetterRow) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("dead_letters", format!("{}: {what}", row.id));
        let how = row.settled_as.as_deref().map(|text| word("settled_as", text, Settlement::parse));
        // Programs that find a later record in its place say no more than when.
        let how = how.transpose().map_err(corrupt)?.unwrap_or(Settlement::Superseded);
        let settled = row.superseded_at.map(|at| Settled {
            how,
            at: at.to_jiff(),
            by: row.settled_by,
            reason: row.settled_reason,
        });
        Ok(Self {
            id: row.id,
            origin: (row.topic, row.kafka_partition, row.kafka_offset),
            database: row.database_id.map(DatabaseId::new),
            about: row.about.about(),
            cluster: row.cluster_id,
            position: row.epoch.zip(row.seq).map(|(epoch, seq)| Position { epoch, seq }),
            code: row.code,
            message: row.message,
            size: row.size,
            consumer: row.consumer,
            received_at: row.received_at.to_jiff(),
            settled,
        })
    }
}
