//! Kinds that a cluster may lack: looked for at the start and again now and then, watched while they are there.
//!
//! *Invariant:* a kind that is missing, or that we may not watch, holds nothing up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client};
use plan::{Children, Kind, Subject};
use resources::{QuestDB, names};
use runtime::CancellationToken;
use tokio::sync::watch;

use crate::caches::owner;
use crate::kept::Kept;
use crate::scope::Scope;
use crate::watch::{Heard, Merged, News, Queue, Source, Watched, Watches, Wiring};

impl Kept for DynamicObject {}

/// Between two looks for a kind.
const PERIOD: Duration = Duration::from_secs(20);
/// How long one look may take, and how long the first filling of a store is waited for before work begins without.
const LIMIT: Duration = Duration::from_secs(10);

/// The kinds that a cluster may lack.
const KINDS: [Kind; 4] = [Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];

/// Stores of those that are there.
type Stores = Arc<Mutex<BTreeMap<Kind, Store<DynamicObject>>>>;

/// What is seen of those kinds.
#[derive(Clone)]
pub(super) struct Others {
    stores: Stores,
    /// Of how many kinds it is known whether they are there.
    known: watch::Receiver<usize>,
}

/// The watch of one kind.
struct Look {
    kind: Kind,
    resource: ApiResource,
    client: Client,
    stores: Stores,
    queue: Queue,
    watches: Watches,
    scope: Scope,
    resources: Store<QuestDB>,
}

impl Others {
    pub(super) fn start(client: &Client, wiring: &Wiring, resources: &Store<QuestDB>) -> Self {
        let stores = Stores::default();
        let (teller, known) = watch::channel(0);
        let teller = Arc::new(teller);
        for kind in KINDS {
            let look = Look {
                kind,
                resource: api_resource(kind),
                client: client.clone(),
                stores: Arc::clone(&stores),
                queue: wiring.queue.clone(),
                watches: wiring.upkeep.watches.clone(),
                scope: wiring.upkeep.scope.clone(),
                resources: resources.clone(),
            };
            let (stop, teller) = (wiring.upkeep.stop.clone(), Arc::clone(&teller));
            wiring.upkeep.tasks.spawn(format!("watch {}", kind.as_str()), async move {
                look.run(&stop, || teller.send_modify(|known| *known += 1)).await;
            });
        }
        Self { stores, known }
    }

    /// Waits until it is known which kinds there are.
    pub(super) async fn ready(&self) -> bool {
        self.known.clone().wait_for(|known| *known >= KINDS.len()).await.is_ok()
    }

    pub(super) fn fill(&self, children: &mut Children, subject: &Subject) {
        let stores = lock(&self.stores);
        children.served = stores.keys().copied().collect();
        let routes = [names::route_pg(&subject.name), names::route_ilp(&subject.name)];
        for (kind, store) in &*stores {
            let resource = api_resource(*kind);
            for name in routes.iter().chain([&subject.name]) {
                let key = ObjectRef::new_with(name, resource.clone()).within(&subject.namespace);
                let found = store.get(&key).filter(|found| subject.holds(&found.metadata));
                children.others.extend(found.map(|found| (*kind, found)));
            }
        }
    }
}

impl Look {
    /// Looks for the kind and watches it while it is there, until stopped. `known` is called once.
    async fn run(&self, stop: &CancellationToken, known: impl FnOnce()) {
        let mut known = Some(known);
        loop {
            if self.is_served().await == Some(true) {
                self.watch(stop, &mut known).await;
            }
            tell(&mut known);
            if !runtime::backoff::sleep(PERIOD, stop).await {
                return;
            }
        }
    }

