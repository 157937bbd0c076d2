//! Table `audit`: who did what, kept for people, for a while.

use std::time::Duration;

use domain::{OperationId, TenantId};
use serde_json::Value;
use sqlx::PgConnection;

use crate::{Error, Store, Transaction};

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// For whom, where for one tenant.
    pub tenant: Option<TenantId>,
    /// Name of the token.
    pub principal: String,
    /// Role of the token.
    pub role: String,
    /// What was done, such as `databases.create`.
    pub action: String,
    /// To what, such as the database's id.
    pub subject: String,
    /// The operation that followed.
    pub operation: Option<OperationId>,
    /// The request, as the logs know it.
    pub request_id: Option<String>,
    /// What else is worth keeping.
    pub detail: Value,
}

/// Writes an entry: 1 and 2 for whom and by whom, 3 the role, 4 and 5 what was done to what, 6 the operation, 7 the request,
/// 8 what else.
pub const INSERT: &str = "insert into audit (tenant_id, principal, role, action, subject, operation_id, request_id, detail) \
     values ($1, $2, $3, $4, $5, $6, $7, $8)";

impl Transaction {
    /// Writes an entry with the change that it tells of.
    pub async fn audit(&mut self, entry: &Audit) -> Result<(), Error> {
        insert(&mut self.inner, entry).await
    }
}

impl Store {
    /// Writes an entry about something that has no transaction of its own.
    pub async fn audit(&self, entry: &Audit) -> Result<(), Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        insert(&mut connection, entry).await
    }

    /// Takes away entries that are older than this, but for those of some actions: of the next ones after an entry, as many as one
    /// statement may look at. Says how many went, and where older ones may go on; `None` where no more are that old.
    // By identity, which rises as time does: the first that is young is the end, and no index on the time is needed.
    pub async fn prune_audit(
        &self,
        after: Option<i64>,
        older_than: Duration,
        but: &[&str],
        limit: u32,
    ) -> Result<(u64, Option<i64>), Error> {
        let (gone, next): (i64, Option<i64>) = sqlx::query_as(
            "with page as materialized (select id, action, at < now() - make_interval(secs => $3) as due from audit \
             where id > $1 order by id limit $2), \
             gone as (delete from audit a using page p where a.id = p.id and p.due and p.action <> all($4) returning 1) \
             select (select count(*) from gone), case when count(*) = $2 and bool_and(due) then max(id) end from page",
        )
        .bind(after.unwrap_or_default())
        .bind(i64::from(limit))
        .bind(older_than.as_secs_f64())
        .bind(but)
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok((gone.unsigned_abs(), next))
    }
}

async fn insert(connection: &mut PgConnection, entry: &Audit) -> Result<(), Error> {
    sqlx::query(INSERT)
        .bind(entry.tenant.as_ref().map(TenantId::as_str))
        .bind(&entry.principal)
        .bind(&entry.role)
        .bind(&entry.action)
        .bind(&entry.subject)
        .bind(entry.operation.map(OperationId::uuid))
        .bind(&entry.request_id)
        .bind(&entry.detail)
        .execute(connection)
        .await
        .map_err(Error::from_sqlx)?;
    Ok(())
}
