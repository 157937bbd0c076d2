//! The schema and its migrations: what is applied, in which order, and what may not be applied yet.
//!
//! Migrations expand first and contract releases later. One that takes something away says in its opening comment which
//! schema a program must know to live with that: `-- contract: needs schema >= 12`. *Invariant:* such a migration is applied
//! only when no older program says that it runs, and a program that starts afterwards sees the note before it works.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, PgConnection, SqlSafeStr as _};

use crate::{Error, Store, programs};

static SHIPPED: Migrator = sqlx::migrate!("../../migrations");

/// How long a statement of a migration may take.
const PATIENCE: &str = "300s";
/// How long to wait for others who migrate.
const OTHERS: Duration = Duration::from_mins(5);
/// How often it is looked whether they are done.
const LOOK: Duration = Duration::from_millis(100);

const CONTRACT: &str = "-- contract:";
/// How a migration begins that cannot run in a transaction.
const ALONE: &str = "-- no-transaction";

/// All migrations that a program brings along.
#[derive(Debug)]
pub struct Schema(Migrator);

/// A migration that takes something away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contract {
    migration: i64,
    /// The oldest schema that a program must know.
    needs: i64,
}

impl Schema {
    /// The migrations of this build.
    pub fn shipped() -> Self {
        let mut migrator = Migrator::with_migrations(SHIPPED.iter().cloned().collect());
        // A database may be ahead of a program: that is what contracts are about.
        migrator.set_ignore_missing(true);
        Self(migrator)
    }

    /// The same with one migration more, as a later build may have it.
    #[must_use]
    pub fn and(self, version: i64, name: &'static str, statements: &str) -> Self {
        let text = AssertSqlSafe(statements.to_owned()).into_sql_str();
        let alone = statements.starts_with(ALONE);
        let new = Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, text, alone);
        let all = self.0.iter().cloned().chain([new]).collect();
        let mut migrator = Migrator::with_migrations(all);
        migrator.set_ignore_missing(true);
        Self(migrator)
    }

    /// Version of the newest migration.
    pub fn newest(&self) -> i64 {
        self.0.iter().map(|migration| migration.version).max().unwrap_or_default()
    }

    fn contracts(&self) -> Vec<Contract> {
        let contract = |migration: &Migration| {
            let needs = needs(migration.sql.as_str(), migration.version)?;
            Some(Contract { migration: migration.version, needs })
        };
        self.0.iter().filter_map(contract).collect()
    }
}

/// What the opening comment of a contracting migration asks for. One that does not say it clearly asks for itself.
fn needs(text: &str, version: i64) -> Option<i64> {
    let mut opening = text.lines().take_while(|line| line.starts_with("--"));
    let asked = opening.find_map(|line| line.strip_prefix(CONTRACT))?;
    let number = asked.trim().strip_prefix("needs schema >=").and_then(|number| number.trim().parse().ok());
    Some(number.unwrap_or(version))
}

impl Store {
    /// Applies the migrations of this build that are missing; safe to run from many programs at once.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.migrate_to(&Schema::shipped()).await
    }

    /// Applies the migrations of a schema that are missing.
    pub async fn migrate_to(&self, schema: &Schema) -> Result<(), Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        let applied = apply(&mut connection, schema).await;
        // Its patience is that of migrations now, and it may hold their lock: not one to give back to the pool.
        connection.close_on_drop();
        applied
    }

    /// Whether every migration up to `knows` was applied, and none asks for more.
    pub(crate) async fn fits(&self, knows: i64) -> Result<(), Error> {
        // Without the tables the migrations that make them are missing, which the error says by itself.
        let (applied, needs): (Option<i64>, Option<i64>) = sqlx::query_as(
            "select (select max(version) from _sqlx_migrations where success), \
             (select max(needs) from schema_contracts)",
        )
        .fetch_one(&self.pool)
        .await
        .map_err(Error::from_sqlx)?;
        if applied < Some(knows) {
            return Err(Error::Outdated);
        }
        match needs.filter(|needs| *needs > knows) {
            Some(needs) => Err(Error::Outgrown { needs, knows }),
            None => Ok(()),
        }
    }
}

