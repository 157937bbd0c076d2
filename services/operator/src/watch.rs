//! One watch: keeps a store up to date and says which resource to look at when something changes. A change only ever
//! means "look again".

mod again;
mod answer;
pub(crate) mod boxed;
mod definition;
mod ear;
mod hearing;
mod merge;
mod merged;
mod pauses;
#[cfg(test)]
mod played;
mod standing;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::HashSet;
use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use resources::{QuestDB, names};
use runtime::CancellationToken;
use serde::de::DeserializeOwned;

use crate::index::Index;
use crate::kept::Kept;
use crate::queue::Queue;
use crate::scope::Scope;
use crate::store::{self, Key, Store};
use crate::strays::Strays;

pub(crate) use self::again::look_again;
use self::boxed::Boxed;
pub(crate) use self::definition::look_at_definitions;
use self::ear::Said;
pub(crate) use self::hearing::Hearing;
pub(crate) use self::merged::{Change, Heard, Merged, News, Source};
pub(crate) use self::standing::{Anew, watch as begin};
pub(crate) use self::state::Watches;
pub(crate) use self::table::Need;
pub(crate) use self::trouble::Watched;

/// What every watch needs beside its API.
#[derive(Clone)]
pub(crate) struct Upkeep {
    pub(crate) watches: Watches,
    pub(crate) scope: Scope,
    /// Who needs what is watched here.
    pub(crate) need: Need,
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

/// A store in which objects are also found by what they belong to.
#[derive(Clone)]
pub(crate) struct Indexed<K: Kept> {
    pub(crate) store: Store<K>,
    index: Arc<Index>,
}

impl<K: Kept> Indexed<K> {
    /// Objects that belong, or belonged a moment ago, to this.
    pub(crate) fn of(&self, owner: &str) -> Vec<Arc<K>> {
        self.index.of(owner).iter().filter_map(|key| self.store.get(key)).collect()
    }

    /// Whether this is so of one of them by its brief; none is unpacked.
    pub(crate) fn any(&self, owner: &str, is_so: impl Fn(&K::Brief) -> bool) -> bool {
        self.index.of(owner).iter().any(|key| self.store.told_of(key, &is_so).unwrap_or_default())
    }
}

/// Where a kind of the cluster itself is watched.
pub(crate) fn clustered<K: Resource<DynamicType = ()>>(client: &Client) -> Vec<Source<K>> {
    vec![Source::new(client, None, |client, _| Api::all(client))]
}

/// Where a kind that lies in namespaces is watched: no further than the scope reaches.
pub(crate) fn namespaced<K>(client: &Client, scope: &Scope) -> Vec<Source<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api = |client, place: Option<&str>| match place {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    scope.places().into_iter().map(|place| Source::new(client, place, api)).collect()
}

/// Starts the watches of a kind; `owner` says which resource an object belongs to.
pub(crate) fn start<K, F>(
    wiring: &Wiring,
    sources: Vec<Source<Boxed<K>>>,
    config: &watcher::Config,
    owner: F,
) -> Store<K>
where
    K: Kept + Resource<DynamicType = ()>,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>> + Send + Sync + 'static,
{
    start_indexed(wiring, sources, config, |_| None, owner).store
}

/// The same for objects that are also found by what they belong to.
pub(crate) fn start_indexed<K, F>(
    wiring: &Wiring,
    sources: Vec<Source<Boxed<K>>>,
    config: &watcher::Config,
    of: fn(&K) -> Option<String>,
    owner: F,
) -> Indexed<K>
where
    K: Kept + Resource<DynamicType = ()>,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>> + Send + Sync + 'static,
{
    let index = Arc::<Index>::default();
    let Wiring { queue, strays, .. } = wiring.clone();
    let indexed = Arc::clone(&index);
    let concerned = Concerned::default();
    let store = keep(&wiring.upkeep, sources, config, move |change| {
        indexed.take_in(&change.event, of);
        note(&strays, &change, &owner);
        let owners = concerned.after(&change, &owner);
        let queue = queue.clone();
        async move { queue.ask_all(owners).await }
    });
    Indexed { store, index }
}

/// Who is to be looked at after an event. Those whom a list concerns, also by what it has no more, only once the store is as
/// the list was: a look before that would see what was, and nothing would ask for another.
#[derive(Default)]
pub(crate) struct Concerned {
    listed: Mutex<HashSet<Key>>,
}

impl Concerned {
    pub(crate) fn after<K, T>(
        &self,
        change: &Change<K>,
        owner: impl Fn(&K) -> Option<ObjectRef<T>>,
    ) -> Vec<Key>
    where
        K: Kept,
        T: Resource<DynamicType = ()>,
    {
        let key = |object: &K| owner(object).map(|owner| Key::to(&owner));
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match &change.event {
            Event::Init => *listed = HashSet::new(),
            Event::InitApply(object) => listed.extend(key(object)),
            Event::InitDone => {
                let mut all = mem::take(&mut *listed);
                all.extend(change.former.objects().filter_map(|object| key(&object)));
                return all.into_iter().collect();
            }
            Event::Apply(object) => {
                // Whose it was is concerned as much as whose it is called now.
                let before = change.before.as_deref().and_then(&key);
                let all: HashSet<_> = before.into_iter().chain(key(object)).collect();
                return all.into_iter().collect();
            }
            Event::Delete(object) => return key(object).into_iter().collect(),
        }
        Vec::new()
    }
}

/// Keeps a store up to date until stopped; `tell` hears of each event after the store did. It takes in at once what there is to
/// take in, and only what it answers may wait.
pub(crate) fn keep<K, F, T>(
    upkeep: &Upkeep,
    sources: Vec<Source<Boxed<K>>>,
    config: &watcher::Config,
    tell: F,
) -> Store<K>
where
    K: Kept + Resource<DynamicType = ()>,
    F: Fn(Change<K>) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let (store, writer) = store::store::<K>();
    let Upkeep { watches, stop, tasks, need, .. } = upkeep.clone();
    let kind = K::kind(&()).into_owned();
    let watched: Vec<_> = sources.iter().map(|source| Watched::of::<K>(source.place.as_deref())).collect();
    for each in &watched {
        watches.begun(each, need);
    }
    let mut merged = Merged::new(sources, config, (writer, &watches));
    let kept = store.clone();
    tasks.spawn(format!("watch {kind}"), async move {
        let forgets = kept.forget_in_time();
        tokio::pin!(forgets);
        loop {
            let news = tokio::select! {
                news = merged.next() => news,
                () = stop.cancelled() => return,
                // It never ends.
                () = &mut forgets => return,
            };
            let Some(news) = news else { break };
            let source = &watched[news.source];
            take_in(&watches, (source, need), news, &tell).await;
        }
        stop.cancelled().await;
    });
    store
}

