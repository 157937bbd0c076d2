//! Table `clusters`: the registry. A row of it that cannot be read hides no other.

use std::collections::BTreeMap;

use domain::{Cluster, ClusterId, ClusterState, TenantId};
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};

use crate::rows::read;
use crate::{Error, Store, Transaction};

/// A registered cluster and when it changed: readers rebuild their clients when `updated_at` moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRecord {
    /// The cluster.
    pub cluster: Cluster,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When its registration last changed.
    pub updated_at: Timestamp,
}

/// All clusters, as far as they can be read.
#[derive(Debug, Default)]
pub struct Registry {
    /// In order of their identity.
    pub clusters: Vec<ClusterRecord>,
    /// Those that cannot be read.
    pub unreadable: Vec<UnreadableCluster>,
}

/// A cluster whose registration cannot be read, because a newer program wrote it or because it is damaged.
#[derive(Debug)]
pub struct UnreadableCluster {
    /// Its identity.
    pub id: String,
    /// Its region.
    pub region: String,
    /// What cannot be read.
    pub error: Error,
}

/// What came of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Whether the cluster was not known before.
    pub is_new: bool,
    /// Where it is. Another region than was asked for: then nothing was changed.
    pub region: String,
    /// Where its tenants' databases are in it. Another template than was asked for: then nothing was changed.
    pub namespace_template: String,
    /// Whether it takes new databases now: what was asked for, or what stood there.
    pub state: String,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: String,
    region: String,
    account: String,
    zones: Json<BTreeMap<String, String>>,
    hosted_zone_id: String,
    dns_suffix: String,
    namespace_template: String,
    state: String,
    credentials: String,
    created_at: jiff_sqlx::Timestamp,
    updated_at: jiff_sqlx::Timestamp,
}

macro_rules! columns {
    () => {
        "c.id, c.region, c.account, c.zones, c.hosted_zone_id, c.dns_suffix, c.namespace_template, c.state, \
         c.credentials, c.created_at, c.updated_at"
    };
}

/// All clusters, by name.
pub const CLUSTERS: &str = concat!("select ", columns!(), " from clusters c order by c.id");

/// Locks cluster 1 against being closed, answers its state, and makes tenant 2 known where it is open.
pub const HOLD_OPEN: &str = "with place as materialized (select state from clusters where id = $1 for share), \
    known as (insert into tenants (id) select $2::text from place where state = 'active' \
    on conflict do nothing) select state from place";

impl Store {
    /// Registers a cluster or changes its registration, its state included, as [`Transaction::put_cluster`] does. Says whether
    /// it is new.
    pub async fn put_cluster(&self, cluster: &Cluster) -> Result<bool, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        Ok(put(&mut connection, cluster, Some(cluster.state)).await?.is_new)
    }

    /// All clusters, by name. One that cannot be read hides no other.
    pub async fn clusters(&self) -> Result<Registry, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        all(&mut connection).await
    }

    /// One cluster.
    pub async fn cluster(&self, id: &ClusterId) -> Result<Option<ClusterRecord>, Error> {
        let row: Option<PgRow> =
            sqlx::query(concat!("select ", columns!(), " from clusters c where c.id = $1"))
                .bind(id.as_str())
                .fetch_optional(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        row.as_ref().map(|row| read::<Row, ClusterRecord>(("clusters", "id"), row)).transpose()
    }
}

impl Transaction {
    /// All clusters, as [`Store::clusters`] reads them.
    pub async fn clusters(&mut self) -> Result<Registry, Error> {
        all(&mut self.inner).await
    }

    /// Whether a cluster takes new databases, until the end of the transaction: who wants to change that waits. The tenant
    /// of a database that can be placed there is known from then on.
    pub async fn hold_open(&mut self, id: &ClusterId, tenant: &TenantId) -> Result<bool, Error> {
        let state: Option<String> = sqlx::query_scalar(HOLD_OPEN)
            .bind(id.as_str())
            .bind(tenant.as_str())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(state.as_deref() == Some(ClusterState::Active.as_str()))
    }

    /// Registers a cluster or changes its registration, whether or not what stands there can be read. Its region is for ever, and
    /// so is its template of namespaces, by which each of its databases is found again: where one of them is another, nothing is
    /// changed. A repetition changes nothing either. `state` is the one that was asked for: without it a known cluster keeps the one
    /// that it has, whoever set it and when, and a new one begins with the cluster's own.
    pub async fn put_cluster(
        &mut self,
        cluster: &Cluster,
        state: Option<ClusterState>,
    ) -> Result<Registered, Error> {
        put(&mut self.inner, cluster, state).await
    }

