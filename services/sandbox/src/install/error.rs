//! What can go wrong while something is installed, each with what the reader can do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why an installation did not come about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody said where the cache is, and there is no home directory to put it in.
    #[error("find a place for the cache: there is no home directory; name one with SLIPWAY_CACHE")]
    LocateCache,
    /// A file or directory of the cache could not be made, read or moved.
    #[error("prepare {}", path.display())]
    Prepare {
        /// What was being prepared.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock for longer than its work can take.
    #[error("lock {}: process {holder} has held it for more than {} s; stop that process or wait for it", path.display(), waited.as_secs())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The process that last wrote its id there.
        holder: String,
        /// How long we waited.
        waited: Duration,
    },
    /// A command of a step failed or took too long.
    #[error("{0}")]
    Step(Box<Failure>),
    /// Every command ended well, and yet something that was to be made is not there.
    #[error("{step}: finished without making {}", path.display())]
    Incomplete {
        /// The step, in words.
        step: String,
        /// What is missing.
        path: PathBuf,
    },
    /// A program that we do not install ourselves is missing or too old.
    #[error("{step}: {problem}; {hint}")]
    Program {
        /// The step that needs it.
        step: String,
        /// What is wrong with it.
        problem: String,
        /// What to install.
        hint: String,
    },
    /// System packages are missing, and only root may install them.
    #[error("install system packages: this needs root; run: {command}")]
    NeedRoot {
        /// The command to run.
        command: String,
    },
    /// System packages are missing on a system whose package manager we do not know.
    #[error("install system packages: there is no apt-get here; install what Debian calls {packages}")]
    NoPackageManager {
        /// Names of the packages in Debian.
        packages: String,
    },
}

/// A command that failed, and what is known of it.
#[derive(Debug)]
pub struct Failure {
    /// The step, in words.
    pub step: String,
    /// The command as it could be typed.
    pub command: String,
    /// How it ended.
    pub reason: String,
    /// The last lines it wrote.
    pub log_tail: String,
    /// Where all it wrote is kept.
    pub log: PathBuf,
    /// What to try.
    pub hint: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, command, reason, log_tail, log, hint } = self;
        writeln!(out, "{step}: `{command}` {reason}")?;
        writeln!(out, "{log_tail}")?;
        writeln!(out, "the whole log: {}", log.display())?;
        write!(out, "try: {hint}")
    }
}

impl Error {
    /// The log lines and the hint to show to the person who waits.
    pub(crate) fn explain(&self) -> (String, String) {
        match self {
            Self::Step(failure) => {
                let Failure { log_tail, command, reason, hint, .. } = &**failure;
                (
                    format!(
                        "{log_tail}
`{command}` {reason}"
                    ),
                    hint.clone(),
                )
            }
            Self::Program { problem, hint, .. } => (problem.clone(), hint.clone()),
            Self::NeedRoot { command } => {
                ("system packages are missing".to_owned(), format!("run: {command}"))
            }
            other => (String::new(), other.to_string()),
        }
    }
}
