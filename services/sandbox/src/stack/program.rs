//! What a program of a stack is, as data: how to start it, when it is ready, how to stop it.
//!
//! Nothing here starts anything; the supervisor reads these values, possibly in another process and much later.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One supervised process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Unique in the stack; names its log and pid file.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Environment, beside the few variables every process needs.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Whom it runs as when the supervisor is root; `None` leaves it as it is.
    pub user: Option<String>,
    /// Programs that must be ready before this one starts, and that stop after it.
    pub depends_on: Vec<String>,
    /// How readiness is seen.
    pub ready: Check,
    /// Seconds it may take to become ready.
    pub ready_within: u64,
    /// How it is stopped.
    pub stop: Stop,
    /// Changes when the program file was built again, so that a new build is started.
    pub build: String,
}

impl Program {
    /// A program with the usual timing: ready within 60 s, SIGTERM, 10 s of grace.
    pub fn new(name: impl Into<String>, command: Vec<String>, dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            command,
            env: BTreeMap::new(),
            dir: dir.into(),
            user: None,
            depends_on: Vec::new(),
            ready: Check::Running,
            ready_within: 60,
            stop: Stop { signal: StopSignal::Terminate, grace: 10 },
            build: String::new(),
        }
    }

    /// Sets how readiness is seen.
    #[must_use]
    pub fn ready(mut self, check: Check) -> Self {
        self.ready = check;
        self
    }

    /// Names what must be ready first.
    #[must_use]
    pub fn after(mut self, names: &[&str]) -> Self {
        self.depends_on = names.iter().map(ToString::to_string).collect();
        self
    }

    /// Adds environment variables.
    #[must_use]
    pub fn env(mut self, variables: &[(&str, String)]) -> Self {
        self.env.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self
    }
}

/// How the supervisor sees that a program is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Check {
    /// It runs; nothing more can be seen from outside.
    Running,
    /// A port on loopback accepts connections.
    Tcp {
        /// The port.
        port: u16,
    },
    /// A GET on loopback answers with a status below 400.
    Http {
        /// The port.
        port: u16,
        /// Path of the request.
        path: String,
    },
    /// A command ends with exit code 0.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// A file exists.
    File {
        /// Its path.
        path: PathBuf,
    },
}

/// How a program is asked to end, and for how long it may take before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The signal that asks.
    pub signal: StopSignal,
    /// Seconds until SIGKILL.
    pub grace: u64,
}

/// Signals by which programs take leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT: what Postgres calls a fast shutdown.
    Interrupt,
}
