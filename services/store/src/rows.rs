//! Rows that are read one by one: one that cannot be read, because a newer program wrote it or because it is damaged, holds up
//! nobody else.

use std::time::Duration;

use domain::{DatabaseId, Position};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row as _};
use uuid::Uuid;

use crate::Error;

/// A row of a list: what it says, or as much as it says for certain.
pub type Listed<T> = Result<T, Box<UnreadableRow>>;

/// A row of a list that cannot be read, as far as it says whose it is.
#[derive(Debug)]
pub struct UnreadableRow {
    /// Its identity.
    pub id: Uuid,
    /// Of which database.
    pub database: DatabaseId,
    /// Name of the database.
    pub name: String,
    /// Whose.
    pub tenant: String,
    /// Where it stands.
    pub position: Position,
    /// What cannot be read.
    pub error: Error,
}

/// An age as the database gives it; clocks that stepped back make none negative.
pub(crate) fn age(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// What a row of a table says. An error is about this row alone, and names it by its `key`.
pub(crate) fn read<'a, R, T>((table, key): (&'static str, &str), row: &'a PgRow) -> Result<T, Error>
where
    R: FromRow<'a, PgRow>,
    T: TryFrom<R, Error = Error>,
{
    let columns = R::from_row(row).map_err(|error| {
        let text = || row.try_get::<String, _>(key);
        let whose = row.try_get::<Uuid, _>(key).map(|id| id.to_string()).or_else(|_| text());
        Error::corrupt(table, format!("{}: {error}", whose.unwrap_or_default()))
    })?;
    T::try_from(columns)
}

/// The same for a row of a list, whose plain columns say whose it is.
pub(crate) fn listed<'a, R, T>(table: &'static str, row: &'a PgRow) -> Result<Listed<T>, Error>
where
    R: FromRow<'a, PgRow>,
    T: TryFrom<R, Error = Error>,
{
    let error = match read((table, "id"), row) {
        Ok(one) => return Ok(Ok(one)),
        Err(error) => error,
    };
    let unreadable = || -> sqlx::Result<UnreadableRow> {
        Ok(UnreadableRow {
            id: row.try_get("id")?,
            database: DatabaseId::new(row.try_get("database_id")?),
            name: row.try_get("database_name")?,
            tenant: row.try_get("tenant_id")?,
            position: Position { epoch: row.try_get("epoch")?, seq: row.try_get("seq")? },
            error,
        })
    };
    Ok(Err(Box::new(unreadable().map_err(Error::from_sqlx)?)))
}
