//! Table `tokens`: who may ask. The secrets themselves are never here, only their SHA-256.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::TenantId;
use uuid::Uuid;

use crate::{Error, Store};

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Everything about the databases of its one tenant.
    Tenant,
    /// The same for whichever tenant a request names.
    Console,
    /// Sees all tenants and runs the fleet.
    Sre,
}

impl Role {
    /// The word in every contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Console => "console",
            Self::Sre => "sre",
        }
    }

    /// The role of a word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Tenant, Self::Console, Self::Sre].into_iter().find(|role| role.as_str() == text)
    }
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Identity.
    pub id: Uuid,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// What it may do.
    pub role: Role,
    /// Its tenant; given exactly for [`Role::Tenant`].
    pub tenant: Option<TenantId>,
    /// Name for people.
    pub name: String,
    /// How long it lasts, by the database's clock: by that it is judged.
    pub lasts: Option<Duration>,
}

/// Whoever holds a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Identity of the token.
    pub token: Uuid,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Its tenant.
    pub tenant: Option<TenantId>,
}

/// Neither revoked nor expired, by the database's clock.
macro_rules! valid {
    () => {
        "revoked_at is null and (expires_at is null or expires_at > now())"
    };
}

impl Store {
    /// Makes a token, and its tenant where it is new.
    pub async fn create_token(&self, token: &NewToken) -> Result<(), Error> {
        if let Some(tenant) = &token.tenant {
            self.ensure_tenant(tenant).await?;
        }
        sqlx::query(
            "insert into tokens (id, hash, role, tenant_id, name, expires_at) \
             values ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))",
        )
        .bind(token.id)
        .bind(token.hash.as_slice())
        .bind(token.role.as_str())
        .bind(token.tenant.as_ref().map(TenantId::as_str))
        .bind(&token.name)
        .bind(token.lasts.map(|lasts| lasts.as_secs_f64()))
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        Ok(())
    }

    /// Whose token has this hash; `None` for an unknown, expired or revoked one.
    pub async fn authenticate(&self, hash: &[u8; 32]) -> Result<Option<Principal>, Error> {
        let row: Option<(Uuid, String, String, Option<String>)> = sqlx::query_as(concat!(
            "select id, name, role, tenant_id from tokens where hash = $1 and ",
            valid!()
        ))
        .bind(hash.as_slice())
        .fetch_optional(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        row.map(|(token, name, role, tenant)| {
            let corrupt = |what: String| Error::corrupt("tokens", format!("{token}: {what}"));
            let role = Role::parse(&role).ok_or_else(|| corrupt(format!("role {role}")))?;
            let tenant = tenant.map(|id| id.parse()).transpose();
            let tenant = tenant.map_err(|error: domain::id::Error| corrupt(error.to_string()))?;
            Ok(Principal { token, name, role, tenant })
        })
        .transpose()
    }

    /// Which of these tokens are neither revoked nor expired.
    pub async fn valid_tokens(&self, of: &BTreeSet<Uuid>) -> Result<BTreeSet<Uuid>, Error> {
        let of: Vec<Uuid> = of.iter().copied().collect();
        let valid: Vec<Uuid> =
            sqlx::query_scalar(concat!("select id from tokens where id = any($1) and ", valid!()))
                .bind(of)
                .fetch_all(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        Ok(valid.into_iter().collect())
    }

    /// Ends a token now. Says whether there was one.
    pub async fn revoke_token(&self, token: Uuid) -> Result<bool, Error> {
        let done = sqlx::query("update tokens set revoked_at = now() where id = $1 and revoked_at is null")
            .bind(token)
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected() == 1)
    }
}
