//! What the API has promised: of each database what was accepted last, and every operation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Every database that was ever accepted, by id.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The databases.
    pub databases: BTreeMap<String, Entry>,
}

/// One database as its user knows it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Size that was accepted last.
    pub size_gib: i64,
    /// Epoch and seq of what was accepted last.
    pub position: (i64, i64),
    /// Whether its deletion was accepted.
    pub deleted: bool,
    /// Each change: its operation, its position, and when the API had answered.
    pub changes: Vec<Change>,
}

/// An accepted change.
#[derive(Debug, Clone)]
pub struct Change {
    /// Its operation.
    pub operation: String,
    /// Epoch and seq.
    pub position: (i64, i64),
    /// When its acceptance was known.
    pub accepted: Instant,
    /// Whether it was answered at once: else nobody knows when it was accepted.
    pub prompt: bool,
}

impl Ledger {
    /// Adds what another user knows.
    pub fn merge(&mut self, other: Self) {
        self.databases.extend(other.databases);
    }

    /// The databases of a region.
    pub fn of<'a>(&'a self, region: &'a str) -> impl Iterator<Item = &'a String> {
        self.databases.iter().filter(move |(_, entry)| entry.region == region).map(|(id, _)| id)
    }

    /// Number of accepted changes.
    pub fn changes(&self) -> usize {
        self.databases.values().map(|entry| entry.changes.len()).sum()
    }

    /// Databases whose deletion was accepted.
    pub fn deleted(&self) -> usize {
        self.databases.values().filter(|entry| entry.deleted).count()
    }
}

/// The value below which so many in a hundred lie; zero where there is none.
pub fn percentile(mut values: Vec<Duration>, percent: usize) -> Duration {
    values.sort_unstable();
    let at = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let values: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(values.clone(), 50), Duration::from_millis(51));
        assert_eq!(percentile(values.clone(), 99), Duration::from_millis(100));
        assert_eq!(percentile(values, 100), Duration::from_millis(100));
        assert_eq!(percentile(Vec::new(), 99), Duration::ZERO);
    }
}
