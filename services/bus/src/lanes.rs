//! Who runs next: one lane a key, holding only its newest record; keys in parallel, groups of keys in turn and bounded.
//!
//! Pure: the caller runs what [`Lanes::take`] gives and says how it ended. *Invariant:* of one key never two run at once,
//! whatever happened to partitions meanwhile. *Invariant:* of the records that wait for one key the newest stays.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::tracker::Ticket;

/// Where a record belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Records of one key run one after the other.
    pub key: Arc<str>,
    /// Which of two records of a key is the newer one, compared from left to right.
    pub order: (i64, i64),
    /// Keys of one group share a bound, so that a slow group leaves room for the others.
    pub group: Arc<str>,
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
    /// What is to be done.
    pub work: T,
}

/// How many may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all groups together.
    pub total: usize,
    /// Of each group.
    pub group: usize,
}

/// The lanes of all keys that have something to do.
#[derive(Debug)]
pub struct Lanes<T> {
    limits: Limits,
    by_key: HashMap<Arc<str>, Lane<T>>,
    groups: HashMap<Arc<str>, Group>,
    /// Groups that have keys ready, each once, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    running: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Lane<T> {
    state: State,
    waiting: Option<Entry<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Queued in its group.
    Ready,
    /// A record of it runs.
    Running,
    /// Its record could not be dealt with and waits for [`Lanes::wake`].
    Resting,
}

#[derive(Debug, Default)]
struct Group {
    ready: VecDeque<Arc<str>>,
    running: usize,
}

impl<T> Lanes<T> {
    /// No lanes yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            by_key: HashMap::new(),
            groups: HashMap::new(),
            turns: VecDeque::new(),
            running: 0,
            waiting: 0,
        }
    }

    /// Puts a record into its lane. Answers the record that is superseded by it, which may be itself.
    pub fn offer(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        let key = Arc::clone(&entry.place.key);
        let Some(lane) = self.by_key.get_mut(&key) else {
            self.by_key.insert(Arc::clone(&key), Lane { state: State::Ready, waiting: None });
            return self.put(&key, entry, true);
        };
        match &lane.waiting {
            Some(waiting) if waiting.place.order > entry.place.order => Some(entry),
            _ => self.put(&key, entry, false),
        }
    }

    /// The next record to run, if any may. Its key is locked until [`Lanes::finish`] or [`Lanes::hold`].
    pub fn take(&mut self) -> Option<Entry<T>> {
        if self.running >= self.limits.total {
            return None;
        }
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            if self.groups.get(&name).is_some_and(|group| group.running >= self.limits.group) {
                self.turns.push_back(name);
                continue;
            }
            let entry = self.next_of(&name);
            match self.groups.get(&name) {
                Some(group) if !group.ready.is_empty() => self.turns.push_back(name),
                Some(group) if group.running == 0 => drop(self.groups.remove(&name)),
                _ => {}
            }
            if entry.is_some() {
                return entry;
            }
        }
        None
    }

    /// The record of this place that ran is dealt with.
    pub fn finish(&mut self, place: &Place) {
        self.release(place);
        let Some(lane) = self.by_key.get_mut(&place.key) else { return };
        if lane.waiting.is_some() {
            self.make_ready(&place.key);
        } else {
            self.by_key.remove(&place.key);
        }
    }

    /// The record that ran could not be dealt with. It waits for [`Lanes::wake`], unless a newer one came meanwhile:
    /// then it is answered as superseded and the newer one is next.
    pub fn hold(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        self.release(&entry.place);
        let key = Arc::clone(&entry.place.key);
        let lane = self.by_key.get_mut(&key)?;
        if lane.waiting.as_ref().is_some_and(|waiting| waiting.place.order >= entry.place.order) {
            self.make_ready(&key);
            return Some(entry);
        }
        lane.state = State::Resting;
        self.put(&key, entry, false)
    }

    /// A resting key may be tried again.
    pub fn wake(&mut self, key: &Arc<str>) {
        if self.by_key.get(key).is_some_and(|lane| lane.state == State::Resting) {
            self.make_ready(key);
        }
    }

    /// Forgets the waiting records that `stale` names. What runs goes on, and keeps its key locked. Answers how many.
    pub fn discard(&mut self, stale: impl Fn(Ticket) -> bool) -> usize {
        let before = self.waiting;
        let mut empty = Vec::new();
        for (key, lane) in &mut self.by_key {
            if !lane.waiting.as_ref().is_some_and(|waiting| stale(waiting.ticket)) {
                continue;
            }
            lane.waiting = None;
            self.waiting -= 1;
            if lane.state != State::Running {
                empty.push(Arc::clone(key));
            }
        }
        for key in empty {
            self.by_key.remove(&key);
        }
        before - self.waiting
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

    fn put(&mut self, key: &Arc<str>, entry: Entry<T>, fresh: bool) -> Option<Entry<T>> {
        let lane = self.by_key.get_mut(key)?;
        let superseded = lane.waiting.replace(entry);
        self.waiting += usize::from(superseded.is_none());
        // A newer record of a resting key may be of another kind: it is tried at once.
        let woken = lane.state == State::Resting && superseded.is_some();
        if fresh || woken {
            self.make_ready(key);
        }
        superseded
    }

    /// The next record of a group. Its queue may name lanes that were discarded or queued anew since.
    fn next_of(&mut self, group: &Arc<str>) -> Option<Entry<T>> {
        while let Some(key) = self.groups.get_mut(group)?.ready.pop_front() {
            if let Some(entry) = self.start(&key) {
                return Some(entry);
            }
        }
        None
    }

    fn start(&mut self, key: &Arc<str>) -> Option<Entry<T>> {
        let lane = self.by_key.get_mut(key).filter(|lane| lane.state == State::Ready)?;
        let entry = lane.waiting.take()?;
        lane.state = State::Running;
        self.waiting -= 1;
        self.running += 1;
        self.groups.entry(Arc::clone(&entry.place.group)).or_default().running += 1;
        Some(entry)
    }

    fn release(&mut self, place: &Place) {
        self.running = self.running.saturating_sub(1);
        let Some(group) = self.groups.get_mut(&place.group) else { return };
        group.running = group.running.saturating_sub(1);
        if group.running == 0 && group.ready.is_empty() {
            self.groups.remove(&place.group);
        }
    }

    fn make_ready(&mut self, key: &Arc<str>) {
        let Some(lane) = self.by_key.get_mut(key) else { return };
        let Some(waiting) = &lane.waiting else { return };
        lane.state = State::Ready;
        let name = Arc::clone(&waiting.place.group);
        let group = self.groups.entry(Arc::clone(&name)).or_default();
        if group.ready.is_empty() && !self.turns.contains(&name) {
            self.turns.push_back(name);
        }
        group.ready.push_back(Arc::clone(key));
    }
}

#[cfg(test)]
mod tests;
