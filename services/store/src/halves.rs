//! Rows are read around those that Postgres itself fails at, because the disk or what lies on it is damaged. It fails at every
//! statement that meets such a row, whatever else that asks for: so it is asked for fewer rows, half of them each time, until the
//! row is known, and then for those behind it.

use std::ops::Range;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

use crate::{Error, Store};

/// Has Postgres look at the rows of the keys that it is asked for, and at no others: what reads whole tables would meet the row that
/// it fails at whatever it is asked for.
const BY_KEYS: &str = "select set_config(name, setting, false) from (values \
     ('plan_cache_mode', 'force_custom_plan'), ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), \
     ('enable_mergejoin', 'off')) as s (name, setting)";

/// Keys behind the first one, up to the second.
pub(crate) type Keys = (u128, u128);

/// What asks for rows by their keys.
pub(crate) type Asked = Query<'static, Postgres, PgArguments>;

/// Where the first row lies that cannot be read: behind one key, and no further than another. Pure.
#[derive(Debug)]
pub(crate) struct Search {
    /// Everything up to here was read.
    pub(crate) after: u128,
    /// It lies no further than here.
    pub(crate) to: u128,
}

impl Search {
    /// The half to be read next; `None` when all of it was read.
    pub(crate) fn half(&self) -> Option<Keys> {
        let width = self.to - self.after;
        (width > 0).then(|| (self.after, self.after + width.div_ceil(2)))
    }

    /// It was read.
    pub(crate) fn read(&mut self) {
        if let Some((_, to)) = self.half() {
            self.after = to;
        }
    }

    /// It cannot be read. Gives the key of the row, once that is known.
    pub(crate) fn failed(&mut self) -> Option<u128> {
        let (after, to) = self.half()?;
        self.to = to;
        (to - after == 1).then_some(to)
    }
}

/// The same for all rows of a list that cannot be read, or as many of them as are to be found at most. Pure.
#[derive(Debug)]
struct Around {
    /// Keys are places in the list, the first of which is 1.
    search: Search,
    count: u128,
    /// How many more are to be found.
    left: usize,
}

impl Around {
    /// A list of so many rows, of which at most so many are to be found.
    const fn of(count: usize, most: usize) -> Self {
        let count = count as u128;
        Self { search: Search { after: 0, to: count }, count, left: most }
    }

    /// The part to be read next; `None` when all of it was read, or enough was found.
    fn part(&self) -> Option<Range<usize>> {
        let (after, to) = self.search.half().filter(|_| self.left > 0)?;
        Some(place(after)..place(to))
    }

    /// Whether its end was not looked at.
    const fn is_cut(&self) -> bool {
        self.search.after < self.count
    }

    /// It was read.
    fn read(&mut self) {
        self.search.read();
        if self.search.half().is_none() {
            // What failed before could be read after all.
            self.search.to = self.count;
        }
    }

    /// It cannot be read. Gives the place of the row, once that is known.
    fn failed(&mut self) -> Option<usize> {
        let found = self.search.failed()?;
        self.search = Search { after: found, to: self.count };
        self.left = self.left.saturating_sub(1);
        Some(place(found - 1))
    }
}

fn place(key: u128) -> usize {
    usize::try_from(key).unwrap_or(usize::MAX)
}

/// What could be read of a list.
#[derive(Debug, Default)]
pub(crate) struct Readable {
    /// The rows: part after part of the list, those of a part in the order in which they were given.
    pub(crate) rows: Vec<PgRow>,
    /// Places in the list of those that cannot be read, and why.
    pub(crate) damaged: Vec<(usize, Error)>,
    /// Whether the end of the list was not looked at, because so many before it cannot be read.
    pub(crate) is_cut: bool,
}

impl Store {
    /// A connection that has Postgres look at the rows that it is asked for by their keys, and at no others.
    pub(crate) async fn by_keys(&self) -> Result<PoolConnection<Postgres>, Error> {
        let mut connection = self.pool.acquire().await.map_err(Error::from_sqlx)?;
        // It carries out statements otherwise from now on: not one to give back to the pool.
        connection.close_on_drop();
        sqlx::query(BY_KEYS).execute(&mut *connection).await.map_err(Error::from_sqlx)?;
        Ok(connection)
    }

