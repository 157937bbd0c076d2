//! How old the picture is that databases at rest go by, read when somebody asks: while EC2 gives no newer one, nobody tells it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use runtime::Metrics;
use runtime::prometheus_client::collector::Collector;
use runtime::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use runtime::prometheus_client::metrics::gauge::ConstGauge;

/// Of which moment the newest picture is; nothing is shown before there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture(Arc<Mutex<Option<Instant>>>);

impl Picture {
    /// Registers it.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let picture = Self::default();
        metrics.with_registry(|registry| registry.register_collector(Box::new(picture.clone())));
        picture
    }

    /// There is one of this moment.
    pub(super) fn taken(&self, as_of: Instant) {
        *self.lock() = Some(as_of);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Picture {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(as_of) = *self.lock() else { return Ok(()) };
        let gauge = ConstGauge::new(as_of.elapsed().as_secs_f64());
        let (name, help) =
            ("slipway_aws_picture_age_seconds", "Age of the picture of everything the cluster owns in AWS.");
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    }
}
