//! Programs of the stack, killed, halted and held by way of its supervisor.
//!
//! *Invariant:* a fault that did not happen is an error, and a server that a test harmed runs again when the test is done
//! with it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use sandbox::stack::Layout;
use sandbox::supervisor::{Phase, ProgramStatus, Request, ask};

use crate::eventually;

/// How long a program of the stack may take to come back.
const BACK: Duration = Duration::from_mins(2);

/// A program of the stack by its name: `kafka`, `postgres`, `bare-apiserver` …
#[derive(Debug, Clone)]
pub struct Server {
    name: String,
    layout: Layout,
}

/// A server that does not run, or stands still. It goes on when this is dropped, even by a failing test.
#[derive(Debug)]
#[must_use = "the server goes on as soon as this is dropped"]
pub struct Out {
    server: Server,
    undo: Request,
}

impl Server {
    /// The program of that name.
    pub fn named(name: &str) -> Self {
        let state = &crate::stack().state_dir;
        Self { name: name.to_owned(), layout: Layout::new(state, state) }
    }

    /// Kills it as a crash would (SIGKILL).
    ///
    /// # Errors
    /// When it did not run, or did not die.
    pub async fn kill(&self) -> anyhow::Result<()> {
        let before = self.status()?.pid.with_context(|| format!("{} does not run", self.name))?;
        self.signal(Signal::SIGKILL)?;
        let what = format!("the death of {}", self.name);
        eventually(BACK, &what, async || (self.status().ok()?.pid != Some(before)).then_some(())).await;
        Ok(())
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        let what = format!("{} ready", self.name);
        eventually(BACK, &what, async || self.is_ready().then_some(())).await;
    }

    /// Whether it is ready, as far as the supervisor says anything.
    pub fn is_ready(&self) -> bool {
        self.status().is_ok_and(|status| status.phase == Phase::Ready)
    }

    /// Halts it (SIGSTOP) until what is answered is dropped.
    ///
    /// # Errors
    /// When it does not run.
    pub fn halt(&self) -> anyhow::Result<Out> {
        ensure!(self.status()?.pid.is_some(), "the fault did not fire: {} does not run", self.name);
        self.signal(Signal::SIGSTOP)?;
        let undo = Request::Signal { name: self.name.clone(), signal: Signal::SIGCONT as i32 };
        Ok(Out { server: self.clone(), undo })
    }

    /// Stops it and keeps it stopped until what is answered is dropped.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub async fn hold(&self) -> anyhow::Result<Out> {
        ask(&self.layout, &Request::Hold { name: self.name.clone() })?;
        let out = Out { server: self.clone(), undo: Request::Start { name: self.name.clone() } };
        let what = format!("{} stopped", self.name);
        eventually(BACK, &what, async || (self.status().ok()?.phase == Phase::Stopped).then_some(())).await;
        Ok(out)
    }

    /// How it is, by the supervisor's word.
    ///
    /// # Errors
    /// When the supervisor does not answer or does not know it.
    pub fn status(&self) -> anyhow::Result<ProgramStatus> {
        let status = ask(&self.layout, &Request::Status)?;
        status.program(&self.name).cloned().with_context(|| format!("the stack has no {}", self.name))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        ask(&self.layout, &Request::Signal { name: self.name.clone(), signal: signal as i32 })?;
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // Nobody to tell: what needs the server next will say that it is missing.
        let _ = ask(&self.server.layout, &self.undo);
    }
}
