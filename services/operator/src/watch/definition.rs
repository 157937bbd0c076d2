//! Whether our kinds are still defined as they were when they were listed. A watch that is open while another definition is applied
//! goes on for a moment by the one that was in force, and tells what is written meanwhile without the fields that only the new one
//! has; the watch that comes after it tells only what comes after. So once the API server says that the definitions are others,
//! everything is listed again.

use std::time::Duration;

use http::{Request, Uri};
use kube::Client;
use serde_json::Value;

use super::Upkeep;

/// When it is asked.
#[derive(Clone, Copy)]
struct Rhythm {
    /// Between two questions. So long may something stay unseen.
    period: Duration,
    /// How long after another answer everything is listed: by then watches of the older definition have ended, and other replicas
    /// of the API server have the new one as well.
    settles: Duration,
}

const RHYTHM: Rhythm = Rhythm { period: Duration::from_mins(1), settles: Duration::from_secs(5) };
/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Looks at the definitions now and then, until stopped.
pub(crate) fn look_at_definitions(client: &Client, upkeep: &Upkeep) {
    look(client, upkeep, RHYTHM);
}

fn look(client: &Client, upkeep: &Upkeep, rhythm: Rhythm) {
    let (client, upkeep) = (client.clone(), upkeep.clone());
    upkeep.tasks.clone().spawn("look at definitions", async move {
        let mut known = ask(&client).await;
        while runtime::backoff::sleep(rhythm.period, &upkeep.stop).await {
            let Some(now) = ask(&client).await else { continue };
            // Where nobody said at the beginning, they may have become others meanwhile.
            let is_other = known.replace(now.clone()).is_none_or(|before| before != now);
            if is_other && runtime::backoff::sleep(rhythm.settles, &upkeep.stop).await {
                upkeep.watches.standing().redefined();
            }
        }
    });
}

/// The state of our definitions, as a word that is another one for other definitions; none when nobody says.
async fn ask(client: &Client) -> Option<String> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static(resources::DOCUMENTS);
    match tokio::time::timeout(LIMIT, client.request::<Value>(request)).await {
        Ok(Ok(documents)) => resources::state(&documents),
        Ok(Err(error)) => {
            let error = runtime::telemetry::chain(&error);
            tracing::debug!(error, "could not ask whether definitions are others than before");
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use runtime::CancellationToken;
    use runtime::health::Readiness;
    use serde_json::json;

    use super::*;
    use crate::played::{self, Answer};
    use crate::scope::Scope;
    use crate::watch::Watches;

    /// Long, beside the rhythm of these tests.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn told(state: u64) -> Answer {
        let at = format!("{}?hash={state}", resources::DOCUMENT);
        Answer::Is(200, json!({ "paths": { "apis/crd.questdb.io/v1": { "serverRelativeURL": at } } }))
    }

    #[tokio::test]
    async fn everything_is_listed_again_by_other_definitions_and_only_then() {
        // At the beginning nobody says, so that the first answer may be another one; and later on again.
        let (asked, states) = (Arc::<AtomicU64>::default(), [0, 1, 1, 0, 1, 2, 2, 2]);
        let times = Arc::clone(&asked);
        let client = played::client(move |_, _| {
            let at = usize::try_from(times.fetch_add(1, Ordering::SeqCst)).unwrap_or_default();
            match states.get(at).copied().unwrap_or(2) {
                0 => played::failure(),
                state => told(state),
            }
        });
        let (stop, scope) = (CancellationToken::new(), Scope::All);
        let watches =
            Watches::new(&runtime::Metrics::default(), &Readiness::default(), &scope, String::new());
        let upkeep = Upkeep::played(watches, scope, &stop);
        let standing = upkeep.watches.standing();
        let before = standing.times();
        let beat = Duration::from_millis(2);
        look(&client, &upkeep, Rhythm { period: beat, settles: beat });
        let mut ticks = tokio::time::interval(beat);
        let begun = Instant::now();
        while asked.load(Ordering::SeqCst) < 20 {
            assert!(begun.elapsed() < PATIENCE, "nobody asks any more");
            ticks.tick().await;
        }
        stop.cancel();
        assert_eq!(standing.times() - before, 2);
    }
}
