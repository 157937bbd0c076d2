//! Runs the steps of the groups one after the other, and takes the stack down at the end.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use sandbox::clock;
use sandbox::command::tail;
use sandbox::process::Process;
use sandbox::progress::Progress;
use sandbox::stack::{Layout, Options};

use super::plan::{Step, Tests, Work};
use super::tally::Tally;
use super::{Group, Length, asked, failures, space};
use crate::terminal::{self, Terminal};
use crate::workspace::{self, Workspace};
use crate::{down, generate, tidy, up};

/// Lines of a failed step's log that are shown.
const SHOWN: usize = 60;
/// File in the state directory in which the tests of faults note recovery times.
const RECOVERIES: &str = "recovery.txt";
/// How the tests find the stack.
const STATE: &str = "SLIPWAY_TEST_STATE";
/// How the tests know how long faults are to last.
const FULL_LENGTH: &str = "SLIPWAY_TEST_FULL_LENGTH";
/// How test programs are told how many tests to run at once, unless an option says so.
const THREADS: &str = "RUST_TEST_THREADS";

/// Runs the groups.
pub(super) fn run(
    workspace: &Workspace,
    (groups, length): (&[Group], Length),
    keep_stack: bool,
    further: &[String],
) -> anyhow::Result<ExitCode> {
    let interrupted = watch_for_interrupts()?;
    let layout = workspace.test_stack();
    let lock = workspace::lock(&layout)?;
    let (terminal, failures) = (Terminal::start(), RefCell::default());
    let runner = Runner { workspace, layout, length, further, interrupted, terminal, failures };
    let filled = workspace.target();
    for line in space::before(&filled) {
        runner.terminal.line(&line);
    }
    runner.workspace.install_packages(&runner.terminal)?;
    let since = Instant::now();
    let mut total = Tally::default();
    for group in groups {
        total += runner.group(*group);
    }
    drop(lock);
    if keep_stack {
        runner.terminal.line(&format!("the stack stays: {}", runner.layout.state().display()));
    } else if groups.iter().any(|group| *group != Group::Unit) {
        total += runner.take_down();
    }
    for failure in runner.failures.borrow().iter() {
        runner.terminal.line(&format!("failed: {failure}"));
    }
    if let Some(reason) = space::after(&filled).filter(|_| total.failed > 0) {
        runner.terminal.line(&reason);
    }
    runner.terminal.line(&format!("all after {}", clock::span(since.elapsed())));
    terminal::print(&total.to_string());
    if runner.interrupted.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(130));
    }
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Turns Ctrl-C into a flag, so that the stack can still be taken down. Signals are handled, not blocked: children would
/// inherit a block, and servers that cannot be asked to end would have to be killed.
fn watch_for_interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the program at once: registered first, it sees the flag as the first one left it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .context("watching for signals")?;
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("watching for signals")?;
    }
    Ok(interrupted)
}

/// Kills a step with everything it started.
fn end(child: &mut Child) -> anyhow::Result<()> {
    if let Some(process) = Process::of_pid(child.id().cast_signed()) {
        process.signal_group(Signal::SIGKILL);
    }
    child.wait()?;
    Ok(())
}

struct Runner<'a> {
    workspace: &'a Workspace,
    layout: Layout,
    length: Length,
    further: &'a [String],
    interrupted: Arc<AtomicBool>,
    terminal: Terminal,
    /// What failed, in a line each, to be told again at the end.
    failures: RefCell<Vec<String>>,
}

