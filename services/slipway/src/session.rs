//! One run of the program: its settings, how it speaks, and the way to the API. It does nothing by itself.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::{Given, Global};
use crate::client::Client;
use crate::connection::{self, Connection};
use crate::contexts;
use crate::error::Error;
use crate::output::Output;

/// How long a command may take that waits for nothing but answers.
pub const REQUEST: Duration = Duration::from_secs(30);
/// How long a command may take that waits for an operation.
pub const WAITING: Duration = Duration::from_mins(30);

/// One run.
#[derive(Debug)]
pub struct Session {
    /// How it speaks.
    pub output: Output,
    /// The present, taken once, so that all ages of an output are of one moment.
    pub now: jiff::Timestamp,
    global: Global,
    given: Given,
    begun: Instant,
}

impl Session {
    /// Begins; the time that the command may take runs from here.
    pub fn new(global: Global, given: Given, output: Output) -> Self {
        Self { output, now: jiff::Timestamp::now(), global, given, begun: Instant::now() }
    }

    /// What every command takes.
    pub const fn global(&self) -> &Global {
        &self.global
    }

    /// The file of contexts.
    pub fn contexts_path(&self) -> Result<PathBuf, Error> {
        contexts::path(&self.global)
    }

    /// The API to speak to.
    pub fn connection(&self) -> Result<Connection, Error> {
        let said =
            self.global.context.is_none() && self.global.api_url.is_some() && self.global.token.is_some();
        // Everything is said: a broken file of contexts, or none at all, must not get into the way.
        let known =
            if said { contexts::Contexts::default() } else { contexts::load(&self.contexts_path()?)? };
        connection::resolve(&self.global, self.given, &known)
    }

    /// The way to the API. The command may take `--timeout`, or `usual` where that is not given.
    pub fn client(&self, usual: Duration) -> Result<Client, Error> {
        let connection = self.connection()?;
        if connection::in_the_open(&connection) {
            self.output.warn("the token travels unencrypted: use https");
        }
        Client::new(connection, self.begun + self.global.timeout.unwrap_or(usual), self.output)
    }

    /// When the command must be done.
    pub fn deadline(&self, usual: Duration) -> Instant {
        self.begun + self.global.timeout.unwrap_or(usual)
    }
}
