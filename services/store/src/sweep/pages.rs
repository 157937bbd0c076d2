//! Pages of what the sweep looks at. Where Postgres itself fails at a row, because the disk or what lies on it is damaged, it
//! fails at every statement that meets that row: then the page is read by halves up to the first such row, which is told by
//! its key, and the next page begins behind it.
//!
//! A row that Postgres gives and this program cannot make out is told in the same manner, and costs nothing.

use domain::DatabaseId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::rows::Row;
use super::{SUBJECTS, Subject, Subjects};
use crate::halves::{Keys, Search};
use crate::rows::read;
use crate::{Error, Store};

impl Store {
    /// Some databases with what is seen of them, in the order of their identity, beginning after `after`. Dead letters of
    /// the topic `gossip` are no instructions and do not count.
    pub async fn sweep_subjects(
        &self,
        after: Option<DatabaseId>,
        limit: u32,
        gossip: &str,
    ) -> Result<Subjects, Error> {
        let after = after.map_or(0, |database| database.uuid().as_u128());
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        let asked = ask(&mut connection, (after, u128::MAX), limit, gossip).await;
        // To be there for whoever reads by keys.
        drop(connection);
        match asked {
            Ok(rows) => {
                let mut page = Subjects::default();
                page.take(&rows)?;
                let full = rows.len() as u64 >= u64::from(limit);
                page.next = rows.last().filter(|_| full).map(key).transpose()?;
                Ok(page)
            }
            Err(error) if error.is_about_a_row() => {
                let mut connection = self.by_keys().await?;
                up_to_unreadable(&mut connection, after, limit, gossip).await
            }
            Err(error) => Err(error),
        }
    }
}

impl Subjects {
    fn take(&mut self, rows: &[PgRow]) -> Result<(), Error> {
        for row in rows {
            match read::<Row, Subject>(("databases", "id"), row) {
                Ok(subject) => self.subjects.push(subject),
                Err(error) => self.unreadable.push((key(row)?, error)),
            }
        }
        Ok(())
    }
}

/// The part of a page that lies before the first row that cannot be read, and that row.
async fn up_to_unreadable(
    connection: &mut PgConnection,
    after: u128,
    limit: u32,
    gossip: &str,
) -> Result<Subjects, Error> {
    // Where not even nothing can be read, it is not for a row, and every key would be told as one that cannot be.
    ask(connection, (after, after), limit, gossip).await?;
    let mut search = Search { after, to: u128::MAX };
    let (mut page, mut left) = (Subjects::default(), limit);
    while let Some(half) = search.half() {
        match ask(connection, half, left, gossip).await {
            Ok(rows) => {
                page.take(&rows)?;
                left = left.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
                if left == 0 {
                    page.next = rows.last().map(key).transpose()?;
                    return Ok(page);
                }
                search.read();
            }
            Err(error) if error.is_about_a_row() => {
                if let Some(found) = search.failed() {
                    let database = DatabaseId::new(Uuid::from_u128(found));
                    page.unreadable.push((database, error));
                    page.next = Some(database);
                    return Ok(page);
                }
            }
            Err(error) => return Err(error),
        }
    }
    // What failed before could be read after all: nothing is known yet of what lies behind it.
    page.next = Some(DatabaseId::new(Uuid::from_u128(search.after)));
    Ok(page)
}

async fn ask(
    connection: &mut PgConnection,
    (after, to): Keys,
    limit: u32,
    gossip: &str,
) -> Result<Vec<PgRow>, Error> {
    sqlx::query(SUBJECTS)
        .bind(Uuid::from_u128(after))
        .bind(i64::from(limit))
        .bind(gossip)
        .bind(domain::operation::FINAL)
        .bind(Uuid::from_u128(to))
        .fetch_all(connection)
        .await
        .map_err(Error::from_sqlx)
}

fn key(row: &PgRow) -> Result<DatabaseId, Error> {
    row.try_get("id").map(DatabaseId::new).map_err(Error::from_sqlx)
}
