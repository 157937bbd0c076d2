//! Brings a stack up, from wherever it is: prepares, starts, sets up, starts the rest, waits.
//!
//! Every step may be done again; what is done already costs little. Never deletes anything. The steps between the servers
//! and the programs (migrations, topics, custom resource definitions …) are in `set_up`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::command::{TAIL, tail};
use crate::progress::Progress;
use crate::stack::{
    self, Blueprint, Identity, Layout, Options, Program, Programs, RegionFacts, StackFacts, Tools,
};
use crate::supervisor::{self, Phase, ProgramStatus, Record, Request};
use crate::{clock, set_up};

/// How long all programs together may take to become ready.
const TO_BE_READY: Duration = Duration::from_mins(4);
/// A program that died this often in a row will not become ready by waiting.
const HOPELESS: u32 = 4;

/// What is needed to bring a stack up.
pub struct BringUp<'a> {
    /// Paths of the stack.
    pub layout: &'a Layout,
    /// Paths of installed things.
    pub tools: &'a Tools,
    /// What is wanted.
    pub options: &'a Options,
    /// Told of every step.
    pub progress: &'a dyn Progress,
    /// The command that runs a supervisor for the stack.
    pub supervisor: &'a dyn Fn() -> Command,
    /// Returns once the programs of the workspace are built.
    pub built: &'a (dyn Fn() -> anyhow::Result<()> + Sync),
}

