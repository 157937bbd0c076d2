//! Every state that a tenant's custom resources went through, as a witness saw it, and a stand-in that reports each as
//! carried out at once.
//!
//! The witness reads from the API server itself, past every proxy, so that what it saw is what was. The stand-in writes
//! status only and makes nothing: it lets operations end where no operator runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use resources::{Phase, QuestDB, RunState};
use serde_json::json;
use tokio::task::AbortHandle;

/// How often the stand-in looks for what is not reported yet.
const LOOK: Duration = Duration::from_millis(20);

/// One state of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Epoch and seq of its instruction.
    pub position: (i64, i64),
    /// Kubernetes' count of changes of the spec.
    pub generation: i64,
    /// Whether it is to be gone.
    pub deleted: bool,
    /// When this was first seen.
    pub at: Instant,
}

/// The witness and the stand-in. Both end when this is dropped.
#[derive(Debug)]
pub struct Watched {
    book: Arc<Mutex<Book>>,
    tasks: Vec<AbortHandle>,
}

/// What is known.
#[derive(Debug, Default)]
struct Book {
    /// Of each database its states in order.
    history: BTreeMap<String, Vec<Seen>>,
    /// Of each resource what is to be reported.
    open: BTreeMap<String, QuestDB>,
    /// What must never happen, and did.
    wrong: Vec<String>,
    /// Of each resource the version that was seen last.
    versions: BTreeMap<String, String>,
}

impl Watched {
    /// Watches the resources of a namespace, which may not be there yet, at the API server of a kubeconfig.
    ///
    /// # Errors
    /// When that cannot be read or used.
    pub async fn start(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let book = Arc::new(Mutex::new(Book::default()));
        let of_watches = crate::client_of_watches(kubeconfig).await?;
        let witness = witness(Api::namespaced(of_watches, namespace), Arc::clone(&book));
        let client = crate::client(kubeconfig).await?;
        let stand_in = stand_in(Api::namespaced(client, namespace), Arc::clone(&book));
        let tasks = vec![tokio::spawn(witness).abort_handle(), tokio::spawn(stand_in).abort_handle()];
        Ok(Self { book, tasks })
    }

    /// When a database was first seen at a position, or a later one.
    pub fn reached(&self, database: &str, position: (i64, i64)) -> Option<Instant> {
        let book = lock(&self.book);
        let states = book.history.get(database)?;
        states.iter().find(|seen| seen.position >= position).map(|seen| seen.at)
    }

    /// The states of a database.
    pub fn states(&self, database: &str) -> Vec<Seen> {
        lock(&self.book).history.get(database).cloned().unwrap_or_default()
    }

    /// Whether a resource was seen as it is there, or later: others may have heard of that long before the witness
    /// does.
    pub fn has_seen(&self, name: &str, version: &str) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        let seen = lock(&self.book).versions.get(name).and_then(|version| number(version));
        seen.is_some_and(|seen| Some(seen) >= number(version))
    }

    /// What must never happen, and did: positions that fell, specs that changed without a new position, deleted databases
    /// that came back, resources that vanished.
    pub fn wrong(&self) -> Vec<String> {
        let book = lock(&self.book);
        let histories = book.history.iter();
        let fell = histories
            .flat_map(|(id, states)| judge(states).into_iter().map(move |what| format!("{id}: {what}")));
        let found: BTreeSet<String> = fell.chain(book.wrong.iter().cloned()).collect();
        found.into_iter().collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What is wrong with the states of one database.
fn judge(states: &[Seen]) -> Vec<String> {
    let steps = states.windows(2).filter_map(|pair| {
        let (before, after) = (&pair[0], &pair[1]);
        let step = format!("{:?} after {:?}", after.position, before.position);
        if after.position < before.position {
            Some(format!("the position fell: {step}"))
        } else if after.position == before.position && after.generation != before.generation {
            Some(format!("the spec changed at the same position: {step}"))
        } else if before.deleted && !after.deleted {
            Some(format!("what was deleted came back: {step}"))
        } else {
            None
        }
    });
    steps.collect()
}

/// Writes down every state until it is ended.
async fn witness(api: Api<QuestDB>, book: Arc<Mutex<Book>>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        // A broken watch begins again by itself, with everything that is there.
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => lock(&book).note(object),
            Ok(watcher::Event::Delete(object)) => {
                let name = object.metadata.name.unwrap_or_default();
                lock(&book).wrong.push(format!("the resource {name} vanished"));
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
        }
    }
}

