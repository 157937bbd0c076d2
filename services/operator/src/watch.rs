//! One watch: keeps a store up to date and says which resource to look at when something changes. A change only ever
//! means "look again".

mod state;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use resources::QuestDB;
use runtime::CancellationToken;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use crate::index::Index;
use crate::kept::Kept;
use crate::strays::Strays;

pub(crate) use self::state::Watches;

/// A watch that broke and has been silent for so long works: what is begun anew without success says so sooner, and what
/// succeeds says nothing before something changes.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// Pauses between attempts that fail, from a second to half a minute. They grow although each attempt at a list begins with an
/// event that says nothing, and begin anew two minutes after the last.
#[derive(Default)]
pub(crate) struct Pauses(watcher::DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {}
}

/// Where looks are asked for. Bounded: a watch that is ahead of the controller waits.
pub(crate) type Queue = Sender<ObjectRef<QuestDB>>;

/// What every watch needs beside its API.
#[derive(Clone)]
pub(crate) struct Upkeep {
    pub(crate) watches: Watches,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: runtime::Tasks,
}

/// What watches for the sake of databases need.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) upkeep: Upkeep,
    pub(crate) queue: Queue,
    pub(crate) strays: Strays,
}

/// A store in which objects are found by a key too.
#[derive(Clone)]
pub(crate) struct Indexed<K: Resource<DynamicType = ()> + Clone + 'static> {
    pub(crate) store: Store<K>,
    index: Arc<Index>,
}

impl<K: Resource<DynamicType = ()> + Clone> Indexed<K> {
    /// Objects that have, or had a moment ago, this key.
    pub(crate) fn of(&self, key: &str) -> Vec<Arc<K>> {
        self.index.names(key).iter().filter_map(|name| self.store.get(&ObjectRef::new(name))).collect()
    }
}

/// Starts a watch; `owner` says which resource an object belongs to.
pub(crate) fn start<K, F>(wiring: &Wiring, api: Api<K>, config: watcher::Config, owner: F) -> Store<K>
where
    K: Kept + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>> + Send + Sync + 'static,
{
    start_indexed(wiring, api, config, |_| None, owner).store
}

/// The same for objects of the whole cluster, which `key` makes findable.
pub(crate) fn start_indexed<K, F>(
    wiring: &Wiring,
    api: Api<K>,
    config: watcher::Config,
    key: fn(&K) -> Option<String>,
    owner: F,
) -> Indexed<K>
where
    K: Kept + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>> + Send + Sync + 'static,
{
    let index = Arc::<Index>::default();
    let Wiring { queue, strays, .. } = wiring.clone();
    let (indexed, owner) = (Arc::clone(&index), Arc::new(owner));
    let concerned = Arc::<Concerned<K, QuestDB>>::default();
    let told = Arc::clone(&concerned);
    let store = keep(&wiring.upkeep, api, config, move |event| {
        indexed.take_in(&event, key);
        note(&strays, &event, &*owner);
        let owners = told.after(&event, &*owner);
        let queue = queue.clone();
        async move {
            for owner in owners {
                // Closed only when the program ends.
                let _ = queue.send(owner).await;
            }
        }
    });
    concerned.knows(&store);
    Indexed { store, index }
}

/// Who is to be looked at after an event. Those whom a list concerns, also by what it has no more, only once the store is as
/// the list was: a look before that would see what was, and nothing would ask for another.
pub(crate) struct Concerned<K: Resource<DynamicType = ()> + Clone + 'static, T: Resource<DynamicType = ()>> {
    store: OnceLock<Store<K>>,
    listed: Mutex<HashSet<ObjectRef<T>>>,
}

impl<K, T> Default for Concerned<K, T>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    T: Resource<DynamicType = ()>,
{
    fn default() -> Self {
        Self { store: OnceLock::new(), listed: Mutex::default() }
    }
}

impl<K, T> Concerned<K, T>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    T: Resource<DynamicType = ()>,
{
    /// Where what was known before a list is found.
    pub(crate) fn knows(&self, store: &Store<K>) {
        // Set once, right after the watch was started.
        let _ = self.store.set(store.clone());
    }

    pub(crate) fn after(
        &self,
        event: &Event<K>,
        owner: impl Fn(&K) -> Option<ObjectRef<T>>,
    ) -> Vec<ObjectRef<T>> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => {
                let all = self.store.get().map(Store::state).unwrap_or_default();
                *listed = all.iter().filter_map(|object| owner(object)).collect();
                Vec::new()
            }
            Event::InitApply(object) => {
                listed.extend(owner(object));
                Vec::new()
            }
            Event::InitDone => mem::take(&mut *listed).into_iter().collect(),
            Event::Apply(object) | Event::Delete(object) => owner(object).into_iter().collect(),
        }
    }
}

/// Keeps a store up to date until stopped; `tell` hears of each event after the store did.
pub(crate) fn keep<K, F, T>(upkeep: &Upkeep, api: Api<K>, config: watcher::Config, tell: F) -> Store<K>
where
    K: Kept + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq,
    F: Fn(Event<K>) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let stream = watch(api, config)
        .backoff(Pauses::default())
        .try_filter(|event| std::future::ready(may_be_ours(event)))
        .modify(|object| {
            object.managed_fields_mut().clear();
            object.strip();
        })
        .reflect(writer);
    hear(upkeep, K::kind(&()).into_owned(), stream, tell);
    store
}

/// Hears a stream out until stopped: what it tells, and how it is.
pub(crate) fn hear<K, S, F, T>(upkeep: &Upkeep, kind: String, stream: S, tell: F)
where
    K: Send + 'static,
    S: Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    F: Fn(Event<K>) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let Upkeep { watches, stop, tasks } = upkeep.clone();
    watches.begun(&kind);
    tasks.spawn(format!("watch {kind}"), async move {
        let mut stream = Box::pin(stream.take_until(stop.cancelled()));
        loop {
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Err(_) => watches.heals(&kind),
                Ok(None) => break,
                // That a list is begun is not yet an answer.
                Ok(Some(Ok(event @ Event::Init))) => tell(event).await,
                Ok(Some(Ok(event))) => {
                    watches.works(&kind);
                    tell(event).await;
                }
                Ok(Some(Err(error))) => watches.broke(&kind, &error, true),
            }
        }
        stop.cancelled().await;
    });
}

fn may_be_ours<K: Kept>(event: &Event<K>) -> bool {
    match event {
        Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => object.is_ours(),
        Event::Init | Event::InitDone => true,
    }
}

/// What leaves a watch may only have lost its labels.
fn note<K, F>(strays: &Strays, event: &Event<K>, owner: &F)
where
    K: Resource<DynamicType = ()>,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>>,
{
    match event {
        Event::Delete(object) => {
            let Some(owner) = owner(object) else { return };
            if K::kind(&()) == QuestDB::kind(&()) {
                strays.forget(&owner);
            } else {
                strays.suspect(&owner);
            }
        }
        // What left while nobody watched is told by nothing else. Only now are the stores as the list was.
        Event::InitDone => strays.forget_all(),
        Event::Init | Event::InitApply(_) | Event::Apply(_) => {}
    }
}
