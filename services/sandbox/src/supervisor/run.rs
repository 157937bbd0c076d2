//! The supervisor's loop: looks at every program, lets the table decide, does what it says.
//!
//! One thread owns all state; checks and callers reach it through one channel. Decides nothing that `machine` does not.

use std::process::Child;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;

use super::control::{self, Call, Reply, Request};
use super::machine::{Action, Facts, Phase, State, Wish};
use super::record::{self, Record};
use super::slot::Slot;
use super::status::Status;
use super::{events, probe, spawn};
use crate::clock;
use crate::process::{Process, write_whole};
use crate::stack::{Layout, Programs, StopSignal};

/// How often the world is looked at while something is on its way, and at rest.
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(250);

/// What reaches the loop from other threads.
enum Event {
    Call(Call),
    Looked { name: String, process: Process, ready: bool },
}

struct Supervisor {
    layout: Layout,
    stack: String,
    began: Instant,
    own: Process,
    slots: Vec<Slot>,
    events: mpsc::SyncSender<Event>,
    ending: bool,
}

/// Runs until it is asked to stop. The caller holds the supervisor's lock.
pub(super) fn run(layout: Layout) -> anyhow::Result<()> {
    let (events, inbox) = mpsc::sync_channel(256);
    forward_calls(&layout, events.clone())?;
    let programs = Programs::read(&layout)?;
    let own = Process::of_pid(std::process::id().cast_signed()).context("finding myself")?;
    let stack = programs.stack.clone();
    let mut supervisor =
        Supervisor { layout, stack, began: Instant::now(), own, slots: Vec::new(), events, ending: false };
    supervisor.say("supervisor", "began");
    supervisor.adopt();
    supervisor.apply(&programs);
    supervisor.publish();
    loop {
        let settled = supervisor.slots.iter().all(|slot| slot.state.is_settled());
        match inbox.recv_timeout(if settled { IDLE } else { BUSY }) {
            Ok(Event::Call(call)) => supervisor.answer(&call),
            Ok(Event::Looked { name, process, ready }) => supervisor.looked(&name, process, ready),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the control thread has ended"),
        }
        if supervisor.tick() {
            supervisor.publish();
        }
        if supervisor.ending && supervisor.slots.iter().all(|slot| slot.state.phase == Phase::Stopped) {
            supervisor.say("supervisor", "ended: everything is stopped");
            return Ok(());
        }
    }
}

