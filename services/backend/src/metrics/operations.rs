//! Metrics of operations.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use store::Ended;

use super::Labels;

/// Buckets of whole operations, in seconds.
const BUCKETS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0];

/// Metrics of operations. Clones share them.
#[derive(Debug, Clone)]
pub struct Operations {
    seconds: Family<Labels<2>, Histogram>,
    ended: Family<Labels<3>, Counter>,
    reverted: Family<Labels<1>, Counter>,
    /// Operations that failed and have no way back: somebody must look.
    pub stuck: Counter,
    /// Operations that are late and go on.
    pub overdue: Gauge,
}

impl Operations {
    pub(super) fn new(registry: &runtime::Metrics) -> Self {
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let help = "From a request to the end of its operation";
        Self {
            seconds: registry.register("provisioning_duration_seconds", help, seconds),
            ended: registry.register(
                "operations_ended",
                "Operations that reached their end",
                Family::default(),
            ),
            reverted: registry.register(
                "operations_reverted",
                "Operations that failed and were taken back",
                Family::default(),
            ),
            stuck: registry.register(
                "operations_stuck",
                "Operations that failed with no way back",
                Counter::default(),
            ),
            overdue: registry.register(
                "operations_overdue",
                "Operations that are late and go on",
                Gauge::default(),
            ),
        }
    }

    /// Measures an operation that reached its end.
    pub fn ended(&self, ended: &Ended) {
        let (kind, state) = (ended.kind.to_string(), ended.state.to_string());
        let code = label(ended.code.as_deref()).to_owned();
        self.ended.get_or_create(&[("kind", kind.clone()), ("state", state.clone()), ("code", code)]).inc();
        self.seconds.get_or_create(&[("kind", kind), ("outcome", state)]).observe(ended.seconds);
    }

    /// Counts an operation that failed and was taken back.
    pub fn reverted(&self, kind: domain::OperationKind) {
        self.reverted.get_or_create(&[("kind", kind.to_string())]).inc();
    }
}

/// A failure's code as a label. Codes come from afar: only known ones make series of their own.
fn label(code: Option<&str>) -> &str {
    match code {
        None => "",
        Some(known @ ("invalid" | "capacity" | "deadline" | "conflict" | "refused")) => known,
        Some(_) => "other",
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

#[cfg(test)]
mod tests {
    use domain::{OperationId, OperationKind, OperationState};

    use super::*;

    #[test]
    fn ends_are_counted_by_what_they_were_and_unknown_codes_together() {
        let registry = runtime::Metrics::default();
        let metrics = Operations::new(&registry);
        for code in [Some("deadline"), Some("from_afar"), Some("from_farther"), None] {
            let state = if code.is_some() { OperationState::Failed } else { OperationState::Succeeded };
            let code = code.map(ToOwned::to_owned);
            let (operation, kind) = (OperationId::mint(), OperationKind::Create);
            metrics.ended(&Ended { operation, kind, state, code, seconds: 1.0 });
        }
        let text = registry.encode().unwrap();
        for line in [
            r#"operations_ended_total{kind="create",state="failed",code="deadline"} 1"#,
            r#"operations_ended_total{kind="create",state="failed",code="other"} 2"#,
            r#"operations_ended_total{kind="create",state="succeeded",code=""} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
