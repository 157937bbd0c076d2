//! Table `dead_letters`: records that cannot be understood, with their bytes and the reason.

use domain::{ClusterId, DatabaseId};
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::{Error, Store};

/// A record that cannot be understood.
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
    /// Stable reason.
    pub code: String,
    /// Reason for people.
    pub message: String,
    /// Who set it aside.
    pub consumer: String,
}

impl Store {
    /// Keeps a record that cannot be understood. A record that comes again is kept once; says whether it is new.
    pub async fn dead_letter(&self, letter: &DeadLetter) -> Result<bool, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        insert(&mut connection, letter).await
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
         database_id, code, message, consumer) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
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
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(done.rows_affected() == 1)
}
