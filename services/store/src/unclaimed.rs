//! Table `unclaimed`: what clusters say of databases that are not theirs, that nobody knows, or that are ahead of what was
//! minted. Alarms, never orders.

use serde_json::Value;
use sqlx::PgConnection;

use crate::{Error, Observation, Store};

/// Why something that was said is not believed as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnclaimedCode {
    /// No database of this identity.
    UnknownDatabase,
    /// The database lives in another cluster.
    OtherCluster,
    /// The cluster holds a position that was never minted: rows were lost.
    Ahead,
    /// The cluster holds other content at the same position.
    Content,
}

impl UnclaimedCode {
    /// The word in the table and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownDatabase => "unknown_database",
            Self::OtherCluster => "other_cluster",
            Self::Ahead => "ahead",
            Self::Content => "content",
        }
    }
}

impl Store {
    /// How many databases are unclaimed, by reason.
    pub async fn unclaimed_count(&self) -> Result<Vec<(String, i64)>, Error> {
        sqlx::query_as("select code, count(*) from unclaimed group by code order by code")
            .fetch_all(&self.pool)
            .await
            .map_err(Error::from_sqlx)
    }
}

pub(crate) async fn record(
    connection: &mut PgConnection,
    said: &Observation,
    code: UnclaimedCode,
) -> Result<(), Error> {
    let body: &Value = &said.body;
    sqlx::query(
        "insert into unclaimed as t (database_id, cluster_id, code, epoch, seq, body) values ($1, $2, $3, $4, $5, $6) \
         on conflict (database_id, cluster_id) do update set code = excluded.code, epoch = excluded.epoch, \
         seq = excluded.seq, body = excluded.body, seen = t.seen + 1, last_seen = now()",
    )
    .bind(said.database.uuid())
    .bind(said.cluster.as_str())
    .bind(code.as_str())
    .bind(said.position.epoch)
    .bind(said.position.seq)
    .bind(body)
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(())
}
