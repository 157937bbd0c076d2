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
use crate::rows::read;
use crate::{Error, Store};

/// Has Postgres look at the rows of the keys that it is asked for, and at no others: what reads whole tables would meet the row that
/// it fails at whatever it is asked for.
const BY_KEYS: &str = "select set_config(name, setting, false) from (values \
     ('plan_cache_mode', 'force_custom_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), \
     ('enable_mergejoin', 'off')) as s (name, setting)";

/// Keys behind the first one, up to the second.
type Keys = (u128, u128);

/// Where the first row lies that cannot be read: behind one key, and no further than another. Pure.
#[derive(Debug)]
struct Search {
    after: u128,
    to: u128,
}

impl Search {
    /// The half to be read next; `None` when all of it was read.
    fn half(&self) -> Option<Keys> {
        let width = self.to - self.after;
        (width > 0).then(|| (self.after, self.after + width.div_ceil(2)))
    }

    /// It was read.
    fn read(&mut self) {
        if let Some((_, to)) = self.half() {
            self.after = to;
        }
    }

    /// It cannot be read. Gives the key of the row, once that is known.
    fn failed(&mut self) -> Option<u128> {
        let (after, to) = self.half()?;
        self.to = to;
        (to - after == 1).then_some(to)
    }
}

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
        match ask(&mut connection, (after, u128::MAX), limit, gossip).await {
            Ok(rows) => {
                let mut page = Subjects::default();
                page.take(&rows)?;
                let full = rows.len() as u64 >= u64::from(limit);
                page.next = rows.last().filter(|_| full).map(key).transpose()?;
                Ok(page)
            }
            Err(error) if error.is_about_a_row() => {
                // It carries out statements otherwise from now on: not one to give back to the pool.
                connection.close_on_drop();
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
    sqlx::query(BY_KEYS).execute(&mut *connection).await.map_err(Error::from_sqlx)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Which row is found of those that cannot be read, and how often it was asked.
    fn found(after: u128, damaged: &[u128]) -> (Option<u128>, u32) {
        let (mut search, mut asked) = (Search { after, to: u128::MAX }, 0);
        while let Some((after, to)) = search.half() {
            asked += 1;
            let fails = damaged.iter().any(|key| after < *key && *key <= to);
            let row = if fails { search.failed() } else { None };
            match row {
                Some(_) => return (row, asked),
                None if fails => {}
                None => search.read(),
            }
        }
        (None, asked)
    }

    #[test]
    fn the_first_row_that_cannot_be_read_is_found_wherever_it_lies() {
        let (middle, last) = (u128::MAX / 2, u128::MAX);
        for key in [1, 2, 3, 4, middle, middle + 1, middle + 2, last - 1, last] {
            for after in [0, key / 2, key - 1] {
                let (row, asked) = found(after, &[key]);
                assert!(row == Some(key) && asked <= 130, "{key} behind {after}: {row:?} after {asked}");
            }
            assert_eq!(found(0, &[key, last]).0, Some(key), "before the others");
        }
        assert_eq!(found(middle, &[middle, last]).0, Some(last), "what lies before is not looked at");
    }

    #[test]
    fn a_row_that_can_be_read_after_all_is_not_told_as_one_that_cannot() {
        let mut search = Search { after: 0, to: u128::MAX };
        assert_eq!(search.failed(), None);
        let mut to = search.to;
        while let Some((_, end)) = search.half() {
            to = end;
            search.read();
        }
        assert_eq!((search.after, search.to), (to, u128::MAX.div_ceil(2)), "and nothing is passed over");
    }
}
