//! What was seen of a cluster's databases, what of it was told, and what is to be told next. Pure: time is a parameter.
//!
//! *Invariant:* of a database nothing is told while something told before is still on its way; what changed meanwhile is
//! told once, after it. *Invariant:* each partition of the topic has places of its own: what one of them does not take, as while it has
//! no leader, holds back nothing of another. *Invariant:* what is gone is told twice, the second time when the roll comes to it, since
//! Kafka may lose what it took; then it is forgotten. So beside what is there, the book has what went within about a period of the roll,
//! and what of that cannot be told.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::time::{Duration, Instant};

use domain::DatabaseId;
use wire::Observation;

/// The databases of one cluster under one term.
#[derive(Debug)]
pub struct Book {
    pages: HashMap<DatabaseId, Page>,
    /// By partition of the topic.
    lines: Vec<Line>,
    /// The line whose turn it is.
    turn: usize,
    /// How much of one partition may be on its way.
    most: usize,
    /// Databases seen since a list began.
    listed: Option<HashSet<DatabaseId>>,
    newest: u64,
    /// Everything up to this version was seen, by a list or the watch after it.
    reached: u64,
    /// When the roll came round last: what it did not find then came later.
    rolled_at: Option<Instant>,
}

/// What goes to one partition.
#[derive(Debug, Default)]
struct Line {
    /// Databases with something new, in the order it came.
    news: VecDeque<DatabaseId>,
    /// How many are on their way.
    away: usize,
    /// Until when nothing is tried after something did not arrive.
    quiet_until: Option<Instant>,
}

impl Line {
    /// The next database that something may be told of.
    fn next(&mut self, most: usize, now: Instant) -> Option<DatabaseId> {
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        if is_quiet || self.away >= most { None } else { self.news.pop_front() }
    }
}

#[derive(Debug)]
struct Page {
    /// The line of its database.
    line: usize,
    seen: Observation,
    told_at: Option<Instant>,
    queued: bool,
    on_its_way: bool,
    /// Whether it was told once that it is gone, as it is seen now.
    gone_told: bool,
    /// Since when what is queued waits, or a moment longer, as far as the roll came round.
    queued_since: Option<Instant>,
    /// Since when what is on its way waits, in the same manner.
    away_since: Option<Instant>,
}

impl Page {
    fn new(line: usize, seen: Observation) -> Self {
        let (queued, on_its_way, gone_told) = (false, false, false);
        let (told_at, queued_since, away_since) = (None, None, None);
        Self { line, seen, told_at, queued, on_its_way, gone_told, queued_since, away_since }
    }

    /// Since when something of it waits: what is on its way was there before what is queued.
    fn waits_since(&self) -> Option<Instant> {
        self.away_since.or(self.queued_since)
    }
}

/// How long something may wait to be told before the book is not told any more.
const LATE: Duration = Duration::from_mins(1);
/// The pause of a partition after something of it did not arrive.
const UNSENT: Duration = Duration::from_secs(1);

impl Book {
    /// An empty one, for a topic of so many partitions, one at least, of each of which so much may be on its way at once.
    pub fn new(partitions: usize, most: usize) -> Self {
        Self {
            pages: HashMap::new(),
            lines: std::iter::repeat_with(Line::default).take(partitions).collect(),
            turn: 0,
            most,
            listed: None,
            newest: 0,
            reached: 0,
            rolled_at: None,
        }
    }

