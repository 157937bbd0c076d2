//! Starts a process: plain, or inside a node's network namespace and a mount namespace of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::proc::ProcessId;
use super::{Processes, STACK_VARIABLE, script};

/// The pid and start time of the shell, in the run directory.
pub(super) const SHELL: &str = "shell";
/// The mounts of the process, in its run directory.
const MOUNTS: &str = "mounts";
/// A log longer than this is put aside before the next start.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;
/// Longest wait for the shell to write down a pid.
const PID_DEADLINE: Duration = Duration::from_secs(10);

/// How something appears inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountKind {
    /// A directory.
    Directory,
    /// A directory that cannot be written to.
    ReadOnlyDirectory,
    /// A file.
    File,
    /// A file that cannot be written to.
    ReadOnlyFile,
}

/// Something of the host at a path inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// How it appears.
    pub kind: MountKind,
    /// Path on the host.
    pub source: PathBuf,
    /// Path inside.
    pub target: String,
}

/// Namespaces to run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interior {
    /// Path of the network namespace.
    pub network: PathBuf,
    /// What is seen of the host; parents before children.
    pub mounts: Vec<MountPoint>,
    /// User to become.
    pub user: u32,
    /// Group to become.
    pub group: u32,
    /// Further group.
    pub extra_group: Option<u32>,
}

/// Everything about a start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Stack it belongs to.
    pub stack: String,
    /// Where pid, exit code and mounts are written.
    pub run_dir: PathBuf,
    /// Where its output goes.
    pub log: PathBuf,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// All of its variables.
    pub environment: BTreeMap<String, String>,
    /// Namespaces, or none.
    pub interior: Option<Interior>,
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its directory or log cannot be written.
    #[error("cannot prepare {path}")]
    Prepare {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The shell cannot be started.
    #[error("cannot run setsid")]
    Spawn(#[source] io::Error),
    /// The shell did not say which pid it started.
    #[error("the shell that starts it wrote no pid")]
    Silent,
}

/// Starts and waits until the process has a pid.
pub async fn spawn(launch: &Launch) -> Result<ProcessId, Error> {
    let log = prepare(launch)?;
    let copy = log.try_clone().map_err(|source| Error::Prepare { path: launch.log.clone(), source })?;
    let arguments = command(launch);
    let mut child = tokio::process::Command::new("setsid")
        .args(&arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(&launch.environment)
        .env(STACK_VARIABLE, &launch.stack)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(copy)
        .kill_on_drop(false)
        .spawn()
        .map_err(Error::Spawn)?;
    let shell = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(ProcessId::current);
    if let Some(ProcessId { pid, start }) = shell {
        let path = launch.run_dir.join(SHELL);
        fs::write(&path, format!("{pid} {start}\n")).map_err(|source| Error::Prepare { path, source })?;
    }
    // Somebody has to collect the shell when it is done.
    tokio::spawn(async move { child.wait().await });
    let started = wait_for_pid(&launch.run_dir).await;
    if started.is_err() {
        // One that starts late after all would run beside the next.
        Processes.kill_session(&launch.run_dir);
    }
    started
}

/// The arguments of `setsid`.
pub fn command(launch: &Launch) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), script::SHELL.into(), "pod".into()];
    words.push(launch.run_dir.clone().into());
    if let Some(interior) = &launch.interior {
        let mut network = OsString::from("--net=");
        network.push(&interior.network);
        words.extend(["nsenter".into(), network]);
        words.extend(["unshare", "--mount", "--propagation", "private"].map(OsString::from));
        words.extend(["/bin/sh", "-c", script::ENTER, "enter"].map(OsString::from));
        words.push(launch.run_dir.join("root").into());
        words.push(launch.run_dir.join(MOUNTS).into());
        words.push(interior.user.to_string().into());
        words.push(interior.group.to_string().into());
        words.push(interior.extra_group.unwrap_or(interior.group).to_string().into());
    }
    words.extend(launch.command.iter().cloned());
    words
}

fn prepare(launch: &Launch) -> Result<fs::File, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Prepare { path, source }
    };
    let root = launch.run_dir.join("root");
    fs::create_dir_all(&root).map_err(failed(&root))?;
    Processes.forget(&launch.run_dir);
    if let Some(interior) = &launch.interior {
        let path = launch.run_dir.join(MOUNTS);
        fs::write(&path, table(&interior.mounts)).map_err(failed(&path))?;
    }
    if fs::metadata(&launch.log).is_ok_and(|log| log.len() > LOG_LIMIT) {
        fs::rename(&launch.log, launch.log.with_extension("log.1")).map_err(failed(&launch.log))?;
    }
    fs::OpenOptions::new().create(true).append(true).open(&launch.log).map_err(failed(&launch.log))
}

