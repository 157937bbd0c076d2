//! The supervisor's socket: one line of JSON asks, one line answers.
//!
//! The server side only hands requests to the supervisor's loop; it decides nothing. *Invariant:* every call on either
//! side has a deadline, so a hung peer delays nobody for longer than that.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::status::Status;
use crate::stack::Layout;

/// How long either side waits for the other: on a busy machine one may stand still for a while.
const LIMIT: Duration = Duration::from_secs(30);

/// What can be asked of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Say how the stack is.
    Status,
    /// Read the definition again and make it so: start, restart and stop what differs.
    Apply,
    /// Stop every program in order, then end.
    Stop,
    /// Start a program that was held.
    Start {
        /// Its name.
        name: String,
    },
    /// Stop a program, whoever depends on it, and leave it stopped.
    Hold {
        /// Its name.
        name: String,
    },
    /// End a program and start it again.
    Restart {
        /// Its name.
        name: String,
    },
    /// Send a signal to a program, by number: 9 kills, 19 halts, 18 goes on.
    Signal {
        /// Its name.
        name: String,
        /// Number of the signal.
        signal: i32,
    },
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) error: Option<String>,
    pub(super) status: Option<Status>,
}

/// A request on its way into the supervisor's loop, with the place for the answer.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) answer: mpsc::SyncSender<Reply>,
}

/// Asks the supervisor of a stack; an error when none answers.
pub fn ask(layout: &Layout, request: &Request) -> anyhow::Result<Status> {
    let (_folder, path) = short_path(layout)?;
    let mut stream = UnixStream::connect(&path).context("no supervisor answers")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    writeln!(stream, "{}", serde_json::to_string(request)?).context("asking the supervisor")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("waiting for the supervisor's answer")?;
    let reply: Reply = serde_json::from_str(&line).context("reading the supervisor's answer")?;
    match reply {
        Reply { error: Some(error), .. } => bail!(error),
        Reply { status: Some(status), .. } => Ok(status),
        Reply { .. } => Err(anyhow!("the supervisor's answer is empty")),
    }
}

/// Listens on the stack's socket and hands calls over. The caller holds the stack's lock, so an old socket is dead.
pub(super) fn serve(layout: &Layout, calls: mpsc::SyncSender<Call>) -> anyhow::Result<()> {
    let (folder, path) = short_path(layout)?;
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).context("binding the supervisor's socket")?;
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        let _folder = folder;
        for stream in listener.incoming().flatten() {
            let calls = calls.clone();
            let handled = thread::Builder::new().name("call".to_owned()).spawn(move || {
                // A caller that went away or sent nonsense has nobody to tell.
                let _ = handle(stream, &calls);
            });
            if handled.is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn handle(stream: UnixStream, calls: &mpsc::SyncSender<Call>) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => {
            let (answer, answered) = mpsc::sync_channel(1);
            calls.send(Call { request, answer })?;
            answered.recv_timeout(LIMIT)?
        }
        Err(error) => Reply { error: Some(format!("not a request: {error}")), status: None },
    };
    let mut stream = stream;
    writeln!(stream, "{}", serde_json::to_string(&reply)?)?;
    Ok(())
}

/// A socket's path may be 107 bytes long, a checkout may lie deeper: go through an open folder, whose path is short.
fn short_path(layout: &Layout) -> anyhow::Result<(File, PathBuf)> {
    let folder =
        File::open(layout.state()).with_context(|| format!("opening {}", layout.state().display()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/supervisor.sock", folder.as_raw_fd()));
    Ok((folder, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_are_written() {
        for (request, text) in [
            (Request::Apply, r#"{"do":"apply"}"#),
            (Request::Restart { name: "kafka".to_owned() }, r#"{"do":"restart","name":"kafka"}"#),
            (
                Request::Signal { name: "kafka".to_owned(), signal: 9 },
                r#"{"do":"signal","name":"kafka","signal":9}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).expect("encodes"), text);
            assert_eq!(serde_json::from_str::<Request>(text).expect("decodes"), request);
        }
    }
}
