//! Takes a stack away: stops what runs, in order, and proves that nothing is left.
//!
//! Works with and without a living supervisor. Ends only processes that carry the stack's own mark or stand in its
//! records. Deletes no data unless asked to.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::Signal;

use crate::command::OneShot;
use crate::process::{self, Process};
use crate::progress::Progress;
use crate::stack::{self, Identity, Layout, Programs};
use crate::supervisor::{self, Request};

/// What takes nodes away.
const AGENT: &str = "slipway-node-agent";
/// How long the supervisor may take to stop everything in order.
const IN_ORDER: Duration = Duration::from_mins(2);
/// How long what is left over may take after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// Something of a stack that should be gone and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// What it is, for people.
    pub what: String,
}

/// Stops the stack; the list of what is still there is empty when all went well.
pub fn tear_down(layout: &Layout, programs: &Path, progress: &dyn Progress) -> anyhow::Result<Vec<Leftover>> {
    let Some(identity) = Identity::read(layout) else { return Ok(Vec::new()) };
    stop_in_order(layout, progress)?;
    sweep(layout, &identity.id, progress);
    clean_nodes(layout, &identity, programs, progress);
    Ok(leftovers(layout, &identity))
}

/// The program that takes nodes away, if it is there: as it was built here, or as it ran in the stack, which may have been
/// started with another target folder.
pub fn agent(layout: &Layout, programs: &Path) -> Option<PathBuf> {
    let ran = Programs::read(layout).into_iter().flat_map(|stack| stack.programs);
    let ran = ran.filter_map(|program| program.command.into_iter().next()).map(PathBuf::from);
    let ran = ran.filter(|program| program.file_name().is_some_and(|name| name == AGENT));
    std::iter::once(programs.join(AGENT)).chain(ran).find(|program| program.exists())
}

