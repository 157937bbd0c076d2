//! `/proc`: whether a process is the one we started, and which processes carry a mark of ours. Reads only.

use std::fs;
use std::path::PathBuf;

/// A process, told apart from later ones with its pid by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start: u64,
}

impl ProcessId {
    /// `<pid> <start>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (pid, start) = text.trim().split_once(' ')?;
        let pid = pid.parse().ok().filter(|pid| *pid > 1)?;
        Some(Self { pid, start: start.trim().parse().ok()? })
    }

    /// The one that has this pid now.
    pub fn current(pid: i32) -> Option<Self> {
        let stat = stat(pid)?;
        (pid > 1).then_some(Self { pid, start: stat.start })
    }

    /// Whether it still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Its session.
    pub fn session(&self) -> Option<i32> {
        stat(self.pid).filter(|stat| stat.start == self.start).map(|stat| stat.session).filter(|id| *id > 1)
    }
}

struct Stat {
    state: char,
    session: i32,
    start: u64,
}

/// The session of this process.
pub(super) fn own_session() -> i32 {
    i32::try_from(std::process::id()).ok().and_then(stat).map_or(0, |stat| stat.session)
}

/// Processes whose environment has this variable with this value.
pub fn with_variable(name: &str, value: &str) -> Vec<ProcessId> {
    let wanted = format!("{name}={value}");
    let marked = |pid: &i32| {
        let path = PathBuf::from(format!("/proc/{pid}/environ"));
        let environment = fs::read(path).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(marked).filter_map(ProcessId::current).collect()
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name may hold anything, so fields are counted from its closing parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_parentheses_are_no_trouble() {
        let line = "42 (a) b (c) S 1 42 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987654 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.session, stat.start), ('S', 40, 987_654));
    }

    #[test]
    fn this_process_is_alive_and_an_earlier_one_of_its_pid_is_not() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let current = ProcessId::current(pid).unwrap();
        assert!(current.is_alive());
        assert!(!ProcessId { start: current.start - 1, ..current }.is_alive());
    }

    #[test]
    fn what_cannot_be_a_process_is_not_read() {
        for text in ["", "12", "x 1", "1 5", "0 5", "-4 5"] {
            assert_eq!(ProcessId::parse(text), None, "{text}");
        }
        assert_eq!(ProcessId::parse("12 5\n"), Some(ProcessId { pid: 12, start: 5 }));
    }
}