    /// A resource was seen. Says whether at an older version than before, or in a list although it was not there after that
    /// version, which a server shows only when it was restored from a backup: its versions may have passed by meanwhile all that was
    /// seen of it.
    #[must_use = "what is seen of a restored server is of another term"]
    pub fn see(&mut self, database: DatabaseId, seen: Observation) -> bool {
        if let Some(listed) = &mut self.listed {
            listed.insert(database);
        }
        self.newest = self.newest.max(seen.resource_version);
        // What went without being seen has no last version that could be compared.
        let was_there = self.pages.get(&database).is_some_and(|page| page.seen.present);
        if !was_there && self.listed.is_some() && seen.resource_version < self.reached {
            return true;
        }
        let Some(page) = self.pages.get_mut(&database) else {
            let line = self.line_of(database);
            self.pages.insert(database, Page::new(line, seen));
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
            page.gone_told = false;
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

    /// A list is complete, and of this version. Says whether that is older than what was seen before the list, as
    /// [`Book::see`] does; then nothing is gone.
    #[must_use = "what is seen of a restored server is of another term"]
    pub fn end_list(&mut self, version: u64) -> bool {
        let Some(listed) = self.listed.take() else { return false };
        if version < self.reached {
            return true;
        }
        self.reach(version);
        let gone: Vec<DatabaseId> = self.pages.keys().filter(|id| !listed.contains(id)).copied().collect();
        for database in gone {
            let Some(page) = self.pages.get_mut(&database).filter(|page| page.seen.present) else { continue };
            page.seen.present = false;
            // Nobody saw it go, so its last version is not known: it is greater than the last one seen.
            page.seen.resource_version += 1;
            self.queue(database);
        }
        false
    }

    /// The next database to tell of, and what; it is on its way from now on. Partitions take turns.
    pub fn take(&mut self, now: Instant) -> Option<(DatabaseId, Observation)> {
        for _ in 0..self.lines.len() {
            let turn = self.turn;
            self.turn = (turn + 1) % self.lines.len();
            let taken = self.take_of(turn, now);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// The same of one partition.
    fn take_of(&mut self, turn: usize, now: Instant) -> Option<(DatabaseId, Observation)> {
        let line = &mut self.lines[turn];
        while let Some(database) = line.next(self.most, now) {
            let Some(page) = self.pages.get_mut(&database) else { continue };
            if page.on_its_way {
                // It comes again when what is on its way has arrived.
                continue;
            }
            page.queued = false;
            page.on_its_way = true;
            page.away_since = page.queued_since.take();
            line.away += 1;
            return Some((database, page.seen.clone()));
        }
        None
    }

    /// Queues what was not told of for `period`, be it there or gone, each at its own moment within a tenth of it.
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
        let line = &mut self.lines[page.line];
        line.away -= usize::from(page.on_its_way);
        page.on_its_way = false;
        page.told_at = Some(now);
        page.away_since = None;
        if page.queued {
            line.news.push_back(database);
        } else if !page.seen.present && mem::replace(&mut page.gone_told, true) {
            self.pages.remove(&database);
        }
    }

    /// What was told has not arrived, or nobody knows: it is told again. Not at once: the next one of its partition would fare no
    /// better.
    pub fn not_told(&mut self, database: DatabaseId, now: Instant) {
        let Some(line) = self.again(database) else { return };
        line.quiet_until = Some(now + UNSENT);
    }

    /// What was on its way when a watch ended is told again.
    pub fn forget_on_its_way(&mut self) {
        let away: Vec<DatabaseId> =
            self.pages.iter().filter(|(_, page)| page.on_its_way).map(|(database, _)| *database).collect();
        for database in away {
            self.again(database);
        }
    }

    /// Queues what was on its way. Gives its line.
    fn again(&mut self, database: DatabaseId) -> Option<&mut Line> {
        let page = self.pages.get_mut(&database)?;
        let line = &mut self.lines[page.line];
        line.away -= usize::from(page.on_its_way);
        page.on_its_way = false;
        page.queued = true;
        page.queued_since = page.away_since.take().or(page.queued_since);
        line.news.push_back(database);
        Some(line)
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

    /// The server stands at this version at least.
    pub fn note_version(&mut self, version: u64) {
        self.newest = self.newest.max(version);
    }

    /// The watch was told of everything up to this version.
    pub fn reach(&mut self, version: u64) {
        self.note_version(version);
        self.reached = self.reached.max(version);
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
            self.lines[page.line].news.push_back(database);
        }
    }

    /// The line of a database: what is told of it has its identity as key.
    fn line_of(&self, database: DatabaseId) -> usize {
        let partitions = i32::try_from(self.lines.len()).unwrap_or(i32::MAX);
        let partition = bus::partition_of(database.to_string().as_bytes(), partitions);
        usize::try_from(partition).unwrap_or_default()
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
mod tests;
