//! How the watches are: told once for each kind of error, counted, and shown as components of readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher::Error;
use plan::Unseen;
use runtime::Metrics;
use runtime::health::{Component, Readiness};
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, watch};

use super::merged::Heard;
use super::standing::Standing;
use super::table::{Life, Need, News, Table, Works};
use super::trouble::{Trouble, Watched, label, told};
use crate::metrics::Labels;
use crate::scope::Scope;

/// Kinds that come back together are told as one.
const TOGETHER: Duration = Duration::from_secs(1);

/// All watches of this process. Clones share what is known.
#[derive(Clone)]
pub(crate) struct Watches(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    shown: Shown,
    /// Whether every kind of the cluster itself was listed.
    cluster: watch::Sender<bool>,
    /// Whether there is a place of which everything is seen that decisions need.
    somewhere: watch::Sender<bool>,
    failures: Family<Labels, Counter>,
    refused: Family<Labels, Gauge>,
    /// Those that were told by now.
    told: Mutex<BTreeSet<Labels>>,
    /// Places of which something is seen anew that did not count before; none is the whole cluster.
    back: Mutex<BTreeSet<Option<String>>>,
    is_back: Notify,
    places: Vec<Option<String>>,
    /// The command that grants what the operator needs.
    rights: String,
    standing: Standing,
}

/// What is told at `/readyz`.
struct Shown {
    /// All that the operator cannot do without: it is unready without it.
    required: Component,
    /// One for each namespace, when some are looked after and not all.
    namespaces: BTreeMap<String, Component>,
    snapshots: Component,
}

impl Watches {
    /// `rights` is the command that grants what the operator needs in these namespaces.
    pub(crate) fn new(metrics: &Metrics, readiness: &Readiness, scope: &Scope, rights: String) -> Self {
        let help =
            "Watches of the API server that broke or could not be begun, by kind of object and of error";
        let failures = metrics.register("slipway_operator_watch_failures", help, Family::default());
        let help = "Watches that the API server refuses now, by kind of object and namespace";
        let refused = metrics.register("slipway_operator_watches_refused", help, Family::default());
        let places = scope.places();
        let names = places.iter().flatten();
        let shown = Shown {
            required: readiness.component("api-server"),
            namespaces: names.map(|name| (name.clone(), namespace(readiness, name))).collect(),
            snapshots: readiness.informative("snapshots"),
        };
        let (table, cluster, somewhere) =
            (Mutex::default(), watch::Sender::new(false), watch::Sender::new(false));
        let (told, back, is_back) = (Mutex::default(), Mutex::default(), Notify::new());
        Self(Arc::new(Shared {
            table,
            shown,
            cluster,
            somewhere,
            failures,
            refused,
            told,
            back,
            is_back,
            places,
            rights,
            standing: Standing::default(),
        }))
    }

    /// Whether the API server's store is still the one that it was.
    pub(crate) fn standing(&self) -> &Standing {
        &self.0.standing
    }

    /// One is begun.
    pub(crate) fn begun(&self, watched: &Watched, need: Need) -> Life {
        let life = self.lock().begun(watched, need, Instant::now());
        self.show_of(watched);
        life
    }

    /// A kind is not watched any more.
    pub(crate) fn ended(&self, kind: &str) {
        if self.lock().ended(kind) {
            self.show();
        }
    }

    /// One is not begun again, unless somebody began it anew.
    pub(crate) fn forget(&self, watched: &Watched, life: Life) {
        self.lock().forget(watched, life);
        self.show_of(watched);
    }

    /// One has shown all that there is.
    pub(crate) fn listed(&self, watched: &Watched) {
        if self.lock().listed(watched) {
            self.show_of(watched);
        }
    }

    /// Takes in what one said; whether it works from here on and what it showed before counted no more.
    pub(crate) fn heard(&self, watched: &Watched, heard: &Heard, need: Need) -> bool {
        let now = Instant::now();
        let works = match heard {
            Heard::Begun => Works::Still,
            Heard::Answered => self.lock().answered(watched, now),
            Heard::Silence => self.lock().silent(watched, now),
            Heard::Works => self.lock().works(watched, now),
            Heard::Broke(error) => {
                self.broke(watched, error, need);
                Works::Still
            }
        };
        if works != Works::Still {
            tracing::info!(kind = %watched, "a watch works again");
            self.show_of(watched);
        } else if matches!(heard, Heard::Silence | Heard::Answered) && (watched.is_one() || self.is_any_ill())
        {
            // What does not answer at all grows old without a word, and what is answered is refused no more.
            self.show_of(watched);
        }
        let anew = works == Works::Anew;
        if anew && need == Need::Databases {
            lock(&self.0.back).insert(watched.place.clone());
            self.0.is_back.notify_one();
        }
        anew
    }

    /// Waits until something is seen anew of which what was seen before did not count: in which places.
    pub(crate) async fn back(&self) -> BTreeSet<Option<String>> {
        self.0.is_back.notified().await;
        tokio::time::sleep(TOGETHER).await;
        mem::take(&mut *lock(&self.0.back))
    }