/// Takes in what one watch said.
///
/// *Invariant:* what it showed counts only once all that is found by it (an index, who is concerned) is as the list was. It
/// waits for nobody who was told: before this process leads nobody listens.
async fn take_in<K: Kept, T: Future<Output = ()>>(
    watches: &Watches,
    (source, need): (&Watched, Need),
    news: News<K>,
    tell: impl Fn(Change<K>) -> T,
) {
    let told: Vec<_> = news.changes.into_iter().map(tell).collect();
    watches.heard(source, &news.heard, need);
    if news.listed {
        watches.listed(source);
    }
    for one in told {
        one.await;
    }
}

/// Hears a watch out until stopped, of which no store is kept: what it tells, and how it is.
pub(crate) fn hear<K, F, T>(
    upkeep: &Upkeep,
    watched: Watched,
    source: Source<K>,
    config: watcher::Config,
    tell: F,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    F: Fn(Event<K>) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let upkeep = upkeep.clone();
    // Before the task has its turn: what is not known to be watched would count as seen.
    upkeep.watches.begun(&watched, upkeep.need);
    upkeep.tasks.clone().spawn(format!("watch {watched}"), async move {
        hear_out(&upkeep, &watched, source, config, tell).await;
        upkeep.stop.cancelled().await;
    });
}

/// The same, by whoever calls, who has said that it begins.
pub(crate) async fn hear_out<K, F, T>(
    upkeep: &Upkeep,
    watched: &Watched,
    source: Source<K>,
    config: watcher::Config,
    tell: F,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    F: Fn(Event<K>) -> T,
    T: Future<Output = ()>,
{
    let Upkeep { watches, stop, need, .. } = upkeep;
    let stream = standing::watch(source.api, config, watches.standing().anew());
    let mut said = Box::pin(ear::listen(stream, source.answers).take_until(stop.cancelled()));
    while let Some(said) = said.next().await {
        let (heard, event) = match said {
            Said::Silence => (Heard::Silence, None),
            Said::Answered => (Heard::Answered, None),
            Said::Told(Err(error)) => (Heard::Broke(error), None),
            Said::Told(Ok(event)) => (Heard::of(&event), Some(boxed::open(event))),
        };
        watches.heard(watched, &heard, *need);
        if let Some(event) = event {
            pass_on(watches, watched, event, &tell).await;
        }
    }
}

/// Passes on what a watch told; that all was listed counts once it was.
async fn pass_on<K, T: Future<Output = ()>>(
    watches: &Watches,
    one: &Watched,
    event: Event<K>,
    tell: impl Fn(Event<K>) -> T,
) {
    let listed = matches!(event, Event::InitDone);
    tell(event).await;
    if listed {
        watches.listed(one);
    }
}

/// What leaves a watch may only have lost its labels; what is called another's may still be whose it was.
fn note<K, F>(strays: &Strays, change: &Change<K>, owner: &F)
where
    K: Kept + Resource<DynamicType = ()>,
    F: Fn(&K) -> Option<ObjectRef<QuestDB>>,
{
    match &change.event {
        Event::Delete(object) => {
            let Some(owner) = owner(object) else { return };
            if K::kind(&()) == QuestDB::kind(&()) {
                strays.forget(&owner);
            } else {
                strays.suspect(&owner);
            }
        }
        Event::Apply(object) => {
            let before = change.before.as_deref().filter(|before| marks(*before) != marks(&**object));
            if let Some(owner) = before.and_then(owner) {
                strays.suspect(&owner);
            }
        }
        // What left while nobody watched is told by nothing else. Only now are the stores as the list was.
        Event::InitDone => strays.forget_all(),
        Event::Init | Event::InitApply(_) => {}
    }
}

/// The labels by which an object is found.
fn marks<K: Resource>(object: &K) -> [Option<&String>; 3] {
    let labels = object.meta().labels.as_ref();
    [names::LABEL_DATABASE, names::LABEL_NAME, names::LABEL_NAMESPACE].map(|key| labels?.get(key))
}
