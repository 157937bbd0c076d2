//! Whether our kinds are still defined as they were when they were listed. A watch that is open while another definition is applied
//! goes on for a moment by the one that was in force, and tells what is written meanwhile without the fields that only the new one
//! has; the watch that comes after it tells only what comes after. So once the API server says that the definitions are others,
//! everything is listed again.
//!
//! And whether kinds of others that databases ask for are: what was refused because a definition was too old for it may be taken now,
//! so whoever asks for some is looked at again.

use std::time::Duration;

use http::{Request, Uri};
use kube::Client;
use serde_json::Value;

use super::Upkeep;
use crate::reach::{KINDS, api_resource};

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
            let [ours, others] = now.differs(known.replace(now.clone()).as_ref());
            if !(ours || others) || !runtime::backoff::sleep(rhythm.settles, &upkeep.stop).await {
                continue;
            }
            let standing = upkeep.watches.standing();
            if ours {
                standing.redefined();
            }
            if others {
                standing.others_redefined();
            }
        }
    });
}

/// The state of definitions, in words that are others for other definitions.
#[derive(Clone)]
struct State {
    ours: String,
    /// Of each kind of others; none where the cluster does not know its group.
    others: Vec<Option<String>>,
}

impl State {
    fn of(documents: &Value) -> Option<Self> {
        let others = KINDS.map(|kind| resources::state_of(documents, &api_resource(kind).api_version));
        Some(Self { ours: resources::state(documents)?, others: others.into() })
    }

    /// Whether our definitions are others than before, and whether those of others are. Where nobody said what was before, they may
    /// have become others meanwhile.
    fn differs(&self, before: Option<&Self>) -> [bool; 2] {
        before.map_or([true; 2], |before| [before.ours != self.ours, before.others != self.others])
    }
}

/// None when nobody says.
async fn ask(client: &Client) -> Option<State> {
    let mut request = Request::new(Vec::new());
    *request.uri_mut() = Uri::from_static(resources::DOCUMENTS);
    match tokio::time::timeout(LIMIT, client.request::<Value>(request)).await {
        Ok(Ok(documents)) => State::of(&documents),
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
    use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// What is answered in these states of our definitions and of Traefik's; the cluster does not know the latter in state 0.
    fn told(ours: u64, traefik: u64) -> Answer {
        let at = |path: &str, state: u64| json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={state}") });
        let (own, route) = ("apis/crd.questdb.io/v1", "apis/traefik.io/v1alpha1");
        let mut paths = json!({ own: at(own, ours) });
        if traefik > 0 {
            paths[route] = at(route, traefik);
        }
        Answer::Is(200, json!({ "paths": paths }))
    }

    /// How often everything was listed, and whoever asks for kinds of others was looked at. The last answer is given
    /// again and again.
    async fn looked(answers: Vec<fn() -> Answer>) -> (u64, u64) {
        let asked = Arc::<AtomicUsize>::default();
        let times = Arc::clone(&asked);
        let client = played::client(move |_, _| {
            let at = times.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            answers[at]()
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
        let others = *standing.of_others().borrow();
        (standing.times() - before, others)
    }

    #[tokio::test]
    async fn everything_is_listed_again_by_other_definitions_and_only_then() {
        // At the beginning nobody says, so that the first answer may be another one; and later on again.
        let [silent, one, two]: [fn() -> Answer; 3] = [played::failure, || told(1, 1), || told(2, 1)];
        assert_eq!(looked(vec![silent, one, one, silent, one, two]).await, (2, 1));
    }

    #[tokio::test]
    async fn who_asks_for_kinds_of_others_is_looked_at_once_those_are_defined_otherwise() {
        let [none, one, two]: [fn() -> Answer; 3] = [|| told(1, 0), || told(1, 1), || told(1, 2)];
        let silent: fn() -> Answer = played::failure;
        assert_eq!(looked(vec![none, none, one, one, silent, one, two]).await, (0, 2));
    }
}
