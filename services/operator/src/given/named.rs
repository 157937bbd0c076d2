//! Secrets that specs name: each is watched by itself, by its metadata, for as long as somebody names it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use plan::secrets::Origin;
use resources::QuestDB;
use runtime::CancellationToken;

use crate::watch::{self, Need, Pauses, Wiring};

/// A Secret by namespace and name.
type Key = (String, String);

/// A watch that is to be begun, and how it ends.
type Begun = (Key, CancellationToken);

/// All of them.
#[derive(Clone)]
pub(super) struct Named {
    client: Client,
    wiring: Wiring,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    watched: HashMap<Key, Watched>,
    names: HashMap<ObjectRef<QuestDB>, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Whether its watch has answered.
    known: bool,
    /// At which version it is, if it is there.
    origin: Option<Origin>,
    owners: BTreeSet<String>,
    stop: CancellationToken,
}

impl Named {
    pub(super) fn new(client: &Client, wiring: &Wiring) -> Self {
        Self { client: client.clone(), wiring: wiring.clone(), table: Arc::default() }
    }

    /// From now on these are what a database's spec names; how they are, as far as it is known.
    pub(super) fn watch(
        &self,
        database: &ObjectRef<QuestDB>,
        names: BTreeSet<String>,
    ) -> BTreeMap<String, Option<Origin>> {
        let mut table = self.lock();
        let (begun, known) = table.name(database, names);
        for (key, stop) in begun {
            self.begin(key, stop);
        }
        known
    }

    fn begin(&self, key: Key, stop: CancellationToken) {
        let (named, everything) = (self.clone(), self.wiring.upkeep.stop.clone());
        let task = format!("watch Secret {}/{}", key.0, key.1);
        self.wiring.upkeep.tasks.spawn_once(task, async move {
            let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(named.client.clone(), &key.0);
            let one = watcher::Config::default().fields(&format!("metadata.name={}", key.1));
            let stream = watcher(api, one).backoff(Pauses::default()).take_until(stop.cancelled());
            let mut stream = Box::pin(stream.take_until(everything.cancelled()));
            let mut seen = None;
            while let Some(event) = stream.next().await {
                match event {
                    Ok(event) => named.take_in(&key, &event, &mut seen).await,
                    Err(error) => named.wiring.upkeep.watches.broke(&of_named(&key.0), &error, Need::Wish),
                }
            }
            // Nobody asks for it any more; of another one that is refused there it is told again.
            named.wiring.upkeep.watches.forget(&of_named(&key.0));
        });
    }

    async fn take_in(
        &self,
        key: &Key,
        event: &Event<PartialObjectMeta<Secret>>,
        listed: &mut Option<Origin>,
    ) {
        let origin = match event {
            Event::Init => {
                *listed = None;
                return;
            }
            Event::InitApply(object) => {
                *listed = Some(Origin::of(&object.metadata));
                return;
            }
            Event::InitDone => {
                self.wiring.upkeep.watches.works(&of_named(&key.0));
                listed.take()
            }
            Event::Apply(object) => Some(Origin::of(&object.metadata)),
            Event::Delete(_) => None,
        };
        let owners = self.lock().learn(key, origin);
        for owner in owners {
            // Closed only when the program ends.
            let _ = self.wiring.queue.send(ObjectRef::new(&owner).within(&key.0)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_named(namespace: &str) -> watch::Watched {
    watch::Watched::named::<Secret>("named Secret", Some(namespace))
}

impl Table {
    /// Notes what a database names; which watches are to be begun, and how those Secrets are.
    fn name(
        &mut self,
        database: &ObjectRef<QuestDB>,
        names: BTreeSet<String>,
    ) -> (Vec<Begun>, BTreeMap<String, Option<Origin>>) {
        let namespace = database.namespace.clone().unwrap_or_default();
        let key = |name: &String| (namespace.clone(), name.clone());
        let former = if names.is_empty() {
            self.names.remove(database)
        } else {
            self.names.insert(database.clone(), names.clone())
        };
        let former = former.unwrap_or_default();
        let mut begun = Vec::new();
        for name in names.difference(&former) {
            let watched = self.watched.entry(key(name)).or_default();
            if watched.owners.is_empty() {
                begun.push((key(name), watched.stop.clone()));
            }
            watched.owners.insert(database.name.clone());
        }
        for name in former.difference(&names) {
            let Some(watched) = self.watched.get_mut(&key(name)) else { continue };
            watched.owners.remove(&database.name);
            if watched.owners.is_empty() {
                watched.stop.cancel();
                self.watched.remove(&key(name));
            }
        }
        let known = |name: String| {
            let watched = self.watched.get(&key(&name)).filter(|watched| watched.known)?;
            Some((name, watched.origin.clone()))
        };
        (begun, names.into_iter().filter_map(known).collect())
    }

    /// Notes how a Secret is; who names it, if that is news.
    fn learn(&mut self, key: &Key, origin: Option<Origin>) -> BTreeSet<String> {
        let Some(watched) = self.watched.get_mut(key) else { return BTreeSet::new() };
        if watched.known && watched.origin == origin {
            return BTreeSet::new();
        }
        (watched.known, watched.origin) = (true, origin);
        watched.owners.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_watch_lives_while_somebody_names_its_secret() {
        let mut table = Table::default();
        let [a, b] = ["a", "b"].map(|name| ObjectRef::<QuestDB>::new(name).within("n"));
        let key = ("n".to_owned(), "s".to_owned());
        let (begun, known) = table.name(&a, names(&["s"]));
        assert_eq!((begun.len(), known.len()), (1, 0), "nothing is known yet");
        let stop = begun[0].1.clone();
        assert!(
            table.name(&a, names(&["s"])).0.is_empty() && table.name(&b, names(&["s", "t"])).0.len() == 1
        );
        assert_eq!(table.learn(&key, None), names(&["a", "b"]));
        assert_eq!(table.learn(&key, None), names(&[]), "no news");
        let origin = Origin { name: "s".to_owned(), uid: "u".to_owned(), version: "1".to_owned() };
        assert_eq!(table.learn(&key, Some(origin.clone())), names(&["a", "b"]));
        assert_eq!(table.name(&a, names(&["s"])).1, [("s".to_owned(), Some(origin))].into());
        table.name(&a, names(&[]));
        assert!(!stop.is_cancelled());
        table.name(&b, names(&["t"]));
        assert!(stop.is_cancelled());
        assert_eq!(table.learn(&key, None), names(&[]));
        table.name(&b, names(&[]));
        assert!(table.watched.is_empty() && table.names.is_empty(), "{table:?}");
    }
}
