//! What can go wrong with the database, by what a caller can do about it.

use crate::constraint::{self, Conflict};

/// An operation on the database failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL of the database is wrong.
    #[error("parse the database's URL")]
    ParseUrl(#[source] sqlx::Error),
    /// Postgres cannot be reached, is starting, stopping or full, or took too long: try again later.
    #[error("reach Postgres")]
    Reach(#[source] sqlx::Error),
    /// Others held what was needed, or two transactions were in each other's way: try again.
    #[error("wait for others in Postgres")]
    Busy(#[source] sqlx::Error),
    /// A named constraint refused the change.
    #[error("change refused: {0}")]
    Conflict(Conflict),
    /// A database used up its positions.
    #[error("mint a position: the numbers of the database are used up")]
    Exhausted,
    /// Another consumer moved the offsets: everything of this batch was taken back.
    #[error("advance offsets: another consumer moved them")]
    OffsetsMoved,
    /// A migration that this program needs was not applied.
    #[error("use the schema: migrations are missing (run `slipway-backend migrate`)")]
    Outdated,
    /// A migration took away what this program needs: only a newer program can go on.
    #[error(
        "use the schema: a migration asks for programs that know schema {needs}, this one knows {knows}: deploy a newer one"
    )]
    Outgrown {
        /// What a program must know.
        needs: i64,
        /// What this one knows.
        knows: i64,
    },
    /// Programs run that cannot live with what a migration takes away.
    #[error(
        "apply migration {migration}: it asks for programs that know schema {needs}, but older ones run: {programs}. Stop or replace them first"
    )]
    Held {
        /// The migration.
        migration: i64,
        /// What a program must know.
        needs: i64,
        /// Those that do not, for people.
        programs: String,
    },
    /// A row holds what this program cannot read.
    #[error("read {table}: {what}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// What is wrong, with the row's identity.
        what: String,
    },
    /// The migrations failed.
    #[error("migrate the schema")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// Anything else: a mistake of ours.
    #[error("run a statement")]
    Statement(#[source] sqlx::Error),
}

impl Error {
    /// Whether the same call may succeed later without any change.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Reach(_)
            | Self::Busy(_)
            | Self::OffsetsMoved
            | Self::Outdated
            | Self::Outgrown { .. }
            | Self::Held { .. } => true,
            Self::ParseUrl(_)
            | Self::Conflict(_)
            | Self::Exhausted
            | Self::Corrupt { .. }
            | Self::Migrate(_)
            | Self::Statement(_) => false,
        }
    }

    /// Whether Postgres refuses what it was given for what it is: the same would be refused for ever, and something else would
    /// not. A mistake in a statement, or a right that is missing, is none of that.
    pub fn is_about_content(&self) -> bool {
        match self {
            Self::Conflict(_) => true,
            Self::Statement(error) => {
                let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
                code.is_some_and(|code| is_about_content(&code))
            }
            Self::ParseUrl(_)
            | Self::Reach(_)
            | Self::Busy(_)
            | Self::Exhausted
            | Self::OffsetsMoved
            | Self::Outdated
            | Self::Outgrown { .. }
            | Self::Held { .. }
            | Self::Corrupt { .. }
            | Self::Migrate(_) => false,
        }
    }

    /// Whether Postgres may have met a row that it cannot read: it gives others, asked for without that one.
    pub(crate) fn is_about_a_row(&self) -> bool {
        let Self::Statement(error) = self else { return false };
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| is_about_a_row(&code))
    }

    /// The same, where it is about a row that has this key.
    pub(crate) fn of_row(self, table: &'static str, key: impl std::fmt::Display) -> Self {
        match self {
            Self::Statement(error) => Self::corrupt(table, format!("{key}: {error}")),
            other => other,
        }
    }

    /// A word for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::ParseUrl(_) => "url",
            Self::Reach(_) => "unreachable",
            Self::Busy(_) => "busy",
            Self::Conflict(_) => "conflict",
            Self::Exhausted => "exhausted",
            Self::OffsetsMoved => "offsets_moved",
            Self::Outdated => "outdated",
            Self::Outgrown { .. } => "outgrown",
            Self::Held { .. } => "held",
            Self::Corrupt { .. } => "corrupt",
            Self::Migrate(_) => "migrate",
            Self::Statement(_) => "statement",
        }
    }

    /// Sorts an error of the driver.
    pub(crate) fn from_sqlx(error: sqlx::Error) -> Self {
        let unreachable = matches!(
            error,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
        );
        if unreachable {
            return Self::Reach(error);
        }
        let Some(database) = error.as_database_error() else { return Self::Statement(error) };
        if let Some(conflict) = database.constraint().and_then(constraint::conflict) {
            return Self::Conflict(conflict);
        }
        match kind_of(database.code().as_deref().unwrap_or_default()) {
            Kind::Unreachable => Self::Reach(error),
            Kind::Busy => Self::Busy(error),
            Kind::Schema => Self::Outdated,
            Kind::Other => Self::Statement(error),
        }
    }

    pub(crate) fn corrupt(table: &'static str, what: impl Into<String>) -> Self {
        Self::Corrupt { table, what: what.into() }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Unreachable,
    Busy,
    Schema,
    Other,
}

