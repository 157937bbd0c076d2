//! Kinds that a cluster may lack: looked for at the start and again now and then, watched while they are there.
//!
//! *Invariant:* a kind that is missing, or that we may not watch, holds nothing up. *Invariant:* what there is of a kind counts
//! as known in a namespace only once it was listed there, and while its watch works.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use plan::{Children, Kind, Subject, Unseen};
use resources::{QuestDB, names};
use runtime::CancellationToken;
use tokio::sync::watch;

use crate::caches::owner;
use crate::kept::{Kept, brief};
use crate::queue::Queue;
use crate::scope::Scope;
use crate::store::{self, Key, Store};
use crate::watch::boxed::Boxed;
use crate::watch::{Change, Heard, Merged, Need, News, Source, Watched, Watches, Wiring};

impl Kept for DynamicObject {
    type Brief = brief::Owner;
}

/// Between two looks for a kind.
const PERIOD: Duration = Duration::from_secs(20);
/// How long one look may take, and how long the first filling of a store is waited for before work begins without.
const LIMIT: Duration = Duration::from_secs(10);

/// The kinds that a cluster may lack.
pub(crate) const KINDS: [Kind; 4] =
    [Kind::ServiceMonitor, Kind::PodMonitor, Kind::IngressRoute, Kind::IngressRouteTcp];

/// What is known of them; of those that are not in it, nothing yet.
type Known = Arc<Mutex<BTreeMap<Kind, Presence>>>;

/// Whether the cluster knows a kind.
enum Presence {
    Missing,
    There(Store<DynamicObject>),
}

/// What is seen of those kinds.
#[derive(Clone)]
pub(super) struct Others {
    known: Known,
    watches: Watches,
    /// Of how many kinds it is known whether they are there.
    looked: watch::Receiver<usize>,
}

/// The watch of one kind.
struct Look {
    kind: Kind,
    resource: ApiResource,
    client: Client,
    known: Known,
    queue: Queue,
    watches: Watches,
    scope: Scope,
    resources: Store<QuestDB>,
}

impl Others {
    pub(super) fn start(client: &Client, wiring: &Wiring, resources: &Store<QuestDB>) -> Self {
        let known = Known::default();
        let (teller, looked) = watch::channel(0);
        let teller = Arc::new(teller);
        let watches = wiring.upkeep.watches.clone();
        for kind in KINDS {
            let look = Look {
                kind,
                resource: api_resource(kind),
                client: client.clone(),
                known: Arc::clone(&known),
                queue: wiring.queue.clone(),
                watches: watches.clone(),
                scope: wiring.upkeep.scope.clone(),
                resources: resources.clone(),
            };
            let (stop, teller) = (wiring.upkeep.stop.clone(), Arc::clone(&teller));
            wiring.upkeep.tasks.spawn(format!("watch {}", kind.as_str()), async move {
                look.run(&stop, || teller.send_modify(|looked| *looked += 1)).await;
            });
        }
        Self { known, watches, looked }
    }

    /// Waits until it is known which kinds there are.
    pub(super) async fn ready(&self) -> bool {
        self.looked.clone().wait_for(|looked| *looked >= KINDS.len()).await.is_ok()
    }

    /// An object that is seen, whichever database's it is.
    pub(super) fn one(&self, kind: Kind, key: &Key) -> Option<Arc<DynamicObject>> {
        match lock(&self.known).get(&kind)? {
            Presence::There(store) => store.get(key),
            Presence::Missing => None,
        }
    }

    pub(super) fn fill(&self, children: &mut Children, subject: &Subject) {
        let known = lock(&self.known);
        for kind in KINDS {
            let store = match known.get(&kind) {
                Some(Presence::There(store)) => store,
                Some(Presence::Missing) => continue,
                None => {
                    children.unseen.insert(kind, Unseen::Yet);
                    continue;
                }
            };
            if let Some(unseen) = self.watches.unseen_of(kind.as_str(), &subject.namespace) {
                children.unseen.insert(kind, unseen);
                continue;
            }
            children.served.insert(kind);
            children.others.extend(of(store, subject).map(|found| (kind, found)));
        }
    }
}

/// The objects of one kind that a database has.
fn of(store: &Store<DynamicObject>, subject: &Subject) -> impl Iterator<Item = Arc<DynamicObject>> {
    let names = [names::route_pg(&subject.name), names::route_ilp(&subject.name), subject.name.clone()];
    names.into_iter().filter_map(move |name| {
        let key = Key::new(Some(&subject.namespace), &name);
        store.get(&key).filter(|found| subject.holds(&found.metadata))
    })
}