    fn is_any_ill(&self) -> bool {
        self.lock().is_any_ill()
    }

    /// One broke, and is begun again.
    fn broke(&self, watched: &Watched, error: &Error, need: Need) {
        let trouble = Trouble::of(watched, error);
        let told = match &trouble {
            Trouble::Denied(_) | Trouble::Missing => told(&[(watched, &trouble)], &self.0.rights),
            Trouble::Broken(text) => text.clone(),
        };
        if self.is_news(watched, error, (trouble, need)) {
            tracing::warn!(error = told, kind = %watched, "a watch broke and is begun again until it works");
        } else {
            tracing::debug!(error = told, kind = %watched, "a watch broke again");
        }
        self.show_of(watched);
    }

    /// Takes in that one broke; whether it is something else than before.
    pub(super) fn is_news(&self, watched: &Watched, error: &Error, (trouble, need): (Trouble, Need)) -> bool {
        let label = label(error);
        let labels = vec![("kind", watched.kind.clone()), ("error", label.to_owned())];
        self.0.failures.get_or_create(&labels).inc();
        self.lock().broke(watched, need, News { trouble, label }, Instant::now())
    }

    /// Waits until every kind of the cluster itself was listed; `false` when it never will be.
    pub(crate) async fn cluster_listed(&self) -> bool {
        self.0.cluster.subscribe().wait_for(|listed| *listed).await.is_ok()
    }

    /// Waits until databases of some namespace can be decided on, and not for ever: none may ever be.
    pub(crate) async fn seen_somewhere(&self, limit: Duration) {
        let mut somewhere = self.0.somewhere.subscribe();
        // Late or never, whoever looks at a database finds out.
        let _ = tokio::time::timeout(limit, somewhere.wait_for(|seen| *seen)).await;
    }

    /// Why databases of a namespace are not decided on; nothing when everything of it is seen.
    pub(crate) fn unseen(&self, namespace: Option<&str>) -> Option<Unseen> {
        self.lock().unseen(namespace.unwrap_or_default(), &self.0.rights, Instant::now())
    }

    /// Why not everything of a namespace is seen as it is now, also what others than those who leave can do without.
    pub(crate) fn unseen_whole(&self, namespace: Option<&str>) -> Option<Unseen> {
        self.lock().unseen_whole(namespace.unwrap_or_default(), &self.0.rights, Instant::now())
    }

    /// What resources of a namespace are to say of that; nothing where readiness says it for all of them.
    pub(crate) fn told(&self, namespace: Option<&str>, why: Unseen) -> Option<Unseen> {
        self.lock().told(namespace.unwrap_or_default(), why, Instant::now())
    }

    /// Whether a kind was listed in a namespace by this process, however old that is.
    pub(crate) fn was_listed(&self, kind: &str, namespace: &str) -> bool {
        self.lock().was_listed(kind, namespace)
    }

    /// Why it is not known what there is of a kind in a namespace; nothing when it is.
    pub(crate) fn unseen_of(&self, kind: &str, namespace: &str) -> Option<Unseen> {
        self.lock().unseen_of(kind, namespace, &self.0.rights, Instant::now())
    }

    /// Tells what one of them changed. Of those of one object there are as many as databases: what goes through all watches is
    /// done for them only when it is news.
    fn show_of(&self, watched: &Watched) {
        if !watched.is_one() || self.lock().take_news() {
            self.show();
        }
    }

    fn show(&self) {
        let Shared { shown, places, rights, refused, cluster, somewhere, .. } = &*self.0;
        // Held to the end, or what was so before could be told last.
        let table = self.lock();
        let ready = table.ready(places, rights, Instant::now());
        say(&shown.required, ready.required);
        say(&shown.snapshots, ready.snapshots);
        for (name, found) in ready.namespaces {
            if let Some(component) = shown.namespaces.get(&name) {
                say(component, found);
            }
        }
        let labels = |(kind, place): (&str, Option<&str>)| {
            vec![("kind", kind.to_owned()), ("namespace", place.unwrap_or_default().to_owned())]
        };
        // Nobody is to see none of them while they are told anew.
        let now: BTreeSet<Labels> = table.refused().map(labels).collect();
        let mut told = lock(&self.0.told);
        for labels in told.difference(&now) {
            refused.remove(labels);
        }
        for labels in &now {
            refused.get_or_create(labels).set(1);
        }
        *told = now;
        cluster.send_replace(table.is_cluster_listed());
        let unseen = |place: &Option<String>| {
            table.unseen(place.as_deref().unwrap_or_default(), rights, Instant::now())
        };
        somewhere.send_replace(places.iter().any(|place| unseen(place).is_none()));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0.table)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shown and not required: one sick namespace holds up no other.
fn namespace(readiness: &Readiness, name: &str) -> Component {
    readiness.informative(format!("namespace {name}"))
}

fn say(component: &Component, found: Result<(), String>) {
    match found {
        Ok(()) => component.set_ok(),
        Err(text) => component.set_failing(text),
    }
}
