//! What is kept for a short time and then forgotten: answers to idempotency keys, and programs that are lost.

use std::time::Duration;

use runtime::CancellationToken;
use store::Store;

/// How long answers to idempotency keys are kept.
const ANSWERS_KEPT: Duration = Duration::from_hours(48);
const EVERY: Duration = Duration::from_mins(10);
const DEADLINE: Duration = Duration::from_secs(5);

/// Takes away what was kept long enough.
pub(crate) async fn run(store: Store, stop: CancellationToken) {
    while runtime::backoff::sleep(EVERY, &stop).await {
        let forgotten = async {
            let programs = store.forget_programs().await?;
            Ok::<_, store::Error>((store.forget_answers(ANSWERS_KEPT).await?, programs))
        };
        match runtime::deadline(DEADLINE, "tidying", forgotten).await {
            Ok(Ok((0, 0))) => {}
            Ok(Ok((answers, programs))) => {
                tracing::info!(answers, programs, "old idempotency keys and lost programs were forgotten");
            }
            Ok(Err(error)) => {
                tracing::warn!(reason = runtime::telemetry::chain(&error), "nothing was tidied");
            }
            Err(late) => tracing::warn!(reason = %late, "nothing was tidied"),
        }
    }
}
