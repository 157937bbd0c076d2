//! Runs one command of a step: its output goes to a log, its time is bounded, and its failure is told with the end of
//! that log. A failure that looks like a bad moment of the network is tried again.
//!
//! It never reads standard input: a program that would ask a question fails instead of waiting for ever.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::{Error, Failure};
use crate::progress::Progress;

/// Lines of the log that an error repeats.
const TAIL_LINES: usize = 20;
/// How much of the log is read for them; a single line can be long.
const TAIL_BYTES: usize = 16 * 1024;
const POLL: Duration = Duration::from_millis(50);
/// How often the person who waits is told the latest line.
const NOTE_EVERY: Duration = Duration::from_secs(3);
/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// Where the commands of one step write, who is told, and how long each may take.
pub(crate) struct Shell<'a> {
    pub(crate) step: &'a str,
    pub(crate) log: PathBuf,
    pub(crate) deadline: Duration,
    /// What to try if nothing better can be read from the log.
    pub(crate) hint: &'a str,
    pub(crate) progress: &'a dyn Progress,
}

/// How a command that was started ended.
enum End {
    Exited(ExitStatus),
    TooLate,
}

impl Shell<'_> {
    /// Runs the command to its end, again if it failed over the network.
    pub(crate) fn run(&self, command: &mut Command) -> Result<(), Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self.attempt(command) {
                Err(Error::Step(failure)) if is_transient(&failure.log_tail) => {
                    self.progress.note(self.step, "the network failed; trying again");
                    thread::sleep(jittered(pause));
                    pause *= 2;
                }
                other => return other,
            }
        }
        self.attempt(command)
    }

    fn attempt(&self, command: &mut Command) -> Result<(), Error> {
        let began = fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
        let reason = match self.finish(command) {
            Ok(End::Exited(status)) if status.success() => return Ok(()),
            Ok(End::Exited(status)) => format!("ended with {status}"),
            Ok(End::TooLate) => format!("was stopped after {} s", self.deadline.as_secs()),
            Err(error) => format!("could not be run: {error}"),
        };
        let log_tail = tail(&read_from(&self.log, began));
        Err(Error::Step(Box::new(Failure {
            step: self.step.to_owned(),
            command: display(command),
            reason,
            hint: advice(&log_tail, self.hint).to_owned(),
            log_tail,
            log: self.log.clone(),
        })))
    }

    fn finish(&self, command: &mut Command) -> io::Result<End> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let errors = log.try_clone()?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn()?;
        self.watch(child)
    }

    fn watch(&self, mut child: Child) -> io::Result<End> {
        let since = Instant::now();
        let mut noted = Instant::now();
        let mut last_note = String::new();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(End::Exited(status));
            }
            if since.elapsed() >= self.deadline {
                stop(&mut child)?;
                return Ok(End::TooLate);
            }
            if noted.elapsed() >= NOTE_EVERY {
                noted = Instant::now();
                self.note_latest(&mut last_note);
            }
            thread::sleep(POLL);
        }
    }

    fn note_latest(&self, last: &mut String) {
        let log = read_from(&self.log, 0);
        let latest = log.lines().rev().map(str::trim).find(|line| !line.is_empty());
        if let Some(line) = latest.filter(|line| line != last) {
            self.progress.note(self.step, line);
            line.clone_into(last);
        }
    }
}

