//! How the watches are: told once for each kind of error, counted, and shown as one component of readiness.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Error;
use runtime::Metrics;
use runtime::health::Component;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;

use crate::metrics::Labels;

/// What is watched: a kind, in the whole cluster or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watched {
    pub(super) kind: String,
    pub(super) place: Option<String>,
}

impl Watched {
    pub(crate) fn new(kind: &str, place: Option<&str>) -> Self {
        Self { kind: kind.to_owned(), place: place.map(str::to_owned) }
    }
}

impl Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => formatter.write_str(&self.kind),
            Some(namespace) => write!(formatter, "{} in namespace {namespace}", self.kind),
        }
    }
}

/// All watches of this process. Clones share what is known.
#[derive(Clone)]
pub(crate) struct Watches {
    component: Component,
    failures: Family<Labels, Counter>,
    broken: Arc<Mutex<BTreeMap<Watched, Broken>>>,
}

/// A watch that does not work.
struct Broken {
    /// What kind of error it was; none before the first list.
    error: Option<&'static str>,
    /// For people.
    text: String,
    /// Whether the operator cannot do without it.
    required: bool,
    /// Whether it says nothing when it works again.
    quiet: bool,
}

impl Watches {
    /// `component` tells of all that the operator cannot do without.
    pub(crate) fn new(metrics: &Metrics, component: Component) -> Self {
        let help =
            "Watches of the API server that broke or could not be begun, by kind of object and of error";
        let failures = metrics.register("slipway_operator_watch_failures", help, Family::default());
        Self { component, failures, broken: Arc::default() }
    }

    /// One that is begun, and that the operator cannot do without.
    pub(super) fn begun(&self, watched: &Watched) {
        let text = "not listed yet".to_owned();
        self.lock().insert(watched.clone(), Broken { error: None, text, required: true, quiet: false });
        self.show();
    }

    /// One works.
    pub(crate) fn works(&self, watched: &Watched) {
        let Some(broken) = self.lock().remove(watched) else { return };
        if broken.error.is_some() {
            tracing::info!(kind = %watched, "a watch works again");
        }
        self.show();
    }

    /// One broke and has been silent for so long that it must have been begun with success. A list would have said so.
    pub(crate) fn heals(&self, watched: &Watched) {
        let quiet = self.lock().get(watched).is_some_and(|broken| broken.quiet);
        if quiet {
            self.works(watched);
        }
    }

    /// One broke, and is begun again; `required` when the operator cannot do without it.
    pub(crate) fn broke(&self, watched: &Watched, error: &Error, required: bool) {
        let text = runtime::telemetry::chain(error);
        if self.is_news(watched, error, required) {
            tracing::warn!(error = text, kind = %watched, "a watch broke and is begun again until it works");
        } else {
            tracing::debug!(error = text, kind = %watched, "a watch broke again");
        }
        self.show();
    }

    /// Takes in that one broke; whether it is something else than before.
    pub(super) fn is_news(&self, watched: &Watched, error: &Error, required: bool) -> bool {
        let (label, text) = (label(error), runtime::telemetry::chain(error));
        let labels = vec![("kind", watched.kind.clone()), ("error", label.to_owned())];
        self.failures.get_or_create(&labels).inc();
        let quiet = !matches!(error, Error::InitialListFailed(_));
        let broken = Broken { error: Some(label), text, required, quiet };
        let before = self.lock().insert(watched.clone(), broken);
        before.and_then(|before| before.error) != Some(label)
    }

    fn show(&self) {
        let broken = self.lock();
        let required = broken.iter().filter(|(_, broken)| broken.required);
        let texts: Vec<_> =
            required.map(|(watched, broken)| format!("watch of {watched}: {}", broken.text)).collect();
        if texts.is_empty() {
            self.component.set_ok();
        } else {
            self.component.set_failing(texts.join("; "));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Watched, Broken>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of an error: what is the same is told once.
fn label(error: &Error) -> &'static str {
    let code = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            match error {
                kube::Error::Api(status) => status.code,
                kube::Error::SerdeError(_) => return "unreadable",
                _ => return "unreachable",
            }
        }
        Error::WatchError(status) => status.code,
        Error::NoResourceVersion => return "unreadable",
    };
    match code {
        401 | 403 => "forbidden",
        404 => "missing",
        410 => "expired",
        _ => "refused",
    }
}
