//! Who runs next: one lane a key, holding only its newest record; keys in parallel, tenants in turn, groups bounded.
//!
//! Records for which people wait go before bulk work, but not for ever: of every few one is bulk. Pure: the caller runs
//! what [`Lanes::take`] gives and says how it ended. *Invariant:* of one key never two run at once, whatever happened to
//! partitions meanwhile. *Invariant:* of the records that wait for one key the newest stays.

mod turns;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::tracker::Ticket;
use turns::Turns;

/// Where a record belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Records of one key run one after the other.
    pub key: Arc<str>,
    /// Which of two records of a key is the newer one, compared from left to right.
    pub order: (i64, i64),
    /// For whom: the keys of one tenant take turns with those of the others, however many they are.
    pub tenant: Arc<str>,
    /// Keys of one group share a bound, so that a slow group leaves room for the others.
    pub group: Arc<str>,
    /// How urgent it is.
    pub class: Class,
}

impl Place {
    /// Whoever waits for the record that this one replaces waits for this one now.
    fn inherit(&mut self, replaced: &Self) {
        self.class = self.class.min(replaced.class);
    }
}

/// How urgent a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Somebody waits for it.
    #[default]
    Interactive,
    /// One of many, for which nobody waits.
    Bulk,
}

impl Class {
    const ALL: [Self; 2] = [Self::Interactive, Self::Bulk];

    const fn index(self) -> usize {
        match self {
            Self::Interactive => 0,
            Self::Bulk => 1,
        }
    }
}

/// A record in its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    /// Where it belongs.
    pub place: Place,
    /// Which reading of it this is.
    pub ticket: Ticket,
    /// How often it was tried before.
    pub attempt: u32,
    /// How often its handling panicked before.
    pub panics: u32,
    /// How much memory it takes.
    pub bytes: usize,
    /// What is to be done.
    pub work: T,
}

/// How many may have their turn at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all groups together. As many more may run on after their turn.
    pub total: usize,
    /// Of each group.
    pub group: usize,
}

/// What is kept of several records of a key that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// The newest: for records that each say everything.
    #[default]
    Newest,
    /// All of them, in the order in which they were read.
    All,
}

