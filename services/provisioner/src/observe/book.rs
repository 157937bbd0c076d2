//! What was seen of a cluster's databases, what of it was told, and what is to be told next. Pure: time is a parameter.
//!
//! *Invariant:* of a database nothing is told while something told before is still on its way; what changed meanwhile is
//! told once, after it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use domain::DatabaseId;
use wire::Observation;

/// The databases of one cluster under one term.
#[derive(Debug, Default)]
pub struct Book {
    pages: HashMap<DatabaseId, Page>,
    /// Databases with something new, in the order it came.
    news: VecDeque<DatabaseId>,
    /// Databases seen since a list began.
    listed: Option<HashSet<DatabaseId>>,
    newest: u64,
    /// When the roll came round last: what it did not find then came later.
    rolled_at: Option<Instant>,
}

#[derive(Debug)]
struct Page {
    seen: Observation,
    told_at: Option<Instant>,
    queued: bool,
    on_its_way: bool,
    /// Since when what is queued waits, or a moment longer, as far as the roll came round.
    queued_since: Option<Instant>,
    /// Since when what is on its way waits, in the same manner.
    away_since: Option<Instant>,
}

impl Page {
    fn new(seen: Observation) -> Self {
        let (queued, on_its_way) = (false, false);
        Self { seen, told_at: None, queued, on_its_way, queued_since: None, away_since: None }
    }

    /// Since when something of it waits: what is on its way was there before what is queued.
    fn waits_since(&self) -> Option<Instant> {
        self.away_since.or(self.queued_since)
    }
}

/// How long something may wait to be told before the book is not told any more.
const LATE: Duration = Duration::from_mins(1);

