//! Table `databases`: the desired state of each, and how far it is published. Everybody who changes a database locks its
//! row here first.

use std::collections::BTreeMap;

use domain::{ClusterId, DatabaseId, Desired, OperationId, Position, TenantId};
use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::document::DesiredDocument;
use crate::observations::{ObservationColumns, ObservationView};
use crate::rows::{Listed, listed, read};
use crate::{Divergence, Error, Store, Transaction};

const TABLE: &str = "databases";

/// A database as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Identity.
    pub id: DatabaseId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it lives.
    pub cluster: ClusterId,
    /// What should be.
    pub desired: Desired,
    /// Content hash of the desired state.
    pub content_hash: String,
    /// Where the desired state stands.
    pub position: Position,
    /// Whether a volume was ever seen.
    pub provisioned: bool,
    /// The newest position that Kafka took.
    pub published: Option<Position>,
    /// When the desired state was minted.
    pub minted_at: Timestamp,
    /// When the database was asked for.
    pub created_at: Timestamp,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
}

/// A database with what is seen of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseView {
    /// As it should be.
    pub database: Database,
    /// Region of its cluster.
    pub region: String,
    /// As it is believed to be.
    pub observed: Option<ObservationView>,
    /// Its newest operation.
    pub operation: Option<OperationId>,
    /// How its cluster differs from what should be, and since when that is known.
    pub diverged: Option<(Divergence, Timestamp)>,
    /// Since when nothing of it is left.
    pub purged_at: Option<Timestamp>,
    /// When Kafka took the desired state; absent while that waits.
    pub published_at: Option<Timestamp>,
    /// When the desired state was last asked to be published again.
    pub resent_at: Option<Timestamp>,
}

/// Which part of a list: newest first, beginning after `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The last identity of the page before.
    pub after: Option<Uuid>,
    /// Most rows.
    pub limit: u32,
}

#[derive(sqlx::FromRow)]
pub(crate) struct Row {
    id: Uuid,
    tenant_id: String,
    cluster_id: String,
    desired: Json<DesiredDocument>,
    desired_schema: i32,
    content_hash: String,
    epoch: i64,
    seq: i64,
    provisioned: bool,
    published_epoch: i64,
    published_seq: i64,
    minted_at: jiff_sqlx::Timestamp,
    created_at: jiff_sqlx::Timestamp,
    deleted_at: Option<jiff_sqlx::Timestamp>,
}

#[derive(sqlx::FromRow)]
struct ViewRow {
    #[sqlx(flatten)]
    database: Row,
    region: String,
    newest_operation: Option<Uuid>,
    diverged_kind: Option<String>,
    diverged_since: Option<jiff_sqlx::Timestamp>,
    purged_at: Option<jiff_sqlx::Timestamp>,
    published_at: Option<jiff_sqlx::Timestamp>,
    resent_at: Option<jiff_sqlx::Timestamp>,
    #[sqlx(flatten)]
    observed: ObservationColumns,
}

macro_rules! columns {
    () => {
        "d.id, d.tenant_id, d.cluster_id, d.desired, d.desired_schema, d.content_hash, d.epoch, d.seq, \
         d.provisioned, d.published_epoch, d.published_seq, d.minted_at, d.created_at, d.deleted_at"
    };
}

macro_rules! view {
    () => {
        concat!(
            "select ",
            columns!(),
            ", d.id as database_id, d.name as database_name, c.region, (select o.id from operations o where o.database_id = d.id order by o.epoch desc, o.seq desc \
             limit 1) as newest_operation, d.diverged_kind, d.diverged_since, d.purged_at, \
             case when not d.unpublished then d.published_at end as published_at, d.resent_at, s.phase, s.epoch as observed_epoch, s.seq as observed_seq, \
             s.carried_epoch, s.carried_seq, s.body, s.body_schema, s.said_at \
             from databases d join clusters c on c.id = d.cluster_id \
             left join observations s on s.database_id = d.id "
        )
    };
}

/// Database 1 with what is seen of it.
pub const READ: &str = concat!(view!(), "where d.id = $1");

impl Store {
    /// One database; for a tenant only its own.
    pub async fn database(
        &self,
        scope: Option<&TenantId>,
        id: DatabaseId,
    ) -> Result<Option<DatabaseView>, Error> {
        let row: Option<PgRow> =
            sqlx::query(concat!(view!(), "where d.id = $1 and ($2::text is null or d.tenant_id = $2)"))
                .bind(id.uuid())
                .bind(scope.map(TenantId::as_str))
                .fetch_optional(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_view).transpose()
    }

