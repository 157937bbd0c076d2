//! Table `tenants`.

use domain::TenantId;

use crate::{Error, Store};

impl Store {
    /// Makes a tenant known; a repetition changes nothing.
    pub async fn ensure_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        sqlx::query("insert into tenants (id) values ($1) on conflict do nothing")
            .bind(tenant.as_str())
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(())
    }
}
