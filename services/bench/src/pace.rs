//! One thing at a time at a steady pace, and waiting with a deadline.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Rounds of a product's slice each second: slow enough that a round meets servers at rest.
const ROUNDS: u32 = 10;
/// The stages of an anchor share its slice; each does as many rounds as the product, in its part of the time.
pub(crate) const STAGES: u32 = 3;
/// Rounds before those that count: connections, plans and caches are made there.
pub(crate) const WARM_UP: u32 = 5;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How many rounds count in a slice of these seconds.
pub(crate) const fn rounds(seconds: u32) -> u32 {
    seconds * ROUNDS
}

/// Rounds of one stage of an anchor each second.
pub(crate) const fn stage_rate() -> u32 {
    ROUNDS * STAGES
}

/// The beat of a product's slice.
pub(crate) fn product() -> Interval {
    steady(ROUNDS)
}

/// The beat of one stage of an anchor.
pub(crate) fn stage() -> Interval {
    steady(stage_rate())
}

fn steady(rate: u32) -> Interval {
    let mut beat = interval(Duration::from_secs(1) / rate);
    // A round that took long does not make the next ones crowd.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

/// Asks until there is an answer; an error when there is none within `limit`.
pub(crate) async fn until<T>(
    limit: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if start.elapsed() > limit {
            bail!("waited {limit:?} in vain for {what}");
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_does_the_rounds_of_the_product_in_the_same_time() {
        assert_eq!(rounds(8), 80);
        assert_eq!(rounds(8) * STAGES / stage_rate(), 8);
    }

    #[tokio::test]
    async fn waiting_ends() {
        let mut asked = 0;
        let answer = until(Duration::from_secs(30), "the second question", async || {
            asked += 1;
            Ok((asked == 2).then_some("yes"))
        });
        assert_eq!(answer.await.unwrap(), "yes");
        let never = until(Duration::ZERO, "nothing", async || Ok(None::<()>)).await.unwrap_err();
        assert!(never.to_string().contains("in vain for nothing"), "{never}");
    }
}