fn table(mounts: &[MountPoint]) -> String {
    let line = |mount: &MountPoint| {
        let kind = match mount.kind {
            MountKind::Directory => "dir",
            MountKind::ReadOnlyDirectory => "dir-ro",
            MountKind::File => "file",
            MountKind::ReadOnlyFile => "file-ro",
        };
        format!("{kind}\t{}\t{}\n", mount.source.display(), mount.target)
    };
    mounts.iter().map(line).collect()
}

async fn wait_for_pid(run_dir: &Path) -> Result<ProcessId, Error> {
    let deadline = tokio::time::Instant::now() + PID_DEADLINE;
    loop {
        // In this order: a shell that is gone has written what it had to write.
        let shell_is_there = super::read_shell(run_dir).is_none_or(|shell| shell.is_alive());
        match super::read_pid(run_dir) {
            Some(process) => return Ok(process),
            None if !shell_is_there || tokio::time::Instant::now() > deadline => return Err(Error::Silent),
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn launch(name: &str, command: &[&str]) -> Launch {
        let run_dir = std::env::temp_dir().join(format!("node-agent-launch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&run_dir);
        fs::create_dir_all(&run_dir).unwrap();
        Launch {
            stack: format!("t{}", std::process::id()),
            log: run_dir.join("log"),
            run_dir,
            command: command.iter().map(OsString::from).collect(),
            environment: BTreeMap::from([("GREETING".to_owned(), "hello $(world) 'x'".to_owned())]),
            interior: None,
        }
    }

    async fn ended(run_dir: &Path) -> Option<i32> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut look = tokio::time::interval(Duration::from_millis(5));
        loop {
            look.tick().await;
            match Processes.state(run_dir) {
                State::Ended { code } => return code,
                state => assert!(tokio::time::Instant::now() < deadline, "still {state:?}"),
            }
        }
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept() {
        let launch = launch("exit", &["sh", "-c", "echo \"$GREETING\"; exit 7"]);
        spawn(&launch).await.unwrap();
        assert_eq!(ended(&launch.run_dir).await, Some(7));
        assert_eq!(fs::read_to_string(&launch.log).unwrap(), "hello $(world) 'x'\n");
        fs::remove_dir_all(launch.run_dir).unwrap();
    }

    #[tokio::test]
    async fn a_running_process_is_found_by_its_directory_and_mark_and_ends_on_request() {
        let launch = launch("term", &["sleep", "60"]);
        let process = spawn(&launch).await.unwrap();
        assert_eq!(Processes.state(&launch.run_dir), State::Running(process));
        assert!(super::super::with_variable(STACK_VARIABLE, &launch.stack).contains(&process));
        assert_ne!(process.session(), Some(super::super::proc::own_session()));
        Processes.terminate(&launch.run_dir);
        assert_eq!(ended(&launch.run_dir).await, Some(143));
        fs::remove_dir_all(launch.run_dir).unwrap();
    }

    #[tokio::test]
    async fn a_session_dies_as_one() {
        let launch = launch("kill", &["sh", "-c", "sleep 60 & sleep 60"]);
        spawn(&launch).await.unwrap();
        Processes.kill_session(&launch.run_dir);
        assert_eq!(ended(&launch.run_dir).await, None);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut look = tokio::time::interval(Duration::from_millis(5));
        while !super::super::with_variable(STACK_VARIABLE, &launch.stack).is_empty() {
            assert!(tokio::time::Instant::now() < deadline);
            look.tick().await;
        }
        fs::remove_dir_all(launch.run_dir).unwrap();
    }

    #[test]
    fn namespaces_wrap_the_command_without_touching_its_words() {
        let mut launch = launch("words", &["java", "-d", "a b; c"]);
        let interior = Interior {
            network: "/run/netns/sw-t1-0a".into(),
            mounts: Vec::new(),
            user: 10001,
            group: 10001,
            extra_group: Some(5),
        };
        launch.interior = Some(interior);
        let words = command(&launch);
        assert_eq!(words[5], "nsenter");
        assert_eq!(words[6], "--net=/run/netns/sw-t1-0a");
        assert_eq!(words[words.len() - 6..words.len() - 3], ["10001", "10001", "5"].map(OsString::from));
        assert_eq!(words.last().unwrap(), "a b; c");
        fs::remove_dir_all(launch.run_dir).unwrap();
    }
}
