//! The pool and its timeouts: every wait for Postgres has an end, and no connection stays with a server that takes no
//! writes.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::hosts::{self, Choice, Newest, Watch};
use crate::{Error, Schema};

/// Patience with what Postgres is asked in one statement: a little more than the server's own, which counts only while there
/// is one.
const ANSWER: Duration = Duration::from_secs(15);

/// Waits for what Postgres is asked in one statement, and no longer than it can take. For whoever has no deadline of its own:
/// the server's timeouts are kept by the server, and of one that fell silent, or is gone with its machine, nobody is told. It
/// is unknown then whether it was done.
pub async fn in_time<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    within(ANSWER, asked).await
}

async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(Error::Reach(hosts::silent(limit))))
}

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
    newest: Newest,
    /// Where there are several servers: ends with the last handle.
    _watch: Option<Arc<Watch>>,
}

impl Store {
    /// A store at `url`, which may name several servers (`host:port,host:port`): the one that takes writes is used. Connects
    /// when first used, so that a program can start, and say so, while Postgres is down.
    pub fn connect(url: &str, settings: &Settings) -> Result<Self, Error> {
        Self::knowing(Newest::default(), url, settings)
    }

    /// Another pool of the same servers. What either of them learns of which is the newest holds for both: of one program
    /// nobody writes to an old primary that others of it know to be one.
    pub fn beside(&self, url: &str, settings: &Settings) -> Result<Self, Error> {
        Self::knowing(self.newest.clone(), url, settings)
    }

    fn knowing(newest: Newest, url: &str, settings: &Settings) -> Result<Self, Error> {
        let hosts = hosts::split(url)?;
        let hosts: Vec<PgConnectOptions> =
            hosts.iter().map(|host| settings.options(host)).collect::<Result<_, _>>()?;
        let choice = Choice::between(hosts.len(), newest.clone());
        let (new, old) = (choice.clone(), choice.clone());
        let patience = settings.statement;
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections)
            .acquire_timeout(settings.acquire)
            .idle_timeout(Duration::from_mins(10))
            .max_lifetime(Duration::from_mins(30))
            .after_connect(move |connection, _| {
                let choice = new.clone();
                Box::pin(async move { hosts::welcome(connection, &choice).await })
            })
            // One question instead of the driver's own: it shows that the connection lives, too.
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let choice = old.clone();
                Box::pin(async move { hosts::usable(connection, meta.age, &choice).await })
            })
            .after_release(move |connection, _| Box::pin(hosts::returned(connection, patience)));
        // A list of hosts has at least one.
        let pool = pool.connect_lazy_with(hosts[0].clone());
        let watch = (hosts.len() > 1).then(|| Arc::new(hosts::watch_over(hosts, pool.clone(), choice)));
        Ok(Self { pool, newest, _watch: watch })
    }

    /// Whether Postgres answers, every migration known to this program was applied, and none took away what it needs.
    pub async fn ping(&self) -> Result<(), Error> {
        self.fits(Schema::shipped().newest()).await
    }

    /// Closes the pool; what is under way ends first.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

impl Settings {
    fn options(&self, url: &str) -> Result<PgConnectOptions, Error> {
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let options = PgConnectOptions::from_str(url)
            .map_err(Error::ParseUrl)?
            .application_name(&self.application)
            // What a statement did is said by whoever sent it; the server tells which are slow.
            .disable_statement_logging()
            .options([
                ("statement_timeout", milliseconds(self.statement)),
                ("lock_timeout", milliseconds(self.lock)),
                ("idle_in_transaction_session_timeout", milliseconds(self.statement * 3)),
            ]);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let never = std::future::pending::<Result<(), Error>>();
        let late = within(Duration::from_millis(1), never).await.unwrap_err();
        assert!(matches!(late, Error::Reach(_)) && late.is_transient(), "{late:?}");
        assert_eq!(in_time(async { Ok(7) }).await.unwrap(), 7);
    }

    #[test]
    fn the_servers_own_patience_ends_first() {
        let Settings { acquire, statement, .. } = Settings::default();
        assert!(acquire + statement < ANSWER);
    }
}