    /// Changes whether a cluster takes new databases. Says what it was before; `None` where there is no such cluster. One that
    /// cannot be read is not changed: that is an error.
    pub async fn set_cluster_state(
        &mut self,
        id: &ClusterId,
        state: ClusterState,
    ) -> Result<Option<ClusterState>, Error> {
        let locked = concat!("select ", columns!(), " from clusters c where c.id = $1 for no key update");
        let row: Option<PgRow> = sqlx::query(locked)
            .bind(id.as_str())
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        let Some(row) = row else { return Ok(None) };
        let before: ClusterRecord = read::<Row, _>(("clusters", "id"), &row)?;
        sqlx::query("update clusters set state = $2, updated_at = now() where id = $1 and state <> $2")
            .bind(id.as_str())
            .bind(state.as_str())
            .execute(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(Some(before.cluster.state))
    }
}

async fn put(
    connection: &mut PgConnection,
    cluster: &Cluster,
    state: Option<ClusterState>,
) -> Result<Registered, Error> {
    let written: Option<(bool, String)> = sqlx::query_as(
        "insert into clusters as c (id, region, account, zones, hosted_zone_id, dns_suffix, namespace_template, \
         state, credentials) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         on conflict (id) do update set account = excluded.account, \
         zones = excluded.zones, hosted_zone_id = excluded.hosted_zone_id, dns_suffix = excluded.dns_suffix, \
         state = coalesce($10, c.state), credentials = excluded.credentials, updated_at = now() \
         where c.region = excluded.region and c.namespace_template = excluded.namespace_template and \
         (c.account, c.zones, c.hosted_zone_id, c.dns_suffix, c.state, c.credentials) \
         is distinct from (excluded.account, excluded.zones, excluded.hosted_zone_id, excluded.dns_suffix, \
         coalesce($10, c.state), excluded.credentials) \
         returning xmax = 0, c.state",
    )
    .bind(cluster.id.as_str())
    .bind(&cluster.region)
    .bind(&cluster.account)
    .bind(Json(&cluster.zones))
    .bind(&cluster.hosted_zone_id)
    .bind(&cluster.dns_suffix)
    .bind(&cluster.namespace_template)
    .bind(cluster.state.as_str())
    .bind(&cluster.credentials)
    .bind(state.map(ClusterState::as_str))
    .fetch_optional(&mut *connection)
    .await
    .map_err(Error::from_sqlx)?;
    if let Some((is_new, state)) = written {
        let (region, namespace_template) = (cluster.region.clone(), cluster.namespace_template.clone());
        return Ok(Registered { is_new, region, namespace_template, state });
    }
    let (region, namespace_template, state): (String, String, String) =
        sqlx::query_as("select region, namespace_template, state from clusters where id = $1")
            .bind(cluster.id.as_str())
            .fetch_one(connection)
            .await
            .map_err(Error::from_sqlx)?;
    Ok(Registered { is_new: false, region, namespace_template, state })
}

async fn all(connection: &mut PgConnection) -> Result<Registry, Error> {
    let rows: Vec<PgRow> = sqlx::query(CLUSTERS).fetch_all(connection).await.map_err(Error::from_sqlx)?;
    let mut registry = Registry::default();
    for row in &rows {
        match read::<Row, ClusterRecord>(("clusters", "id"), row) {
            Ok(one) => registry.clusters.push(one),
            Err(error) => {
                let text = |column: &str| row.try_get::<String, _>(column).map_err(Error::from_sqlx);
                let (id, region) = (text("id")?, text("region")?);
                registry.unreadable.push(UnreadableCluster { id, region, error });
            }
        }
    }
    Ok(registry)
}

impl TryFrom<Row> for ClusterRecord {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let corrupt = |what: String| Error::corrupt("clusters", format!("{}: {what}", row.id));
        let cluster = Cluster {
            id: row.id.parse().map_err(|error: domain::id::Error| corrupt(error.to_string()))?,
            state: ClusterState::parse(&row.state).ok_or_else(|| corrupt(format!("state {}", row.state)))?,
            region: row.region,
            account: row.account,
            zones: row.zones.0,
            hosted_zone_id: row.hosted_zone_id,
            dns_suffix: row.dns_suffix,
            namespace_template: row.namespace_template,
            credentials: row.credentials,
        };
        Ok(Self { cluster, created_at: row.created_at.to_jiff(), updated_at: row.updated_at.to_jiff() })
    }
}
