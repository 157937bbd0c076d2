//! One watch: keeps a store up to date and says which resource to look at when something changes. A change only ever
//! means "look again".

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use resources::QuestDB;
use runtime::CancellationToken;
use runtime::health::Component;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use crate::index::Index;
use crate::kept::Kept;
use crate::strays::Strays;

/// Where looks are asked for. Bounded: a watch that is ahead of the controller waits.
pub(crate) type Queue = Sender<ObjectRef<QuestDB>>;

/// What a watch needs beside its API.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) queue: Queue,
    pub(crate) strays: Strays,
    pub(crate) health: Component,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: runtime::Tasks,
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
    let (store, writer) = reflector::store::<K>();
    let index = Arc::<Index>::default();
    let indexed = Indexed { store, index: Arc::clone(&index) };
    let stream = watch(api, config)
        .default_backoff()
        .try_filter(|event| std::future::ready(may_be_ours(event)))
        .modify(|object| {
            object.managed_fields_mut().clear();
            object.strip();
        })
        .reflect(writer);
    let Wiring { queue, strays, health, stop, tasks } = wiring.clone();
    let kind = K::kind(&()).into_owned();
    tasks.spawn(format!("watch {kind}"), async move {
        let mut stream = Box::pin(stream.take_until(stop.cancelled()));
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    health.set_ok();
                    index.take_in(&event, key);
                    note(&strays, &event, &owner);
                    notify(&queue, event, &owner).await;
                }
                Err(error) => {
                    tracing::warn!(error = %runtime::telemetry::chain(&error), kind, "a watch broke and is begun again");
                    health.set_failing(format!("watch of {kind}: {error}"));
                }
            }
        }
        stop.cancelled().await;
    });
    indexed
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

async fn notify<K, F>(queue: &Queue, event: Event<K>, owner: &F)
where
    F: Fn(&K) -> Option<ObjectRef<QuestDB>>,
{
    let object = match event {
        Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => object,
        Event::Init | Event::InitDone => return,
    };
    if let Some(owner) = owner(&object) {
        // Closed only when the program ends.
        let _ = queue.send(owner).await;
    }
}
