//! The event log: what happened to programs, a line each, for the person who asks why something is not running.

use std::fs::OpenOptions;
use std::io::Write;

use crate::clock;
use crate::stack::Layout;

/// Adds a line: when, to whom, what.
pub(super) fn say(layout: &Layout, name: &str, text: &str) {
    let line = format!("{} {name} {text}\n", clock::iso(clock::unix_now()));
    let log = OpenOptions::new().create(true).append(true).open(layout.events_file());
    // There is nowhere else to say that the event log cannot be written.
    let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
}