/// Data that cannot be, a constraint, a row named twice, a limit of the program.
fn is_about_content(code: &str) -> bool {
    ["22", "23", "21", "54"].iter().any(|class| code.starts_with(class))
}

/// Data that cannot be, a page or an index that is damaged, a file that cannot be read.
fn is_about_a_row(code: &str) -> bool {
    ["22", "XX", "58"].iter().any(|class| code.starts_with(class))
}

/// Sorts an SQLSTATE.
fn kind_of(code: &str) -> Kind {
    match code {
        // Serialisation failure, deadlock, lock not available, statement cancelled by its timeout.
        "40001" | "40P01" | "55P03" | "57014" => Kind::Busy,
        // Read-only transaction (an old primary), administrator shutdown, crash shutdown, starting up, database dropped, and
        // sessions that the server ends because they are idle or a transaction is long.
        "25006" | "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25P03" | "25P04" => Kind::Unreachable,
        // Undefined table or column, schema, database.
        "42P01" | "42703" | "3F000" => Kind::Schema,
        _ if code.starts_with("08")
            || code.starts_with("53")
            || code.starts_with("28")
            || code == "3D000" =>
        {
            Kind::Unreachable
        }
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sorted_by_what_can_be_done() {
        let table = [
            ("40P01", Kind::Busy),
            ("55P03", Kind::Busy),
            ("57014", Kind::Busy),
            ("57P01", Kind::Unreachable),
            ("25006", Kind::Unreachable),
            ("57P05", Kind::Unreachable),
            ("25P04", Kind::Unreachable),
            ("08006", Kind::Unreachable),
            ("53300", Kind::Unreachable),
            ("42P01", Kind::Schema),
            ("22001", Kind::Other),
            ("", Kind::Other),
        ];
        for (code, kind) in table {
            assert_eq!(kind_of(code), kind, "{code}");
        }
    }

    #[test]
    fn what_is_refused_for_what_it_is_is_told_from_mistakes() {
        for (code, expected) in [
            ("22P05", true),
            ("23514", true),
            ("21000", true),
            ("54000", true),
            ("42501", false),
            ("42601", false),
            ("40001", false),
            ("XX000", false),
        ] {
            assert_eq!(is_about_content(code), expected, "{code}");
        }
    }

    #[test]
    fn damage_of_a_row_is_told_from_what_no_row_is_to_blame_for() {
        for (code, expected) in [
            ("XX001", true),
            ("XX000", true),
            ("58030", true),
            ("58P01", true),
            ("22008", true),
            ("42501", false),
            ("42883", false),
            ("23514", false),
            ("", false),
        ] {
            assert_eq!(is_about_a_row(code), expected, "{code}");
        }
        assert!(!Error::Corrupt { table: "databases", what: String::new() }.is_about_a_row());
    }

    #[test]
    fn a_pool_that_gives_no_connection_is_unreachable() {
        assert!(Error::from_sqlx(sqlx::Error::PoolTimedOut).is_transient());
        assert!(!Error::from_sqlx(sqlx::Error::RowNotFound).is_transient());
    }
}
