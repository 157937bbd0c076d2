//! The metrics of a program, in the text format `OpenMetrics`.
//!
//! Counters are registered without `_total`, which the format adds. Names are the programs' own; here are only those
//! that every process has (`process`) and the one that tells the build.

mod process;
mod shown;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

pub(crate) use process::max_files;
pub use shown::Shown;

use crate::{Service, lock};

/// The media type of what [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The revision of the sources, where the build was told.
const REVISION: &str = match option_env!("SLIPWAY_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The registry of a program. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    registry: Registry,
    names: BTreeSet<String>,
}

impl Metrics {
    /// A registry with the process's own metrics and `slipway_build_info`.
    pub fn new(service: Service) -> Self {
        let metrics = Self::default();
        let labels = vec![("service", service.name), ("version", service.version), ("revision", REVISION)];
        metrics.with_registry(|registry| {
            registry.register("slipway_build", "What is running", Info::new(labels));
            registry.register_collector(Box::new(process::Process));
        });
        metrics
    }

    /// Registers a metric and gives it back: `let depth = metrics.register("depth", "Rows waiting", Gauge::default());`
    ///
    /// A name that is taken is a mistake of the program: the format allows it once only, so the second metric is not
    /// shown, which is logged (and fails where debug assertions are on).
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut inner = lock(&self.0);
        let fresh = inner.names.insert(name.to_owned());
        if fresh {
            inner.registry.register(name, help, metric.clone());
        } else {
            tracing::error!(metric.name = name, "a metric was registered twice, the second is not shown");
        }
        drop(inner);
        debug_assert!(fresh, "metric {name} registered twice");
        metric
    }

    /// Names of what [`Self::register`] registered, as they were given: what has no series yet, and so is not shown, is among them.
    pub fn names(&self) -> BTreeSet<String> {
        lock(&self.0).names.clone()
    }

    /// The registry itself, for collectors, units and common labels. Not to be held across waits.
    pub fn with_registry<T>(&self, body: impl FnOnce(&mut Registry) -> T) -> T {
        body(&mut lock(&self.0).registry)
    }

    /// All metrics as text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &lock(&self.0).registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;

    const SERVICE: Service = Service { name: "slipway-example", version: "1.2.3" };

    #[test]
    fn what_is_registered_is_shown_with_its_value() {
        let metrics = Metrics::new(SERVICE);
        let depth: Gauge = metrics.register("outbox_pending", "Rows not yet published", Gauge::default());
        depth.set(7);
        let calls: Family<Vec<(String, String)>, Counter> =
            metrics.register("controller_runtime_reconcile", "Reconciles", Family::default());
        calls.get_or_create(&vec![("result".to_owned(), "success".to_owned())]).inc();
        let text = metrics.encode().unwrap();
        assert!(
            text.contains("# HELP outbox_pending Rows not yet published.\n# TYPE outbox_pending gauge\n"),
            "{text}"
        );
        assert!(text.contains("\noutbox_pending 7\n"), "{text}");
        assert!(text.contains("\ncontroller_runtime_reconcile_total{result=\"success\"} 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_build_is_told() {
        let text = Metrics::new(SERVICE).encode().unwrap();
        let line = text.lines().find(|line| line.starts_with("slipway_build_info{")).unwrap();
        assert!(line.contains("service=\"slipway-example\"") && line.contains("version=\"1.2.3\""), "{line}");
        assert!(line.ends_with("} 1"), "{line}");
    }

    #[test]
    fn the_process_is_measured() {
        let text = Metrics::new(SERVICE).encode().unwrap();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            line.and_then(|line| line.split(' ').nth(1))
                .unwrap_or_else(|| panic!("{name} in {text}"))
                .to_owned()
        };
        let number = |name: &str| value(name).parse::<f64>().unwrap();
        assert!(number("process_cpu_seconds_total") >= 0.0);
        assert!(number("process_resident_memory_bytes") > 100_000.0);
        assert!(number("process_virtual_memory_bytes") > number("process_resident_memory_bytes"));
        assert!(number("process_open_fds") >= 3.0);
        assert!(number("process_max_fds") >= number("process_open_fds"));
        assert!(number("process_threads") >= 1.0);
        let age = jiff::Timestamp::now().duration_since(jiff::Timestamp::UNIX_EPOCH).as_secs_f64()
            - number("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "started {age} seconds ago");
    }

    #[test]
    fn the_document_has_what_every_program_shows() {
        let document = include_str!("../../../docs/metrics.md");
        let metrics = Metrics::new(SERVICE);
        let section = monitoring::section(document, "Every program");
        monitoring::assert_documented(section, &metrics.names(), &metrics.encode().unwrap());
    }

    #[test]
    #[should_panic(expected = "metric depth registered twice")]
    fn a_taken_name_is_noticed() {
        let metrics = Metrics::default();
        metrics.register("depth", "First", Gauge::<i64>::default());
        metrics.register("depth", "Second", Gauge::<i64>::default());
    }
}
