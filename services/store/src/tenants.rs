//! Table `tenants`.

use domain::TenantId;

use crate::{Error, Store, Transaction};

const INSERT: &str = "insert into tenants (id) values ($1) on conflict do nothing";

impl Store {
    /// Makes a tenant known; a repetition changes nothing.
    pub async fn ensure_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        sqlx::query(INSERT).bind(tenant.as_str()).execute(&self.pool).await.map_err(Error::from_sqlx)?;
        Ok(())
    }
}

impl Transaction {
    /// Makes a tenant known; a repetition changes nothing.
    pub async fn ensure_tenant(&mut self, tenant: &TenantId) -> Result<(), Error> {
        sqlx::query(INSERT)
            .bind(tenant.as_str())
            .execute(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(())
    }
}
