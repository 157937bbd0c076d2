//! Runs a command to its end: with a deadline, its output in a log, its user, and an error that shows the log's last lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};

use crate::process::Process;

/// How many lines of a log are shown with a failure.
pub const TAIL: usize = 15;

/// A command to be run to its end.
#[derive(Debug, Clone)]
pub struct OneShot {
    command: Vec<String>,
    env: Vec<(String, String)>,
    dir: PathBuf,
    user: Option<String>,
    log: PathBuf,
    limit: Duration,
}

impl OneShot {
    /// A command in a folder, whose errors go to the log; it may take a minute.
    pub fn new(command: Vec<String>, dir: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            command,
            env: Vec::new(),
            dir: dir.into(),
            user: None,
            log: log.into(),
            limit: Duration::from_mins(1),
        }
    }

    /// Adds environment variables.
    #[must_use]
    pub fn env<'a>(mut self, variables: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        self.env.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// Runs it as another user, where we are root.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Sets how long it may take.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it; what it prints comes back and is in the log too. An error when it fails or takes too long.
    pub fn run(&self) -> anyhow::Result<String> {
        let output = self.log.with_extension("out");
        let (program, arguments) = self.command.split_first().context("there is no command")?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("opening {}", self.log.display()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(log);
        command.envs(self.env.iter().map(|(name, value)| (name, value))).process_group(0);
        if let Some(name) = &self.user
            && Uid::effective().is_root()
        {
            let user = User::from_name(name)?.with_context(|| format!("there is no user '{name}'"))?;
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
        let status = wait(&mut child, self.limit);
        let printed = fs::read_to_string(&output).unwrap_or_default();
        let _ = fs::remove_file(&output);
        let status = status.with_context(|| format!("running {program}"))?;
        if status.success() {
            return Ok(printed);
        }
        let tail = if printed.is_empty() {
            tail(&self.log, TAIL)
        } else {
            format!("{printed}{}", tail(&self.log, TAIL))
        };
        bail!("{program} ended with {status}; {} says:\n{tail}", self.log.display())
    }
}

/// Waits for a child up to a limit; one that takes longer is killed with its group.
pub fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            if let Some(process) = Process::of_pid(child.id().cast_signed()) {
                process.signal_group(Signal::SIGKILL);
            }
            child.wait()?;
            bail!("it took longer than {} s", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// How much of a file its last lines are looked for in: whoever shows how a test goes on looks ten times a second.
const END: u64 = 256 * 1_024;

/// The last lines of a file; what cannot be read is empty.
pub fn tail(path: &Path, count: usize) -> String {
    let bytes = end_of(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_shot(name: &str, script: &str) -> OneShot {
        let log = std::env::temp_dir().join(format!("slipway-command-{}-{name}.log", std::process::id()));
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        OneShot::new(command, std::env::temp_dir(), log)
    }

    fn check(shot: &OneShot, expect: Result<&str, &str>) {
        let result = shot.run().map_err(|error| format!("{error:#}"));
        let _ = fs::remove_file(&shot.log);
        match (&result, expect) {
            (Ok(output), Ok(expect)) => assert_eq!(output, expect),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{expect} is not in {error}"),
            _ => panic!("{result:?} is not {expect:?}"),
        }
    }

    #[test]
    fn commands_end_well_badly_or_in_time() {
        check(&one_shot("well", "echo $A").env([("A", "b".to_owned())]), Ok("b\n"));
        check(&one_shot("badly", "echo why >&2; exit 3"), Err("why"));
        check(&one_shot("late", "exec sleep 60").limit(Duration::from_millis(50)), Err("longer than"));
    }

    #[test]
    fn the_tail_is_the_end() {
        let path = std::env::temp_dir().join(format!("slipway-tail-{}", std::process::id()));
        fs::write(&path, "a\nb\nc\n").expect("written");
        assert_eq!(tail(&path, 2), "b\nc");
        assert_eq!(tail(&path, 9), "a\nb\nc");
        fs::remove_file(&path).expect("removed");
        assert_eq!(tail(&path, 9), "");
    }
}
