//! How the watches are: told once for each kind of error, counted, and shown as components of readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::runtime::watcher::Error;
use plan::Unseen;
use runtime::Metrics;
use runtime::health::{Component, Readiness};
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use super::merged::Heard;
use super::table::{Need, News, Table};
use super::trouble::{Trouble, Watched, had_begun, label, told};
use crate::metrics::Labels;
use crate::scope::Scope;

/// All watches of this process. Clones share what is known.
#[derive(Clone)]
pub(crate) struct Watches(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    shown: Shown,
    /// Whether every kind of the cluster itself was listed.
    cluster: watch::Sender<bool>,
    failures: Family<Labels, Counter>,
    refused: Family<Labels, Gauge>,
    places: Vec<Option<String>>,
    /// The command that grants what the operator needs.
    rights: String,
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
        let (table, cluster) = (Mutex::default(), watch::Sender::new(false));
        Self(Arc::new(Shared { table, shown, cluster, failures, refused, places, rights }))
    }

    /// One is begun.
    pub(crate) fn begun(&self, watched: &Watched, need: Need) {
        self.lock().begun(watched, need, Instant::now());
        self.show();
    }

    /// A kind is not watched any more.
    pub(crate) fn ended(&self, kind: &str) {
        if self.lock().ended(kind) {
            self.show();
        }
    }

    /// One is not begun again.
    pub(crate) fn forget(&self, watched: &Watched) {
        if self.lock().forget(watched) {
            self.show();
        }
    }

    /// One has shown all that there is.
    pub(crate) fn listed(&self, watched: &Watched) {
        if self.lock().listed(watched) {
            self.show();
        }
    }

    /// Takes in what one said; whether it works and did not before.
    pub(crate) fn heard(&self, watched: &Watched, heard: &Heard, need: Need) -> bool {
        match heard {
            Heard::Begun => {
                self.lock().lists(watched);
                false
            }
            Heard::Silence => self.heals(watched),
            Heard::Works => self.works(watched),
            Heard::Broke(error) => {
                self.broke(watched, error, need);
                false
            }
        }
    }

    /// One works; whether it did not before.
    pub(crate) fn works(&self, watched: &Watched) -> bool {
        let healed = self.lock().works(watched);
        self.healed(watched, healed)
    }

    /// One broke and has been silent for so long that it must have been begun with success. A list would have said so.
    pub(crate) fn heals(&self, watched: &Watched) -> bool {
        let healed = self.lock().heals(watched);
        if !healed {
            // What does not answer at all grows old without a word.
            self.show();
        }
        self.healed(watched, healed)
    }

    fn healed(&self, watched: &Watched, healed: bool) -> bool {
        if healed {
            tracing::info!(kind = %watched, "a watch works again");
            self.show();
        }
        healed
    }

    /// One broke, and is begun again.
    pub(crate) fn broke(&self, watched: &Watched, error: &Error, need: Need) {
        let trouble = Trouble::of(watched, error);
        let told = match &trouble {
            Trouble::Denied(_) | Trouble::Missing => told(&[(watched, Some(&trouble))], &self.0.rights),
            Trouble::Broken(text) => text.clone(),
        };
        if self.is_news(watched, error, (trouble, need)) {
            tracing::warn!(error = told, kind = %watched, "a watch broke and is begun again until it works");
        } else {
            tracing::debug!(error = told, kind = %watched, "a watch broke again");
        }
        self.show();
    }

    /// Takes in that one broke; whether it is something else than before.
    pub(super) fn is_news(&self, watched: &Watched, error: &Error, (trouble, need): (Trouble, Need)) -> bool {
        let label = label(error);
        let labels = vec![("kind", watched.kind.clone()), ("error", label.to_owned())];
        self.0.failures.get_or_create(&labels).inc();
        let quiet = !matches!(error, Error::InitialListFailed(_));
        let news = News { trouble, label, quiet, had_begun: had_begun(error) };
        self.lock().broke(watched, need, news, Instant::now())
    }

    /// Waits until every kind of the cluster itself was listed; `false` when it never will be.
    pub(crate) async fn cluster_listed(&self) -> bool {
        self.0.cluster.subscribe().wait_for(|listed| *listed).await.is_ok()
    }

    /// Why databases of a namespace are not decided on; nothing when everything of it is seen.
    pub(crate) fn unseen(&self, namespace: Option<&str>) -> Option<Unseen> {
        self.lock().unseen(namespace.unwrap_or_default(), &self.0.rights, Instant::now())
    }

    /// Why it is not known what there is of a kind in a namespace; nothing when it is.
    pub(crate) fn unseen_of(&self, kind: &str, namespace: &str) -> Option<Unseen> {
        self.lock().unseen_of(kind, namespace, &self.0.rights, Instant::now())
    }

    fn show(&self) {
        let Shared { shown, places, rights, refused, cluster, .. } = &*self.0;
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
        refused.clear();
        for watched in table.refused() {
            let namespace = watched.place.clone().unwrap_or_default();
            let labels = vec![("kind", watched.kind.clone()), ("namespace", namespace)];
            refused.get_or_create(&labels).set(1);
        }
        cluster.send_replace(table.is_cluster_listed());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
