//! The backend's metrics. Everything is registered here, so that names are seen side by side.

mod operations;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use runtime::connections::Counts;
use runtime::metrics::Shown;

pub use operations::Operations;

type Labels<const N: usize> = [(&'static str, String); N];

/// Buckets of requests, in seconds.
const REQUEST_BUCKETS: [f64; 12] = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// The backend's metrics. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels<3>, Counter>,
    request_seconds: Family<Labels<2>, Histogram>,
    /// Connections to the API.
    pub connections: Counts,
    /// Open event streams.
    pub streams: Gauge,
    outbox_pending: Gauge,
    outbox_oldest_age: Gauge<f64, AtomicU64>,
    outbox_set_aside: Gauge,
    outbox_newer: Gauge,
    set_aside: Family<Labels<1>, Counter>,
    /// 1 while changes are refused because too much waits to be published.
    pub gate_shut: Gauge,
    /// Partitions of whose databases changes are refused because something waits there for too long.
    pub gate_shut_partitions: Gauge,
    beyond_share: Family<Labels<1>, Counter>,
    /// Instructions that Kafka acknowledged.
    pub published: Counter,
    /// Instructions that Kafka did not acknowledge.
    pub publish_failures: Counter,
    /// Instructions that were sent and of which Kafka was not heard for some seconds.
    pub in_doubt: Gauge,
    /// Records of the gossip topic that were taken in.
    pub gossip: Counter,
    /// Observations that were older than what is believed.
    pub gossip_stale: Counter,
    /// Records that could not be understood.
    pub dead_letters: Counter,
    unclaimed: Family<Labels<1>, Counter>,
    unbelieved: Family<Labels<1>, Counter>,
    /// What became of operations.
    pub operations: Operations,
    parked: Shown<Labels<1>>,
    diverged: Family<Labels<1>, Gauge>,
    left: Family<Labels<2>, Counter>,
    unlisted: Shown<Labels<1>>,
    /// States that are published again because their cluster does not show them.
    pub resent: Counter,
    /// States that were minted again because their cluster held one that never was.
    pub repaired: Counter,
    /// Times that such a state could not be minted: people must look.
    pub unrepaired: Counter,
    lag: Shown<Labels<2>>,
    unreadable: Family<Labels<1>, Counter>,
    pruned: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Registers everything.
    pub fn new(registry: &runtime::Metrics) -> Self {
        let request_seconds = Family::new_with_constructor(request_histogram as fn() -> Histogram);
        let counter = |name, help| registry.register(name, help, Counter::default());
        let gauge = |name, help| registry.register(name, help, Gauge::default());
        let counters = |name, help| registry.register(name, help, Family::<Labels<1>, Counter>::default());
        let gauges = |name, help| registry.register(name, help, Family::<Labels<1>, Gauge>::default());
        let age = Gauge::default();
        Self {
            requests: registry.register("http_requests", "Requests answered", Family::default()),
            request_seconds: registry.register(
                "http_request_seconds",
                "Time to an answer's head",
                request_seconds,
            ),
            connections: Counts::new(registry, "http_connections"),
            streams: gauge("http_event_streams", "Open event streams"),
            outbox_pending: gauge("outbox_pending", "Databases with an unpublished state"),
            outbox_oldest_age: registry.register(
                "outbox_oldest_age_seconds",
                "Age of the oldest of them",
                age,
            ),
            outbox_set_aside: gauge("outbox_set_aside", "Databases whose state cannot be published"),
            outbox_newer: gauge("outbox_newer", "Databases whose state only a newer relay can read"),
            set_aside: counters("instructions_set_aside", "Instructions set aside"),
            gate_shut: gauge("http_changes_refused", "1 while changes wait for the outbox"),
            gate_shut_partitions: gauge("http_changes_refused_partitions", "Partitions for which they wait"),
            beyond_share: counters(
                "http_requests_beyond_share",
                "Requests refused because their tenant asks for too much, by the bound",
            ),
            published: counter("instructions_published", "Instructions Kafka took"),
            publish_failures: counter("instructions_publish_failures", "Instructions Kafka did not take"),
            in_doubt: gauge("instructions_in_doubt", "Instructions sent that Kafka gave no word on yet"),
            gossip: counter("gossip_records", "Gossip records taken in"),
            gossip_stale: counter("gossip_stale_observations", "Observations older than what is believed"),
            dead_letters: counter("gossip_dead_letters", "Gossip that was not understood"),
            unclaimed: counters("gossip_unclaimed", "Observations not believed"),
            unbelieved: counters("gossip_unbelieved_outcomes", "Outcomes not believed, by the reason"),
            operations: Operations::new(registry),
            parked: Shown::new(registry, "parked_instructions", "Instructions that wait"),
            diverged: gauges("databases_diverged", "Databases whose cluster does not show what was minted"),
            left: registry.register(
                "sweep_left",
                "Times that nothing was done about one of them, by the reason",
                Family::default(),
            ),
            unlisted: Shown::new(
                registry,
                "clusters_unlisted",
                "1 for a cluster of which nobody knows what it holds",
            ),
            resent: counter("sweep_resent", "Instructions published again"),
            repaired: counter("sweep_repaired", "States minted again above what a cluster held"),
            unrepaired: counter("sweep_unrepaired", "Times that a database could not be repaired"),
            lag: Shown::new(registry, "kafka_consumer_lag", "Records not yet read"),
            unreadable: counters("rows_unreadable", "Rows that could not be read, by their table"),
            pruned: counters("rows_pruned", "Rows that were kept long enough and taken away, by their table"),
        }
    }

    /// Counts a request.
    pub fn request(&self, method: &str, route: &str, status: u16, duration: Duration) {
        let (method, route) = (("method", method.to_owned()), ("route", route.to_owned()));
        self.requests.get_or_create(&[method.clone(), route.clone(), ("status", status.to_string())]).inc();
        self.request_seconds.get_or_create(&[method, route]).observe(duration.as_secs_f64());
    }

    /// Counts a request that goes beyond its tenant's share.
    pub(crate) fn beyond_share(&self, bound: &str) {
        self.beyond_share.get_or_create(&[("bound", bound.to_owned())]).inc();
    }

    /// Shows what waits to be published.
    pub fn backlog(&self, backlog: &store::Backlog) {
        self.outbox_pending.set(backlog.databases);
        self.outbox_oldest_age.set(backlog.oldest_seconds);
        self.outbox_set_aside.set(backlog.set_aside);
        self.outbox_newer.set(backlog.newer);
    }

    /// Counts an instruction that cannot be published.
    pub fn set_aside(&self, code: &str) {
        self.set_aside.get_or_create(&[("code", code.to_owned())]).inc();
    }

    /// Counts a row that cannot be read, by a list, by the sweep or by the relay.
    pub(crate) fn unreadable(&self, table: &str) {
        self.unreadable.get_or_create(&[("table", table.to_owned())]).inc();
    }

    /// Counts rows of a table that were kept long enough and taken away.
    pub(crate) fn pruned(&self, table: &str, rows: u64) {
        self.pruned.get_or_create(&[("table", table.to_owned())]).inc_by(rows);
    }

    /// Counts an observation that is not believed as it stands.
    pub fn unclaimed(&self, code: &str) {
        self.unclaimed.get_or_create(&[("code", code.to_owned())]).inc();
    }

    /// Counts an outcome that is not believed.
    pub fn unbelieved(&self, code: &str) {
        self.unbelieved.get_or_create(&[("code", code.to_owned())]).inc();
    }

    /// Shows how far the sink is behind; a partition that is not named is no longer ours.
    pub fn lag<'a>(&self, topic: &str, partitions: impl IntoIterator<Item = (&'a i32, &'a i64)>) {
        let labels = |partition: &i32| [("topic", topic.to_owned()), ("partition", partition.to_string())];
        self.lag.show(partitions.into_iter().map(|(partition, lag)| (labels(partition), *lag)));
    }

    /// Shows how many databases differ from what their cluster shows, by how.
    pub fn diverged(&self, counts: &[(String, i64)]) {
        for kind in store::Divergence::ALL {
            let count = counts.iter().find(|(word, _)| word == kind.as_str()).map_or(0, |(_, count)| *count);
            self.diverged.get_or_create(&[("kind", kind.as_str().to_owned())]).set(count);
        }
    }

    /// Counts a database that differs and about which nothing is done.
    pub(crate) fn left(&self, kind: Option<store::Divergence>, why: crate::sweep::decide::Why) {
        let Some(kind) = kind else { return };
        let labels = [("kind", kind.as_str().to_owned()), ("reason", why.as_str().to_owned())];
        self.left.get_or_create(&labels).inc();
    }

    /// Shows of which clusters it is not known what they hold.
    pub fn listed(&self, clusters: impl IntoIterator<Item = (String, bool)>) {
        let unlisted = |(cluster, listed): (String, bool)| ([("cluster", cluster)], i64::from(!listed));
        self.unlisted.show(clusters.into_iter().map(unlisted));
    }

    /// Shows how many instructions wait, by cluster; a cluster that is not named has none any more.
    pub fn parked(&self, counts: &[(String, i64)]) {
        self.parked.show(counts.iter().map(|(cluster, count)| ([("cluster", cluster.clone())], *count)));
    }
}

fn request_histogram() -> Histogram {
    Histogram::new(REQUEST_BUCKETS)
}

#[cfg(test)]
mod tests;
