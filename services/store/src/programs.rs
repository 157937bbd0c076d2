//! Table `programs`: which programs run, by their own word and the database's clock. Only migrations look at it.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Error, Schema, Store};

/// How often a program's row is renewed, at most.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How long a program counts as running after it was last seen.
const ALIVE: Duration = Duration::from_mins(1);
/// How long the row of a program that left without a word is kept, for people.
const KEPT: Duration = Duration::from_hours(1);

/// A program that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Which program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Which run of it.
    pub instance: Uuid,
    /// The newest migration it knows.
    pub schema: i64,
}

impl Program {
    /// A run of a program of this build.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            instance: Uuid::now_v7(),
            schema: Schema::shipped().newest(),
        }
    }
}

impl Store {
    /// Says that a program runs, and answers whether it can live with the schema. To be asked on and on.
    pub async fn attend(&self, program: &Program) -> Result<(), Error> {
        // Committed before the notes of contracts are read: whoever contracts writes its note and then looks here.
        sqlx::query(
            "insert into programs (instance, name, version, schema) select $1, $2, $3, $4 where not exists \
             (select from programs where instance = $1 and seen_at > now() - make_interval(secs => $5)) \
             on conflict (instance) do update set seen_at = now()",
        )
        .bind(program.instance)
        .bind(&program.name)
        .bind(&program.version)
        .bind(program.schema)
        .bind(RENEWED_EVERY.as_secs_f64())
        .execute(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        self.fits(program.schema).await
    }

    /// Refuses a program that the schema has outgrown, which is for a person to see at once, before anything is read or written
    /// under it. Everything else may pass by itself, and none of it is waited for longer than `limit`.
    pub async fn refuse_outgrown(&self, program: &Program, limit: Duration) -> Result<(), Error> {
        let attended = tokio::time::timeout(limit, self.attend(program)).await;
        let Ok(Err(error @ Error::Outgrown { .. })) = attended else { return Ok(()) };
        // Whoever does not start is in no migration's way.
        let _ = tokio::time::timeout(limit, self.leave(program)).await;
        Err(error)
    }

    /// Says that a program runs no more.
    pub async fn leave(&self, program: &Program) -> Result<(), Error> {
        sqlx::query("delete from programs where instance = $1")
            .bind(program.instance)
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(())
    }

    /// Forgets programs that left without a word long ago. Says how many.
    pub async fn forget_programs(&self) -> Result<u64, Error> {
        let done = sqlx::query("delete from programs where seen_at < now() - make_interval(secs => $1)")
            .bind(KEPT.as_secs_f64())
            .execute(&self.pool)
            .await
            .map_err(Error::from_sqlx)?;
        Ok(done.rows_affected())
    }
}

/// Programs that run and do not know this schema, for people.
pub(crate) async fn older_than(connection: &mut PgConnection, schema: i64) -> Result<Vec<String>, Error> {
    sqlx::query_scalar(
        "select format('%s %s (schema %s, instance %s, seen %s s ago)', name, version, schema, instance, \
         extract(epoch from now() - seen_at)::int) from programs \
         where schema < $1 and seen_at > now() - make_interval(secs => $2) order by name, started_at",
    )
    .bind(schema)
    .bind(ALIVE.as_secs_f64())
    .fetch_all(connection)
    .await
    .map_err(Error::from_sqlx)
}
