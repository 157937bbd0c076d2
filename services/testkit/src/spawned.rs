//! Programs that a test starts for itself, to kill, halt and end them as it likes.
//!
//! *Invariant:* a fault that did not happen is an error: a process that was killed died of the signal, one that was
//! halted stands still. Nothing that was spawned outlives the test.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use sandbox::process::Process;
use tokio::process::{Child, Command};

use crate::{Failpoint, Stopwatch, eventually, failpoint, http, unique};

/// How long a program may take to become ready, and to die of SIGKILL.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long an answer may take: on a busy machine, long.
const ANSWER: Duration = Duration::from_secs(20);
/// What stands before the address of the operations server in the first line of a log.
const ADDRESS: &str = "\"ops.address\":\"";
/// How much of a log is shown with an error.
const SHOWN: usize = 2_000;

/// A running program.
#[derive(Debug)]
pub struct Spawned {
    name: String,
    child: Child,
    process: Process,
    /// Where its operations server listens, once that is known.
    ops: OnceLock<SocketAddr>,
    log: PathBuf,
}

impl Spawned {
    /// Starts a program built from the workspace; its log lies in `folder`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &str, arguments: &[String], folder: &Path) -> anyhow::Result<Self> {
        Self::start_failing_at(program, arguments, folder, &[])
    }

    /// The same; it dies or is held at these places.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_failing_at(
        program: &str,
        arguments: &[String],
        folder: &Path,
        places: &[&Failpoint],
    ) -> anyhow::Result<Self> {
        Self::start_in(program, arguments, folder, (places, &[]))
    }

    /// The same, with variables of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in(
        program: &str,
        arguments: &[String],
        folder: &Path,
        (places, environment): (&[&Failpoint], &[(&'static str, &Path)]),
    ) -> anyhow::Result<Self> {
        let name = unique(program);
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let child = Command::new(crate::stack().programs.join(program))
            .args(arguments)
            // A port that was looked for here might be somebody else's by the time it is asked for there.
            .args(["--ops-listen", "127.0.0.1:0"])
            .env("SLIPWAY_LOG_FORMAT", "json")
            .env(failpoint::VARIABLE, failpoint::orders(places))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let pid = child.id().with_context(|| format!("{program} ended at once"))?;
        let process = Process::of_pid(pid.cast_signed()).with_context(|| format!("{program} is gone"))?;
        Ok(Self { name, child, process, ops: OnceLock::new(), log })
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&self) {
        let what = format!("{} ready", self.name);
        eventually(PATIENCE, &what, async || self.is_ready().await.then_some(())).await;
    }

    /// Whether it says that it is ready.
    pub async fn is_ready(&self) -> bool {
        let Some(ops) = self.ops() else { return false };
        let answer = http().get(format!("http://{ops}/readyz")).timeout(ANSWER).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// The sum of all lines of a metric whose labels hold `label`; 0 while there are none.
    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        sum(&self.metrics().await, name, label)
    }

    /// All of its metrics; nothing when it does not answer.
    pub async fn metrics(&self) -> String {
        let Some(ops) = self.ops() else { return String::new() };
        // Whoever counts from here on must not take a late answer for none.
        metrics_within(ops, ANSWER).await.unwrap_or_default()
    }

    /// Where its operations server listens, once it has said so.
    fn ops(&self) -> Option<SocketAddr> {
        if let Some(known) = self.ops.get() {
            return Some(*known);
        }
        let address = ops_address(&self.log())?;
        Some(*self.ops.get_or_init(|| address))
    }

    /// The most memory that it ever had resident, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("its peak is not told")?;
        Ok(kib.parse::<u64>()? * 1_024)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it as a crash would (SIGKILL).
    ///
    /// # Errors
    /// When it had ended by itself, or did not die of this.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.lives()?;
        self.child.start_kill()?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        ensure!(status.signal() == Some(Signal::SIGKILL as i32), "{} ended with {status}", self.name);
        Ok(())
    }

    /// Halts it (SIGSTOP): it neither works nor answers, and does not know.
    ///
    /// # Errors
    /// When it does not stand still.
    pub async fn halt(&mut self) -> anyhow::Result<()> {
        self.lives()?;
        self.process.signal(Signal::SIGSTOP);
        self.until_halted(true).await
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it does not.
    pub async fn resume(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::SIGCONT);
        self.until_halted(false).await
    }

    /// Asks it to end (SIGTERM) and says how long that took.
    ///
    /// # Errors
    /// When it does not end well within the limit.
    pub async fn terminate(mut self, limit: Duration) -> anyhow::Result<Duration> {
        self.lives()?;
        let begun = Stopwatch::start();
        self.process.signal(Signal::SIGTERM);
        let status = self.ended(limit).await?;
        ensure!(status.success(), "{} ended with {status}: {}", self.name, self.last_lines());
        Ok(begun.elapsed())
    }

    /// Waits until it ends by itself; gives whether it ended well and what it logged.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn end(mut self, limit: Duration) -> anyhow::Result<(bool, String)> {
        let status = self.ended(limit).await?;
        Ok((status.success(), self.log()))
    }

    /// Waits until it dies at the place where it was told to; gives what it logged.
    ///
    /// # Errors
    /// When it does not, or ends otherwise.
    pub async fn dies(mut self, limit: Duration) -> anyhow::Result<String> {
        let status = self.ended(limit).await?;
        ensure!(status.signal() == Some(Signal::SIGABRT as i32), "{} ended with {status}", self.name);
        Ok(self.log())
    }

    /// Fails when it has ended by itself.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn lives(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        let Some(status) = ended else { return Ok(()) };
        anyhow::bail!("{} had ended by itself with {status}: {}", self.name, self.last_lines())
    }

    /// How it has ended. While the machine stands still nobody can.
    async fn ended(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let begun = Stopwatch::start();
        loop {
            let left = limit.checked_sub(begun.elapsed());
            let left = left.with_context(|| format!("{} did not end in {limit:?}", self.name))?;
            if let Ok(ended) = tokio::time::timeout(left, self.child.wait()).await {
                return Ok(ended?);
            }
        }
    }

    async fn until_halted(&self, wanted: bool) -> anyhow::Result<()> {
        let file = format!("/proc/{}/status", self.process.pid);
        let what = format!("{} halted: {wanted}", self.name);
        eventually(PATIENCE, &what, async || {
            let status = std::fs::read_to_string(&file).unwrap_or_default();
            let halted = status.lines().any(|line| line.starts_with("State:") && line.contains("(stopped)"));
            (halted == wanted).then_some(())
        })
        .await;
        Ok(())
    }

    fn last_lines(&self) -> String {
        let log = self.log();
        let from = log.len().saturating_sub(SHOWN);
        log.get(from..).unwrap_or(&log).to_owned()
    }
}

