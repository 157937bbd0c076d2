//! One watch: keeps a store up to date and says which resource to look at when something changes. A change only ever
//! means "look again".

use std::fmt::Debug;
use std::hash::Hash;

use futures::StreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use resources::QuestDB;
use runtime::CancellationToken;
use runtime::health::Component;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

/// Where looks are asked for. Bounded: a watch that is ahead of the controller waits.
pub(crate) type Queue = Sender<ObjectRef<QuestDB>>;

/// What a watch needs beside its API.
#[derive(Clone)]
pub(crate) struct Wiring {
    pub(crate) queue: Queue,
    pub(crate) health: Component,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: runtime::Tasks,
}

/// Starts a watch; `owner` says which resource an object belongs to.
pub(crate) fn start<K, F>(wiring: &Wiring, api: Api<K>, config: watcher::Config, owner: F) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Hash + Eq,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>> + Send + Sync + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let stream = watch(api, config)
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer);
    let Wiring { queue, health, stop, tasks } = wiring.clone();
    let kind = K::kind(&()).into_owned();
    tasks.spawn(format!("watch {kind}"), async move {
        let mut stream = Box::pin(stream.take_until(stop.cancelled()));
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    health.set_ok();
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
    store
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