/// Asks the program to end, so that it can stop what it started itself, and insists a little later.
fn stop(child: &mut Child) -> io::Result<()> {
    if let Ok(id) = i32::try_from(child.id()) {
        // It may have ended by itself just now; then there is nobody to ask.
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
    let since = Instant::now();
    while since.elapsed() < GRACE {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(POLL);
    }
    child.kill()?;
    child.wait().map(drop)
}

/// The command as it could be typed, without its environment.
pub(crate) fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The end of the log that was written since `began`, as text.
fn read_from(log: &Path, began: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        let start = began.max(length.saturating_sub(TAIL_BYTES as u64));
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_or_else(
        |error| format!("(the log cannot be read: {error})"),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Whether the log ends like a download that may succeed the next time.
fn is_transient(log_tail: &str) -> bool {
    const SIGNS: [&str; 12] = [
        "connection reset",
        "connection refused",
        "connection timed out",
        "i/o timeout",
        "read timed out",
        "tls handshake timeout",
        "unexpected eof",
        "temporary failure in name resolution",
        "502 bad gateway",
        "503 service unavailable",
        "504 gateway time",
        "too many requests",
    ];
    let log = log_tail.to_lowercase();
    SIGNS.iter().any(|sign| log.contains(sign))
}

/// What the end of a log suggests to try, or `otherwise`.
fn advice<'a>(log_tail: &str, otherwise: &'a str) -> &'a str {
    const NO_NETWORK: [&str; 5] =
        ["no such host", "unknown host", "network is unreachable", "no route to host", "server misbehaving"];
    let log = log_tail.to_lowercase();
    if log.contains("no space left on device") {
        "free some disk space (the servers and their sources need about 6 GB), then run the same again"
    } else if is_transient(log_tail) || NO_NETWORK.iter().any(|sign| log.contains(sign)) {
        "check that this machine reaches the network (a proxy or certificate may have to be set), then run the same again"
    } else {
        otherwise
    }
}

/// Between half of the pause and all of it, so that two processes do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(Instant::now());
    let half = pause / 2;
    half + half.mul_f64(f64::from(u32::try_from(random % 1000).unwrap_or(0)) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::scratch::Scratch;
    use crate::progress::Silent;

    fn shell(scratch: &Scratch, deadline: Duration) -> Shell<'static> {
        Shell {
            step: "a step",
            log: scratch.path().join("log"),
            deadline,
            hint: "the usual hint",
            progress: &Silent,
        }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failure_tells_the_last_lines_of_both_streams_and_what_to_try() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_mins(1));
        shell.run(&mut sh("echo earlier command")).unwrap();
        let refused = shell.run(&mut sh("seq 1 30; echo wrong >&2; exit 3"));
        let Err(Error::Step(failure)) = refused else {
            panic!("a failing command passed: {refused:?}");
        };
        let Failure { log_tail, hint, reason, command, .. } = *failure;
        assert_eq!(log_tail.lines().count(), 20);
        assert!(log_tail.starts_with("12\n") && log_tail.ends_with("\nwrong"), "{log_tail}");
        assert!(reason.contains('3'), "{reason}");
        assert_eq!(hint, "the usual hint");
        assert_eq!(command, "sh -c 'seq 1 30; echo wrong >&2; exit 3'");
    }

    #[test]
    fn a_failure_tells_nothing_of_the_commands_before_it() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_mins(1));
        shell.run(&mut sh("echo earlier command")).unwrap();
        let Err(Error::Step(failure)) = shell.run(&mut sh("exit 1")) else {
            panic!("a failing command passed");
        };
        assert_eq!(failure.log_tail, "");
    }

    #[test]
    fn a_command_that_hangs_is_stopped_at_its_deadline() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_millis(100));
        let since = Instant::now();
        let refused = shell.run(&mut sh("exec sleep 600"));
        assert!(
            matches!(&refused, Err(Error::Step(failure)) if failure.reason.contains("stopped")),
            "{refused:?}"
        );
        assert!(since.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn a_question_on_standard_input_does_not_hang() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_mins(1));
        assert!(shell.run(&mut sh("read answer")).is_err());
    }

    #[test]
    fn a_network_failure_is_tried_again() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_mins(1));
        let mark = scratch.path().join("mark");
        let script = format!(
            "if [ -e {0} ]; then exit 0; fi; touch {0}; echo 'dial tcp: i/o timeout'; exit 1",
            mark.display()
        );
        shell.run(&mut sh(&script)).unwrap();
        assert!(mark.exists());
    }

    #[test]
    fn a_missing_program_is_an_error_of_the_step() {
        let scratch = Scratch::new();
        let shell = shell(&scratch, Duration::from_mins(1));
        let refused = shell.run(&mut Command::new("no-such-program-anywhere"));
        assert!(matches!(&refused, Err(Error::Step(failure)) if failure.reason.contains("could not be run")));
    }

    #[test]
    fn advice_follows_the_log() {
        let cases = [
            ("write /x: no space left on device", "disk space"),
            ("lookup proxy: no such host", "network"),
            ("dial udp: connect: network is unreachable", "network"),
            ("read tcp: connection reset by peer", "network"),
            ("undefined: foo", "as usual"),
        ];
        for (log, expect) in cases {
            assert!(advice(log, "as usual").contains(expect), "{log}");
        }
        assert!(is_transient("Get \"…\": TLS handshake timeout"));
        assert!(!is_transient("verifying module: checksum mismatch"));
    }

    #[test]
    fn a_pause_is_never_longer_than_asked_nor_shorter_than_half() {
        let pause = Duration::from_secs(2);
        for _ in 0..100 {
            let chosen = jittered(pause);
            assert!(chosen >= pause / 2 && chosen <= pause, "{chosen:?}");
        }
    }
}