impl Runner<'_> {
    /// Runs the steps of a group; what stands on a step that failed is skipped.
    fn group(&self, group: Group) -> Tally {
        self.terminal.line(group.name());
        let mut sum = Tally::default();
        let mut stands = true;
        for step in group.steps(self.length) {
            if !stands || self.interrupted.load(Ordering::Relaxed) {
                self.terminal.line(&format!("  skip  {}", step.name));
                sum.skipped += 1;
                continue;
            }
            let tally = self.step(*step);
            stands &= !step.is_foundation() || tally.failed == 0;
            sum += tally;
        }
        sum
    }

    fn step(&self, step: Step) -> Tally {
        self.terminal.start(step.name);
        let since = Instant::now();
        let result = self.work(step);
        let log = self.layout.log(step.name);
        match result {
            Ok(tally) if tally.failed == 0 => {
                // The last line bears a longer name than the moving one.
                self.terminal.forget(step.name);
                self.terminal.done(&format!("{} ({tally})", step.name), since.elapsed());
                tally
            }
            Ok(tally) => {
                let output = fs::read_to_string(&log).unwrap_or_default();
                self.remember(step, &log, &output);
                let hint = format!("{tally}; the whole output is in {}", log.display());
                self.terminal.failed(step.name, &failures::shown(&output, SHOWN), &hint);
                tally
            }
            Err(error) => {
                self.failures.borrow_mut().push(format!("{}: {error:#}", step.name));
                self.terminal.failed(
                    step.name,
                    &format!("{error:#}"),
                    &format!("the output is in {}", log.display()),
                );
                Tally::one(false)
            }
        }
    }

    /// Keeps what failed in a step for the end.
    fn remember(&self, step: Step, log: &Path, output: &str) {
        let failed = match step.work {
            Work::CargoTest(_) => failures::of_libtest(output),
            Work::Pytest => failures::of_pytest(output),
            _ => Vec::new(),
        };
        let mut failures = self.failures.borrow_mut();
        if failed.is_empty() {
            failures.push(format!("{}: its output is in {}", step.name, log.display()));
        }
        failures.extend(failed.iter().map(|failed| format!("{}: {failed}", step.name)));
    }

    fn work(&self, step: Step) -> anyhow::Result<Tally> {
        match step.work {
            Work::Cargo(words) => Ok(Tally::one(self.command(step, self.workspace.cargo(words))?.success())),
            Work::Documentation => {
                let mut command =
                    self.workspace.cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
                command.env("RUSTDOCFLAGS", "-D warnings");
                Ok(Tally::one(self.command(step, command)?.success()))
            }
            Work::CargoTest(tests) => self.tests(step, &tests),
            Work::Pytest => self.pytest(step),
            Work::Tidy => self.tidy(step),
            Work::Generated => self.generated(step),
            Work::Servers => self.bring_up(&Options::for_integration()),
            Work::Stack => self.bring_up(&Options::for_system()),
        }
    }

    fn tests(&self, step: Step, tests: &Tests) -> anyhow::Result<Tally> {
        let Some(words) = asked::words(tests, self.further) else { return Ok(Tally::default()) };
        let mut command = self.workspace.cargo(tests.words);
        command.env(STATE, self.layout.state()).env(FULL_LENGTH, self.length.told());
        command.envs(tests.told.iter().copied());
        let processors = thread::available_parallelism().map_or(1, usize::from);
        if let Some(number) = tests.at_once.number(processors) {
            command.env(THREADS, number.to_string());
        }
        if !words.is_empty() {
            command.arg("--").args(words);
        }
        let status = self.command(step, command)?;
        let output = fs::read_to_string(self.layout.log(step.name))?;
        self.tell_recoveries();
        Ok(Tally::of_libtest(&output).with_exit(status.success()))
    }

    /// Tells how long it took after each fault until all was well again, where tests have measured that.
    fn tell_recoveries(&self) {
        let file = self.layout.state().join(RECOVERIES);
        let Ok(told) = fs::read_to_string(&file) else { return };
        for line in told.lines() {
            self.terminal.line(&format!("  recovered after {line}"));
        }
        // Told once; a file that stays is told again, which does no harm.
        let _ = fs::remove_file(&file);
    }

    fn bring_up(&self, options: &Options) -> anyhow::Result<Tally> {
        up::start(self.workspace, &self.layout, options, false, &self.terminal)?;
        Ok(Tally::one(true))
    }

    fn tidy(&self, step: Step) -> anyhow::Result<Tally> {
        let findings = tidy::check(self.workspace.root())?;
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        fs::write(self.layout.log(step.name), lines.join("\n"))?;
        Ok(Tally::one(findings.is_empty()))
    }

    fn generated(&self, step: Step) -> anyhow::Result<Tally> {
        let stale = generate::compare(self.workspace)?;
        let line =
            |path: &String| format!("{path} is stale: run 'cargo xtask generate' and commit the result");
        fs::write(self.layout.log(step.name), stale.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        Ok(Tally::one(stale.is_empty()))
    }

    fn pytest(&self, step: Step) -> anyhow::Result<Tally> {
        let folder = self.workspace.root().join("services/sandbox/servers/aws");
        let tools = self.workspace.install(&self.terminal)?;
        let mut command = Command::new(tools.aws_python);
        command
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", &folder)
            .env(STATE, self.layout.state())
            .current_dir(&folder);
        let status = self.command(step, command)?;
        let output = fs::read_to_string(self.layout.log(step.name))?;
        Ok(Tally::of_pytest(&output).with_exit(status.success()))
    }

    /// Runs a command with its output in the step's log, and stops it when somebody interrupts.
    fn command(&self, step: Step, mut command: Command) -> anyhow::Result<ExitStatus> {
        let path = self.layout.log(step.name);
        let log = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        command
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let mut child = command.spawn().context("starting a step")?;
        self.wait(step, &mut child)
    }

    fn wait(&self, step: Step, child: &mut Child) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + self.length.limit();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let interrupted = self.interrupted.load(Ordering::Relaxed);
            if interrupted || Instant::now() > deadline {
                end(child)?;
                bail!(if interrupted { "interrupted" } else { "it took too long" });
            }
            let last = tail(&self.layout.log(step.name), 1);
            self.terminal.note(step.name, last.trim());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Takes the stack down; something left behind is a failure of the tests.
    fn take_down(&self) -> Tally {
        match down::stop(self.workspace, &self.layout, false, &self.terminal) {
            Ok(true) => Tally::one(true),
            Ok(false) => {
                self.failures.borrow_mut().push("down: something was left behind".to_owned());
                Tally::one(false)
            }
            Err(error) => {
                self.failures.borrow_mut().push(format!("down: {error:#}"));
                self.terminal.failed("take the stack down", &format!("{error:#}"), "Try 'cargo xtask down'.");
                Tally::one(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test kit is no dependency of this crate, which must compile in seconds.
    #[test]
    fn the_test_kit_reads_what_tests_are_told() {
        let reads = include_str!("../../../testkit/src/wait.rs").contains(&format!("\"{FULL_LENGTH}\""));
        assert!(reads, "{FULL_LENGTH} is read by nobody: faults would last as long as always");
        assert!(include_str!("../../../testkit/src/lib.rs").contains(&format!("\"{STATE}\"")));
        assert_eq!((Length::Usual.told(), Length::Full.told()), ("0", "1"));
        assert!(Length::Full.limit() > Length::Usual.limit());
    }
}
