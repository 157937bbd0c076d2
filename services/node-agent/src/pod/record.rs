//! What must outlive the agent about a pod: whose process it is, how often it was started, how it last ended. One
//! small file per pod below the data directory, replaced atomically.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::intent::PodKey;
use crate::manifest::Machine;
use crate::process::Processes;

/// File of the record, in the pod's run directory.
const FILE: &str = "record.json";

/// How a run of the process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Exit code; 128 and the signal's number after a signal.
    pub code: i32,
    /// `Completed`, `Error` or why it was killed.
    pub reason: String,
    /// When the run began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// The record of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Cluster of the agent that looks after it.
    pub cluster: String,
    /// Node it is bound to.
    pub node: String,
    /// Instance below that node.
    pub instance: String,
    /// Disks it uses, by the pod's name of the volume.
    pub volumes: BTreeMap<String, String>,
    /// Address it answers at.
    pub address: String,
    /// When the agent first took it on.
    pub accepted_at: Timestamp,
    /// When the current or last run began.
    pub started_at: Option<Timestamp>,
    /// Runs after the first.
    pub restarts: u32,
    /// Ends in a row without a long run between.
    pub failures: u32,
    /// How the last run that is over ended.
    pub last_end: Option<End>,
}

impl Record {
    /// Of a pod just taken on.
    pub fn new(key: &PodKey, cluster: &str, machine: &Machine, address: &str, now: Timestamp) -> Self {
        Self {
            cluster: cluster.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: key.uid.clone(),
            node: machine.intent.name.clone(),
            instance: machine.instance.id.to_string(),
            volumes: BTreeMap::new(),
            address: address.to_owned(),
            accepted_at: now,
            started_at: None,
            restarts: 0,
            failures: 0,
            last_end: None,
        }
    }

    /// Which pod.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Writes it to a run directory, so that a crash leaves the old or the new one.
    pub fn save(&self, run_dir: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let temporary = run_dir.join("record.new");
        std::fs::write(&temporary, text)?;
        std::fs::rename(temporary, run_dir.join(FILE))
    }

    /// Reads the one of a run directory, if it is there and whole.
    pub fn load(run_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(run_dir.join(FILE)).ok()?).ok()
    }
}

/// Directory of all pods.
pub fn pods_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("pods")
}

/// Directory of a pod by name, where its log lies.
pub fn pod_dir(data_dir: &Path, key: &PodKey) -> PathBuf {
    pods_dir(data_dir).join(format!("{}_{}", key.namespace, key.name))
}

/// Directory of this very pod, gone when it is.
pub fn run_dir(data_dir: &Path, key: &PodKey) -> PathBuf {
    pod_dir(data_dir, key).join(&key.uid)
}

/// Every run directory with its record, if that can be read.
pub fn scan(data_dir: &Path) -> Vec<(PathBuf, Option<Record>)> {
    let below = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let pods = below(&pods_dir(data_dir)).into_iter();
    pods.flat_map(|pod| below(&pod)).map(|dir| (dir.clone(), Record::load(&dir))).collect()
}

/// Kills what runs in a directory and removes it.
pub fn discard(processes: &Processes, run_dir: &Path) -> io::Result<()> {
    processes.kill_session(run_dir);
    std::fs::remove_dir_all(run_dir)?;
    // The directory of the pod's name stays while it holds a log.
    let _ = run_dir.parent().map(std::fs::remove_dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_record_survives_and_is_found() {
        let data = std::env::temp_dir().join(format!("node-agent-record-{}", std::process::id()));
        let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let dir = run_dir(&data, &key);
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(scan(&data), [(dir.clone(), None)]);
        let mut record =
            Record::new(&key, "eu", &fixture::machine("i-1", "node"), "10.250.0.9", Timestamp::UNIX_EPOCH);
        record.save(&dir).unwrap();
        record.restarts = 4;
        record.save(&dir).unwrap();
        assert_eq!(scan(&data), [(dir, Some(record.clone()))]);
        assert_eq!(record.key(), key);
        std::fs::remove_dir_all(data).unwrap();
    }
}