impl Look {
    /// Looks for the kind and watches it while it is there, until stopped. `looked` is called once.
    async fn run(&self, stop: &CancellationToken, looked: impl FnOnce()) {
        let mut looked = Some(looked);
        loop {
            match self.is_served().await {
                Some(true) => self.watch(stop, &mut looked).await,
                Some(false) => self.went().await,
                None => {}
            }
            tell(&mut looked);
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
    async fn watch<F: FnOnce()>(&self, stop: &CancellationToken, looked: &mut Option<F>) {
        let (store, writer) = store::store();
        let places = self.scope.places();
        let each: Vec<_> = places.iter().map(|place| self.watched(place.as_deref())).collect();
        for watched in &each {
            self.watches.begun(watched, Need::Wish);
        }
        lock(&self.known).insert(self.kind, Presence::There(store.clone()));
        let ours = watcher::Config::default().labels(names::LABEL_DATABASE);
        let mut merged = Merged::new(self.sources(), &ours, (writer, &self.watches));
        let mut redefined = self.watches.standing().of_others();
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + PERIOD, PERIOD);
        let (late, forgets) = (tokio::time::sleep(LIMIT), store.forget_in_time());
        tokio::pin!(late, forgets);
        loop {
            tokio::select! {
                news = merged.next() => match news {
                    Some(news) => {
                        let told = news.listed || matches!(news.heard, Heard::Broke(_));
                        self.take_in(&each[news.source], news, &store).await;
                        if told {
                            tell(looked);
                        }
                    }
                    None => return,
                },
                () = stop.cancelled() => return,
                // It never ends.
                () = &mut forgets => return,
                // Perhaps nobody answers.
                () = &mut late, if looked.is_some() => tell(looked),
                // What was refused because a definition was too old is tried again much later by itself.
                Ok(()) = redefined.changed() => self.look_again(Some(&store), None).await,
                _ = look.tick() => {
                    if self.is_served().await == Some(false) {
                        self.went().await;
                        return;
                    }
                }
            }
        }
    }

    fn watched(&self, place: Option<&str>) -> Watched {
        Watched::new(self.kind.as_str(), (&self.resource.plural, &self.resource.group), place)
    }

    fn sources(&self) -> Vec<Source<Boxed<DynamicObject>>> {
        let (client, resource) = (&self.client, &self.resource);
        let api = |client, place: Option<&str>| match place {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        self.scope.places().into_iter().map(|place| Source::new(client, place, api)).collect()
    }

    async fn take_in(&self, watched: &Watched, news: News<DynamicObject>, store: &Store<DynamicObject>) {
        let anew = self.watches.heard(watched, &news.heard, Need::Wish);
        for change in news.changes {
            for owner in concerned(&change) {
                // Closed only when the program ends.
                self.queue.ask(owner).await;
            }
        }
        if news.listed {
            self.watches.listed(watched);
        }
        if news.listed || anew {
            // What changed while nobody watched is told by nothing else.
            self.look_again(Some(store), watched.place()).await;
        }
    }

    /// The cluster does not know the kind.
    async fn went(&self) {
        let before = lock(&self.known).insert(self.kind, Presence::Missing);
        self.watches.ended(self.kind.as_str());
        if matches!(before, Some(Presence::There(_))) {
            tracing::info!(kind = self.kind.as_str(), "the cluster does not know the kind any more");
            self.look_again(None, None).await;
        }
    }

    /// At everything in a place that asks for any of these kinds, or has some of this one; no place is all of them.
    async fn look_again(&self, store: Option<&Store<DynamicObject>>, place: Option<&str>) {
        let mut all: HashSet<_> = self.resources.keys_of(|_, brief| brief.wants.others).into_iter().collect();
        if let Some(store) = store {
            all.extend(store.briefs().iter().filter_map(|(_, brief)| brief.0.clone()));
        }
        let is_there = |resource: &Key| place.is_none() || resource.namespace() == place;
        for resource in all.into_iter().filter(is_there) {
            self.queue.ask(resource.reference()).await;
        }
    }
}

/// Whose an object is that changed, and whose it was. A list is another matter.
fn concerned(change: &Change<DynamicObject>) -> HashSet<ObjectRef<QuestDB>> {
    let (Event::Apply(object) | Event::Delete(object)) = &change.event else { return HashSet::new() };
    let before = change.before.as_ref().and_then(|before| owner(&before.metadata));
    before.into_iter().chain(owner(&object.metadata)).collect()
}

fn tell<F: FnOnce()>(looked: &mut Option<F>) {
    if let Some(looked) = looked.take() {
        looked();
    }
}

/// How the API server is asked for a kind that is not Kubernetes' own.
pub(crate) fn api_resource(kind: Kind) -> ApiResource {
    let (group, version, plural) = kind.definition().unwrap_or_default();
    let gvk = GroupVersionKind::gvk(group, version, kind.as_str());
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

fn lock(known: &Known) -> MutexGuard<'_, BTreeMap<Kind, Presence>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
