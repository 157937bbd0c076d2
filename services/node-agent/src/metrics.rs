//! What the agent counts. Names and numbers only.

use runtime::Metrics;
use runtime::prometheus_client::metrics::counter::Counter;
use runtime::prometheus_client::metrics::gauge::Gauge;

/// Counters and gauges of the agent; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Machines with power.
    pub machines: Gauge,
    /// Processes started.
    pub starts: Counter,
    /// Processes that ended.
    pub ends: Counter,
    /// Volumes attached.
    pub attached: Counter,
    /// Volumes detached.
    pub detached: Counter,
}

impl Counts {
    /// Registered under their names.
    pub fn register(metrics: &Metrics) -> Self {
        let counter = |name: &str, help: &str| metrics.register(name, help, Counter::default());
        Self {
            machines: metrics.register(
                "slipway_node_agent_machines",
                "Machines with power",
                Gauge::default(),
            ),
            starts: counter("slipway_node_agent_process_starts", "Processes started"),
            ends: counter("slipway_node_agent_process_ends", "Processes that ended"),
            attached: counter("slipway_node_agent_volumes_attached", "Volumes attached"),
            detached: counter("slipway_node_agent_volumes_detached", "Volumes detached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_metric_and_no_other() {
        let metrics = Metrics::default();
        drop(Counts::register(&metrics));
        let document = include_str!("../../../docs/metrics.md");
        let section = monitoring::section(document, "Node agent");
        monitoring::assert_documented(section, &metrics.names(), &metrics.encode().unwrap());
    }
}
