//! What a consumer is doing, for health and metrics. Written by the poll loop, read by anybody, never waited for.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock;

/// Shared between a consumer and those who watch it.
#[derive(Debug, Default)]
pub struct State(Mutex<Snapshot>);

/// What a consumer is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Rounds of the poll loop: a number that stands still means a loop that is stuck. 0 while there is none: before its first
    /// round, and once it has ended.
    pub rounds: u64,
    /// Partitions that are ours.
    pub partitions: Vec<i32>,
    /// Records that run.
    pub running: usize,
    /// Records in memory, running or waiting.
    pub in_memory: usize,
    /// What the records in memory take, in bytes.
    pub bytes: usize,
    /// Whether the partitions are paused because too much is in memory.
    pub paused: bool,
    /// Records read.
    pub read: u64,
    /// Records that a newer one of their key replaced before they ran.
    pub superseded: u64,
    /// Records that were read and not dealt with, because the last commit says that they are finished.
    pub passed_over: u64,
    /// Records behind the end, by partition, as of the last statistics.
    pub lag: BTreeMap<i32, i64>,
    /// The last error of the library since the last record read.
    pub error: Option<String>,
}

impl State {
    /// A copy of what it is now.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0).clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut lock(&self.0));
    }
}
