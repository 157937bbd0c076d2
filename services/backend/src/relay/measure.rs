//! What waits to be published and what is parked, shown as metrics. Changes nothing.

use std::time::Duration;

use runtime::CancellationToken;

use super::Relay;

/// How often the backlog is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// Patience with one measurement.
const LOOK: Duration = Duration::from_secs(5);

impl Relay {
    pub(super) async fn measure_until(&self, stop: &CancellationToken) {
        loop {
            self.measure().await;
            if !runtime::backoff::sleep(MEASURE_EVERY, stop).await {
                return;
            }
        }
    }

    async fn measure(&self) {
        match runtime::deadline(LOOK, "the backlog", self.store.backlog()).await {
            Ok(Ok(backlog)) => {
                self.metrics.backlog(&backlog);
            }
            Ok(Err(error)) => tracing::debug!(reason = runtime::telemetry::chain(&error), "no backlog"),
            Err(late) => tracing::debug!(reason = %late, "no backlog"),
        }
        if let Ok(Ok(counts)) = runtime::deadline(LOOK, "what is parked", self.store.parked_count()).await {
            self.metrics.parked(&counts);
        }
    }
}
