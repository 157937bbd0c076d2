//! Table `unclaimed`: what clusters say of databases that are not theirs, that nobody knows, or that are ahead of what was
//! minted. Alarms, never orders: nothing is deleted for standing here. A row that is no longer so stays, resolved.

use domain::{ClusterId, DatabaseId, Position};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::aside::{About, AboutColumns, AsideFilter, about_columns};
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

/// Something that was said and is not believed as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Unclaimed {
    /// The database, as the cluster calls it.
    pub database: DatabaseId,
    /// What is known of that database.
    pub about: Option<About>,
    /// Who said it.
    pub cluster: String,
    /// Why it is not believed.
    pub code: String,
    /// Position that the custom resource holds.
    pub position: Position,
    /// All that was said.
    pub body: Value,
    /// How often it was said.
    pub seen: i64,
    /// First.
    pub first_seen: Timestamp,
    /// Last.
    pub last_seen: Timestamp,
    /// Since when it is no longer so.
    pub resolved_at: Option<Timestamp>,
}

#[derive(sqlx::FromRow)]
struct Row {
    database_id: Uuid,
    cluster_id: String,
    code: String,
    epoch: i64,
    seq: i64,
    body: Value,
    seen: i64,
    first_seen: jiff_sqlx::Timestamp,
    last_seen: jiff_sqlx::Timestamp,
    resolved_at: Option<jiff_sqlx::Timestamp>,
    #[sqlx(flatten)]
    about: AboutColumns,
}

/// What follows `unclaimed u join`: rows that are open and no longer so.
macro_rules! no_longer {
    () => {
        "databases d on d.id = u.database_id and d.cluster_id = u.cluster_id \
         left join observations s on s.database_id = d.id where u.resolved_at is null \
         and not coalesce((s.epoch, s.seq) > (d.epoch, d.seq), false) \
         and not coalesce(s.present and (s.epoch, s.seq) = (d.epoch, d.seq) and s.content_hash <> '' \
         and s.content_hash <> d.content_hash, false)"
    };
}

impl Store {
    /// How many databases are unclaimed, by reason.
    pub async fn unclaimed_count(&self) -> Result<Vec<(String, i64)>, Error> {
        sqlx::query_as(
            "select code, count(*) from unclaimed where resolved_at is null group by code order by code",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)
    }

    /// What is unclaimed, by identity, the latest database first and its clusters by name, behind the row of `after`; what
    /// is resolved only if asked for. Several clusters may speak of one database: both name a row.
    pub async fn unclaimed(
        &self,
        filter: &AsideFilter,
        with_resolved: bool,
        after: Option<(Uuid, &str)>,
        limit: u32,
    ) -> Result<Vec<Unclaimed>, Error> {
        let rows: Vec<Row> = sqlx::query_as(concat!(
            "select u.database_id, u.cluster_id, u.code, u.epoch, u.seq, u.body, u.seen, u.first_seen, u.last_seen, \
             u.resolved_at, ",
            about_columns!(),
            " from unclaimed u left join databases d on d.id = u.database_id \
             where ($1 or u.resolved_at is null) \
             and ($2::uuid is null or u.database_id < $2 or (u.database_id = $2 and u.cluster_id > $3)) \
             and ($5::uuid is null or u.database_id = $5) and ($6::text is null or u.cluster_id = $6) \
             and ($7::text is null or u.code = $7) order by u.database_id desc, u.cluster_id limit $4"
        ))
        .bind(with_resolved)
        .bind(after.map(|(database, _)| database))
        .bind(after.map(|(_, cluster)| cluster))
        .bind(i64::from(limit))
        .bind(filter.database.map(DatabaseId::uuid))
        .bind(&filter.cluster)
        .bind(&filter.code)
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(rows.into_iter().map(Unclaimed::from).collect())
    }

