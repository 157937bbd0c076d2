//! What the supervisor leaves on disk about the programs it started, so that the next one can adopt them.
//!
//! `pids/<program>.pid` is for people and scripts; `pids/<program>.json` also holds the start time and the definition that
//! the process was started from. A record proves nothing by itself: the process behind it may be long gone.

use std::fs;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::process::{Process, write_whole};
use crate::stack::{Layout, Program};

/// A process that was started, and what from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The process.
    pub process: Process,
    /// The definition it was started from.
    pub program: Program,
}

/// Writes down what was started.
pub(super) fn write(layout: &Layout, record: &Record) -> anyhow::Result<()> {
    let name = &record.program.name;
    let text = serde_json::to_string(record).context("encoding a record")?;
    write_whole(&layout.record(name), &text).with_context(|| format!("writing the record of {name}"))?;
    write_whole(&layout.pid_file(name), &format!("{}\n", record.process.pid))
        .with_context(|| format!("writing the pid file of {name}"))
}

/// Takes away the record of a program that has ended.
pub(super) fn remove(layout: &Layout, name: &str) {
    // Either may be missing already; a stale one is harmless, because its process is looked up.
    let _ = fs::remove_file(layout.record(name));
    let _ = fs::remove_file(layout.pid_file(name));
}

/// Every record of the stack, readable ones only.
pub fn read_all(layout: &Layout) -> Vec<Record> {
    let Ok(entries) = fs::read_dir(layout.pids()) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .filter_map(|entry| serde_json::from_str(&fs::read_to_string(entry.path()).ok()?).ok())
        .collect()
}