/// Where the operations server of a program listens, by the program's log.
pub fn ops_address(log: &str) -> Option<SocketAddr> {
    let (_, said) = log.split_once(ADDRESS)?;
    said.split_once('"')?.0.parse().ok()
}

/// The metrics that are served there; `None` when nobody answers.
pub async fn metrics_at(address: SocketAddr) -> Option<String> {
    metrics_within(address, Duration::from_secs(5)).await
}

async fn metrics_within(address: SocketAddr, limit: Duration) -> Option<String> {
    let request = http().get(format!("http://{address}/metrics")).timeout(limit);
    request.send().await.ok()?.text().await.ok()
}

/// The sum of all lines of a metric whose labels hold `label`; 0 while there are none.
pub fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// What programs write into their logs from now on, for so long, that wants somebody's attention: warnings and errors.
pub async fn complaints(logs: &[PathBuf], quiet: Duration) -> Vec<String> {
    let read = |log: &Path| std::fs::read_to_string(log).unwrap_or_default();
    let before: Vec<(&PathBuf, usize)> = logs.iter().map(|log| (log, read(log).len())).collect();
    tokio::time::sleep(quiet).await;
    let is_loud =
        |line: &&str| [r#""level":"WARN""#, r#""level":"ERROR""#].iter().any(|level| line.contains(level));
    let said = before.into_iter().flat_map(|(log, said)| {
        let text = read(log);
        let lines = text.get(said..).unwrap_or_default().lines().filter(is_loud);
        lines.map(|line| format!("{}: {line}", log.display())).collect::<Vec<_>>()
    });
    said.collect()
}
