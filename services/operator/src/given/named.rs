//! What specs name, such as Secrets and `ConfigMaps`: each is watched by itself, by its metadata, for as long as somebody names it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use plan::references::{Reference, ReferenceKind, References};
use plan::secrets::Origin;
use resources::QuestDB;
use runtime::CancellationToken;

use crate::watch::{self, Need, Source, Upkeep, Wiring};

/// One of them, in the namespace of those who name it.
type Key = (String, Reference);

/// A watch that is to be begun, the how manieth of all it is, and how it ends.
type Begun = (Key, u64, CancellationToken);

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
    named: HashMap<ObjectRef<QuestDB>, BTreeSet<Reference>>,
    /// How many watches were begun.
    begun: u64,
}

#[derive(Debug, Default)]
struct Watched {
    /// Of which watch it is: one that has ended may still have something to say.
    number: u64,
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
    pub(super) fn watch(&self, database: &ObjectRef<QuestDB>, named: BTreeSet<Reference>) -> References {
        let mut table = self.lock();
        let (begun, known) = table.name(database, named);
        for begun in begun {
            self.begin(begun);
        }
        known
    }

    /// While the table is held: of two watches of one object the later is begun after the earlier.
    fn begin(&self, begun: Begun) {
        match begun.0.1.kind {
            ReferenceKind::Secret => self.begin_of::<Secret>(begun, Api::namespaced),
            ReferenceKind::ConfigMap => self.begin_of::<ConfigMap>(begun, Api::namespaced),
            ReferenceKind::ServiceAccount => self.begin_of::<ServiceAccount>(begun, Api::namespaced),
            ReferenceKind::PriorityClass => {
                self.begin_of::<PriorityClass>(begun, |client, _| Api::all(client));
            }
        }
    }

    fn begin_of<K>(&self, (key, number, stop): Begun, api: fn(Client, &str) -> Api<PartialObjectMeta<K>>)
    where
        K: Resource<DynamicType = ()> + Send + Sync + Clone + Debug + 'static,
    {
        let named = self.clone();
        let life = self.wiring.upkeep.watches.begun(&of_named(&key), Need::Wish);
        let task = format!("watch {} in {}", key.1, key.0);
        self.wiring.upkeep.tasks.spawn_once(task, async move {
            let upkeep = Upkeep { need: Need::Wish, ..named.wiring.upkeep.clone() };
            let place = Some(key.0.clone());
            let source: Source<PartialObjectMeta<K>> =
                Source::new(&named.client, place, |client, _| api(client, &key.0));
            let one = watcher::Config::default().fields(&format!("metadata.name={}", key.1.name));
            let (watched, seen) = (of_named(&key), Mutex::default());
            let told = watch::hear_out(&upkeep, &watched, source, one, |event| {
                named.take_in((&key, number), metadata_of(event), &seen)
            });
            tokio::select! {
                () = told => {}
                () = stop.cancelled() => {}
            }
            // Nobody asks for it any more.
            upkeep.watches.forget(&watched, life);
        });
    }