/// The lanes of all keys that have something to do.
#[derive(Debug)]
pub struct Lanes<T> {
    total: usize,
    keep: Keep,
    by_key: HashMap<Arc<str>, Lane<T>>,
    turns: Turns,
    running: usize,
    /// Those of them whose turn is over.
    after: usize,
    waiting: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Lane<T> {
    state: State,
    /// The next one.
    waiting: Option<Entry<T>>,
    /// Those after it; always empty where only the newest is kept.
    behind: VecDeque<Entry<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Has its turn when it comes.
    Ready,
    /// A record of it runs.
    Running,
    /// A record of it runs whose turn is over.
    RunningOn,
    /// Its record could not be dealt with and waits for [`Lanes::wake`].
    Resting,
}

impl<T> Lanes<T> {
    /// No lanes yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            total: limits.total,
            keep: Keep::Newest,
            by_key: HashMap::new(),
            turns: Turns::new(limits.group),
            running: 0,
            after: 0,
            waiting: 0,
            bytes: 0,
        }
    }

    /// The same, with another answer to what is kept.
    #[must_use]
    pub fn keeping(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// Puts a record into its lane. Answers the record that is superseded by it, which may be itself.
    pub fn offer(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        let key = Arc::clone(&entry.place.key);
        let Some(lane) = self.by_key.get_mut(&key) else {
            self.by_key.insert(
                Arc::clone(&key),
                Lane { state: State::Ready, waiting: None, behind: VecDeque::new() },
            );
            return self.put(&key, entry);
        };
        match &lane.waiting {
            Some(_) if self.keep == Keep::All => {
                self.waiting += 1;
                self.bytes += entry.bytes;
                lane.behind.push_back(entry);
                None
            }
            Some(waiting) if waiting.place.order > entry.place.order => Some(entry),
            _ => self.put(&key, entry),
        }
    }

    /// The next record to run, if any may. Its key is locked until [`Lanes::finish`] or [`Lanes::hold`].
    pub fn take(&mut self) -> Option<Entry<T>> {
        if self.running - self.after >= self.total {
            return None;
        }
        let by_key = &self.by_key;
        let key = self.turns.take(|flow| by_key.get(flow.key).is_some_and(|lane| lane.stands_in(flow)))?;
        let lane = self.by_key.get_mut(&key)?;
        let entry = lane.waiting.take()?;
        lane.waiting = lane.behind.pop_front();
        lane.state = State::Running;
        self.waiting -= 1;
        self.running += 1;
        Some(entry)
    }

    /// The turn of the record of this place that runs is over, which is no more counted against any bound: others have theirs,
    /// and only its key stays locked, until [`Lanes::finish`] or [`Lanes::hold`]. `false`: it is not over, because as many as
    /// may run on already do.
    pub fn end_turn(&mut self, place: &Place) -> bool {
        let Some(lane) = self.by_key.get_mut(&place.key) else { return false };
        if lane.state != State::Running || self.after >= self.total {
            return false;
        }
        lane.state = State::RunningOn;
        self.after += 1;
        self.turns.release(&place.group);
        true
    }

    /// The record that ran is dealt with.
    pub fn finish(&mut self, entry: &Entry<T>) {
        self.release(entry);
        let Some(lane) = self.by_key.get(&entry.place.key) else { return };
        if lane.waiting.is_some() {
            self.make_ready(&entry.place.key);
        } else {
            self.by_key.remove(&entry.place.key);
        }
    }

    /// The record that ran could not be dealt with. It waits for [`Lanes::wake`], unless a newer one came meanwhile:
    /// then it is answered as superseded and the newer one is next.
    pub fn hold(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        self.release(&entry);
        let key = Arc::clone(&entry.place.key);
        let lane = self.by_key.get_mut(&key)?;
        if self.keep == Keep::All
            && let Some(next) = lane.waiting.take()
        {
            lane.behind.push_front(next);
        }
        if let Some(waiting) = &mut lane.waiting
            && waiting.place.order >= entry.place.order
        {
            waiting.place.inherit(&entry.place);
            self.make_ready(&key);
            return Some(entry);
        }
        lane.state = State::Resting;
        let older = lane.waiting.take();
        if let Some(older) = &older {
            self.forget(older.bytes);
        }
        self.keep(&key, entry);
        older
    }

    /// A resting key may be tried again.
    pub fn wake(&mut self, key: &Arc<str>) {
        if self.by_key.get(key).is_some_and(|lane| lane.state == State::Resting) {
            self.make_ready(key);
        }
    }

    /// Forgets the waiting records that `stale` names. What runs goes on, and keeps its key locked. Answers how many.
    pub fn discard(&mut self, stale: impl Fn(Ticket) -> bool) -> usize {
        let mut count = 0;
        self.by_key.retain(|_, lane| {
            let gone = lane.discard(&stale);
            count += gone.len();
            self.waiting -= gone.len();
            self.bytes -= gone.iter().sum::<usize>();
            lane.waiting.is_some() || lane.runs()
        });
        let by_key = &self.by_key;
        self.turns.retain(|flow| by_key.get(flow.key).is_some_and(|lane| lane.stands_in(flow)));
        count
    }

    /// Records in memory: waiting, resting or running.
    pub fn len(&self) -> usize {
        self.waiting + self.running
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// What the records in memory take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts the newest record of a key into its lane, and the key in line where it belongs.
    fn put(&mut self, key: &Arc<str>, mut entry: Entry<T>) -> Option<Entry<T>> {
        let lane = self.by_key.get_mut(key)?;
        let superseded = lane.waiting.take();
        let mut moved = true;
        if let Some(old) = &superseded {
            entry.place.inherit(&old.place);
            moved = !same_flow(&old.place, &entry.place);
            // A newer record of a resting key may be of another kind: it is tried at once.
            moved |= lane.state == State::Resting;
        }
        let running = lane.runs();
        if let Some(old) = &superseded {
            self.forget(old.bytes);
        }
        self.keep(key, entry);
        if moved && !running {
            self.make_ready(key);
        }
        superseded
    }

    fn keep(&mut self, key: &Arc<str>, entry: Entry<T>) {
        if let Some(lane) = self.by_key.get_mut(key) {
            self.waiting += 1;
            self.bytes += entry.bytes;
            lane.waiting = Some(entry);
        }
    }

    /// A waiting record is gone.
    fn forget(&mut self, bytes: usize) {
        self.waiting -= 1;
        self.bytes -= bytes;
    }

    /// A record runs no longer.
    fn release(&mut self, entry: &Entry<T>) {
        self.running = self.running.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        if self.by_key.get(&entry.place.key).is_some_and(|lane| lane.state == State::RunningOn) {
            self.after -= 1;
        } else {
            self.turns.release(&entry.place.group);
        }
    }

    fn make_ready(&mut self, key: &Arc<str>) {
        let Some(lane) = self.by_key.get_mut(key) else { return };
        let Some(waiting) = &lane.waiting else { return };
        lane.state = State::Ready;
        self.turns.push(&waiting.place);
    }
}

impl<T> Lane<T> {
    fn runs(&self) -> bool {
        matches!(self.state, State::Running | State::RunningOn)
    }

    /// Forgets the records that `stale` names; answers what each of them took.
    fn discard(&mut self, stale: impl Fn(Ticket) -> bool) -> Vec<usize> {
        let stays = |entry: &Entry<T>| !stale(entry.ticket);
        let all = self.waiting.iter().chain(&self.behind);
        let gone = all.filter(|entry| !stays(entry)).map(|entry| entry.bytes).collect();
        self.waiting.take_if(|entry| !stays(entry));
        self.behind.retain(stays);
        self.waiting = self.waiting.take().or_else(|| self.behind.pop_front());
        gone
    }

    /// Whether its record is to run when this flow has its turn. A flow may name lanes that are gone or moved elsewhere.
    fn stands_in(&self, flow: &turns::Flow<'_>) -> bool {
        self.state == State::Ready && self.waiting.as_ref().is_some_and(|waiting| flow.is_of(&waiting.place))
    }
}

fn same_flow(one: &Place, other: &Place) -> bool {
    one.class == other.class && one.tenant == other.tenant && one.group == other.group
}

#[cfg(test)]
mod tests;
