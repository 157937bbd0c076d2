//! Waiting for a condition instead of for a time; and how long faults last, where that is what is tested.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
/// The variable by which `cargo xtask test faults --full-length` asks for faults that last as long as promised.
const FULL_LENGTH: &str = "SLIPWAY_TEST_FULL_LENGTH";

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

/// Whether faults are to last as long as the promises about them say. The variable is read here and nowhere else.
///
/// # Panics
/// When it holds no number.
pub fn at_full_length() -> bool {
    crate::setting(FULL_LENGTH).is_some_and(|number| number != 0)
}

/// How long a fault lasts: usually, or at full length.
pub fn how_long(usually: Duration, at_full: Duration) -> Duration {
    if at_full_length() { at_full } else { usually }
}

/// Waits this long, where how long a fault lasts is what is tested: never to guess how long something takes.
pub async fn lasting(time: Duration) {
    tokio::time::sleep(time).await;
}
