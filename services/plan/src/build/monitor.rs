//! How Prometheus' operator is told what to scrape.

use resources::{MonitorKind, MonitorSpec, names};
use serde_json::{Value, json};

use super::service::{OF_PODS, role};
use crate::{Kind, Manifest, Subject};

/// The `ServiceMonitor` or `PodMonitor`.
pub fn monitor(subject: &Subject, wish: &MonitorSpec) -> Manifest {
    let mut endpoint = json!({ "port": "min", "path": "/metrics", "scheme": "http" });
    if let Some(seconds) = wish.interval_seconds {
        endpoint["interval"] = json!(format!("{seconds}s"));
    }
    let (kind, selector, endpoints) = match wish.kind {
        // The headless one also names a pod that is not ready: that is when one wants to know.
        MonitorKind::ServiceMonitor => (Kind::ServiceMonitor, json!(role(subject, OF_PODS)), "endpoints"),
        MonitorKind::PodMonitor => (Kind::PodMonitor, json!(subject.selector()), "podMetricsEndpoints"),
    };
    let mut metadata = subject.owned(&subject.name);
    label(&mut metadata, wish);
    Manifest {
        kind,
        namespace: Some(subject.namespace.clone()),
        name: subject.name.clone(),
        body: json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": kind.as_str(),
            "metadata": metadata,
            "spec": { "selector": { "matchLabels": selector }, endpoints: [endpoint] },
        }),
        uid: None,
    }
}

/// Labels of the wish beside ours, which stand.
fn label(metadata: &mut Value, wish: &MonitorSpec) {
    for (key, value) in &wish.labels {
        if key != names::LABEL_MANAGED_BY && metadata["labels"].get(key).is_none() {
            metadata["labels"][key] = json!(value);
        }
    }
}
