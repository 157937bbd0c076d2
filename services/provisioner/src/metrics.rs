//! What the program counts.

use std::sync::Arc;
use std::time::Duration;

use domain::{Cluster, ClusterId, ClusterState};
use runtime::metrics::Shown;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::family::Family;
use runtime::prometheus_client::metrics::gauge::Gauge;
use runtime::prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::fleet::breaker::Phase;
use crate::fleet::guard::Guard;

type Labels = Vec<(&'static str, String)>;

/// The program's metrics; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instructions: Family<Labels, Counter>,
    applies: Family<Labels, Histogram, fn() -> Histogram>,
    dead_letters: Family<Labels, Counter>,
    cluster_up: Family<Labels, Gauge>,
    guards: Guards,
    observed: Family<Labels, Gauge>,
    gossip: Family<Labels, Counter>,
    parked: Shown<Labels>,
    lag: Shown<Labels>,
    in_flight: Gauge,
    in_memory: Gauge,
    paused: Gauge,
}

/// What stands before each cluster.
#[derive(Debug)]
struct Guards {
    breaker: Family<Labels, Gauge>,
    gate_closed: Family<Labels, Gauge>,
    calls: Family<Labels, Gauge>,
    unreadable: Gauge,
}

impl Guards {
    fn new(registry: &runtime::Metrics) -> Self {
        Self {
            breaker: registry.register(
                "provisioner_breaker",
                "Whether calls go to a cluster: 0 all of them, 1 a few on trial, 2 none until it answers",
                Family::default(),
            ),
            gate_closed: registry.register(
                "provisioner_gate_closed",
                "Whether a cluster asked for patience and is given it",
                Family::default(),
            ),
            calls: registry.register(
                "provisioner_cluster_calls",
                "Calls under way to a cluster",
                Family::default(),
            ),
            unreadable: registry.register(
                "provisioner_clusters_unreadable",
                "Registered clusters whose registration cannot be read: what is meant for them waits",
                Gauge::default(),
            ),
        }
    }

    fn show(&self, cluster: &ClusterId, guard: &Guard) {
        let phase = guard.phase();
        let level = match phase {
            Phase::Closed => 0,
            Phase::Trial | Phase::Resting => 1,
            Phase::Open => 2,
        };
        self.breaker.get_or_create(&of(cluster)).set(level);
        self.gate_closed.get_or_create(&of(cluster)).set(i64::from(phase == Phase::Resting));
        self.calls.get_or_create(&of(cluster)).set(guard.in_flight().into());
    }

    fn forget(&self, cluster: &ClusterId) {
        for family in [&self.breaker, &self.gate_closed, &self.calls] {
            family.remove(&of(cluster));
        }
    }
}

impl Metrics {
    /// Registers them all.
    pub fn new(registry: &runtime::Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let register = registry;
        Self(Arc::new(Inner {
            instructions: register.register(
                "provisioner_instructions",
                "Instructions by what became of them",
                Family::default(),
            ),
            applies: register.register(
                "provisioner_apply_seconds",
                "Time of one apply, by cluster",
                Family::new_with_constructor(histogram),
            ),
            dead_letters: register.register(
                "provisioner_dead_letters",
                "Records set aside, by reason",
                Family::default(),
            ),
            cluster_up: register.register(
                "provisioner_cluster_up",
                "Whether a cluster answers",
                Family::default(),
            ),
            guards: Guards::new(register),
            observed: register.register(
                "provisioner_observed_databases",
                "Databases seen in a cluster that this process observes",
                Family::default(),
            ),
            gossip: register.register(
                "provisioner_gossip",
                "Records sent on the gossip topic, by kind",
                Family::default(),
            ),
            parked: Shown::new(register, "provisioner_parked", "Instructions parked, by cluster"),
            lag: Shown::new(register, "provisioner_lag", "Records behind the end, by partition"),
            in_flight: register.register(
                "provisioner_in_flight",
                "Instructions being carried out",
                Gauge::default(),
            ),
            in_memory: register.register(
                "provisioner_in_memory",
                "Instructions read and not finished",
                Gauge::default(),
            ),
            paused: register.register(
                "provisioner_paused",
                "Whether consumption is paused",
                Gauge::default(),
            ),
        }))
    }

    /// An instruction ended: applied, superseded, parked, refused, held, skipped.
    pub fn instruction(&self, disposition: &'static str, cluster: &ClusterId) {
        let labels = vec![("cluster", cluster.to_string()), ("disposition", disposition.to_owned())];
        self.0.instructions.get_or_create(&labels).inc();
    }

    /// An apply took this long.
    pub fn apply(&self, cluster: &ClusterId, took: Duration) {
        self.0.applies.get_or_create(&of(cluster)).observe(took.as_secs_f64());
    }

    /// A record was set aside.
    pub fn dead_letter(&self, code: &'static str) {
        self.0.dead_letters.get_or_create(&vec![("code", code.to_owned())]).inc();
    }

