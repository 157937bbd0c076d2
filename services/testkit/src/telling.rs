//! What becomes of the events of a watch on the way to whom they are told: some are merged, lost or late, by a seed. Pure; time
//! is a parameter.
//!
//! Kubernetes loses no single event of a watch that lives. What it does not tell is what lay between a watch that got too old
//! and the list after it, and who looks at two moments never sees what was between them. So what is lost here is followed by
//! the word that the watch is too old, and what is merged is what such a look would show. *Invariant:* versions never go back,
//! and no bookmark says that all before it was told while something is held back.

#[cfg(test)]
mod tests;

use std::mem;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Random;

/// What a watch is told of a version that is too old, in the way of API servers: as an event.
pub const FORGOTTEN: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

/// For how long at least changes of objects are merged.
const SHORTEST: Duration = Duration::from_millis(100);
/// Milliseconds more that this may last.
const SPREAD: u64 = 800;
/// How many of a hundred events are lost after the first.
const LOST: u64 = 50;

/// What becomes of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fate {
    /// They are told as they come.
    #[default]
    Told,
    /// They are held back for a moment, and what is told of each object is only what became of it.
    Merged,
    /// Some are never told. When this is over, the watch is told that it is too old, and ends.
    Lost,
    /// They are told in order when this is over.
    Late,
}

/// How many events met which fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// Those of which a later one of the same object was told instead.
    pub covered: usize,
    /// Those of objects that came and went, of which nothing was told.
    pub unseen: usize,
    /// Those that an object was gone, told as if it had changed into the one that came under its name.
    pub replaced: usize,
    /// Those that were not told.
    pub lost: usize,
    /// Those that were told later than what came meanwhile on other watches.
    pub late: usize,
}

impl Fates {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            covered: self.covered + other.covered,
            unseen: self.unseen + other.unseen,
            replaced: self.replaced + other.replaced,
            lost: self.lost + other.lost,
            late: self.late + other.late,
        }
    }
}

/// What is to be told now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Whole lines.
    pub text: Vec<u8>,
    /// Whether the watch ends with them.
    pub ends: bool,
}

/// Tells one watch.
#[derive(Debug)]
pub struct Teller {
    /// What its kind makes of a seed.
    salt: u64,
    random: Random,
    fate: Fate,
    /// What came and was not told, in the order of versions.
    held: Vec<Event>,
    /// Until when what comes is merged with that.
    until: Option<Instant>,
    /// Whether something of this watch was lost.
    loses: bool,
    /// The beginning of a line.
    rest: Vec<u8>,
    fates: Fates,
}

/// An event about an object.
#[derive(Debug)]
struct Event {
    value: Value,
}

impl Teller {
    /// Tells a watch of a kind: each has choices of its own, and the same ones by the same seed.
    pub fn new(kind: &str) -> Self {
        let salt = kind.bytes().fold(0_u64, |salt, byte| salt.rotate_left(7) ^ u64::from(byte));
        Self {
            salt,
            random: Random::new(salt),
            fate: Fate::Told,
            held: Vec::new(),
            until: None,
            loses: false,
            rest: Vec::new(),
            fates: Fates::default(),
        }
    }

    /// Takes in what the server says, in whatever pieces that comes.
    pub fn hear(&mut self, piece: &[u8], now: Instant) -> Said {
        let mut text = Vec::new();
        self.rest.extend_from_slice(piece);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let after = self.rest.split_off(end + 1);
            let line = mem::replace(&mut self.rest, after);
            self.take(line, now, &mut text);
        }
        Said { text, ends: false }
    }

    /// From now on events have this fate, by this seed.
    pub fn turn(&mut self, fate: Fate, seed: u64) -> Said {
        self.random = Random::new(seed ^ self.salt);
        if mem::replace(&mut self.fate, fate) == fate {
            return Said::default();
        }
        self.tell()
    }

    /// When what is held back is to be told.
    pub const fn due(&self) -> Option<Instant> {
        self.until
    }

    /// Tells what is held back. After a loss that is no more than that the watch is too old.
    pub fn tell(&mut self) -> Said {
        let mut text = Vec::new();
        self.flush(&mut text);
        let ends = mem::take(&mut self.loses);
        if ends {
            text.extend_from_slice(FORGOTTEN.as_bytes());
        }
        Said { text, ends }
    }

    /// The server ends the watch.
    pub fn end(&mut self) -> Said {
        let Said { mut text, .. } = self.tell();
        text.append(&mut self.rest);
        Said { text, ends: true }
    }

    /// What happened since this was asked for last.
    pub fn take_fates(&mut self) -> Fates {
        mem::take(&mut self.fates)
    }

    fn take(&mut self, line: Vec<u8>, now: Instant, text: &mut Vec<u8>) {
        if self.fate == Fate::Told {
            return text.extend(line);
        }
        let Some(event) = Event::of(&line) else {
            // An error says something of all before it; nobody misses a bookmark.
            if !is_bookmark(&line) {
                self.flush(text);
                text.extend(line);
            }
            return;
        };
        match self.fate {
            Fate::Told => {}
            Fate::Merged => {
                if self.held.is_empty() {
                    self.until = Some(now + SHORTEST + Duration::from_millis(self.random.below(SPREAD)));
                }
                self.merge(event);
            }
            Fate::Lost => {
                if !self.loses || self.random.chance(LOST) {
                    (self.loses, self.fates.lost) = (true, self.fates.lost + 1);
                } else {
                    text.extend(line);
                }
            }
            Fate::Late => {
                self.fates.late += 1;
                self.held.push(event);
            }
        }
    }

    /// Puts an event in the place of an earlier one of the same object. Its version is the newest, so it is told last.
    fn merge(&mut self, mut event: Event) {
        let Some(at) = self.held.iter().position(|held| held.names() == event.names()) else {
            return self.held.push(event);
        };
        let before = self.held.remove(at);
        match (before.kind(), event.kind()) {
            ("ADDED", "DELETED") => {
                self.fates.unseen += 2;
                return;
            }
            ("ADDED", _) => event.call("ADDED"),
            ("DELETED", "ADDED") => event.call("MODIFIED"),
            _ => {}
        }
        if before.uid() == event.uid() {
            self.fates.covered += 1;
        } else {
            self.fates.replaced += 1;
        }
        self.held.push(event);
    }

    fn flush(&mut self, text: &mut Vec<u8>) {
        self.until = None;
        for event in self.held.drain(..) {
            text.extend_from_slice(event.value.to_string().as_bytes());
            text.push(b'\n');
        }
    }
}

impl Event {
    /// Nothing where a line is about no object.
    fn of(line: &[u8]) -> Option<Self> {
        let event = Self { value: serde_json::from_slice(line).ok()? };
        matches!(event.kind(), "ADDED" | "MODIFIED" | "DELETED").then_some(event)
    }

    fn kind(&self) -> &str {
        self.value["type"].as_str().unwrap_or_default()
    }

    fn call(&mut self, kind: &str) {
        self.value["type"] = kind.into();
    }

    /// Namespace and name.
    fn names(&self) -> [&Value; 2] {
        let metadata = &self.value["object"]["metadata"];
        [&metadata["namespace"], &metadata["name"]]
    }

    fn uid(&self) -> &Value {
        &self.value["object"]["metadata"]["uid"]
    }
}

fn is_bookmark(line: &[u8]) -> bool {
    serde_json::from_slice::<Value>(line).is_ok_and(|value| value["type"] == "BOOKMARK")
}
