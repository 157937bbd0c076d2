//! Processes of this machine as the kernel shows them: who is alive, who belongs to a stack, how to end them.
//!
//! A pid alone is never trusted: the kernel gives it out again. A process is its pid *and* the moment it began.
//! Never signals a process that was not looked up here first.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Environment variable that every process of a stack carries and hands to its children.
pub const STACK_MARKER: &str = "SLIPWAY_STACK";

/// One process, told apart from a later one with the same pid by its start time (clock ticks since boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time as the kernel counts it.
    pub start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn of_pid(pid: i32) -> Option<Self> {
        Some(Self { pid, start: stat(pid)?.start })
    }

    /// Whether it still runs; a zombie does not.
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Sends a signal to the process, unless it is gone or its pid belongs to another by now.
    pub fn signal(self, signal: Signal) {
        if self.is_alive() {
            // It may end between the look and the signal: then there is nothing left to do.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Sends a signal to the process and all in its group. Programs of a stack lead groups of their own.
    pub fn signal_group(self, signal: Signal) {
        if !self.is_alive() {
            return;
        }
        if stat(self.pid).is_some_and(|stat| stat.group == self.pid) {
            let _ = killpg(Pid::from_raw(self.pid), signal);
        } else {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Waits until it is gone; false when the time is up first.
    pub fn wait_gone(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(30));
        }
        true
    }

    /// Its command line, for people.
    pub fn command_line(self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        text.trim().chars().take(160).collect()
    }
}

/// Every live process that carries the marker of the stack in its environment.
pub fn of_stack(stack: &str) -> Vec<Process> {
    let marker = format!("{STACK_MARKER}={stack}");
    living(|pid| environment_has(pid, &marker))
}

/// Values that live processes of any stack carry for a variable: what is taken on this machine.
pub fn values_in_use(variable: &str) -> Vec<String> {
    let prefix = format!("{variable}=");
    let mut values: Vec<String> = pids()
        .into_iter()
        .filter_map(|pid| {
            let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let entry = bytes.split(|byte| *byte == 0).find(|entry| entry.starts_with(prefix.as_bytes()))?;
            Some(String::from_utf8_lossy(&entry[prefix.len()..]).into_owned())
        })
        .collect();
    values.sort();
    values.dedup();
    values
}

/// Every live process whose group is led (or was led) by one of these pids: children that lost their environment.
pub fn of_groups(leaders: &[i32]) -> Vec<Process> {
    living(|pid| stat(pid).is_some_and(|stat| leaders.contains(&stat.group)))
}

/// Writes a file so that a reader sees the old or the new content, never half of it.
pub fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension(format!("new{}", std::process::id()));
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

fn living(belongs: impl Fn(i32) -> bool) -> Vec<Process> {
    let own = Pid::this().as_raw();
    pids()
        .into_iter()
        .filter(|pid| *pid != own && belongs(*pid))
        .filter_map(Process::of_pid)
        .filter(|process| process.is_alive())
        .collect()
}

fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

fn environment_has(pid: i32, entry: &str) -> bool {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
}

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: i32,
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name stands in brackets and may hold blanks and brackets itself, so the fields count from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_is_read_past_any_name() {
        let text = "42 (a) b (c) S 1 40 40 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 987654 10 11 12";
        assert_eq!(parse_stat(text), Some(Stat { state: 'S', group: 40, start: 987_654 }));
        assert_eq!(parse_stat("42 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_alive_until_it_is_reaped_or_dead() {
        let mut child =
            Command::new("sleep").arg("600").env(STACK_MARKER, "unit-test-a").spawn().expect("sleep starts");
        let process = Process::of_pid(child.id().cast_signed()).expect("it has just started");
        assert!(process.is_alive());
        assert!(
            !Process { start: process.start + 1, ..process }.is_alive(),
            "another start time is another process"
        );
        let deadline = Instant::now() + Duration::from_mins(1);
        while of_stack("unit-test-a") != [process] {
            assert!(Instant::now() < deadline, "the marker is seen once the child has executed its program");
        }
        assert!(values_in_use(STACK_MARKER).contains(&"unit-test-a".to_owned()));
        process.signal(Signal::SIGKILL);
        assert!(process.wait_gone(Duration::from_mins(1)), "a zombie counts as gone");
        child.wait().expect("it was our child");
        assert_eq!(of_stack("unit-test-a"), []);
    }
}
