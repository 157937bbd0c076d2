//! Waiting for a condition instead of for a time; and how long faults last, where that is what is tested.

use std::fmt::Display;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
/// The variable by which `cargo xtask test faults --full-length` asks for faults that last as long as promised.
const FULL_LENGTH: &str = "SLIPWAY_TEST_FULL_LENGTH";

/// Asks until there is an answer; fails when there is none within `limit`.
///
/// # Panics
/// When the limit is reached: the message says what was waited for.
#[expect(clippy::panic, reason = "a test that waits in vain has failed, and says for what")]
pub async fn eventually<T, F>(limit: Duration, what: &str, mut ask: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    let answer = poll(limit, async || ask().await.ok_or(())).await;
    answer.unwrap_or_else(|()| panic!("waited {limit:?} in vain for: {what}"))
}

/// Looks until what is looked for is there; fails when it is not within `limit`. Whoever looks says what there is instead.
///
/// # Panics
/// When the limit is reached: the message says what was waited for, and what the last look found instead.
#[expect(clippy::panic, reason = "a test that waits in vain has failed, and says for what")]
pub async fn eventually_there<T, I, F>(limit: Duration, what: &str, look: F) -> T
where
    I: Display,
    F: AsyncFnMut() -> Result<T, I>,
{
    let found = poll(limit, look).await;
    found.unwrap_or_else(|instead| panic!("waited {limit:?} in vain for: {what}; there was {instead}"))
}

/// The first answer, or what there was instead of one when `limit` was reached.
async fn poll<T, I, F>(limit: Duration, mut ask: F) -> Result<T, I>
where
    F: AsyncFnMut() -> Result<T, I>,
{
    let start = Instant::now();
    loop {
        let answer = ask().await;
        if answer.is_ok() || start.elapsed() > limit {
            return answer;
        }
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

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[tokio::test]
    async fn what_comes_within_the_limit_is_given_back_and_so_is_what_comes_with_the_last_look() {
        let mut looks = 0;
        let found = eventually_there(Duration::from_mins(1), "the third look", async || {
            looks += 1;
            (looks == 3).then_some(looks).ok_or(looks)
        });
        assert_eq!(found.await, 3);
        assert_eq!(eventually(Duration::ZERO, "anything", async || Some("there")).await, "there");
    }

    #[tokio::test]
    #[should_panic = "waited 500ms in vain for: two copies; there was one copy"]
    async fn what_the_last_look_found_instead_is_told() {
        let mut found = iter::once("no copy").chain(iter::repeat("one copy"));
        let look = async || Err::<(), _>(found.next().unwrap_or_default());
        eventually_there(Duration::from_millis(500), "two copies", look).await;
    }
}
