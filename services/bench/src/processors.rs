//! Processors of their own for the servers of a cluster, and the rest of the machine for everything else.
//!
//! In production a cluster's API server has a machine that it shares with nothing of ours. On one machine, Kafka, Postgres and
//! the bench itself take from it the processors whose use is to be measured; a bare loop has no such neighbours, and a
//! comparison with it would speak of the machine. So in the slices of both sides the two groups are kept apart.
//! *Invariant:* when it is dropped, every process may use every processor again.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use testkit::Server;

/// The servers of the bare cluster, by their names in the stack.
pub(crate) const CLUSTER: [&str; 2] = ["bare-apiserver", "bare-etcd"];
/// What of the stack is not the cluster, by the same.
const OTHERS: [&str; 5] = ["kafka", "postgres", "aws", "backend", "provisioner"];

/// While it lives, the cluster's servers run on one half of the processors and everything else on the other.
#[derive(Debug)]
pub(crate) struct Apart {
    before: CpuSet,
}

impl Apart {
    /// Parts them.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let before = sched_getaffinity(Pid::from_raw(0)).context("asking for this program's processors")?;
        let (servers, rest) = halves(&usable(&before));
        ensure!(
            !servers.is_empty(),
            "the cluster's servers need a processor of their own: this machine has one in all"
        );
        let apart = Self { before };
        let family = Family::read()?;
        family.keep(&pids(&CLUSTER)?, &set(&servers)?)?;
        family.keep(&everything_else()?, &set(&rest)?)?;
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Nobody to tell. What could not be undone ends with the stack of the benches.
        let Ok(family) = Family::read() else { return };
        for pids in [running(&CLUSTER), everything_else()].into_iter().flatten() {
            let _ = family.keep(&pids, &self.before);
        }
    }
}

/// Processor time of programs of the stack so far, in seconds.
pub(crate) fn cpu(names: &[&str]) -> anyhow::Result<f64> {
    pids(names)?.into_iter().map(|pid| crate::process::cpu(pid.cast_unsigned())).sum()
}

fn everything_else() -> anyhow::Result<Vec<i32>> {
    let mut all = running(&OTHERS)?;
    all.push(std::process::id().cast_signed());
    Ok(all)
}

fn pids(names: &[&str]) -> anyhow::Result<Vec<i32>> {
    names
        .iter()
        .map(|name| Server::named(name).status()?.pid.with_context(|| format!("{name} does not run")))
        .collect()
}

/// Those of them that run.
fn running(names: &[&str]) -> anyhow::Result<Vec<i32>> {
    let pids = names.iter().map(|name| Ok(Server::named(name).status()?.pid));
    pids.filter_map(Result::transpose).collect()
}

fn usable(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::count()).filter(|number| set.is_set(*number).unwrap_or(false)).collect()
}

/// The first half, and the rest, which has one more of an odd number.
fn halves(all: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let (servers, rest) = all.split_at(all.len() / 2);
    (servers.to_vec(), rest.to_vec())
}

fn set(numbers: &[usize]) -> anyhow::Result<CpuSet> {
    let mut set = CpuSet::new();
    for number in numbers {
        set.set(*number)?;
    }
    Ok(set)
}

/// Which process began which. Postgres begins one for each connection.
#[derive(Debug, Default)]
struct Family(BTreeMap<i32, Vec<i32>>);

impl Family {
    fn read() -> anyhow::Result<Self> {
        let mut family = Self::default();
        for pid in numbers(Path::new("/proc"))? {
            // One that has ended meanwhile is of no interest.
            let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
            if let Some(parent) = parent(&status) {
                family.0.entry(parent).or_default().push(pid);
            }
        }
        Ok(family)
    }

    /// These, and whoever descends from them.
    fn all(&self, roots: &[i32]) -> Vec<i32> {
        let (mut all, mut next) = (Vec::new(), roots.to_vec());
        while let Some(pid) = next.pop() {
            next.extend(self.0.get(&pid).into_iter().flatten());
            all.push(pid);
        }
        all
    }

    /// Keeps every thread of these and of their descendants to some processors. What they begin later is kept there as well.
    fn keep(&self, roots: &[i32], processors: &CpuSet) -> anyhow::Result<()> {
        for pid in self.all(roots) {
            // One that has ended meanwhile has no threads.
            for thread in numbers(Path::new(&format!("/proc/{pid}/task"))).unwrap_or_default() {
                give(thread, processors).with_context(|| format!("giving {pid} its processors"))?;
            }
        }
        Ok(())
    }
}

/// One that has ended meanwhile needs none.
fn give(thread: i32, processors: &CpuSet) -> nix::Result<()> {
    match sched_setaffinity(Pid::from_raw(thread), processors) {
        Err(nix::Error::ESRCH) => Ok(()),
        other => other,
    }
}

fn numbers(folder: &Path) -> anyhow::Result<Vec<i32>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn parent(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_never_has_more_than_half() {
        assert_eq!(halves(&[0]), (vec![], vec![0]));
        assert_eq!(halves(&[0, 1]), (vec![0], vec![1]));
        assert_eq!(halves(&[0, 2, 5]), (vec![0], vec![2, 5]));
        assert_eq!(halves(&[0, 1, 2, 3]), (vec![0, 1], vec![2, 3]));
    }

    #[test]
    fn descendants_are_found() {
        let family = Family(BTreeMap::from([(1, vec![2, 3]), (3, vec![4]), (7, vec![8])]));
        let mut all = family.all(&[1]);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
        assert_eq!(parent("Name:\tx\nPPid:\t 12\n"), Some(12));
        assert_eq!(parent("Name:\tx\n"), None);
    }

    #[test]
    fn a_process_is_kept_to_some_and_let_go() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        let processors = || usable(&sched_getaffinity(Pid::from_raw(pid)).unwrap());
        let before = processors();
        let family = Family::read().unwrap();
        // As a descendant of this one.
        assert!(family.all(&[std::process::id().cast_signed()]).contains(&pid));
        family.keep(&[pid], &set(&before[..1]).unwrap()).unwrap();
        assert_eq!(processors(), before[..1]);
        family.keep(&[pid], &set(&before).unwrap()).unwrap();
        assert_eq!(processors(), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