impl BringUp<'_> {
    /// Does all of it; what it returns is also in the state directory.
    pub fn run(&self) -> anyhow::Result<StackFacts> {
        let Self { layout, tools, options, progress, .. } = *self;
        std::fs::create_dir_all(layout.pids())?;
        let identity = Identity::provide(layout, options)?;
        let blueprint = Blueprint { layout, tools, identity: &identity, options };
        stack::prepare(&blueprint, progress)?;

        let servers = blueprint.servers();
        self.start(&identity, &servers, true)?;
        self.await_ready(&servers)?;
        let regions = set_up::servers(&blueprint, progress)?;
        let known = StackFacts::read(layout).and_then(|facts| facts.token);
        if !options.slipway {
            let facts = StackFacts::of(&blueprint, &regions, None);
            facts.write(layout)?;
            return Ok(facts);
        }
        (self.built)()?;
        self.start_services(&blueprint, servers, &regions)?;
        let token = set_up::token(&blueprint, known, progress)?;
        set_up::clusters(&blueprint, &regions, &token, progress)?;
        let facts = StackFacts::of(&blueprint, &regions, Some(token));
        facts.write(layout)?;
        Ok(facts)
    }

    fn start_services(
        &self,
        blueprint: &Blueprint<'_>,
        servers: Vec<Program>,
        regions: &[RegionFacts],
    ) -> anyhow::Result<()> {
        set_up::services(blueprint, self.progress)?;
        let services = blueprint.services(regions);
        let all = [servers, services.clone()].concat();
        self.start(blueprint.identity, &all, false)?;
        self.await_ready(&services)
    }

    /// Hands a definition to the supervisor. `keep` leaves programs running that it does not speak of.
    fn start(&self, identity: &Identity, programs: &[Program], keep: bool) -> anyhow::Result<()> {
        let mut programs = programs.to_vec();
        if keep {
            let others = self.others(&programs);
            programs.extend(others);
        }
        Programs { stack: identity.id.clone(), programs }.write(self.layout)?;
        supervisor::ensure(self.layout, &identity.id, &mut (self.supervisor)())?;
        supervisor::ask(self.layout, &Request::Apply).context("handing the programs to the supervisor")?;
        Ok(())
    }

    /// Programs that are to stay as they are beside these: all that a supervisor keeps, and without one those that it left
    /// running. Of what runs no more, an earlier definition may name files that are gone by now.
    fn others(&self, programs: &[Program]) -> Vec<Program> {
        let before = match supervisor::ask(self.layout, &Request::Status) {
            Ok(_) => Programs::read(self.layout).map(|before| before.programs).unwrap_or_default(),
            Err(_) => running(supervisor::records(self.layout)),
        };
        before.into_iter().filter(|one| programs.iter().all(|program| program.name != one.name)).collect()
    }

    /// Waits until each of these programs is ready, telling of each as it comes.
    fn await_ready(&self, programs: &[Program]) -> anyhow::Result<()> {
        let deadline = Instant::now() + TO_BE_READY;
        let mut pending: Vec<Pending<'_>> = programs
            .iter()
            .map(|program| Pending { name: &program.name, since: None, failures: 0 })
            .collect();
        loop {
            let status = supervisor::ask(self.layout, &Request::Status)?;
            pending.retain_mut(|one| {
                !status.program(one.name).is_some_and(|program| one.look(program, self.progress))
            });
            let mut waited_for = pending.iter().filter_map(|one| status.program(one.name));
            if let Some(program) = waited_for.find(|program| program.failures >= HOPELESS) {
                return Err(self.fail(program, "it ends again and again"));
            }
            if pending.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let slow = pending.iter().find_map(|one| status.program(one.name));
                let slow = slow.context("the supervisor does not know the programs it was given")?;
                return Err(self.fail(slow, "it is not ready"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn fail(&self, program: &ProgramStatus, what: &str) -> anyhow::Error {
        let log = self.layout.log(&program.name);
        let hint = format!(
            "Read {} and {}, then run the command again; 'cargo xtask status' shows what runs.",
            log.display(),
            self.layout.events_file().display()
        );
        self.progress.failed(&program.name, &tail(&log, TAIL), &hint);
        let exit = program.last_exit.as_deref().unwrap_or("it has not ended");
        anyhow::anyhow!("{} did not become ready: {what} ({exit})", program.name)
    }
}

/// Programs whose processes are there.
fn running(records: Vec<Record>) -> Vec<Program> {
    records.into_iter().filter(|record| record.process.is_alive()).map(|record| record.program).collect()
}

/// A program that is not ready yet, as far as the person who waits was told.
struct Pending<'a> {
    name: &'a str,
    since: Option<Instant>,
    failures: u32,
}

impl Pending<'_> {
    /// Tells what is new; true once it is ready. What was ready at the first look is not worth a word.
    fn look(&mut self, program: &ProgramStatus, progress: &dyn Progress) -> bool {
        if program.phase == Phase::Ready {
            if let Some(since) = self.since {
                // Without a time it was adopted, and all we know is how long we waited.
                progress.done(
                    self.name,
                    program.ready_after.map_or_else(|| since.elapsed(), Duration::from_millis),
                );
            }
            return true;
        }
        if self.since.is_none() {
            self.since = Some(Instant::now());
            progress.start(self.name);
        }
        if program.failures > self.failures {
            self.failures = program.failures;
            let exit = program.last_exit.as_deref().unwrap_or("it was not ready in time");
            progress.note(self.name, &format!("failed {} times: {exit}; starts again", self.failures));
        }
        false
    }
}

/// Stops the programs of Slipway and leaves the servers, or the other way round, through the supervisor.
pub fn hold(layout: &Layout, name: &str) -> anyhow::Result<()> {
    supervisor::ask(layout, &Request::Hold { name: name.to_owned() })?;
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let status = supervisor::ask(layout, &Request::Status)?;
        let program = status.program(name).with_context(|| format!("there is no program '{name}'"))?;
        if program.phase == Phase::Stopped {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{name} did not end since {}", clock::iso(program.since));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;

    #[test]
    fn without_a_supervisor_only_what_runs_is_kept_as_it_was_started() {
        let program = |name: &str| Program::new(name, vec!["/old".to_owned()], "/");
        let alive = Process::of_pid(std::process::id().cast_signed()).unwrap();
        let dead = Process { start: alive.start + 1, ..alive };
        let record = |process, name| Record { process, program: program(name) };
        let kept = running(vec![record(alive, "backend"), record(dead, "provisioner")]);
        assert_eq!(kept, [program("backend")]);
    }
}
