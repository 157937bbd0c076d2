//! The backend's metrics. Everything is registered here, so that names are seen side by side.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

type Labels<const N: usize> = [(&'static str, String); N];

/// Buckets of requests, in seconds.
const REQUEST_BUCKETS: [f64; 12] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Buckets of whole operations, in seconds.
const OPERATION_BUCKETS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0];

/// The backend's metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels<3>, Counter>,
    request_seconds: Family<Labels<2>, Histogram>,
    /// Open event streams.
    pub streams: Gauge,
    /// Databases whose newest state is not published.
    pub outbox_pending: Gauge,
    /// Age of the oldest unpublished state.
    pub outbox_oldest_age: Gauge<f64, AtomicU64>,
    /// Instructions that Kafka acknowledged.
    pub published: Counter,
    /// Instructions that Kafka did not acknowledge.
    pub publish_failures: Counter,
    /// Records of the gossip topic that were taken in.
    pub gossip: Counter,
    /// Observations that were older than what is believed.
    pub gossip_stale: Counter,
    /// Records that could not be understood.
    pub dead_letters: Counter,
    unclaimed: Family<Labels<1>, Counter>,
    operation_seconds: Family<Labels<2>, Histogram>,
    parked: Family<Labels<1>, Gauge>,
    lag: Family<Labels<2>, Gauge>,
}

impl Metrics {
    /// Registers everything.
    pub fn new(registry: &runtime::Metrics) -> Self {
        let request_seconds = Family::new_with_constructor(request_histogram as fn() -> Histogram);
        let operation_seconds = Family::new_with_constructor(operation_histogram as fn() -> Histogram);
        let counter = |name, help| registry.register(name, help, Counter::default());
        let gauge = |name, help| registry.register(name, help, Gauge::default());
        let age = Gauge::default();
        Self {
            requests: registry.register("http_requests", "Requests answered", Family::default()),
            request_seconds: registry.register(
                "http_request_seconds",
                "Time to an answer's head",
                request_seconds,
            ),
            streams: gauge("http_event_streams", "Open event streams"),
            outbox_pending: gauge("outbox_pending", "Databases with an unpublished state"),
            outbox_oldest_age: registry.register(
                "outbox_oldest_age_seconds",
                "Age of the oldest of them",
                age,
            ),
            published: counter("instructions_published", "Instructions Kafka took"),
            publish_failures: counter("instructions_publish_failures", "Instructions Kafka did not take"),
            gossip: counter("gossip_records", "Gossip records taken in"),
            gossip_stale: counter("gossip_stale_observations", "Observations older than what is believed"),
            dead_letters: counter("gossip_dead_letters", "Gossip that was not understood"),
            unclaimed: registry.register("gossip_unclaimed", "Observations not believed", Family::default()),
            operation_seconds: registry.register(
                "provisioning_duration_seconds",
                "From a request to the end of its operation",
                operation_seconds,
            ),
            parked: registry.register("parked_instructions", "Instructions that wait", Family::default()),
            lag: registry.register("kafka_consumer_lag", "Records not yet read", Family::default()),
        }
    }

    /// Counts a request.
    pub fn request(&self, method: &str, route: &str, status: u16, duration: Duration) {
        let (method, route) = (("method", method.to_owned()), ("route", route.to_owned()));
        self.requests.get_or_create(&[method.clone(), route.clone(), ("status", status.to_string())]).inc();
        self.request_seconds.get_or_create(&[method, route]).observe(duration.as_secs_f64());
    }

    /// Counts an observation that is not believed as it stands.
    pub fn unclaimed(&self, code: &str) {
        self.unclaimed.get_or_create(&[("code", code.to_owned())]).inc();
    }

    /// Measures an operation that reached its end.
    pub fn operation(&self, kind: &str, outcome: &str, seconds: f64) {
        let labels = [("kind", kind.to_owned()), ("outcome", outcome.to_owned())];
        self.operation_seconds.get_or_create(&labels).observe(seconds);
    }

    /// Shows how far the sink is behind; a partition that is not named is no longer ours.
    pub fn lag<'a>(&self, topic: &str, partitions: impl IntoIterator<Item = (&'a i32, &'a i64)>) {
        self.lag.clear();
        for (partition, lag) in partitions {
            let labels = [("topic", topic.to_owned()), ("partition", partition.to_string())];
            self.lag.get_or_create(&labels).set(*lag);
        }
    }

    /// Shows how many instructions wait, by cluster; a cluster that is not named has none any more.
    pub fn parked(&self, counts: &[(String, i64)]) {
        self.parked.clear();
        for (cluster, count) in counts {
            self.parked.get_or_create(&[("cluster", cluster.clone())]).set(*count);
        }
    }
}

fn request_histogram() -> Histogram {
    Histogram::new(REQUEST_BUCKETS)
}

fn operation_histogram() -> Histogram {
    Histogram::new(OPERATION_BUCKETS)
}