    /// Reads the rows of these keys around those that Postgres fails at, up to so many of them.
    pub(crate) async fn read_around<K>(
        &self,
        keys: &[K],
        most: usize,
        ask: fn(&[K]) -> Asked,
    ) -> Result<Readable, Error> {
        let mut connection = self.by_keys().await?;
        // Where not even nothing can be read, it is not for a row, and each of them would be told as one that cannot be.
        rows(&mut connection, ask(&[])).await?;
        let (mut readable, mut around) = (Readable::default(), Around::of(keys.len(), most));
        while let Some(part) = around.part() {
            match rows(&mut connection, ask(&keys[part])).await {
                Ok(rows) => {
                    readable.rows.extend(rows);
                    around.read();
                }
                Err(error) if error.is_about_a_row() => {
                    readable.damaged.extend(around.failed().map(|place| (place, error)));
                }
                Err(error) => return Err(error),
            }
        }
        readable.is_cut = around.is_cut();
        Ok(readable)
    }
}

async fn rows(connection: &mut PgConnection, asked: Asked) -> Result<Vec<PgRow>, Error> {
    asked.fetch_all(connection).await.map_err(Error::from_sqlx)
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

    /// What is read of a list, which rows are found, how often it was asked, and whether its end was not looked at. The first so
    /// many times something fails whatever it is.
    fn around(count: usize, damaged: &[usize], most: usize, mut fails: u32) -> Told {
        let (mut around, mut told) = (Around::of(count, most), Told::default());
        while let Some(part) = around.part() {
            told.asked += 1;
            if fails > 0 || damaged.iter().any(|place| part.contains(place)) {
                fails = fails.saturating_sub(1);
                told.found.extend(around.failed());
            } else {
                told.read.extend(part);
                around.read();
            }
        }
        Told { is_cut: around.is_cut(), ..told }
    }

    #[derive(Debug, Default)]
    struct Told {
        read: Vec<usize>,
        found: Vec<usize>,
        asked: u32,
        is_cut: bool,
    }

    /// The places in a list of so many that these bits stand for: every second one at its end.
    fn places(count: usize, bits: u32) -> Vec<usize> {
        let place = |bit: usize| if bit.is_multiple_of(2) { bit / 2 } else { count - 1 - bit / 2 };
        let is_set = |bit: &usize| bits & (1 << *bit) != 0;
        let mut places: Vec<usize> = (0..count.min(10)).filter(is_set).map(place).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn all_of_a_list_is_read_but_the_rows_that_cannot_be() {
        for count in 0..20_usize {
            for bits in 0..1_u32 << count.min(10) {
                let damaged = places(count, bits);
                let told = around(count, &damaged, count, 0);
                let sound: Vec<usize> = (0..count).filter(|place| !damaged.contains(place)).collect();
                assert_eq!((&told.found, &told.read), (&damaged, &sound), "of {count}");
                assert!(!told.is_cut, "of {count} without {damaged:?}");
            }
        }
    }

    #[test]
    fn of_many_that_cannot_be_read_some_are_found_and_it_is_known_that_there_are_more() {
        let damaged: Vec<usize> = (0..2_000).filter(|place| place % 3 == 1).collect();
        let told = around(2_000, &damaged, 8, 0);
        assert_eq!(told.found, damaged[..8]);
        assert_eq!(told.read, (0..=22).filter(|place| place % 3 != 1).collect::<Vec<_>>());
        assert!(told.is_cut && told.asked <= 8 * 2 * 11, "asked {} times", told.asked);
        let told = around(9, &[8], 1, 0);
        assert!(told.found == [8] && told.read.len() == 8 && !told.is_cut, "the last one: {told:?}");
    }

    #[test]
    fn a_list_that_can_be_read_after_all_is_read_to_its_end() {
        let told = around(100, &[], 8, 3);
        assert_eq!(told.read, (0..100).collect::<Vec<_>>());
        assert!(told.found.is_empty() && !told.is_cut);
    }
}
