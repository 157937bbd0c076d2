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

/// The runs of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// When the current run began.
    pub started_at: Option<Timestamp>,
    /// Runs after the first.
    pub restarts: u32,
    /// Ends in a row without a long run between.
    pub failures: u32,
    /// How the last run that is over ended.
    pub last_end: Option<End>,
}

impl Runs {
    /// Whether the last run ended well. An init container is never run again then.
    pub fn succeeded(&self) -> bool {
        self.last_end.as_ref().is_some_and(|end| end.code == 0)
    }
}

/// Which of a pod's containers has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The init container of this index; those before it ended well.
    Init(usize),
    /// The container that stays.
    Main,
}

/// The turn that follows from the runs of the init containers.
pub fn stage(init: &[Runs]) -> Stage {
    init.iter().position(|runs| !runs.succeeded()).map_or(Stage::Main, Stage::Init)
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
    /// Init containers, in their order.
    #[serde(default)]
    pub init: Vec<Runs>,
    /// The container that stays.
    #[serde(flatten)]
    pub main: Runs,
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
            init: Vec::new(),
            main: Runs::default(),
        }
    }

    /// Which pod.
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Which container has its turn.
    pub fn stage(&self) -> Stage {
        stage(&self.init)
    }

    /// The runs of the container that has its turn.
    pub fn runs(&self) -> &Runs {
        self.init.iter().find(|runs| !runs.succeeded()).unwrap_or(&self.main)
    }

    /// The same, to be changed.
    pub fn runs_mut(&mut self) -> &mut Runs {
        self.init.iter_mut().find(|runs| !runs.succeeded()).unwrap_or(&mut self.main)
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
    fn init_containers_have_their_turns_one_after_the_other() {
        let key = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let mut record =
            Record::new(&key, "eu", &fixture::machine("i-1", "node"), "10.250.0.9", Timestamp::UNIX_EPOCH);
        assert_eq!(record.stage(), Stage::Main);
        record.init = vec![Runs::default(); 2];
        let end = |code| {
            let at = Timestamp::UNIX_EPOCH;
            Some(End { code, reason: "Completed".into(), started_at: at, finished_at: at })
        };
        for (code, next) in
            [(1, Stage::Init(0)), (0, Stage::Init(1)), (143, Stage::Init(1)), (0, Stage::Main)]
        {
            record.runs_mut().last_end = end(code);
            assert_eq!(record.stage(), next);
        }
        record.runs_mut().restarts = 3;
        assert_eq!((record.main.restarts, record.runs().restarts), (3, 3));
        // However the container that stays ends, the others had their turn.
        record.runs_mut().last_end = end(1);
        assert_eq!(record.stage(), Stage::Main);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

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
        record.main.restarts = 4;
        record.save(&dir).unwrap();
        assert_eq!(scan(&data), [(dir, Some(record.clone()))]);
        assert_eq!(record.key(), key);
        std::fs::remove_dir_all(data).unwrap();
    }
}
