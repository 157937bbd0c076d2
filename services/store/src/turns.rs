//! Table `turns`: work that one replica at a time does. Only the database's clock counts.

use std::time::Duration;

use sqlx::PgPool;

use crate::Error;

/// Begins the next turn of some work, if its time has come and no other replica was quicker. Says which one it is.
pub(crate) async fn begin(pool: &PgPool, name: &str, period: Duration) -> Result<Option<i64>, Error> {
    sqlx::query_scalar(
        "insert into turns (name, number, next_at) values ($1, 1, clock_timestamp() + make_interval(secs => $2)) \
         on conflict (name) do update set number = turns.number + 1, spent = 0, next_at = excluded.next_at \
         where turns.next_at <= clock_timestamp() returning number",
    )
    .bind(name)
    .bind(period.as_secs_f64())
    .fetch_optional(pool)
    .await
    .map_err(Error::from_sqlx)
}
