//! An API server that goes on, and one that is set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use runtime::CancellationToken;
use runtime::health::Readiness;
use serde_json::{Value, json};

use super::*;
use crate::played::{self, Answer};
use crate::scope::Scope;
use crate::store::Store;
use crate::watch::{Upkeep, Watches, keep, namespaced};

const PATIENCE: Duration = Duration::from_secs(30);

/// A lease at a version, of the term that began in a second.
fn lease(version: &str, term: i64) -> Lease {
    serde_json::from_value(json!({
        "metadata": { "name": "slipway-operator", "resourceVersion": version },
        "spec": { "acquireTime": MicroTime(Timestamp::from_second(term).unwrap()) },
    }))
    .unwrap()
}

/// Takes in what is read, and tells whether watches are begun anew for it.
fn reader(standing: &Standing) -> impl FnMut(Option<Lease>) -> bool {
    let mut anew = standing.anew().told;
    move |read| {
        let doubted = standing.reads(read.as_ref());
        let told = anew.has_changed().unwrap();
        anew.mark_unchanged();
        assert_eq!(doubted, told, "{read:?}");
        told
    }
}

#[test]
fn only_a_version_that_fell_tells_of_another_store() {
    let standing = Standing::default();
    let mut told = reader(&standing);
    let at = |version: &str| Some(lease(version, 1));
    for read in [None, at("7"), at("7"), at("9"), at("no number"), at("9")] {
        assert!(!told(read.clone()), "{read:?}");
    }
    assert!(told(at("8")));
    // It is told once; what it falls below next is where it is now.
    assert!(!told(at("8")) && !told(at("100")) && told(at("99")));
    // What is not there any more fell, too; what is made after it did not.
    assert!(told(None) && !told(None) && !told(at("3")));
}

#[test]
fn what_is_told_otherwise_than_it_is_shown_is_listed_and_not_by_everybody_who_finds_it() {
    let (standing, now) = (Standing::default(), Instant::now());
    let times = [0, 1, 29, 30, 31].map(|seconds| {
        standing.mistold_at(now + Duration::from_secs(seconds));
        standing.times()
    });
    assert_eq!(times, [1, 1, 1, 2, 2]);
}

#[test]
fn a_version_that_fell_and_rose_again_is_told_by_the_term_of_who_saw_it_fall() {
    let standing = Standing::default();
    let mut told = reader(&standing);
    assert!(!told(Some(lease("7", 1))));
    assert!(told(Some(lease("9", 2))) && !told(Some(lease("10", 2))));
    // A term of its own: it read what it wrote over.
    standing.wrote(&lease("11", 3));
    assert!(!told(Some(lease("12", 3))));
    assert!(told(Some(lease("13", 2))));
}

/// What is listed of an API server that stands at a version: one ConfigMap, named after that.
fn listed(version: u64) -> Answer {
    let map =
        json!({ "metadata": { "name": format!("of-{version}"), "namespace": "n", "resourceVersion": "1" } });
    let metadata = json!({ "resourceVersion": version.to_string() });
    let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [map] });
    Answer::Is(200, list)
}

async fn shows(store: &Store<ConfigMap>, name: &str) {
    let mut beat = tokio::time::interval(Duration::from_millis(10));
    let shown = async {
        while store.keys().iter().map(|key| key.name().to_owned()).collect::<Vec<_>>() != [name] {
            beat.tick().await;
        }
    };
    let shown = tokio::time::timeout(PATIENCE, shown).await;
    assert!(shown.is_ok(), "{name} alone is not shown: {:?}", store.keys());
}

/// A kind that is watched in silence, at an API server that stands where the test says.
struct Stand {
    stands: Arc<AtomicU64>,
    upkeep: Upkeep,
    store: Store<ConfigMap>,
}

impl Stand {
    fn new() -> Self {
        let stands = Arc::new(AtomicU64::new(50));
        let now = Arc::clone(&stands);
        let client =
            played::client(
                move |_, watches| {
                    if watches { Answer::Silence } else { listed(now.load(Ordering::SeqCst)) }
                },
            );
        let (stop, scope, metrics) = (CancellationToken::new(), Scope::All, runtime::Metrics::default());
        let watches = Watches::new(&metrics, &Readiness::default(), &scope, String::new());
        let upkeep = Upkeep::played(watches, scope, &stop);
        let sources = namespaced(&client, &upkeep.scope);
        let store = keep(&upkeep, sources, &watcher::Config::default(), |_| std::future::ready(()));
        Self { stands, upkeep, store }
    }

