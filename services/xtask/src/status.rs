//! `cargo xtask status`: every program of every stack of this checkout, as its supervisor sees it.

use std::process::ExitCode;

use sandbox::clock;
use sandbox::stack::{Layout, StackFacts};
use sandbox::supervisor::{self, Phase, ProgramStatus, Request, Status};

use crate::terminal;
use crate::workspace::Workspace;

/// Prints the tables; the code is 1 when a stack was started and does not run whole.
pub(crate) fn run(workspace: &Workspace) -> ExitCode {
    let mut well = true;
    for (title, layout) in workspace.stacks() {
        if !layout.programs_file().exists() {
            continue;
        }
        match supervisor::ask(&layout, &Request::Status) {
            Ok(status) => {
                well &= status.programs.iter().all(|program| program.phase == Phase::Ready);
                terminal::print(&format!(
                    "{title} (stack {}, supervisor {})",
                    status.stack, status.supervisor.pid
                ));
                terminal::print(&table(&status, clock::unix_now()));
                if let Some(api) = StackFacts::read(&layout).and_then(|facts| facts.api_url) {
                    terminal::print(&format!("\n  API {api}   logs {}", layout.logs().display()));
                }
            }
            Err(_) => well &= print_without_supervisor(title, &layout),
        }
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Programs may outlive their supervisor; true when none does, which is a stack that is down.
fn print_without_supervisor(title: &str, layout: &Layout) -> bool {
    let records = supervisor::records(layout);
    let alive: Vec<&str> = records
        .iter()
        .filter(|record| record.process.is_alive())
        .map(|record| record.program.name.as_str())
        .collect();
    if alive.is_empty() {
        terminal::print(&format!("{title}: down"));
        return true;
    }
    terminal::print(&format!("{title}: no supervisor, but these run: {}", alive.join(", ")));
    terminal::print("  'cargo xtask up' adopts them, 'cargo xtask down' stops them");
    false
}

fn table(status: &Status, now: u64) -> String {
    let head = format!(
        "  {:<28} {:<12} {:>8} {:>9} {:>9}  {}",
        "PROGRAM", "PHASE", "PID", "SINCE", "RESTARTS", "LAST EXIT"
    );
    let rows = status.programs.iter().map(|program| row(program, now));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

fn row(program: &ProgramStatus, now: u64) -> String {
    let phase = match program.phase {
        Phase::Waiting => "waiting",
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::BackingOff => "backing off",
        Phase::Stopping => "stopping",
        Phase::Stopped => "stopped",
    };
    let pid = program.pid.map(|pid| pid.to_string()).unwrap_or_default();
    let since = age(now.saturating_sub(program.since));
    let exit = program.last_exit.as_deref().unwrap_or_default();
    let row =
        format!("  {:<28} {phase:<12} {pid:>8} {since:>9} {:>9}  {exit}", program.name, program.restarts);
    row.trim_end().to_owned()
}

/// Like kubectl's: the coarsest unit that says enough.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use sandbox::process::Process;

    use super::*;

    #[test]
    fn ages_are_coarse() {
        for (seconds, expect) in [(5, "5s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (200_000, "2d")] {
            assert_eq!(age(seconds), expect);
        }
    }

    #[test]
    fn a_program_that_died_shows_it() {
        let kafka = ProgramStatus {
            name: "kafka".to_owned(),
            phase: Phase::BackingOff,
            pid: None,
            restarts: 3,
            failures: 2,
            since: 100,
            ready_after: None,
            last_exit: Some("signal: 9 (SIGKILL)".to_owned()),
        };
        let status =
            Status { stack: "a".to_owned(), supervisor: Process { pid: 1, start: 1 }, programs: vec![kafka] };
        let text = table(&status, 130);
        let row = text.lines().nth(1).expect("one row");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["kafka", "backing", "off", "30s", "3", "signal:", "9", "(SIGKILL)"]);
    }
}