    /// Resolves what these clusters told under earlier terms than these, in which everything there is was told: it went while
    /// nobody looked. What stands ahead of what was minted is resolved by what is minted next, and what is being told right
    /// now is left alone: nobody is waited for here, either.
    pub async fn resolve_gone(&self, told: &[(&ClusterId, i64)]) -> Result<u64, Error> {
        let (clusters, terms): (Vec<&str>, Vec<i64>) =
            told.iter().map(|(cluster, term)| (cluster.as_str(), *term)).unzip();
        let done = sqlx::query(
            "with gone as (select u.database_id, u.cluster_id from unclaimed u \
             join unnest($1::text[], $2::bigint[]) as s (cluster_id, term) \
             on s.cluster_id = u.cluster_id and u.term < s.term \
             where u.resolved_at is null and u.code <> $3 for update of u skip locked) \
             update unclaimed u set resolved_at = now() from gone \
             where u.database_id = gone.database_id and u.cluster_id = gone.cluster_id",
        )
        .bind(clusters)
        .bind(terms)
        .bind(UnclaimedCode::Ahead.as_str())
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }

    /// Resolves what is no longer so: the cluster is the database's own, and what is believed of it is neither ahead of
    /// what was minted nor other content at the same position. What is being told right now is left alone.
    // In two statements: what is told is written together with what is believed, and only what is asked once the rows are
    // locked sees both. Nobody is waited for: whoever has a row may wait for another one that is locked here.
    pub async fn resolve_unclaimed(&self) -> Result<u64, Error> {
        let mut transaction = self.pool.begin().await.map_err(Error::from_sqlx)?;
        let rows: Vec<(Uuid, String)> = sqlx::query_as(concat!(
            "select u.database_id, u.cluster_id from unclaimed u join ",
            no_longer!(),
            " for update of u skip locked"
        ))
        .fetch_all(&mut *transaction)
        .await
        .map_err(Error::from_sqlx)?;
        if rows.is_empty() {
            return Ok(0);
        }
        let (databases, clusters): (Vec<Uuid>, Vec<String>) = rows.into_iter().unzip();
        let done = sqlx::query(concat!(
            "with locked as (select u.database_id, u.cluster_id from unclaimed u \
             join unnest($1::uuid[], $2::text[]) as l (database_id, cluster_id) \
             on l.database_id = u.database_id and l.cluster_id = u.cluster_id join ",
            no_longer!(),
            ") update unclaimed u set resolved_at = now() from locked \
             where u.database_id = locked.database_id and u.cluster_id = locked.cluster_id"
        ))
        .bind(databases)
        .bind(clusters)
        .execute(&mut *transaction)
        .await
        .map_err(Error::from_sqlx)?;
        transaction.commit().await.map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }
}

/// Notes what is not believed as it stands. What is gone from its cluster is nobody's concern any more.
pub(crate) async fn record(
    connection: &mut PgConnection,
    said: &Observation,
    code: UnclaimedCode,
) -> Result<(), Error> {
    let body = &said.body;
    sqlx::query(
        "insert into unclaimed as t (database_id, cluster_id, code, epoch, seq, body, term, resolved_at) \
         values ($1, $2, $3, $4, $5, $6, $8, case when not $7 then now() end) \
         on conflict (database_id, cluster_id) do update set code = excluded.code, epoch = excluded.epoch, \
         seq = excluded.seq, body = excluded.body, seen = t.seen + 1, last_seen = now(), \
         term = greatest(t.term, excluded.term), resolved_at = excluded.resolved_at",
    )
    .bind(said.database.uuid())
    .bind(said.cluster.as_str())
    .bind(code.as_str())
    .bind(said.position.epoch)
    .bind(said.position.seq)
    .bind(body)
    .bind(said.present || code == UnclaimedCode::Ahead)
    .bind(said.term)
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(())
}

impl From<Row> for Unclaimed {
    fn from(row: Row) -> Self {
        Self {
            database: DatabaseId::new(row.database_id),
            about: row.about.about(),
            cluster: row.cluster_id,
            code: row.code,
            position: Position { epoch: row.epoch, seq: row.seq },
            body: row.body,
            seen: row.seen,
            first_seen: row.first_seen.to_jiff(),
            last_seen: row.last_seen.to_jiff(),
            resolved_at: row.resolved_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}