    /// The server changes without a word, and this is read of the one object.
    fn turns_to(&self, version: u64, read: &str) {
        self.stands.store(version, Ordering::SeqCst);
        self.upkeep.watches.standing().reads(Some(&lease(read, 1)));
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.upkeep.stop.cancel();
    }
}

#[tokio::test]
async fn what_is_restored_is_listed_again_although_no_watch_tells_of_it() {
    let stand = Stand::new();
    stand.turns_to(50, "49");
    shows(&stand.store, "of-50").await;
    // It went on: its watches tell what there is to tell.
    let anew = stand.upkeep.watches.standing().anew().told;
    stand.turns_to(60, "60");
    assert!(!anew.has_changed().unwrap());
    shows(&stand.store, "of-50").await;
    // It was restored and has passed by now all that was seen: what is there no more goes, and what came back is there.
    stand.turns_to(70, "41");
    assert!(anew.has_changed().unwrap());
    shows(&stand.store, "of-70").await;
}

/// A client of a server that lists, answers one of its watches so, and says nothing in the others.
fn answers_one_watch(which: u64, status: u16, says: Value) -> Client {
    let begun = AtomicU64::new(0);
    played::client(move |_, watches| {
        if !watches {
            return listed(50);
        }
        let is_it = begun.fetch_add(1, Ordering::SeqCst) == which;
        if is_it { Answer::Is(status, says.clone()) } else { Answer::Silence }
    })
}

/// Its connection died and nobody says so: what it lost is told by the next.
#[tokio::test]
async fn a_watch_that_died_without_a_word_is_begun_again_where_it_was() {
    let metadata = json!({ "name": "of-50", "namespace": "n", "resourceVersion": "51" });
    let deleted = json!({ "type": "DELETED", "object": { "metadata": metadata } });
    let client = answers_one_watch(1, 200, deleted);
    let standing = Standing::default();
    standing.end_after(1);
    let told = watch(Api::<ConfigMap>::all(client), watcher::Config::default(), standing.anew());
    let gone = told.filter(|event| std::future::ready(matches!(event, Ok(Event::Delete(_)))));
    let gone = tokio::time::timeout(PATIENCE, std::pin::pin!(gone).next()).await;
    assert!(matches!(gone, Ok(Some(_))), "it is still waited for");
}

#[tokio::test]
async fn a_watch_that_is_not_begun_where_it_was_begins_with_a_list() {
    let gone = json!({ "kind": "Status", "status": "Failure", "message": "too old", "reason": "Expired", "code": 410 });
    let client = answers_one_watch(0, 410, gone);
    let told = watch(Api::<ConfigMap>::all(client), watcher::Config::default(), Standing::default().anew());
    let complete =
        told.filter(|event| std::future::ready(matches!(event, Ok(Event::InitDone)))).take(2).count();
    assert_eq!(tokio::time::timeout(PATIENCE, complete).await, Ok(2));
}

/// kube passes it over and goes on: what it was about would be seen as it was.
#[tokio::test]
async fn what_cannot_be_read_is_followed_by_a_list() {
    let of_another_shape = json!({ "type": "MODIFIED", "object": { "metadata": { "name": 7 } } });
    for says in [of_another_shape, json!("no event")] {
        let client = answers_one_watch(0, 200, says.clone());
        let told =
            watch(Api::<ConfigMap>::all(client), watcher::Config::default(), Standing::default().anew());
        let complete =
            told.filter(|event| std::future::ready(matches!(event, Ok(Event::InitDone)))).take(2).count();
        assert_eq!(tokio::time::timeout(PATIENCE, complete).await, Ok(2), "{says}");
    }
}

#[tokio::test]
async fn no_watch_goes_on_for_ever_without_a_list() {
    let client = played::client(|_, watches| if watches { Answer::Silence } else { listed(50) });
    let anew = Anew { lasts: Duration::from_millis(100), ..Standing::default().anew() };
    let told = watch(Api::<ConfigMap>::all(client), watcher::Config::default(), anew);
    let complete =
        told.filter(|event| std::future::ready(matches!(event, Ok(Event::InitDone)))).take(3).count();
    assert_eq!(tokio::time::timeout(PATIENCE, complete).await, Ok(3));
}
