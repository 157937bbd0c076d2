//! Table `audit`: who did what, kept for people.

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
