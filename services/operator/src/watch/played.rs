//! One kind in several namespaces, of which one does not answer as it should.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use plan::Unseen;
use runtime::health::Readiness;
use serde_json::json;

use super::*;
use crate::played::{self, Answer};

const PATIENCE: Duration = Duration::from_secs(30);

/// Watches of namespaces a and b, by what b answers until it is let in.
struct Stand {
    watches: Watches,
    store: Store<ConfigMap>,
    readiness: Readiness,
    metrics: runtime::Metrics,
    let_in: Arc<AtomicBool>,
    stop: CancellationToken,
}

impl Upkeep {
    /// What a test's watches need: databases wait for all of them.
    pub(crate) fn played(watches: Watches, scope: Scope, stop: &CancellationToken) -> Self {
        let tasks = runtime::Tasks::new(stop.clone());
        Self { watches, scope, need: Need::Databases, stop: stop.clone(), tasks }
    }
}

impl Stand {
    fn new(until_then: fn(bool) -> Answer) -> Self {
        let (let_in, stop, readiness) =
            (Arc::<AtomicBool>::default(), CancellationToken::new(), Readiness::default());
        let opened = Arc::clone(&let_in);
        let client = played::client(move |path, watches| {
            let namespace = path.split('/').nth(4).unwrap_or_default();
            if namespace == "b" && !opened.load(Ordering::SeqCst) {
                return until_then(watches);
            }
            shown(namespace, watches)
        });
        let scope = Scope::of(&["a", "b"].map(str::to_owned));
        let metrics = runtime::Metrics::default();
        let watches = Watches::new(&metrics, &readiness, &scope, "grant me".to_owned());
        let upkeep = Upkeep::played(watches, scope, &stop);
        let sources = namespaced(&client, &upkeep.scope);
        let store = keep(&upkeep, sources, &watcher::Config::default(), |_| std::future::ready(()));
        Self { watches: upkeep.watches, store, readiness, metrics, let_in, stop }
    }

    async fn eventually(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        while !is_so(self) {
            assert!(tokio::time::Instant::now() < until, "{what}: {:?}", self.readiness.report());
            beat.tick().await;
        }
    }

    fn known(&self) -> Vec<String> {
        let mut known: Vec<_> =
            self.store.keys().iter().filter_map(|key| key.namespace().map(str::to_owned)).collect();
        known.sort();
        known
    }

    fn is_seen(&self, namespace: &str) -> bool {
        self.watches.unseen(Some(namespace)).is_none()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A ConfigMap in each namespace, and silence from then on.
fn shown(namespace: &str, watches: bool) -> Answer {
    let map = json!([{ "metadata": { "name": "map", "namespace": namespace } }]);
    if watches { Answer::Silence } else { played::list("ConfigMap", "v1", &map) }
}

#[tokio::test]
async fn a_namespace_that_is_not_shown_holds_no_other_up_and_comes_in_by_itself() {
    for (until_then, refused) in
        [((|_| played::denial()) as fn(bool) -> Answer, true), (|_| played::failure(), false)]
    {
        let stand = Stand::new(until_then);
        stand.eventually("a to be seen", |stand| stand.is_seen("a")).await;
        assert!(stand.store.ready().await);
        assert_eq!((stand.known(), stand.is_seen("b")), (vec!["a".to_owned()], false));
        let told = |stand: &Stand| matches!(stand.watches.unseen(Some("b")), Some(Unseen::Refused(_)));
        if refused {
            stand.eventually("the refusal of b to be told", told).await;
        }
        assert_eq!(told(&stand), refused, "only what is refused is told as that");
        assert!(stand.readiness.is_ready(), "{:?}", stand.readiness.report());
        stand.let_in.store(true, Ordering::SeqCst);
        stand.eventually("b to be seen", |stand| stand.is_seen("b")).await;
        assert_eq!(stand.known(), ["a", "b"]);
    }
}

#[tokio::test]
async fn a_namespace_that_never_answers_holds_no_other_up() {
    let stand = Stand::new(|_| Answer::Silence);
    stand.eventually("a to be seen", |stand| stand.is_seen("a")).await;
    assert_eq!(stand.watches.unseen(Some("b")), Some(Unseen::Yet));
    assert!(stand.readiness.is_ready());
}

/// The list is let through and the watch is not: what was listed counts for a while, and the refusal is told at once.
#[tokio::test]
async fn a_watch_that_is_denied_after_its_list_is_told_while_what_was_listed_counts() {
    let stand = Stand::new(|watches| if watches { played::denial() } else { shown("b", false) });
    stand.eventually("both to be seen", |stand| stand.is_seen("a") && stand.is_seen("b")).await;
    let line = "slipway_operator_watches_refused{kind=\"ConfigMap\",namespace=\"b\"} 1";
    let is_told = |stand: &Stand| stand.metrics.encode().unwrap().lines().any(|found| found == line);
    stand.eventually("the refusal to be told", is_told).await;
    assert_eq!((stand.known(), stand.is_seen("b")), (["a", "b"].map(str::to_owned).into(), true));
}