impl Book {
    /// A resource was seen. Says whether at an older version than before, which a server shows only when it was restored from
    /// a backup: its versions may have passed by meanwhile all that was seen of it.
    #[must_use = "what is seen of a restored server is of another term"]
    pub fn see(&mut self, database: DatabaseId, seen: Observation) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(database);
        }
        self.newest = self.newest.max(seen.resource_version);
        let Some(page) = self.pages.get_mut(&database) else {
            self.pages.insert(database, Page::new(seen));
            self.queue(database);
            return false;
        };
        // Two resources may name one database, such as a copy that somebody made: between them versions go up and down.
        if is_same_resource(&page.seen, &seen) && seen.resource_version < page.seen.resource_version {
            return true;
        }
        // A version that moved although nothing told moved is no news.
        let same = Observation { resource_version: seen.resource_version, ..page.seen.clone() } == seen;
        page.seen = seen;
        if !same {
            self.queue(database);
        }
        false
    }

    /// A list has the resource of a database, by namespace and name, without a position: nothing new is known of it, but it is
    /// not gone. Another resource that somebody made a copy of it says nothing.
    pub fn is_there(&mut self, database: DatabaseId, (namespace, name): (&str, &str)) {
        let Some(Page { seen, .. }) = self.pages.get(&database) else { return };
        if let Some(listed) = &mut self.listed
            && (seen.namespace.as_str(), seen.resource_name.as_str()) == (namespace, name)
        {
            listed.insert(database);
        }
    }

    /// A list begins: what it does not have is gone.
    pub fn begin_list(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// A list is complete.
    pub fn end_list(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        let gone: Vec<DatabaseId> = self.pages.keys().filter(|id| !listed.contains(id)).copied().collect();
        for database in gone {
            let Some(page) = self.pages.get_mut(&database).filter(|page| page.seen.present) else { continue };
            page.seen.present = false;
            // Nobody saw it go, so its last version is not known: it is greater than the last one seen.
            page.seen.resource_version += 1;
            self.queue(database);
        }
    }

    /// The next database to tell of, and what; it is on its way from now on.
    pub fn take(&mut self) -> Option<(DatabaseId, Observation)> {
        while let Some(database) = self.news.pop_front() {
            let Some(page) = self.pages.get_mut(&database) else { continue };
            if page.on_its_way {
                // It comes again when what is on its way has arrived.
                continue;
            }
            page.queued = false;
            page.on_its_way = true;
            page.away_since = page.queued_since.take();
            return Some((database, page.seen.clone()));
        }
        None
    }

    /// Queues what was not told of for `period`, each at its own moment within a tenth of it.
    pub fn roll(&mut self, now: Instant, period: Duration) {
        let before = self.rolled_at.replace(now).unwrap_or(now);
        for page in self.pages.values_mut() {
            if page.queued {
                page.queued_since.get_or_insert(before);
            }
            if page.on_its_way {
                page.away_since.get_or_insert(before);
            }
        }
        let is_due = |(database, page): &(&DatabaseId, &Page)| {
            let idle = !page.queued && !page.on_its_way;
            idle && page
                .told_at
                .is_some_and(|at| now.saturating_duration_since(at) >= spread(**database, period))
        };
        let due: Vec<DatabaseId> = self.pages.iter().filter(is_due).map(|(database, _)| *database).collect();
        for database in due {
            self.queue(database);
        }
    }

    /// What was told has arrived.
    pub fn told(&mut self, database: DatabaseId, now: Instant) {
        let Some(page) = self.pages.get_mut(&database) else { return };
        page.on_its_way = false;
        page.told_at = Some(now);
        page.away_since = None;
        if page.queued {
            self.news.push_back(database);
        } else if !page.seen.present {
            self.pages.remove(&database);
        }
    }

    /// What was told has not arrived, or nobody knows: it is told again.
    pub fn not_told(&mut self, database: DatabaseId) {
        let Some(page) = self.pages.get_mut(&database) else { return };
        page.on_its_way = false;
        page.queued = true;
        page.queued_since = page.away_since.take().or(page.queued_since);
        self.news.push_back(database);
    }

    /// What was on its way when a watch ended is told again.
    pub fn forget_on_its_way(&mut self) {
        let away: Vec<DatabaseId> =
            self.pages.iter().filter(|(_, page)| page.on_its_way).map(|(database, _)| *database).collect();
        for database in away {
            self.not_told(database);
        }
    }

    /// Whether everything that was seen was told at least once, and nothing new waits for long: what cannot be told is not
    /// unsaid, and nobody is to think that all was heard.
    pub fn is_told(&self, now: Instant) -> bool {
        let late = |since| now.saturating_duration_since(since) > LATE;
        self.pages.values().all(|page| page.told_at.is_some() && !page.waits_since().is_some_and(late))
    }

    /// For how long the oldest of what waits to be told has waited, or a moment longer: all that was seen before was told. To be asked
    /// when the roll has just come round.
    pub fn waits(&self, now: Instant) -> Duration {
        let oldest = self.pages.values().filter_map(Page::waits_since).min();
        oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The greatest version seen.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// A version was told of that no resource has, such as that of a list.
    pub fn note_version(&mut self, version: u64) {
        self.newest = self.newest.max(version);
    }

    /// Databases that are there.
    pub fn len(&self) -> usize {
        self.pages.values().filter(|page| page.seen.present).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn queue(&mut self, database: DatabaseId) {
        let Some(page) = self.pages.get_mut(&database).filter(|page| !page.queued) else { return };
        page.queued = true;
        if !page.on_its_way {
            self.news.push_back(database);
        }
    }
}

fn is_same_resource(one: &Observation, other: &Observation) -> bool {
    (&one.namespace, &one.resource_name) == (&other.namespace, &other.resource_name)
}

/// Between nine and eleven tenths of the period, the same for a database each time.
fn spread(database: DatabaseId, period: Duration) -> Duration {
    let bytes = database.uuid().into_bytes();
    let share = f64::from(u16::from_be_bytes([bytes[14], bytes[15]])) / f64::from(u16::MAX);
    period.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::translate::{observation, tests::object};

    fn seen(version: u64, phase: &str) -> (DatabaseId, Observation) {
        let (database, seen) = observation(&object(), 1, true).unwrap();
        (database, Observation { resource_version: version, phase: phase.to_owned(), ..seen })
    }

    fn see(book: &mut Book, version: u64, phase: &str) -> DatabaseId {
        let (database, seen) = seen(version, phase);
        assert!(!book.see(database, seen), "no older one was seen");
        database
    }

    fn next(book: &mut Book) -> Option<(u64, bool)> {
        book.take().map(|(_, seen)| (seen.resource_version, seen.present))
    }

    #[test]
    fn changes_are_told_and_repetitions_are_not() {
        let (mut book, now) = (Book::default(), Instant::now());
        let database = see(&mut book, 5, "Pending");
        assert_eq!(next(&mut book), Some((5, true)));
        assert_eq!(next(&mut book), None);
        book.told(database, now);
        see(&mut book, 6, "Pending");
        assert_eq!(next(&mut book), None, "only the version moved");
        see(&mut book, 7, "Ready");
        assert_eq!(next(&mut book), Some((7, true)));
        assert_eq!(book.newest(), 7);
    }

    #[test]
    fn an_older_version_is_of_a_restored_server_and_changes_nothing() {
        let (mut book, now) = (Book::default(), Instant::now());
        let database = see(&mut book, 7, "Ready");
        assert_eq!(next(&mut book), Some((7, true)));
        book.told(database, now);
        see(&mut book, 7, "Ready");
        book.begin_list();
        let (database, older) = seen(6, "Pending");
        assert!(book.see(database, older), "however far the server has come by now");
        assert_eq!(next(&mut book), None, "nothing of it is told under this term");
        let (database, older) = seen(6, "Pending");
        let copy = Observation { namespace: "elsewhere".to_owned(), ..older };
        assert!(!book.see(database, copy), "another resource that names the database");
    }

    #[test]
    fn what_changes_on_the_way_is_told_once_afterwards() {
        let (mut book, now) = (Book::default(), Instant::now());
        let database = see(&mut book, 5, "Pending");
        assert!(next(&mut book).is_some());
        see(&mut book, 6, "Provisioning");
        see(&mut book, 7, "Ready");
        assert_eq!(next(&mut book), None);
        book.told(database, now);
        assert_eq!(next(&mut book), Some((7, true)));
        book.not_told(database);
        assert_eq!(next(&mut book), Some((7, true)), "again, because nobody knows");
        book.told(database, now);
        assert_eq!(next(&mut book), None);
    }

    #[test]
    fn everything_is_said_again_after_a_while() {
        let (mut book, now, period) = (Book::default(), Instant::now(), Duration::from_mins(10));
        let database = see(&mut book, 5, "Ready");
        next(&mut book);
        book.told(database, now);
        book.roll(now + period.mul_f64(0.5), period);
        assert_eq!(next(&mut book), None);
        book.roll(now + period.mul_f64(1.2), period);
        book.roll(now + period.mul_f64(1.3), period);
        assert_eq!(next(&mut book), Some((5, true)));
        assert_eq!(next(&mut book), None);
    }

    #[test]
    fn a_book_is_not_told_any_more_while_something_new_cannot_be_told() {
        let (mut book, start) = (Book::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let database = see(&mut book, 1, "Pending");
        assert_eq!(next(&mut book), Some((1, true)));
        book.told(database, start);
        see(&mut book, 2, "Ready");
        book.roll(at(1), Duration::from_hours(1));
        assert!(book.is_told(at(61)), "it may take its time");
        for second in [20, 40, 62] {
            assert_eq!(next(&mut book), Some((2, true)));
            book.not_told(database);
            book.roll(at(second), Duration::from_hours(1));
        }
        assert!(!book.is_told(at(62)));
        assert_eq!(next(&mut book), Some((2, true)));
        book.told(database, at(63));
        assert!(book.is_told(at(63)));
    }

    #[test]
    fn it_is_known_for_how_long_the_oldest_word_waits() {
        let (mut book, start, period) = (Book::default(), Instant::now(), Duration::from_hours(1));
        let (at, seconds) = (|seconds| start + Duration::from_secs(seconds), Duration::from_secs);
        let database = see(&mut book, 1, "Pending");
        book.roll(at(0), period);
        assert_eq!(book.waits(at(5)), seconds(5));
        assert!(next(&mut book).is_some());
        book.roll(at(6), period);
        assert_eq!(book.waits(at(6)), seconds(6), "on its way");
        see(&mut book, 2, "Ready");
        book.roll(at(7), period);
        book.told(database, at(20));
        assert_eq!(book.waits(at(20)), seconds(14), "what came meanwhile has waited for as long");
        assert!(next(&mut book).is_some());
        book.not_told(database);
        assert_eq!(book.waits(at(21)), seconds(15), "again, because nobody knows");
        assert!(next(&mut book).is_some());
        book.told(database, at(22));
        assert_eq!(book.waits(at(22)), seconds(0));
        see(&mut book, 3, "Paused");
        book.roll(at(30), period);
        assert_eq!(book.waits(at(30)), seconds(23), "nobody knows when it came since the roll before");
    }

    #[test]
    fn a_book_is_told_when_every_page_arrived_once() {
        let (mut book, now) = (Book::default(), Instant::now());
        assert!(book.is_told(now), "there is nothing to tell");
        let database = see(&mut book, 5, "Ready");
        assert!(!book.is_told(now));
        next(&mut book);
        assert!(!book.is_told(now), "on its way");
        book.told(database, now);
        assert!(book.is_told(now));
        see(&mut book, 6, "Degraded");
        assert!(book.is_told(now), "a change of what was told");
    }

    #[test]
    fn what_a_list_does_not_have_is_gone() {
        let (mut book, now) = (Book::default(), Instant::now());
        book.begin_list();
        let database = see(&mut book, 5, "Ready");
        book.end_list();
        next(&mut book);
        book.told(database, now);
        book.begin_list();
        book.end_list();
        assert_eq!(next(&mut book), Some((6, false)));
        assert!(book.is_empty());
        book.told(database, now);
        book.begin_list();
        book.end_list();
        assert_eq!(next(&mut book), None, "told once");
    }

    #[test]
    fn what_a_list_has_without_a_position_is_not_gone() {
        let (mut book, now) = (Book::default(), Instant::now());
        let database = see(&mut book, 5, "Ready");
        next(&mut book);
        book.told(database, now);
        let own = object().metadata;
        let own = (own.namespace.unwrap(), own.name.unwrap());
        for (namespace, name, gone) in [(&*own.0, &*own.1, None), ("elsewhere", &*own.1, Some((6, false)))] {
            book.begin_list();
            book.is_there(database, (namespace, name));
            book.end_list();
            assert_eq!(next(&mut book), gone, "{namespace}/{name}");
        }
    }

    #[test]
    fn a_list_that_breaks_off_says_nothing_of_what_is_missing() {
        let (mut book, now) = (Book::default(), Instant::now());
        let database = see(&mut book, 5, "Ready");
        next(&mut book);
        book.told(database, now);
        book.begin_list();
        book.begin_list();
        see(&mut book, 5, "Ready");
        book.end_list();
        assert_eq!(next(&mut book), None);
    }
}