    /// Whether the cluster knows the kind; `None` when it did not say.
    async fn is_served(&self) -> Option<bool> {
        let version = self.resource.api_version.as_str();
        let answer = tokio::time::timeout(LIMIT, self.client.list_api_group_resources(version)).await;
        match answer {
            Ok(Ok(list)) => Some(list.resources.iter().any(|found| found.name == self.resource.plural)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Some(false),
            Ok(Err(error)) => {
                let error = runtime::telemetry::chain(&error);
                tracing::warn!(
                    error,
                    kind = self.kind.as_str(),
                    "could not ask whether the cluster knows a kind"
                );
                None
            }
            Err(_) => None,
        }
    }

    /// Watches until the kind is gone.
    async fn watch<F: FnOnce()>(&self, stop: &CancellationToken, known: &mut Option<F>) {
        let writer = Writer::<DynamicObject>::new(self.resource.clone());
        let store = writer.as_reader();
        let ours = watcher::Config::default().labels(names::LABEL_DATABASE);
        let mut watches = Merged::new(self.sources(), &ours, writer);
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + PERIOD, PERIOD);
        let (filled, late) = (store.wait_until_ready(), tokio::time::sleep(LIMIT));
        tokio::pin!(filled, late);
        let mut waits = true;
        loop {
            tokio::select! {
                news = watches.next() => match news {
                    Some(news) => self.take_in(news).await,
                    None => return,
                },
                () = stop.cancelled() => return,
                filled = &mut filled, if waits => {
                    waits = false;
                    if filled.is_ok() {
                        self.came(&store).await;
                    }
                    tell(known);
                }
                // Perhaps nobody lets us watch it.
                () = &mut late, if known.is_some() => tell(known),
                _ = look.tick() => {
                    if self.is_served().await == Some(false) {
                        self.went().await;
                        return;
                    }
                }
            }
        }
    }

    fn sources(&self) -> Vec<Source<DynamicObject>> {
        let (client, resource) = (&self.client, &self.resource);
        let api = |place: &Option<String>| match place {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        self.scope.places().into_iter().map(|place| Source { api: api(&place), place }).collect()
    }

    async fn take_in(&self, news: News<DynamicObject>) {
        let place = &self.scope.places()[news.source];
        let watched = Watched::new(self.kind.as_str(), place.as_deref());
        match &news.heard {
            Heard::Silence => self.watches.heals(&watched),
            Heard::Begun => {}
            Heard::Works => self.watches.works(&watched),
            Heard::Broke(error) => self.watches.broke(&watched, error, false),
        }
        for event in news.events {
            if matches!(event, watcher::Event::InitDone) {
                // What changed while nobody watched is told by nothing else.
                self.look_again().await;
            }
            let (watcher::Event::Apply(object) | watcher::Event::Delete(object)) = event else { continue };
            if let Some(owner) = owner(&object.metadata) {
                // Closed only when the program ends.
                let _ = self.queue.send(owner).await;
            }
        }
    }

    async fn came(&self, store: &Store<DynamicObject>) {
        if lock(&self.stores).insert(self.kind, store.clone()).is_none() {
            tracing::info!(kind = self.kind.as_str(), "the cluster knows the kind");
            // Its list came before it could be used.
            self.look_again().await;
        }
    }

    async fn went(&self) {
        if lock(&self.stores).remove(&self.kind).is_some() {
            tracing::info!(kind = self.kind.as_str(), "the cluster does not know the kind any more");
            self.look_again().await;
        }
    }

    /// At everything that asks for any of these kinds.
    async fn look_again(&self) {
        for resource in self.resources.state() {
            let network = &resource.spec.network;
            if network.ingress.is_some() || network.monitor.is_some() {
                let _ = self.queue.send(ObjectRef::from_obj(&*resource)).await;
            }
        }
    }
}

fn tell<F: FnOnce()>(known: &mut Option<F>) {
    if let Some(known) = known.take() {
        known();
    }
}

/// How the API server is asked for a kind that is not Kubernetes' own.
pub(crate) fn api_resource(kind: Kind) -> ApiResource {
    let (group, version, plural) = kind.definition().unwrap_or_default();
    let gvk = GroupVersionKind::gvk(group, version, kind.as_str());
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

fn lock(stores: &Stores) -> MutexGuard<'_, BTreeMap<Kind, Store<DynamicObject>>> {
    stores.lock().unwrap_or_else(PoisonError::into_inner)
}
