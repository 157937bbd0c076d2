//! Metrics: under the names of controller-runtime, which dashboards know, and a few of our own.

mod census;
mod picture;

use std::time::{Duration, Instant};

use resources::SnapshotPhase;
use runtime::Metrics;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::gauge::Gauge;
use runtime::prometheus_client::metrics::histogram::Histogram;

use crate::error::Error;

pub(crate) use census::Census;
use picture::Picture;

/// Name of the controller of databases in labels.
const CONTROLLER: &str = "questdb";

/// Buckets of controller-runtime, in seconds.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];
/// How a pass can end, in the words of controller-runtime.
const RESULTS: [&str; 4] = ["success", "error", "requeue", "requeue_after"];

/// How a time of a schedule ends that gets no snapshot.
pub(crate) const MISSED: &str = "Missed";

/// Labels of a series.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Everything that is measured.
#[derive(Clone)]
pub(crate) struct Measures {
    controller: &'static str,
    reconciles: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    terminal: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    drift: Family<Labels, Counter>,
    contended: Family<Labels, Counter>,
    time: Family<Labels, Histogram>,
    active: Family<Labels, Gauge>,
    most: Family<Labels, Gauge>,
    leads: Family<Labels, Gauge>,
    aws: Family<Labels, Counter>,
    throttled: Family<Labels, Counter>,
    steps: Family<Labels, Counter>,
    snapshots: Family<Labels, Counter>,
    /// What there is.
    pub(crate) census: Census,
    provisioning: Family<Labels, Histogram>,
    picture: Picture,
}

fn controller() -> Labels {
    vec![("controller", CONTROLLER.to_owned())]
}

/// Labels of the queue's series.
pub(crate) fn queue() -> Labels {
    vec![("name", CONTROLLER.to_owned()), ("controller", CONTROLLER.to_owned())]
}

fn operator() -> Labels {
    vec![("name", resources::names::OPERATOR.to_owned())]
}

/// Shown from the start: alerts look for a cluster in which nobody leads, and what is not there is not 0.
fn leads(metrics: &Metrics) -> Family<Labels, Gauge> {
    let leads = Family::<Labels, Gauge>::default();
    leads.get_or_create(&operator()).set(0);
    metrics.register("leader_election_master_status", "Whether this operator leads", leads)
}

