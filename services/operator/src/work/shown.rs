//! The gauges of the queue, read when somebody asks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use runtime::prometheus_client::collector::Collector;
use runtime::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use runtime::prometheus_client::metrics::gauge::ConstGauge;

use super::State;
use crate::metrics::queue;

/// Encodes the state of the queue.
#[derive(Debug)]
pub(super) struct Shown(pub(super) Arc<Mutex<State>>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = Instant::now();
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (depth, (unfinished, longest)) = (state.depth(now), state.unfinished(now));
        drop(state);
        let depth = f64::from(u32::try_from(depth).unwrap_or(u32::MAX));
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let mut metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric.encode_family(&queue())?)
        };
        gauge("workqueue_depth", "Databases that wait for their turn.", depth)?;
        gauge(
            "workqueue_unfinished_work_seconds",
            "How long the turns under way have taken so far, together.",
            unfinished.as_secs_f64(),
        )?;
        gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest turn under way has taken so far.",
            longest.as_secs_f64(),
        )
    }
}
