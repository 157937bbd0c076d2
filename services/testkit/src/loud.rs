//! The programs of Slipway, made to log everything from `debug` up, libraries included, for as long as somebody looks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use sandbox::stack::{Layout, Program, Programs};
use sandbox::supervisor::{self, Phase, Request};

use crate::eventually;

/// What every program of Slipway reads, and no server.
const MARKER: &str = "SLIPWAY_LOG_FORMAT";
const DIRECTIVES: (&str, &str) = ("SLIPWAY_LOG", "debug");
/// How long all of them may take to stop and to be ready again.
const PATIENCE: Duration = Duration::from_mins(2);

/// While it lives they are loud. The stack has to be the test's alone.
#[derive(Debug)]
pub struct Loud {
    layout: Layout,
    before: Option<Programs>,
}

impl Loud {
    /// Starts them again, and waits until they are ready.
    ///
    /// # Errors
    /// When the stack's supervisor does not do it.
    pub async fn begin() -> anyhow::Result<Self> {
        let layout = crate::stack().layout();
        let before = Programs::read(&layout)?;
        let mut loud = before.clone();
        let (name, value) = DIRECTIVES;
        for program in loud.programs.iter_mut().filter(|program| is_ours(program)) {
            program.env.insert(name.to_owned(), value.to_owned());
        }
        // First of all the way back, should they not come up.
        let guard = Self { layout, before: Some(before) };
        apply(&guard.layout, &loud)?;
        in_force(&guard.layout, &loud).await;
        Ok(guard)
    }

    /// Starts them again as they were. What they said loudly goes to files of its own: whoever reads the log of a program again
    /// and again is not to wade through it.
    ///
    /// # Errors
    /// When the stack's supervisor does not do it.
    pub async fn end(mut self) -> anyhow::Result<()> {
        let before = self.before.take().context("it ends once")?;
        for (program, log) in logs(&self.layout, &before) {
            std::fs::rename(&log, self.layout.log(&format!("{program}.loud")))?;
        }
        apply(&self.layout, &before)?;
        in_force(&self.layout, &before).await;
        Ok(())
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        // Only of a test that failed; nobody waits for it, and nobody could be told.
        if let Some(before) = self.before.take() {
            let _ = apply(&self.layout, &before);
        }
    }
}

/// Each program of Slipway that runs in the stack, and where it shows its metrics.
///
/// # Errors
/// When the definition of the stack cannot be read.
pub fn programs() -> anyhow::Result<Vec<(String, String)>> {
    let all = Programs::read(&crate::stack().layout())?.programs.into_iter();
    let ours = all.filter(is_ours).map(|program| {
        let address = program.env.get("SLIPWAY_OPS_LISTEN").context("a program without metrics")?;
        Ok((program.name.clone(), format!("http://{address}/metrics")))
    });
    ours.collect()
}

fn is_ours(program: &Program) -> bool {
    program.env.contains_key(MARKER)
}

fn logs(layout: &Layout, programs: &Programs) -> Vec<(String, PathBuf)> {
    let ours = programs.programs.iter().filter(|program| is_ours(program));
    ours.map(|program| (program.name.clone(), layout.log(&program.name))).collect()
}

fn apply(layout: &Layout, programs: &Programs) -> anyhow::Result<()> {
    programs.write(layout)?;
    supervisor::ask(layout, &Request::Apply).context("handing the programs to the supervisor").map(drop)
}

/// Waits until each runs by this definition, and is ready.
async fn in_force(layout: &Layout, programs: &Programs) {
    let ours: Vec<&Program> = programs.programs.iter().filter(|program| is_ours(program)).collect();
    eventually(PATIENCE, "the programs ready with other logs", async || {
        let records = supervisor::records(layout);
        let status = supervisor::ask(layout, &Request::Status).ok()?;
        let runs = |program: &&Program| {
            let record = records.iter().find(|record| record.program == **program);
            let now = status.program(&program.name);
            record
                .zip(now)
                .is_some_and(|(record, now)| now.phase == Phase::Ready && now.pid == Some(record.process.pid))
        };
        ours.iter().all(runs).then_some(())
    })
    .await;
}
