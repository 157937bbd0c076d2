//! Starts one process of a program: its environment, its user, its log, its own process group.
//!
//! The process does not die with the supervisor; that is what lets the next supervisor adopt it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use nix::unistd::{Uid, User};

use crate::process::STACK_MARKER;
use crate::stack::{Layout, Program};

/// A log longer than this is set aside before the next start.
const LONGEST_LOG: u64 = 32 * 1024 * 1024;

/// Variables that every process gets; nothing else of the caller's environment leaks in.
const INHERITED_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts the program.
pub(super) fn spawn(layout: &Layout, stack: &str, program: &Program) -> anyhow::Result<Child> {
    let (path, arguments) = program.command.split_first().context("the program has no command")?;
    let log = open_log(layout, &program.name)?;
    let mut command = Command::new(path);
    command
        .args(arguments)
        .current_dir(&program.dir)
        .env_clear()
        .env("PATH", INHERITED_PATH)
        // Programs must not read settings of the person who started the stack.
        .env("HOME", layout.state())
        .env("LANG", "C.UTF-8")
        .env("RUST_BACKTRACE", "1")
        .envs(&program.env)
        .env(STACK_MARKER, stack)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("sharing the log")?)
        .stderr(log);
    if let Some(name) = &program.user
        && Uid::effective().is_root()
    {
        let user = User::from_name(name)?.with_context(|| format!("there is no user '{name}'"))?;
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.spawn().with_context(|| format!("starting {path}"))
}

fn open_log(layout: &Layout, name: &str) -> anyhow::Result<File> {
    let path = layout.log(name);
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LONGEST_LOG) {
        fs::rename(&path, layout.log(&format!("{name}.1"))).context("setting the long log aside")?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))
}
