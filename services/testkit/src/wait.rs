//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);

/// Asks until there is an answer; fails when there is none within `limit`.
///
/// # Panics
/// When the limit is reached: the message says what was waited for.
pub async fn eventually<T, F>(limit: Duration, what: &str, mut ask: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() <= limit, "waited {limit:?} in vain for: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits this long, where how long a fault lasts is what is tested: never to guess how long something takes.
pub async fn lasting(time: Duration) {
    tokio::time::sleep(time).await;
}