fn forward_calls(layout: &Layout, events: mpsc::SyncSender<Event>) -> anyhow::Result<()> {
    let (calls, called) = mpsc::sync_channel(16);
    control::serve(layout, calls)?;
    thread::Builder::new().name("calls".to_owned()).spawn(move || {
        for call in called {
            if events.send(Event::Call(call)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Supervisor {
    /// Takes over what an earlier supervisor left running.
    fn adopt(&mut self) {
        let now = self.now();
        for Record { process, program } in record::read_all(&self.layout) {
            if process.is_alive() {
                self.say(&program.name, &format!("adopted, pid {}", process.pid));
                let mut slot = Slot::new(program, State::adopted(now));
                slot.process = Some(process);
                self.slots.push(slot);
            } else {
                record::remove(&self.layout, &program.name);
            }
        }
    }

    /// Makes the wishes of all slots those of a definition.
    fn apply(&mut self, programs: &Programs) {
        let now = self.now();
        for slot in &mut self.slots {
            if !programs.programs.iter().any(|program| program.name == slot.program.name) {
                slot.leaves = true;
                slot.state.wish = Wish::Stop;
            }
        }
        for program in programs.programs.iter().cloned() {
            match self.slots.iter_mut().find(|slot| slot.program.name == program.name) {
                None => self.slots.push(Slot::new(program, State::waiting(now))),
                Some(slot) => slot.redefine(program),
            }
        }
    }

    fn answer(&mut self, call: &Call) {
        let result = self.carry_out(&call.request);
        let error = result.err().map(|error| format!("{error:#}"));
        let status = Some(self.status());
        // The caller may have gone away.
        let _ = call.answer.try_send(Reply { error, status });
    }

    fn carry_out(&mut self, request: &Request) -> anyhow::Result<()> {
        match request {
            Request::Status => {}
            Request::Apply => {
                let programs = Programs::read(&self.layout)?;
                self.apply(&programs);
            }
            Request::Stop => {
                self.say("supervisor", "asked to stop everything");
                self.ending = true;
                for slot in &mut self.slots {
                    slot.state.wish = Wish::Stop;
                }
            }
            Request::Start { name } => self.slot(name)?.state.wish = Wish::Run,
            Request::Hold { name } => self.slot(name)?.state.wish = Wish::Hold,
            Request::Restart { name } => self.slot(name)?.state.wish = Wish::Restart,
            Request::Signal { name, signal } => {
                let signal = Signal::try_from(*signal).context("there is no such signal")?;
                let process = self.slot(name)?.process.context("it does not run")?;
                process.signal(signal);
                self.say(name, &format!("was sent {signal}"));
            }
        }
        Ok(())
    }

    fn slot(&mut self, name: &str) -> anyhow::Result<&mut Slot> {
        let slot = self.slots.iter_mut().find(|slot| slot.program.name == name);
        slot.with_context(|| format!("there is no program '{name}'"))
    }

    fn looked(&mut self, name: &str, process: Process, ready: bool) {
        if let Ok(slot) = self.slot(name) {
            slot.looking = false;
            // A late answer may be about a process that has died since.
            slot.seen_ready |= ready && slot.process == Some(process);
        }
    }

    /// One look at every program; true when something is worth publishing.
    fn tick(&mut self) -> bool {
        let mut changed = false;
        for index in 0..self.slots.len() {
            changed |= self.reap(index);
            let facts = self.facts(index);
            let before = self.slots[index].state;
            let (next, action) = before.step(self.slots[index].timing(), facts);
            self.slots[index].state = next;
            changed |= next.phase != before.phase;
            if next.phase != before.phase {
                self.entered(index, facts.now);
            }
            self.act(index, action, facts.now);
            self.look(index, facts.now);
        }
        let gone = |slot: &Slot| slot.leaves && slot.state.phase == Phase::Stopped;
        let count = self.slots.len();
        self.slots.retain(|slot| !gone(slot));
        changed || self.slots.len() != count
    }

    /// Notices a death; true when there was one.
    fn reap(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        let Some(process) = slot.process else { return false };
        let ended = match slot.child.as_mut().map(Child::try_wait) {
            Some(Ok(status)) => status.map(|status| status.to_string()),
            Some(Err(error)) => Some(format!("lost: {error}")),
            None => (!process.is_alive())
                .then(|| "unknown exit code (an earlier supervisor started it)".to_owned()),
        };
        let Some(how) = ended else { return false };
        slot.process = None;
        slot.child = None;
        slot.seen_ready = false;
        slot.last_exit = Some(how.clone());
        let name = slot.program.name.clone();
        record::remove(&self.layout, &name);
        self.say(&name, &format!("ended: {how}"));
        true
    }

    fn facts(&self, index: usize) -> Facts {
        let slot = &self.slots[index];
        let phase_of = |name: &String| {
            self.slots.iter().find(|other| other.program.name == *name).map(|other| other.state.phase)
        };
        let dependent = |other: &&Slot| other.program.depends_on.contains(&slot.program.name);
        Facts {
            now: self.now(),
            dependencies_ready: slot
                .definition()
                .depends_on
                .iter()
                .all(|name| phase_of(name) == Some(Phase::Ready)),
            dependents_gone: self.slots.iter().filter(dependent).all(|other| other.process.is_none()),
            alive: slot.process.is_some(),
            seen_ready: slot.seen_ready,
        }
    }

    fn entered(&mut self, index: usize, now: Duration) {
        let slot = &mut self.slots[index];
        slot.phase_since = clock::unix_now();
        let name = slot.program.name.clone();
        let text = match slot.state.phase {
            Phase::Ready => {
                slot.ready_after = slot.started_at.map(|started| now.saturating_sub(started));
                let after = slot.ready_after.map(|after| format!(" after {}", clock::span(after)));
                format!("ready{}", after.unwrap_or_default())
            }
            Phase::BackingOff => format!("backs off after {} failures in a row", slot.state.failures),
            Phase::Stopping => "is asked to end".to_owned(),
            Phase::Stopped => "stopped".to_owned(),
            Phase::Waiting | Phase::Starting => return,
        };
        self.say(&name, &text);
    }

    fn act(&mut self, index: usize, action: Action, now: Duration) {
        match action {
            Action::Nothing => {}
            Action::Spawn => self.start(index, now),
            Action::Terminate => {
                let slot = &self.slots[index];
                let signal = match slot.program.stop.signal {
                    StopSignal::Terminate => Signal::SIGTERM,
                    StopSignal::Interrupt => Signal::SIGINT,
                };
                if let Some(process) = slot.process {
                    process.signal(signal);
                    // A halted process would sleep through the signal.
                    process.signal(Signal::SIGCONT);
                }
            }
            Action::Kill => {
                if let Some(process) = self.slots[index].process {
                    process.signal_group(Signal::SIGKILL);
                }
            }
        }
    }

    fn start(&mut self, index: usize, now: Duration) {
        let slot = &mut self.slots[index];
        if let Some(next) = slot.next.take() {
            slot.program = next;
        }
        let program = slot.program.clone();
        slot.started_at = Some(now);
        slot.ready_after = None;
        let spawned = spawn::spawn(&self.layout, &self.stack, &program);
        let started = spawned.and_then(|child| {
            let process = Process::of_pid(child.id().cast_signed()).context("it ended at once")?;
            record::write(&self.layout, &Record { process, program: program.clone() })?;
            Ok((child, process))
        });
        match started {
            Ok((child, process)) => {
                let slot = &mut self.slots[index];
                slot.process = Some(process);
                slot.child = Some(child);
                self.say(&program.name, &format!("started, pid {}", process.pid));
            }
            Err(error) => {
                // Without a process the next look finds it dead and backs off.
                self.slots[index].last_exit = Some(format!("{error:#}"));
                self.say(&program.name, &format!("did not start: {error:#}"));
            }
        }
    }

    /// Begins a readiness check where one is due.
    fn look(&mut self, index: usize, now: Duration) {
        let slot = &mut self.slots[index];
        let Some(process) = slot.process.filter(|_| slot.is_look_due(now)) else { return };
        slot.looking = true;
        slot.looked_at = now;
        let (name, check, events) =
            (slot.program.name.clone(), slot.program.ready.clone(), self.events.clone());
        let begun = thread::Builder::new().name("look".to_owned()).spawn(move || {
            let ready = probe::look(&check);
            // The loop may have ended meanwhile.
            let _ = events.send(Event::Looked { name, process, ready });
        });
        slot.looking = begun.is_ok();
    }

    fn status(&self) -> Status {
        let programs = self.slots.iter().map(Slot::status).collect();
        Status { stack: self.stack.clone(), supervisor: self.own, programs }
    }

    /// Writes the status file; a full disk must not stop the supervisor, so it is only noted.
    fn publish(&self) {
        let text = serde_json::to_string_pretty(&self.status()).unwrap_or_default();
        if let Err(error) = write_whole(&self.layout.status_file(), &text) {
            self.say("supervisor", &format!("could not write its status: {error}"));
        }
    }

    fn say(&self, name: &str, text: &str) {
        events::say(&self.layout, name, text);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}