impl Measures {
    /// Registers everything.
    pub(crate) fn new(metrics: &Metrics, concurrency: u16) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let long: fn() -> Histogram =
            || Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0]);
        let counter = |name: &str, help: &str| counter(metrics, name, help);
        let begun = |name: &str, help: &str| begun(metrics, name, help);
        let gauge = |name: &str, help: &str| metrics.register(name, help, Family::<Labels, Gauge>::default());
        Self {
            controller: CONTROLLER,
            reconciles: reconciles(metrics),
            errors: begun("controller_runtime_reconcile_errors", "Passes that failed"),
            terminal: begun(
                "controller_runtime_terminal_reconcile_errors",
                "Passes that failed in a way that only a person or another wish cures",
            ),
            panics: begun("controller_runtime_reconcile_panics", "Passes that panicked"),
            failures: counter("slipway_operator_pass_failures", "Passes that failed, by category"),
            contended: counter(
                "slipway_contended_objects",
                "Objects with a field that somebody else writes again and again, or that somebody takes away, by kind",
            ),
            drift: counter(
                "slipway_drift_corrections",
                "Objects of databases at rest that somebody else changed or took away and that were put right, by kind",
            ),
            time: metrics.register(
                "controller_runtime_reconcile_time_seconds",
                "How long passes take",
                Family::new_with_constructor(histogram),
            ),
            active: gauge("controller_runtime_active_workers", "Objects being worked on"),
            most: most(metrics, concurrency),
            leads: leads(metrics),
            aws: counter("aws_api_requests", "Calls to AWS, by operation and result"),
            throttled: counter(
                "aws_throttled",
                "Calls that were held back or refused as too many, by operation",
            ),
            steps: counter("slipway_operator_steps", "Steps carried out, by name and result"),
            snapshots: snapshots(metrics),
            census: Census::new(metrics),
            provisioning: metrics.register(
                "provisioning_duration_seconds",
                "From the making of a resource, or from when it was to be paused no more, to its first readiness",
                Family::new_with_constructor(long),
            ),
            picture: Picture::new(metrics),
        }
    }

    /// The same for passes of another controller, of which there may be so many at once, from zero on too.
    pub(crate) fn of(&self, controller: &'static str, concurrency: u16) -> Self {
        let other = Self { controller, ..self.clone() };
        other.most.get_or_create(&other.labels()).set(i64::from(concurrency));
        for family in [&other.errors, &other.terminal, &other.panics] {
            drop(family.get_or_create(&other.labels()));
        }
        other
    }

    fn labels(&self) -> Labels {
        vec![("controller", self.controller.to_owned())]
    }

    /// A pass begins; it is counted as under way until what is given back is dropped.
    pub(crate) fn begun(&self) -> Active {
        let active = self.active.get_or_create_owned(&self.labels());
        active.inc();
        Active(active)
    }

    pub(crate) fn ended(&self, result: &str, took: Duration) {
        self.time.get_or_create(&self.labels()).observe(took.as_secs_f64());
        self.reconciles.get_or_create(&with(self.labels(), "result", result)).inc();
    }

    /// A pass failed.
    pub(crate) fn failed(&self, category: &str, lasting: bool) {
        self.errors.get_or_create(&self.labels()).inc();
        if lasting {
            self.terminal.get_or_create(&self.labels()).inc();
        }
        self.failures.get_or_create(&with(self.labels(), "category", category)).inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.get_or_create(&self.labels()).inc();
    }

    /// Something of a database at rest was changed by somebody else, and put right.
    pub(crate) fn drift(&self, kind: &str) {
        self.drift.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// Somebody else writes a field of this kind of object again and again.
    pub(crate) fn contended(&self, kind: &str) {
        self.contended.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// A step ended. One of which the API server says that its object has changed meanwhile is decided anew, and nothing is wrong.
    pub(crate) fn step<T>(&self, name: &str, ended: &Result<T, Error>) {
        let result = match ended {
            Ok(_) => "done",
            Err(error) if error.is_overtaken() => "overtaken",
            Err(_) => "failed",
        };
        self.steps.get_or_create(&vec![("step", name.to_owned()), ("result", result.to_owned())]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leads.get_or_create(&operator()).set(i64::from(leads));
    }

    pub(crate) fn provisioned(&self, took: Duration) {
        let labels = vec![("kind", "create".to_owned()), ("outcome", "succeeded".to_owned())];
        self.provisioning.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The newest picture of everything the cluster owns in AWS is of this moment.
    pub(crate) fn picture(&self, as_of: Instant) {
        self.picture.taken(as_of);
    }

    /// A snapshot ended like this, or a time of a schedule was let pass.
    pub(crate) fn snapshot(&self, outcome: &str) {
        self.snapshots.get_or_create(&vec![("outcome", outcome.to_owned())]).inc();
    }

    pub(crate) fn aws(&self, operation: &str, category: &str) {
        let labels = vec![("op", operation.to_owned()), ("code", category.to_owned())];
        self.aws.get_or_create(&labels).inc();
        if category == "throttled" {
            self.throttled.get_or_create(&vec![("op", operation.to_owned())]).inc();
        }
    }
}

/// How many may be worked on at once.
fn most(metrics: &Metrics, concurrency: u16) -> Family<Labels, Gauge> {
    let most = Family::<Labels, Gauge>::default();
    most.get_or_create(&controller()).set(i64::from(concurrency));
    metrics.register(
        "controller_runtime_max_concurrent_reconciles",
        "Objects that may be worked on at once",
        most,
    )
}

fn counter(metrics: &Metrics, name: &str, help: &str) -> Family<Labels, Counter> {
    metrics.register(name, help, Family::default())
}

/// A counter that is shown from the start: a rate needs the zero before the first one.
fn begun(metrics: &Metrics, name: &str, help: &str) -> Family<Labels, Counter> {
    let family = counter(metrics, name, help);
    drop(family.get_or_create(&controller()));
    family
}

fn reconciles(metrics: &Metrics) -> Family<Labels, Counter> {
    let family = counter(metrics, "controller_runtime_reconcile", "Passes, by result");
    for result in RESULTS {
        drop(family.get_or_create(&with(controller(), "result", result)));
    }
    family
}

fn snapshots(metrics: &Metrics) -> Family<Labels, Counter> {
    let help = "Snapshots that ended, and times of schedules that were let pass, by outcome";
    let family = counter(metrics, "slipway_snapshots_ended", help);
    for outcome in [SnapshotPhase::Succeeded.as_str(), SnapshotPhase::Failed.as_str(), MISSED] {
        drop(family.get_or_create(&vec![("outcome", outcome.to_owned())]));
    }
    family
}

/// A pass under way.
pub(crate) struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

#[cfg(test)]
mod tests;
