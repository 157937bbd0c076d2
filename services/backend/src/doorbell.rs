//! Tells the relay of this process that something was minted. A lost ring costs one poll interval, nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// A bell between the API and the relay of one process. Clones are the same bell.
#[derive(Debug, Clone, Default)]
pub struct Doorbell(Arc<Notify>);

impl Doorbell {
    /// Says that there is something to publish. Rings that nobody waits for count once.
    pub fn ring(&self) {
        self.0.notify_one();
    }

    /// Waits for a ring, at most for `floor`.
    pub async fn wait(&self, floor: Duration) {
        // Whether it rang or the time passed: the table is looked at either way.
        let _ = tokio::time::timeout(floor, self.0.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(5);

    #[tokio::test]
    async fn a_ring_before_the_wait_is_not_lost() {
        let doorbell = Doorbell::default();
        doorbell.ring();
        tokio::time::timeout(Duration::from_secs(30), doorbell.wait(LONG)).await.unwrap();
    }

    #[tokio::test]
    async fn without_a_ring_the_floor_ends_the_wait() {
        tokio::time::timeout(Duration::from_secs(30), Doorbell::default().wait(Duration::from_millis(1)))
            .await
            .unwrap();
    }
}
