//! How long work tells the person who waits for it what it is doing.
//!
//! The sandbox only reports; it never prints. A caller decides whether a step becomes a line of a terminal, a
//! spinner or nothing at all. Steps may run side by side, so every call names the step it speaks of.

use std::time::Duration;

/// Receives what the sandbox is doing. Called from several threads at once.
pub trait Progress: Sync {
    /// A step begins.
    fn start(&self, step: &str);
    /// Something worth showing about a step that is running: what it waits for, or the latest line of its log.
    fn note(&self, step: &str, text: &str);
    /// A step has finished well.
    fn done(&self, step: &str, elapsed: Duration);
    /// A step has failed: the end of its log, and what the reader can try.
    fn failed(&self, step: &str, log_tail: &str, hint: &str);
}

/// Progress for nobody: tests, and callers whose output is read by a program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, _step: &str) {}
    fn note(&self, _step: &str, _text: &str) {}
    fn done(&self, _step: &str, _elapsed: Duration) {}
    fn failed(&self, _step: &str, _log_tail: &str, _hint: &str) {}
}