    async fn take_in(
        &self,
        (key, number): (&Key, u64),
        event: Event<ObjectMeta>,
        listed: &Mutex<Option<Origin>>,
    ) {
        let hold = |origin| std::mem::replace(&mut *lock(listed), origin);
        let origin = match event {
            Event::Init => {
                hold(None);
                return;
            }
            Event::InitApply(metadata) => {
                hold(Some(Origin::of(&metadata)));
                return;
            }
            Event::InitDone => hold(None),
            Event::Apply(metadata) => Some(Origin::of(&metadata)),
            Event::Delete(_) => None,
        };
        let owners = self.lock().learn((key, number), origin);
        for owner in owners {
            self.wiring.queue.ask(ObjectRef::new(&owner).within(&key.0)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

/// Each of them by itself: what is so of one is not so of the others.
fn of_named((namespace, named): &Key) -> watch::Watched {
    let place = Some(namespace.as_str());
    let all = match named.kind {
        ReferenceKind::Secret => watch::Watched::named::<Secret>("named Secret", place),
        ReferenceKind::ConfigMap => watch::Watched::named::<ConfigMap>("named ConfigMap", place),
        ReferenceKind::ServiceAccount => {
            watch::Watched::named::<ServiceAccount>("named ServiceAccount", place)
        }
        // By who names it, or the watch of one namespace would speak for that of another.
        ReferenceKind::PriorityClass => {
            let kind = ("priorityclasses", "scheduling.k8s.io");
            watch::Watched::new("named PriorityClass", kind, place)
        }
    };
    all.one(&named.name)
}

fn metadata_of<K>(event: Event<PartialObjectMeta<K>>) -> Event<ObjectMeta> {
    match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(object.metadata),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(object.metadata),
        Event::Delete(object) => Event::Delete(object.metadata),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Notes what a database names; which watches are to be begun, and how those objects are.
    fn name(
        &mut self,
        database: &ObjectRef<QuestDB>,
        named: BTreeSet<Reference>,
    ) -> (Vec<Begun>, References) {
        let namespace = database.namespace.clone().unwrap_or_default();
        let key = |what: &Reference| (namespace.clone(), what.clone());
        let former = if named.is_empty() {
            self.named.remove(database)
        } else {
            self.named.insert(database.clone(), named.clone())
        };
        let former = former.unwrap_or_default();
        let mut begun = Vec::new();
        for what in named.difference(&former) {
            let watched = self.watched.entry(key(what)).or_default();
            if watched.owners.is_empty() {
                self.begun += 1;
                watched.number = self.begun;
                begun.push((key(what), watched.number, watched.stop.clone()));
            }
            watched.owners.insert(database.name.clone());
        }
        for what in former.difference(&named) {
            let Some(watched) = self.watched.get_mut(&key(what)) else { continue };
            watched.owners.remove(&database.name);
            if watched.owners.is_empty() {
                watched.stop.cancel();
                self.watched.remove(&key(what));
            }
        }
        let known = |what: Reference| {
            let watched = self.watched.get(&key(&what)).filter(|watched| watched.known)?;
            Some((what, watched.origin.clone()))
        };
        (begun, named.into_iter().filter_map(known).collect())
    }

    /// Notes how an object is by its watch of this number; who names it, if that is news.
    fn learn(&mut self, (key, number): (&Key, u64), origin: Option<Origin>) -> BTreeSet<String> {
        let watched = self.watched.get_mut(key).filter(|watched| watched.number == number);
        let Some(watched) = watched else { return BTreeSet::new() };
        if watched.known && watched.origin == origin {
            return BTreeSet::new();
        }
        (watched.known, watched.origin) = (true, origin);
        watched.owners.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::StreamExt as _;
    use serde_json::json;

    use super::*;
    use crate::played::{self, Answer};
    use crate::scope::Scope;
    use crate::strays::Strays;
    use crate::watch::Watches;

    /// A Secret that was listed, of which the watch is denied until it is allowed, and then says that the Secret changed.
    fn answer(watches: bool, allowed: &AtomicBool, begun: &AtomicUsize) -> Answer {
        let object = |version: &str| {
            let metadata = json!({ "name": "s", "namespace": "n", "uid": "u", "resourceVersion": version });
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })
        };
        match (watches, allowed.load(Ordering::SeqCst)) {
            (false, _) => played::list("Secret", "v1", &json!([object("1")])),
            (true, false) => played::denial(),
            (true, true) if begun.fetch_add(1, Ordering::SeqCst) == 0 => {
                Answer::Is(200, json!({ "type": "MODIFIED", "object": object("2") }))
            }
            (true, true) => Answer::Silence,
        }
    }

    /// A moment after the other.
    fn moments(every: Duration) -> impl futures::Stream<Item = tokio::time::Instant> {
        let beats = tokio::time::interval(every);
        futures::stream::unfold(beats, |mut beats| async { Some((beats.tick().await, beats)) })
    }

    #[tokio::test]
    async fn a_secret_that_is_shown_again_is_refused_no_more() {
        let (allowed, begun) = (Arc::<AtomicBool>::default(), AtomicUsize::default());
        let opened = Arc::clone(&allowed);
        let client = played::client(move |_, watches| answer(watches, &opened, &begun));
        let (stop, metrics) = (CancellationToken::new(), runtime::Metrics::default());
        let (queue, mut asked) = crate::queue::Queue::new(10);
        queue.open();
        let watches =
            Watches::new(&metrics, &runtime::health::Readiness::default(), &Scope::All, String::new());
        let upkeep = Upkeep::played(watches, Scope::All, &stop);
        let named = Named::new(&client, &Wiring { upkeep, queue, strays: Strays::default() });
        let trades = ObjectRef::new("trades").within("n");
        named.watch(&trades, secrets(&["s"]));
        let is_refused = || metrics.encode().unwrap().contains("watches_refused{kind=\"named Secret\"");
        for expected in [true, false] {
            let mut found = moments(Duration::from_millis(10))
                .skip_while(|_| std::future::ready(is_refused() != expected))
                .boxed_local();
            let found = tokio::time::timeout(Duration::from_secs(30), found.next()).await;
            assert!(found.is_ok(), "refused: {}", !expected);
            allowed.store(true, Ordering::SeqCst);
            // Of the list, and of what changed.
            assert_eq!(asked.recv().await.as_ref(), Some(&trades));
        }
        stop.cancel();
    }

    fn secrets(names: &[&str]) -> BTreeSet<Reference> {
        names.iter().map(|name| Reference::secret(name)).collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_secret_is_told_by_itself() {
        let [x, y] = ["x", "y"].map(|name| of_named(&("n".to_owned(), Reference::secret(name))));
        assert!(x != y && x.to_string() == "named Secret x in namespace n", "{x}");
        let map = of_named(&("n".to_owned(), Reference::config_map("x")));
        assert!(map != x && map.to_string() == "named ConfigMap x in namespace n", "{map}");
        let class = |namespace: &str| of_named(&(namespace.to_owned(), Reference::priority_class("x")));
        assert_ne!(class("n"), class("m"), "each is begun and ended by itself");
    }

    #[test]
    fn a_watch_lives_while_somebody_names_its_secret() {
        let mut table = Table::default();
        let [a, b] = ["a", "b"].map(|name| ObjectRef::<QuestDB>::new(name).within("n"));
        let key = ("n".to_owned(), Reference::secret("s"));
        let (begun, known) = table.name(&a, secrets(&["s"]));
        assert_eq!((begun.len(), known.len()), (1, 0), "nothing is known yet");
        let (first, stop) = (begun[0].1, begun[0].2.clone());
        assert!(
            table.name(&a, secrets(&["s"])).0.is_empty() && table.name(&b, secrets(&["s", "t"])).0.len() == 1
        );
        assert_eq!(table.learn((&key, first), None), names(&["a", "b"]));
        assert_eq!(table.learn((&key, first), None), names(&[]), "no news");
        let origin = Origin { name: "s".to_owned(), uid: "u".to_owned(), version: "1".to_owned() };
        assert_eq!(table.learn((&key, first), Some(origin.clone())), names(&["a", "b"]));
        assert_eq!(table.name(&a, secrets(&["s"])).1, [(Reference::secret("s"), Some(origin))].into());
        table.name(&a, secrets(&[]));
        assert!(!stop.is_cancelled());
        table.name(&b, secrets(&["t"]));
        assert!(stop.is_cancelled());
        assert_eq!(table.learn((&key, first), None), names(&[]));
        table.name(&b, secrets(&[]));
        assert!(table.watched.is_empty() && table.named.is_empty(), "{table:?}");
    }

    #[test]
    fn a_watch_that_has_ended_says_nothing_of_the_next() {
        let mut table = Table::default();
        let (a, key) = (ObjectRef::<QuestDB>::new("a").within("n"), ("n".to_owned(), Reference::secret("s")));
        let begin = |table: &mut Table| {
            let (begun, known) = table.name(&a, secrets(&["s"]));
            assert!(known.is_empty(), "nothing is known of it yet");
            begun[0].1
        };
        let former = begin(&mut table);
        table.name(&a, secrets(&[]));
        let next = begin(&mut table);
        let origin = |version: &str| {
            Some(Origin { name: "s".to_owned(), uid: "u".to_owned(), version: version.to_owned() })
        };
        assert_eq!(table.learn((&key, former), origin("1")), names(&[]));
        assert_eq!(table.learn((&key, next), origin("2")), names(&["a"]));
        assert_eq!(table.learn((&key, former), origin("1")), names(&[]));
        assert_eq!(table.name(&a, secrets(&["s"])).1, [(Reference::secret("s"), origin("2"))].into());
    }
}
