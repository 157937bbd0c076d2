//! The pool and its timeouts: every wait for Postgres has an end.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::Error;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// How long a statement of a migration may take.
const MIGRATION_TIMEOUT: &str = "300s";

/// Size and patience of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name that Postgres shows for these connections.
    pub application: String,
    /// Most connections.
    pub connections: u32,
    /// Patience for a connection, opening one included.
    pub acquire: Duration,
    /// Patience of the server for one statement.
    pub statement: Duration,
    /// Patience of the server for one lock.
    pub lock: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            application: "slipway".to_owned(),
            connections: 10,
            acquire: Duration::from_secs(3),
            statement: Duration::from_secs(10),
            lock: Duration::from_secs(5),
        }
    }
}

/// A handle to the database; clones share one pool.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
}

impl Store {
    /// A store at `url`. Connects when first used, so that a program can start, and say so, while Postgres is down.
    pub fn connect(url: &str, settings: &Settings) -> Result<Self, Error> {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let options = PgConnectOptions::from_str(url)
            .map_err(Error::ParseUrl)?
            .application_name(&settings.application)
            // The driver asks whether its lines are wanted without writing them; a subscriber with a filter for each layer
            // takes such a question for the next line's own and drops that one.
            .disable_statement_logging()
            .options([
                ("statement_timeout", milliseconds(settings.statement)),
                ("lock_timeout", milliseconds(settings.lock)),
                ("idle_in_transaction_session_timeout", milliseconds(settings.statement * 3)),
            ]);
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections)
            .acquire_timeout(settings.acquire)
            .idle_timeout(Duration::from_mins(10))
            .max_lifetime(Duration::from_mins(30))
            .after_connect(|connection, _| Box::pin(refuse_read_only(connection)))
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Applies the migrations that are missing; safe to run from many programs at once.
    pub async fn migrate(&self) -> Result<(), Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        sqlx::query("select set_config('statement_timeout', $1, false)")
            .bind(MIGRATION_TIMEOUT)
            .execute(&mut *connection)
            .await
            .map_err(Error::from_sqlx)?;
        let applied = MIGRATIONS.run(&mut *connection).await.map_err(Error::Migrate);
        // Its patience is that of migrations now: not one to give back to the pool.
        connection.close_on_drop();
        applied
    }

    /// Whether Postgres answers and every migration known to this program was applied.
    pub async fn ping(&self) -> Result<(), Error> {
        // Without the table nothing was ever migrated, which the error says by itself.
        let newest: Option<i64> =
            sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
                .fetch_one(&self.pool)
                .await
                .map_err(Error::from_sqlx)?;
        let wanted = MIGRATIONS.iter().map(|migration| migration.version).max();
        if newest < wanted { Err(Error::Outdated) } else { Ok(()) }
    }

    /// Closes the pool; what is under way ends first.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// After a failover an old primary still takes connections; nothing can be written there.
async fn refuse_read_only(connection: &mut sqlx::PgConnection) -> Result<(), sqlx::Error> {
    let read_only: String = sqlx::query_scalar("show transaction_read_only").fetch_one(connection).await?;
    if read_only == "on" {
        return Err(sqlx::Error::Io(std::io::Error::other("the server is read-only: not the primary")));
    }
    Ok(())
}
