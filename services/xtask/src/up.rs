//! `cargo xtask up`: from whatever is there to a running stack with a database in each region.

mod demo;

use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use sandbox::bring_up::BringUp;
use sandbox::command::{self, TAIL};
use sandbox::progress::Progress;
use sandbox::stack::{Layout, Options, StackFacts, Tools};
use sandbox::{clock, tear_down};

use crate::down;
use crate::terminal::Terminal;
use crate::workspace::{self, Workspace};
use demo::Demo;

/// The programs that `up` needs, built with the features of every other build.
const BUILD: &[&str] = &["build", "--workspace", "--bins"];
/// How long a build may take on a slow machine with nothing cached.
const TO_BUILD: Duration = Duration::from_hours(1);

/// Arguments of `up`.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own on the command line")]
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Delete all data first
    #[arg(long)]
    fresh: bool,
    /// Use Moto as it is, without the strict layer
    #[arg(long)]
    plain_aws: bool,
    /// Start everything, but create no databases
    #[arg(long)]
    no_demo: bool,
    /// Start only Kafka, Postgres, the clusters and the AWS endpoint
    #[arg(long, hide = true)]
    servers_only: bool,
    /// Use the programs as they were built last
    #[arg(long, hide = true)]
    no_build: bool,
}

/// Brings the stack up and does the main job on it.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let since = Instant::now();
    let terminal = Terminal::start();
    let layout = workspace.stack();
    if arguments.fresh && layout.identity_file().exists() {
        if !down::stop(workspace, &layout, false, &terminal)? {
            return Err(anyhow!("something of the old stack is left; 'cargo xtask down' tells what"));
        }
        tear_down::delete_data(&layout)?;
    }
    let _lock = workspace::lock(&layout)?;
    let options =
        Options { slipway: !arguments.servers_only, plain_aws: arguments.plain_aws, ..Options::for_people() };
    let build = !arguments.no_build && options.slipway;
    let facts = start(workspace, &layout, &options, build, &terminal)?;
    terminal.line(&format!("the stack is up after {}", clock::span(since.elapsed())));
    if options.slipway && !arguments.no_demo {
        Demo { workspace, layout: &layout, facts: &facts, terminal: &terminal }.run()?;
        terminal.line(&format!("done after {}", clock::span(since.elapsed())));
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs, builds and starts; installing and building go on side by side.
pub(crate) fn start(
    workspace: &Workspace,
    layout: &Layout,
    options: &Options,
    build: bool,
    terminal: &Terminal,
) -> anyhow::Result<StackFacts> {
    // First, and alone: compiling needs some of them.
    workspace.install_packages(terminal)?;
    thread::scope(|scope| {
        let cargo = build.then(|| scope.spawn(|| self::build(workspace, layout, terminal)));
        let cargo = Mutex::new(cargo);
        let join_build = || {
            let handle = cargo.lock().map_err(|_| anyhow!("another thread has failed"))?.take();
            let join = |handle: thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handle.map_or(Ok(()), join)
        };
        let tools: Tools = workspace.install(terminal)?;
        let supervisor = || workspace.supervisor(layout);
        BringUp {
            layout,
            tools: &tools,
            options,
            progress: terminal,
            supervisor: &supervisor,
            built: &join_build,
        }
        .run()
    })
}

fn build(workspace: &Workspace, layout: &Layout, terminal: &Terminal) -> anyhow::Result<()> {
    let step = "build the programs";
    terminal.start(step);
    let since = Instant::now();
    let log = layout.log("build");
    let file = std::fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut child =
        workspace.cargo(BUILD).stdout(file.try_clone()?).stderr(file).spawn().context("starting cargo")?;
    let status = command::wait(&mut child, TO_BUILD)?;
    if status.success() {
        terminal.done(step, since.elapsed());
        return Ok(());
    }
    terminal.failed(step, &command::tail(&log, TAIL), &format!("The whole output is in {}.", log.display()));
    Err(anyhow!("the programs do not build"))
}
