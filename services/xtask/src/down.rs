//! `cargo xtask down`: stops the stacks of this checkout and says what was found.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use sandbox::clock;
use sandbox::stack::Layout;
use sandbox::tear_down;

use crate::terminal::Terminal;
use crate::workspace::{self, Workspace};

/// Arguments of `down`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Also delete all data: databases, volumes, keys, logs
    #[arg(long)]
    all_data: bool,
}

/// Stops both stacks; the code is 1 when something is left behind.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let terminal = Terminal::start();
    let mut clean = true;
    for (_, layout) in workspace.stacks() {
        if layout.state().exists() {
            clean &= stop(workspace, &layout, arguments.all_data, &terminal)?;
        }
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Stops one stack; true when nothing of it is left.
pub(crate) fn stop(
    workspace: &Workspace,
    layout: &Layout,
    all_data: bool,
    terminal: &Terminal,
) -> anyhow::Result<bool> {
    let _lock = workspace::lock(layout)?;
    let since = Instant::now();
    let found = tear_down::tear_down(layout, &workspace.programs(), terminal)?;
    let place = layout.state().display();
    if found.is_empty() {
        let what = "no process, mount, namespace, route or port is left";
        terminal.line(&format!("{place}: down after {}; {what}", clock::span(since.elapsed())));
    } else {
        terminal.line(&format!("{place}: left behind:"));
        for leftover in &found {
            terminal.line(&format!("  {}", leftover.what));
        }
        if tear_down::agent(layout, &workspace.programs()).is_none() {
            terminal.line(
                "the node agent, which takes nodes away, is not built: `cargo xtask up`, then down once more",
            );
        }
    }
    if all_data && found.is_empty() {
        tear_down::delete_data(layout)?;
        terminal.line(&format!("{place}: data deleted"));
    }
    Ok(found.is_empty())
}