    /// A cluster answers, or not. Of one that is out of service nothing is shown: nobody is to be called for it.
    pub fn cluster_up(&self, cluster: &Cluster, up: bool) {
        if cluster.state == ClusterState::Disabled {
            self.0.cluster_up.remove(&of(&cluster.id));
        } else {
            self.0.cluster_up.get_or_create(&of(&cluster.id)).set(i64::from(up));
        }
    }

    /// What stands before a cluster, and what is under way to it; the same of one that is out of service.
    pub fn guard(&self, cluster: &Cluster, guard: &Guard) {
        if cluster.state == ClusterState::Disabled {
            self.0.guards.forget(&cluster.id);
        } else {
            self.0.guards.show(&cluster.id, guard);
        }
    }

    /// So many clusters are registered in a way that cannot be read.
    pub fn unreadable(&self, clusters: usize) {
        self.0.guards.unreadable.set(i64::try_from(clusters).unwrap_or(i64::MAX));
    }

    /// A cluster is registered no more.
    pub fn forget_cluster(&self, cluster: &ClusterId) {
        self.0.cluster_up.remove(&of(cluster));
        self.0.guards.forget(cluster);
        self.0.observed.remove(&of(cluster));
        self.0.parked.remove(&of(cluster));
    }

    /// Databases seen in a cluster.
    pub fn observed(&self, cluster: &ClusterId, databases: usize) {
        self.0.observed.get_or_create(&of(cluster)).set(i64::try_from(databases).unwrap_or(i64::MAX));
    }

    /// This process speaks for a cluster no longer: another one tells what is there.
    pub fn observed_no_more(&self, cluster: &ClusterId) {
        self.0.observed.remove(&of(cluster));
    }

    /// A record was sent on the gossip topic.
    pub fn gossip(&self, kind: &'static str) {
        self.0.gossip.get_or_create(&vec![("kind", kind.to_owned())]).inc();
    }

    /// Instructions parked, by cluster.
    pub fn parked(&self, counts: &[(String, i64)]) {
        self.0
            .parked
            .show(counts.iter().map(|(cluster, count)| (vec![("cluster", cluster.clone())], *count)));
    }

    /// What the consumer is doing.
    pub fn consumer(&self, snapshot: &bus::consumer::Snapshot) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.0.in_flight.set(number(snapshot.running));
        self.0.in_memory.set(number(snapshot.in_memory));
        self.0.paused.set(i64::from(snapshot.paused));
        let of = |partition: &i32| vec![("partition", partition.to_string())];
        self.0.lag.show(snapshot.lag.iter().map(|(partition, lag)| (of(partition), *lag)));
    }
}

fn of(cluster: &ClusterId) -> Labels {
    vec![("cluster", cluster.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_observes_a_cluster_says_what_is_seen_there() {
        let registry = runtime::Metrics::default();
        let metrics = Metrics::new(&registry);
        let says = |cluster: &ClusterId| {
            registry
                .encode()
                .unwrap()
                .contains(&format!("provisioner_observed_databases{{cluster=\"{cluster}\"}}"))
        };
        let [mine, other]: [ClusterId; 2] = ["eu-west-1", "us-east-1"].map(|name| name.parse().unwrap());
        metrics.observed(&mine, 3);
        metrics.observed(&other, 3);
        metrics.observed_no_more(&other);
        assert!(says(&mine) && !says(&other));
    }

    fn cluster(state: ClusterState) -> Cluster {
        Cluster { state, ..crate::apply::tests::cluster() }
    }

    #[test]
    fn nobody_is_called_for_a_cluster_that_is_out_of_service() {
        let registry = runtime::Metrics::default();
        let metrics = Metrics::new(&registry);
        for (state, is_shown) in
            [(ClusterState::Draining, true), (ClusterState::Disabled, false), (ClusterState::Active, true)]
        {
            metrics.cluster_up(&cluster(state), false);
            metrics.guard(&cluster(state), &Guard::new(1));
            let text = registry.encode().unwrap();
            for name in ["provisioner_cluster_up", "provisioner_breaker"] {
                assert_eq!(text.contains(&format!("{name}{{")), is_shown, "{name} of one that is {state}");
            }
        }
    }

    #[test]
    fn the_document_has_every_metric_and_no_other() {
        let registry = runtime::Metrics::default();
        let metrics = Metrics::new(&registry);
        let served = cluster(ClusterState::Active);
        let cluster = &served.id;
        metrics.instruction("applied", cluster);
        metrics.apply(cluster, Duration::ZERO);
        metrics.dead_letter("invalid");
        metrics.cluster_up(&served, true);
        metrics.guard(&served, &Guard::new(1));
        metrics.observed(cluster, 1);
        metrics.gossip("outcome");
        metrics.parked(&[(cluster.to_string(), 1)]);
        let lag = std::collections::BTreeMap::from([(0, 1)]);
        metrics.consumer(&bus::consumer::Snapshot { lag, ..bus::consumer::Snapshot::default() });
        let document = include_str!("../../../docs/metrics.md");
        let section = monitoring::section(document, "Provisioner");
        monitoring::assert_documented(section, &registry.names(), &registry.encode().unwrap());
    }
}