impl Book {
    fn note(&mut self, object: QuestDB) {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.versions.insert(name, object.metadata.resource_version.clone().unwrap_or_default());
        let Some(instruction) = &object.spec.instruction else { return };
        let seen = Seen {
            position: (instruction.epoch, instruction.seq),
            generation: object.metadata.generation.unwrap_or_default(),
            deleted: matches!(object.spec.run_state, RunState::Deleted | RunState::Purged),
            at: Instant::now(),
        };
        let states = self.history.entry(instruction.database_id.clone()).or_default();
        let known = states.last().is_some_and(|last| Seen { at: seen.at, ..last.clone() } == seen);
        if !known {
            states.push(seen);
        }
        let name = object.metadata.name.clone().unwrap_or_default();
        if is_reported(&object) {
            self.open.remove(&name);
        } else {
            self.open.insert(name, object);
        }
    }
}

fn is_reported(object: &QuestDB) -> bool {
    let wanted = object.spec.instruction.as_ref().map(|instruction| (instruction.epoch, instruction.seq));
    let carried = object.status.as_ref().and_then(|status| status.instruction.as_ref());
    carried.map(|carried| (carried.epoch, carried.seq)) == wanted
}

/// Reports everything as carried out, again and again until it is seen to be reported.
async fn stand_in(api: Api<QuestDB>, book: Arc<Mutex<Book>>) {
    loop {
        let open: Vec<QuestDB> = lock(&book).open.values().cloned().collect();
        for object in open {
            let name = object.metadata.name.clone().unwrap_or_default();
            // What is not written now is open still.
            let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status(&object))).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The status of a resource whose instruction was carried out.
fn status(object: &QuestDB) -> serde_json::Value {
    let phase = match object.spec.run_state {
        RunState::Running => Phase::Ready,
        RunState::Paused => Phase::Paused,
        RunState::Deleted | RunState::Purged => Phase::Deleted,
    };
    let instruction = object.spec.instruction.as_ref().map(|instruction| {
        json!({
            "id": instruction.id,
            "epoch": instruction.epoch,
            "seq": instruction.seq,
            "render": instruction.render,
            "hash": instruction.hash,
        })
    });
    let volume = json!({
        "id": format!("vol-{}", object.metadata.uid.as_deref().unwrap_or_default()),
        "sizeGib": object.spec.storage.size_gib,
        "state": "in-use",
    });
    json!({"status": {
        "phase": phase.as_str(),
        "observedGeneration": object.metadata.generation,
        "instruction": instruction,
        "volume": volume,
    }})
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(seq: i64, generation: i64, deleted: bool) -> Seen {
        Seen { position: (1, seq), generation, deleted, at: Instant::now() }
    }

    #[test]
    fn what_was_seen_is_known_by_its_version() {
        let watched = Watched { book: Arc::default(), tasks: Vec::new() };
        lock(&watched.book).versions.insert("one".to_owned(), "1000".to_owned());
        for (name, version, expected) in
            [("one", "999", true), ("one", "1000", true), ("one", "1001", false), ("other", "1", false)]
        {
            assert_eq!(watched.has_seen(name, version), expected, "{name} {version}");
        }
    }

    #[test]
    fn every_wrong_step_is_seen() {
        assert_eq!(judge(&[seen(1, 1, false), seen(2, 2, false), seen(5, 3, true)]), [""; 0]);
        for (states, word) in [
            ([seen(2, 1, false), seen(1, 2, false)], "fell"),
            ([seen(2, 1, false), seen(2, 2, false)], "same position"),
            ([seen(2, 1, true), seen(3, 2, false)], "came back"),
        ] {
            let wrong = judge(&states);
            assert!(wrong.len() == 1 && wrong[0].contains(word), "{wrong:?}");
        }
    }
}