async fn apply(connection: &mut PgConnection, schema: &Schema) -> Result<(), Error> {
    // The patience with locks stays: whoever works in the meantime must not wait long behind a migration that waits for a table.
    sqlx::query("select set_config('statement_timeout', $1, false)")
        .bind(PATIENCE)
        .execute(&mut *connection)
        .await
        .map_err(Error::from_sqlx)?;
    take_turn(connection).await?;
    for contract in schema.contracts() {
        run_to(connection, schema, contract.migration - 1).await?;
        contract_at(connection, schema, contract).await?;
    }
    run_to(connection, schema, schema.newest()).await
}

/// Applies one contracting migration, if it is not applied and nobody runs who cannot live with it.
async fn contract_at(
    connection: &mut PgConnection,
    schema: &Schema,
    contract: Contract,
) -> Result<(), Error> {
    if is_applied(connection, contract.migration).await? {
        return Ok(());
    }
    // First the note, then the question: a program that starts now says so first and looks for notes afterwards, so one
    // of the two sees the other.
    note(connection, contract).await?;
    let older = programs::older_than(connection, contract.needs).await?;
    let applied = if older.is_empty() {
        run_to(connection, schema, contract.migration).await
    } else {
        let Contract { migration, needs } = contract;
        Err(Error::Held { migration, needs, programs: older.join(", ") })
    };
    if applied.is_err() {
        forget(connection, contract).await?;
    }
    applied
}

async fn run_to(connection: &mut PgConnection, schema: &Schema, version: i64) -> Result<(), Error> {
    schema.0.run_to(version, &mut *connection).await.map_err(Error::Migrate)
}

/// Waits until nobody else migrates, by asking again and again: a statement that waits sees the rows of its beginning, an index that is
/// built concurrently waits until nobody does any more, and so the two would wait for each other.
async fn take_turn(connection: &mut PgConnection) -> Result<(), Error> {
    let until = Instant::now() + OTHERS;
    loop {
        let alone: bool =
            sqlx::query_scalar("select pg_try_advisory_lock(hashtextextended('slipway migrations', 0))")
                .fetch_one(&mut *connection)
                .await
                .map_err(Error::from_sqlx)?;
        if alone {
            return Ok(());
        }
        if Instant::now() >= until {
            let others = std::io::Error::other(format!("somebody else migrates for {OTHERS:?}"));
            return Err(Error::Busy(sqlx::Error::Io(others)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn is_applied(connection: &mut PgConnection, migration: i64) -> Result<bool, Error> {
    sqlx::query_scalar("select exists (select from _sqlx_migrations where version = $1 and success)")
        .bind(migration)
        .fetch_one(connection)
        .await
        .map_err(Error::from_sqlx)
}

async fn note(connection: &mut PgConnection, contract: Contract) -> Result<(), Error> {
    sqlx::query(
        "insert into schema_contracts (migration, needs) values ($1, $2) \
         on conflict (migration) do update set needs = excluded.needs",
    )
    .bind(contract.migration)
    .bind(contract.needs)
    .execute(connection)
    .await
    .map_err(Error::from_sqlx)?;
    Ok(())
}

async fn forget(connection: &mut PgConnection, contract: Contract) -> Result<(), Error> {
    sqlx::query("delete from schema_contracts where migration = $1")
        .bind(contract.migration)
        .execute(connection)
        .await
        .map_err(Error::from_sqlx)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_says_what_it_needs_or_needs_itself() {
        let table = [
            ("-- contract: needs schema >= 12\nalter table x drop column y;", Some(12)),
            ("-- no-transaction\n-- contract: needs schema >= 7\ndrop index x;", Some(7)),
            ("-- contract: it is complicated\ndrop table x;", Some(20)),
            ("-- contract:\ndrop table x;", Some(20)),
            ("create table x ();\n-- contract: needs schema >= 12", None),
            ("-- Adds a contract: needs schema >= 12\ncreate table x ();", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(needs(text, 20), expected, "{text}");
        }
    }

    #[test]
    fn no_contract_asks_for_more_than_this_build_has() {
        let schema = Schema::shipped();
        for contract in schema.contracts() {
            assert!(
                contract.needs <= contract.migration,
                "migration {} could never apply",
                contract.migration
            );
        }
        let later = Schema::shipped().and(900, "later", "-- contract: needs schema >= 899\nselect 1;");
        assert_eq!(later.newest(), 900);
        assert_eq!(later.contracts().last(), Some(&Contract { migration: 900, needs: 899 }));
    }
}