/// Deletes everything the stack has kept, but not other stacks' state inside its directory.
pub fn delete_data(layout: &Layout) -> anyhow::Result<()> {
    if let Some(identity) = Identity::read(layout) {
        let postgres = stack::postgres_data(layout, &identity.id);
        if let Some(parent) = postgres.parent()
            && !postgres.starts_with(layout.state())
            && parent.exists()
        {
            fs::remove_dir_all(parent).with_context(|| format!("removing {}", parent.display()))?;
        }
    }
    let Ok(entries) = fs::read_dir(layout.state()) else { return Ok(()) };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_other_stack = path.join("identity.json").exists();
        let is_lock = path == layout.command_lock();
        if is_other_stack || is_lock {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// What of the stack is still on this machine.
pub fn leftovers(layout: &Layout, identity: &Identity) -> Vec<Leftover> {
    let mut found = Vec::new();
    let mut add = |what: String| found.push(Leftover { what });
    for process in members(layout, &identity.id) {
        add(format!("process {} ({})", process.pid, process.command_line()));
    }
    for mount in mounts_under(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), layout.state())
    {
        add(format!("mount {mount}"));
    }
    for name in namespaces(&identity.id) {
        add(format!("network namespace {name}"));
    }
    for (name, port) in identity.ports.busy() {
        add(format!("port {port} ({name})"));
    }
    let routes = OneShot::new(vec!["ip".to_owned(), "route".to_owned()], "/", layout.log("routes")).run();
    if identity.network.is_routed(&routes.unwrap_or_default()) {
        add(format!("routes into {}", identity.network.cidr()));
    }
    found
}

fn stop_in_order(layout: &Layout, progress: &dyn Progress) -> anyhow::Result<()> {
    let Ok(status) = supervisor::ask(layout, &Request::Stop) else { return Ok(()) };
    let step = "stop programs";
    progress.start(step);
    let since = Instant::now();
    let mut told = String::new();
    while status.supervisor.is_alive() {
        if since.elapsed() > IN_ORDER {
            bail!(
                "the supervisor (pid {}) has not ended; see {}",
                status.supervisor.pid,
                layout.events_file().display()
            );
        }
        if let Ok(now) = supervisor::ask(layout, &Request::Status) {
            let running = now
                .programs
                .iter()
                .filter(|program| program.pid.is_some())
                .map(|program| program.name.as_str());
            let waiting = running.collect::<Vec<_>>().join(", ");
            if waiting != told {
                progress.note(step, &format!("still running: {waiting}"));
                told = waiting;
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
    progress.done(step, since.elapsed());
    Ok(())
}

/// Ends what the supervisor did not: it may have died itself.
fn sweep(layout: &Layout, stack: &str, progress: &dyn Progress) {
    let found = members(layout, stack);
    if found.is_empty() {
        return;
    }
    let step = "end processes that were left over";
    progress.start(step);
    let since = Instant::now();
    for process in &found {
        progress.note(step, &format!("{} ({})", process.pid, process.command_line()));
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
    }
    for process in &found {
        process.wait_gone(GRACE.saturating_sub(since.elapsed()));
    }
    // Looked up again: those that ended may have left children of their own.
    for process in members(layout, stack) {
        process.signal(Signal::SIGKILL);
        process.wait_gone(Duration::from_secs(2));
    }
    progress.done(step, since.elapsed());
}

/// Lets the node agent take away the network namespaces and mounts of its nodes.
fn clean_nodes(layout: &Layout, identity: &Identity, programs: &Path, progress: &dyn Progress) {
    let Some(agent) = agent(layout, programs) else { return };
    let Ok(entries) = fs::read_dir(layout.data()) else { return };
    let folders = entries.flatten().map(|entry| entry.path().join("nodes")).filter(|folder| folder.is_dir());
    let folders: Vec<_> = folders.collect();
    if folders.is_empty() {
        return;
    }
    let step = "clean up nodes";
    progress.start(step);
    let since = Instant::now();
    for folder in folders {
        let words = ["cleanup", "--stack", &identity.id, "--data-dir", &folder.display().to_string()];
        let mut command = vec![agent.display().to_string()];
        command.extend(words.iter().map(ToString::to_string));
        let log = layout.log("cleanup");
        if let Err(error) = OneShot::new(command, layout.state(), log).run() {
            // What it could not take away is found and told of right after.
            progress.note(step, &format!("{error:#}"));
        }
    }
    progress.done(step, since.elapsed());
}

/// Processes that carry the stack's mark, and those in groups that its programs led.
fn members(layout: &Layout, stack: &str) -> Vec<Process> {
    let mut found = process::of_stack(stack);
    let recorded = supervisor::records(layout);
    let leaders: Vec<i32> = recorded
        .iter()
        .map(|record| record.process)
        .filter(|process| process.is_alive())
        .map(|process| process.pid)
        .collect();
    for process in process::of_groups(&leaders) {
        if !found.contains(&process) {
            found.push(process);
        }
    }
    found
}

/// Mount points below a folder, out of the text of `/proc/self/mountinfo`.
fn mounts_under(mountinfo: &str, folder: &Path) -> Vec<String> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // Blanks stand there as \040.
    let points = points.map(|point| point.replace("\\040", " "));
    points.filter(|point| Path::new(point).starts_with(folder) && Path::new(point) != folder).collect()
}

fn namespaces(stack: &str) -> Vec<String> {
    let prefix = format!("sw-{stack}-");
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_below_the_folder_only() {
        let text = "22 1 0:21 / /a rw - tmpfs tmpfs rw\n\
                    23 1 0:22 / /a/.slipway/data/x\\040y rw - tmpfs tmpfs rw\n\
                    24 1 0:23 / /a/.slipway-other rw - tmpfs tmpfs rw\n";
        assert_eq!(mounts_under(text, Path::new("/a/.slipway")), ["/a/.slipway/data/x y"]);
    }

    #[test]
    fn the_agent_that_ran_is_found_where_another_target_folder_has_none() {
        let root = std::env::temp_dir().join(format!("slipway-agent-{}", std::process::id()));
        let layout = Layout::new(&root, root.join(".slipway"));
        let (here, there) = (root.join("here"), root.join("there"));
        for folder in [&here, &there, &layout.state().to_owned()] {
            fs::create_dir_all(folder).unwrap();
        }
        assert_eq!(agent(&layout, &here), None);
        let ran = there.join(AGENT);
        let started = [there.join("kafka"), ran];
        let started = started.map(|path| stack::Program::new("p", vec![path.display().to_string()], &root));
        Programs { stack: "s".to_owned(), programs: started.to_vec() }.write(&layout).unwrap();
        assert_eq!(agent(&layout, &here), None, "it is there no more");
        for folder in [&there, &here] {
            fs::write(folder.join(AGENT), "").unwrap();
            assert_eq!(agent(&layout, &here), Some(folder.join(AGENT)));
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn deleting_data_spares_a_stack_inside() {
        let root = std::env::temp_dir().join(format!("slipway-delete-{}", std::process::id()));
        let inner = root.join("test");
        fs::create_dir_all(root.join("data/kafka")).expect("made");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("identity.json"), "{}").expect("written");
        fs::write(root.join("stack.json"), "{}").expect("written");
        delete_data(&Layout::new("/checkout", &root)).expect("deleted");
        let left: Vec<_> =
            fs::read_dir(&root).expect("read").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["test"]);
        fs::remove_dir_all(&root).expect("removed");
    }
}
