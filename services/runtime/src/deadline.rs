//! Every wait has an end, and says what it waited for.
//!
//! A thin wrapper of the timer: it drops the future it gave up on, and never retries.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

/// Something took longer than it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gave up on {what} after {limit:?}")]
pub struct DeadlineExceeded {
    /// What was waited for, as it reads after "gave up on".
    pub what: Cow<'static, str>,
    /// How long it was given.
    pub limit: Duration,
}

/// Runs `future` for at most `limit`; `what` names it in the error: `"applying the custom resource"`.
pub async fn deadline<F: Future>(
    limit: Duration,
    what: impl Into<Cow<'static, str>>,
    future: F,
) -> Result<F::Output, DeadlineExceeded> {
    tokio::time::timeout(limit, future).await.map_err(|_| DeadlineExceeded { what: what.into(), limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_in_time_is_passed_on() {
        let answer = deadline(Duration::from_mins(1), "a sum", async { 1 + 1 }).await;
        assert_eq!(answer, Ok(2));
    }

    #[tokio::test]
    async fn a_late_answer_names_what_was_waited_for() {
        let answer = deadline(Duration::from_millis(1), "the database", std::future::pending::<()>()).await;
        let error = answer.unwrap_err();
        assert_eq!(error.to_string(), "gave up on the database after 1ms");
    }
}
