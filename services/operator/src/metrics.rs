//! Metrics: under the names of controller-runtime, which dashboards know, and a few of our own.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use runtime::Metrics;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::gauge::Gauge;
use runtime::prometheus_client::metrics::histogram::Histogram;

/// Name of the controller in labels.
const CONTROLLER: &str = "questdb";

/// Buckets of controller-runtime, in seconds.
const BUCKETS: [f64; 37] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 30.0, 60.0,
];

type Labels = Vec<(&'static str, String)>;

/// Everything that is measured.
#[derive(Clone)]
pub(crate) struct Measures {
    reconciles: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    time: Family<Labels, Histogram>,
    active: Family<Labels, Gauge>,
    leads: Family<Labels, Gauge>,
    aws: Family<Labels, Counter>,
    throttled: Family<Labels, Counter>,
    steps: Family<Labels, Counter>,
    databases: Family<Labels, Gauge>,
    provisioning: Family<Labels, Histogram>,
    oldest_picture: Gauge<f64, AtomicU64>,
}

fn controller() -> Labels {
    vec![("controller", CONTROLLER.to_owned())]
}

impl Measures {
    /// Registers everything.
    pub(crate) fn new(metrics: &Metrics, concurrency: u16) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let long: fn() -> Histogram =
            || Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0]);
        let maximum: Family<Labels, Gauge> = metrics.register(
            "controller_runtime_max_concurrent_reconciles",
            "Databases that may be worked on at once",
            Family::default(),
        );
        maximum.get_or_create(&controller()).set(i64::from(concurrency));
        let counter =
            |name: &str, help: &str| metrics.register(name, help, Family::<Labels, Counter>::default());
        let gauge = |name: &str, help: &str| metrics.register(name, help, Family::<Labels, Gauge>::default());
        Self {
            reconciles: counter("controller_runtime_reconcile", "Passes, by result"),
            errors: counter("controller_runtime_reconcile_errors", "Passes that failed, by category"),
            time: metrics.register(
                "controller_runtime_reconcile_time_seconds",
                "How long passes take",
                Family::new_with_constructor(histogram),
            ),
            active: gauge("controller_runtime_active_workers", "Databases being worked on"),
            leads: gauge("leader_election_master_status", "Whether this operator leads"),
            aws: counter("aws_api_requests", "Calls to AWS, by operation and result"),
            throttled: counter(
                "aws_throttled",
                "Calls that were held back or refused as too many, by operation",
            ),
            steps: counter("slipway_operator_steps", "Steps carried out, by name and result"),
            databases: gauge("slipway_databases", "Databases, by phase"),
            provisioning: metrics.register(
                "provisioning_duration_seconds",
                "From the making of a resource to its first readiness",
                Family::new_with_constructor(long),
            ),
            oldest_picture: metrics.register(
                "slipway_aws_picture_age_seconds",
                "Age of the shared picture of everything the cluster owns in AWS",
                Gauge::default(),
            ),
        }
    }

    pub(crate) fn begun(&self) {
        self.active.get_or_create(&controller()).inc();
    }

    pub(crate) fn ended(&self, result: &str, took: Duration) {
        self.active.get_or_create(&controller()).dec();
        let mut labels = controller();
        self.time.get_or_create(&labels).observe(took.as_secs_f64());
        labels.push(("result", result.to_owned()));
        self.reconciles.get_or_create(&labels).inc();
    }

    pub(crate) fn failed(&self, category: &str) {
        let mut labels = controller();
        labels.push(("category", category.to_owned()));
        self.errors.get_or_create(&labels).inc();
    }

    pub(crate) fn step(&self, name: &str, result: &str) {
        self.steps.get_or_create(&vec![("step", name.to_owned()), ("result", result.to_owned())]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leads
            .get_or_create(&vec![("name", resources::names::OPERATOR.to_owned())])
            .set(i64::from(leads));
    }

    pub(crate) fn provisioned(&self, took: Duration) {
        let labels = vec![("kind", "create".to_owned()), ("outcome", "succeeded".to_owned())];
        self.provisioning.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn picture(&self, age: Duration) {
        self.oldest_picture.set(age.as_secs_f64());
    }

    /// Databases by phase, counted anew.
    pub(crate) fn phases<'a>(&self, phases: impl Iterator<Item = &'a str>) {
        self.databases.clear();
        for phase in phases {
            self.databases.get_or_create(&vec![("phase", phase.to_owned())]).inc();
        }
    }

    pub(crate) fn aws(&self, operation: &str, category: &str) {
        let labels = vec![("op", operation.to_owned()), ("code", category.to_owned())];
        self.aws.get_or_create(&labels).inc();
        if category == "throttled" {
            self.throttled.get_or_create(&vec![("op", operation.to_owned())]).inc();
        }
    }
}
