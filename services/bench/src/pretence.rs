//! Work that is only pretended: it takes time and nothing else.
//!
//! By the runtime's own timer, as a program waits that has asked somebody else for something. It counts whole milliseconds, so that each
//! sleep is too long by up to two of them, which is much beside the shortest work of the benches. What one was too long, those after
//! it are shorter: all together take as long as they should. *Invariant:* never less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who pretends to work, any number at once.
#[derive(Debug, Default)]
pub(crate) struct Pretence {
    /// Nanoseconds by which all together have slept longer than they should so far.
    over: AtomicU64,
}

impl Pretence {
    /// Takes this long, on average over all.
    pub(crate) async fn work(&self, time: Duration) {
        let left = time.saturating_sub(self.take(time));
        if left.is_zero() {
            return;
        }
        let start = Instant::now();
        tokio::time::sleep(left).await;
        self.over.fetch_add(nanos(start.elapsed().saturating_sub(left)), Ordering::Relaxed);
    }

    /// Takes of what was too long so far, at most this much.
    fn take(&self, most: Duration) -> Duration {
        let most = nanos(most);
        let taken = self.over.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |over| {
            (over > 0).then(|| over - over.min(most))
        });
        Duration::from_nanos(taken.map_or(0, |over| over.min(most)))
    }
}

/// Whole nanoseconds; as many as there can be of a time that has more.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn all_together_take_as_long_as_they_should_and_never_less() {
        let pretence = Pretence::default();
        // Ten at once, each of which pretends to work 2 ms on average a hundred times.
        let times = |number: u64| (0..100).map(move |time| (time * 37 + number * 11) % 41 * 100);
        let each = async |number: u64| {
            let start = Instant::now();
            futures::stream::iter(times(number))
                .for_each(|time| pretence.work(Duration::from_micros(time)))
                .await;
            start.elapsed()
        };
        let asked: u64 = (0..10).flat_map(times).sum();
        let all = futures::future::join_all((0..10).map(each)).await;
        let all = all.into_iter().sum::<Duration>();
        assert!(all >= Duration::from_micros(asked), "{all:?} instead of {asked} us");
    }
}