    /// Databases, newest first; for a tenant only its own. Deleted ones only if asked for. One that cannot be read hides no
    /// other.
    pub async fn databases(
        &self,
        scope: Option<&TenantId>,
        name: Option<&str>,
        with_deleted: bool,
        page: Page,
    ) -> Result<Vec<Listed<DatabaseView>>, Error> {
        let rows: Vec<PgRow> = sqlx::query(concat!(
            view!(),
            "where ($1::text is null or d.tenant_id = $1) and ($2::text is null or d.name = $2) \
             and ($3 or d.deleted_at is null) and ($4::uuid is null or d.id < $4) order by d.id desc limit $5"
        ))
        .bind(scope.map(TenantId::as_str))
        .bind(name)
        .bind(with_deleted)
        .bind(page.after)
        .bind(i64::from(page.limit))
        .fetch_all(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        rows.iter().map(|row| listed::<ViewRow, DatabaseView>(TABLE, row)).collect()
    }

    /// Living databases of each cluster that has any, by its name. Costs as much as there are databases, even from the index
    /// alone (`databases_cluster_idx`).
    pub async fn database_counts(&self) -> Result<BTreeMap<String, u64>, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        counts(&mut connection).await
    }
}

impl Transaction {
    /// Living databases of each cluster, as [`Store::database_counts`] counts them.
    pub async fn database_counts(&mut self) -> Result<BTreeMap<String, u64>, Error> {
        counts(&mut self.inner).await
    }

    /// Locks a database until the end of the transaction; for a tenant only its own.
    pub async fn lock_database(
        &mut self,
        scope: Option<&TenantId>,
        id: DatabaseId,
    ) -> Result<Option<Database>, Error> {
        let row: Option<PgRow> = sqlx::query(concat!(
            "select ",
            columns!(),
            " from databases d where d.id = $1 and ($2::text is null or d.tenant_id = $2) for no key update"
        ))
        .bind(id.uuid())
        .bind(scope.map(TenantId::as_str))
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_database).transpose()
    }

    /// Locks a database unless somebody else has it locked just now.
    pub async fn try_lock_database(&mut self, id: DatabaseId) -> Result<Option<Database>, Error> {
        let row: Option<PgRow> = sqlx::query(concat!(
            "select ",
            columns!(),
            " from databases d where d.id = $1 for no key update skip locked"
        ))
        .bind(id.uuid())
        .fetch_optional(&mut *self.inner)
        .await
        .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_database).transpose()
    }

    /// Reads a database with what is seen of it, as this transaction has it.
    pub async fn database(&mut self, id: DatabaseId) -> Result<Option<DatabaseView>, Error> {
        let row: Option<PgRow> = sqlx::query(READ)
            .bind(id.uuid())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        row.as_ref().map(read_view).transpose()
    }
}

async fn counts(connection: &mut PgConnection) -> Result<BTreeMap<String, u64>, Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "select cluster_id, count(*) from databases where deleted_at is null group by cluster_id",
    )
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(rows.into_iter().map(|(id, count)| (id, u64::try_from(count).unwrap_or_default())).collect())
}

fn read_database(row: &PgRow) -> Result<Database, Error> {
    read::<Row, Database>((TABLE, "id"), row)
}

fn read_view(row: &PgRow) -> Result<DatabaseView, Error> {
    read::<ViewRow, DatabaseView>((TABLE, "id"), row)
}

impl TryFrom<Row> for Database {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt(TABLE, format!("{}: {what}", row.id));
        let label = |error: domain::id::Error| corrupt(error.to_string());
        let published = Position { epoch: row.published_epoch, seq: row.published_seq };
        Ok(Self {
            id: DatabaseId::new(row.id),
            tenant: row.tenant_id.parse().map_err(label)?,
            cluster: row.cluster_id.parse().map_err(label)?,
            desired: row.desired.0.read(row.desired_schema).map_err(corrupt)?,
            content_hash: row.content_hash,
            position: Position { epoch: row.epoch, seq: row.seq },
            provisioned: row.provisioned,
            published: published.is_valid().then_some(published),
            minted_at: row.minted_at.to_jiff(),
            created_at: row.created_at.to_jiff(),
            deleted_at: row.deleted_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    }
}

impl TryFrom<ViewRow> for DatabaseView {
    type Error = Error;

    fn try_from(row: ViewRow) -> Result<Self, Error> {
        let kind = row.diverged_kind.as_deref().and_then(Divergence::parse);
        Ok(Self {
            diverged: kind.zip(row.diverged_since.map(jiff_sqlx::Timestamp::to_jiff)),
            purged_at: row.purged_at.map(jiff_sqlx::Timestamp::to_jiff),
            published_at: row.published_at.map(jiff_sqlx::Timestamp::to_jiff),
            resent_at: row.resent_at.map(jiff_sqlx::Timestamp::to_jiff),
            database: row.database.try_into()?,
            region: row.region,
            observed: row.observed.view(),
            operation: row.newest_operation.map(OperationId::new),
        })
    }
}
