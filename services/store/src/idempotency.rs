//! Table `idempotency_keys`: the answer to a request that may be sent again, stored with its effect.

use domain::TenantId;
use serde_json::Value;

use crate::{Error, Transaction};

/// Answers that are forgotten in one statement.
const AT_ONCE: i64 = 10_000;

/// A request's key in its scope: the same key of another tenant, principal or route is another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// For whom.
    pub tenant: TenantId,
    /// Who asks.
    pub principal: String,
    /// Method and path template.
    pub route: String,
    /// As the client gave it.
    pub key: String,
    /// SHA-256 of the request's body.
    pub body_hash: [u8; 32],
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header `Location`.
    pub location: Option<String>,
    /// Header `ETag`.
    pub etag: Option<String>,
    /// Body.
    pub body: Value,
}

/// What a key stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Never seen: go on, and store the answer before the commit.
    Fresh,
    /// Answered before: answer the same.
    Answered(Answer),
    /// Used before, with another body.
    OtherBody,
    /// A request with this key is under way.
    InFlight,
}

#[derive(sqlx::FromRow)]
struct Row {
    body_hash: Vec<u8>,
    status: i32,
    location: Option<String>,
    etag: Option<String>,
    body: Value,
}

/// Locks a key by its scope: 1 tenant, 2 principal, 3 route, 4 key. Says whether nobody else has it locked.
pub const CLAIM: &str = "select pg_try_advisory_xact_lock(\
    hashtextextended(jsonb_build_array($1::text, $2::text, $3::text, $4::text)::text, 0))";

/// What was answered under a key; its parameters are those of [`CLAIM`].
pub const CLAIMED: &str = "select body_hash, status, location, etag, body from idempotency_keys \
    where tenant_id = $1 and principal = $2 and route = $3 and key = $4";

/// Stores an answer under a key: 1 to 4 as those of [`CLAIM`], 5 hash of the request's body, 6 to 9 the answer.
pub const STORE: &str = "insert into idempotency_keys (tenant_id, principal, route, key, body_hash, status, location, etag, body) \
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

impl Transaction {
    /// Claims a key until the end of the transaction.
    pub async fn claim(&mut self, key: &Key) -> Result<Claim, Error> {
        // The lock is on a hash of the scope: a collision only makes an unlucky request wait for its retry.
        let alone: bool = sqlx::query_scalar(CLAIM)
            .bind(key.tenant.as_str())
            .bind(&key.principal)
            .bind(&key.route)
            .bind(&key.key)
            .fetch_one(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        if !alone {
            return Ok(Claim::InFlight);
        }
        let row: Option<Row> = sqlx::query_as(CLAIMED)
            .bind(key.tenant.as_str())
            .bind(&key.principal)
            .bind(&key.route)
            .bind(&key.key)
            .fetch_optional(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        let Some(row) = row else { return Ok(Claim::Fresh) };
        if row.body_hash != key.body_hash {
            return Ok(Claim::OtherBody);
        }
        let status = u16::try_from(row.status)
            .map_err(|_| Error::corrupt("idempotency_keys", format!("status {}", row.status)))?;
        Ok(Claim::Answered(Answer { status, location: row.location, etag: row.etag, body: row.body }))
    }

    /// Stores the answer under a claimed key.
    pub async fn store_answer(&mut self, key: &Key, answer: &Answer) -> Result<(), Error> {
        sqlx::query(STORE)
            .bind(key.tenant.as_str())
            .bind(&key.principal)
            .bind(&key.route)
            .bind(&key.key)
            .bind(key.body_hash.as_slice())
            .bind(i32::from(answer.status))
            .bind(&answer.location)
            .bind(&answer.etag)
            .bind(&answer.body)
            .execute(&mut *self.inner)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(())
    }
}

impl crate::Store {
    /// Forgets answers older than what clients are promised, some at a time: however many there are, no statement runs out of
    /// its time, and what was forgotten is. Says how many.
    pub async fn forget_answers(&self, older_than: std::time::Duration) -> Result<u64, Error> {
        let mut forgotten = 0;
        loop {
            let done = sqlx::query(
                "delete from idempotency_keys where ctid = any (array(select ctid from idempotency_keys \
                 where created_at < now() - make_interval(secs => $1) order by created_at limit $2))",
            )
            .bind(older_than.as_secs_f64())
            .bind(AT_ONCE)
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
            forgotten += done.rows_affected();
            if done.rows_affected() < AT_ONCE.unsigned_abs() {
                return Ok(forgotten);
            }
        }
    }
}
