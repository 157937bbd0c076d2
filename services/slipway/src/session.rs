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
#[derive(Debug, Clone)]
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

    /// The same with all of its time still to come: what a person took to type is not the command's.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self { begun: Instant::now(), ..self.clone() }
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

#[cfg(test)]
pub mod tests {
    //! Runs for tests.

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
    }

    /// A run with these words.
    pub fn session(words: &[&str]) -> Session {
        let Line { global } = Line::parse_from([&["slipway"], words].concat());
        let output = Output::new(&global);
        Session::new(global, Given::default(), output)
    }

    #[test]
    fn what_a_person_took_to_type_is_not_the_commands_time() {
        let mut session = session(&[]);
        session.begun -= REQUEST;
        assert!(session.deadline(REQUEST) <= Instant::now());
        assert!(session.anew().deadline(REQUEST) > Instant::now() + REQUEST / 2);
    }
}
