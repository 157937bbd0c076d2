//! What a watch that does not work says, and when it stops saying so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Error, ResourceExt as _};
use plan::Unseen;
use resources::{QuestDBSnapshot, names};
use runtime::Metrics;
use runtime::health::{Readiness, State};
use serde_json::{Value, json};

use super::trouble::Trouble;
use super::*;
use crate::store::Former;

struct Stand {
    metrics: Metrics,
    readiness: Readiness,
    watches: Watches,
}

impl Stand {
    fn new(namespaces: &[String]) -> Self {
        let (metrics, readiness) = (Metrics::default(), Readiness::default());
        let scope = Scope::of(namespaces);
        let watches = Watches::new(&metrics, &readiness, &scope, "grant me".to_owned());
        Self { metrics, readiness, watches }
    }

    /// What a component says of the watches; nothing when they work.
    fn said(&self, component: &str) -> Option<String> {
        match &self.readiness.report()[component].state {
            State::Ok => None,
            State::Failing(reason) => Some(reason.clone()),
        }
    }
}

fn watched(kind: &str) -> Watched {
    Watched::new(kind, (kind, ""), None)
}

fn upkeep(stand: &Stand, stop: &CancellationToken) -> Upkeep {
    Upkeep::played(stand.watches.clone(), Scope::All, stop)
}

fn refusal(code: u16) -> Error {
    let reason = if code == 403 { "Forbidden" } else { "Why" };
    let status = json!({ "status": "Failure", "message": "no", "reason": reason, "code": code });
    Error::Api(Box::new(serde_json::from_value::<Status>(status).unwrap()))
}

#[tokio::test]
async fn work_waits_for_one_namespace_that_is_seen_whole_and_for_none_for_ever() {
    let namespaces = ["a", "b"].map(str::to_owned);
    let stand = Stand::new(&namespaces);
    let of = |kind: &str, place: &str| Watched::new(kind, (kind, ""), Some(place));
    for (kind, place) in [("Pod", "a"), ("Secret", "a"), ("Pod", "b"), ("Secret", "b")] {
        stand.watches.begun(&of(kind, place), Need::Databases);
    }
    let waits = async |limit: Duration| {
        let began = std::time::Instant::now();
        stand.watches.seen_somewhere(limit).await;
        began.elapsed() >= limit
    };
    stand.watches.listed(&of("Pod", "a"));
    stand.watches.listed(&of("Secret", "b"));
    assert!(waits(Duration::from_millis(50)).await, "of each namespace something is missing");
    stand.watches.listed(&of("Pod", "b"));
    assert!(!waits(Duration::from_mins(1)).await);
}

#[test]
fn each_kind_of_error_is_news_once_and_counted_every_time() {
    let stand = Stand::new(&[]);
    let check = |kind: &str, error: &watcher::Error, news: bool| {
        let trouble = Trouble::of(&watched(kind), error);
        let found = stand.watches.is_news(&watched(kind), error, (trouble, Need::Databases));
        assert_eq!(found, news, "{kind} {error}");
    };
    let (missing, forbidden) =
        (watcher::Error::InitialListFailed(refusal(404)), watcher::Error::InitialListFailed(refusal(403)));
    stand.watches.begun(&watched("A"), Need::Databases);
    check("A", &missing, true);
    check("A", &missing, false);
    check("A", &forbidden, true);
    check("B", &forbidden, true);
    stand.watches.heard(&watched("A"), &Heard::Works, Need::Databases);
    check("A", &forbidden, true);
    let text = stand.metrics.encode().unwrap();
    for (kind, error, count) in [("A", "missing", 2), ("A", "forbidden", 2), ("B", "forbidden", 1)] {
        let line =
            format!("slipway_operator_watch_failures_total{{kind=\"{kind}\",error=\"{error}\"}} {count}");
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn it_is_ready_once_all_that_it_needs_were_listed_and_stays_so_when_one_is_begun_again() {
    let stand = Stand::new(&[]);
    let said = || stand.said("api-server");
    for kind in ["A", "B"] {
        stand.watches.begun(&watched(kind), Need::Databases);
    }
    for kind in ["A", "B"] {
        assert!(said().unwrap().contains("watch of B: not listed yet"));
        assert_eq!(stand.watches.unseen(Some("any")), Some(Unseen::Yet));
        stand.watches.heard(&watched(kind), &Heard::Works, Need::Databases);
        stand.watches.listed(&watched(kind));
    }
    assert_eq!((said(), stand.watches.unseen(Some("any"))), (None, None));
    let list = watcher::Error::InitialListFailed(refusal(403));
    stand.watches.heard(&watched("B"), &Heard::Broke(list), Need::Databases);
    assert_eq!(said(), None, "that it was begun again is no news");
}

#[test]
fn before_anything_is_watched_it_is_not_ready() {
    let stand = Stand::new(&[]);
    stand.watches.begun(&watched("A"), Need::Snapshots);
    assert_eq!(stand.said("api-server").as_deref(), Some("nothing is watched yet"));
}

#[tokio::test]
async fn what_is_seen_anew_is_told_by_place_and_what_broke_a_moment_ago_is_not() {
    let stand = Stand::new(&["a", "b", "c"].map(str::to_owned));
    let pods = |place| Watched::new("Pod", ("pods", ""), Some(place));
    let heard = |place, heard: &Heard, need| stand.watches.heard(&pods(place), heard, need);
    let broke = || Heard::Broke(watcher::Error::InitialListFailed(refusal(403)));
    for place in ["a", "b", "c"] {
        stand.watches.begun(&pods(place), Need::Databases);
    }
    stand.watches.listed(&pods("a"));
    for (place, need, anew) in
        [("a", Need::Databases, false), ("b", Need::Databases, true), ("c", Need::Wish, true)]
    {
        assert!(!heard(place, &broke(), need));
        assert_eq!(heard(place, &Heard::Works, need), anew, "{place}");
        assert!(!heard(place, &Heard::Works, need), "{place} works still");
    }
    let back = tokio::time::timeout(Duration::from_secs(30), stand.watches.back()).await;
    assert_eq!(back, Ok([Some("b".to_owned())].into()));
}

#[test]
fn a_namespace_that_is_refused_is_shown_by_name_and_is_not_required() {
    let stand = Stand::new(&["a", "b"].map(str::to_owned));
    let secrets = |place| Watched::new("Secret", ("secrets", ""), Some(place));
    for place in ["a", "b"] {
        stand.watches.begun(&secrets(place), Need::Databases);
    }
    let denied = Heard::Broke(watcher::Error::InitialListFailed(refusal(403)));
    stand.watches.heard(&secrets("b"), &denied, Need::Databases);
    assert!(!stand.readiness.is_ready(), "none of them was listed");
    stand.watches.listed(&secrets("a"));
    assert_eq!((stand.said("api-server"), stand.said("namespace a")), (None, None));
    let said = stand.said("namespace b").unwrap();
    assert!(said.contains("list secrets in namespace b") && said.contains("grant me"), "{said}");
    let required: Vec<_> =
        stand.readiness.report().into_iter().filter(|(_, component)| component.required).collect();
    assert_eq!(required.len(), 1, "{required:?}");
    assert!(stand.readiness.is_ready());
    let line = "slipway_operator_watches_refused{kind=\"Secret\",namespace=\"b\"} 1";
    let is_told = || stand.metrics.encode().unwrap().lines().any(|found| found == line);
    assert!(is_told());
    stand.watches.heard(&secrets("b"), &Heard::Works, Need::Databases);
    assert!(!is_told());
}

/// An API server that knows the kind only from the second question on.
fn late(asked: Arc<AtomicUsize>, second: impl Fn() + Send + Sync + 'static) -> Client {
    let second = Arc::new(second);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (asked, second) = (Arc::clone(&asked), Arc::clone(&second));
        async move {
            if watches {
                std::future::pending::<()>().await;
            }
            let missing = asked.fetch_add(1, Ordering::SeqCst) == 0;
            if !missing {
                second();
            }
            let (code, body) = if missing { (404, gone()) } else { (200, nothing()) };
            let answer = http::Response::builder().status(code).header("content-type", "application/json");
            answer.body(Body::from(body.to_string().into_bytes()))
        }
    });
    Client::new(service, "default")
}

fn gone() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not found", "code": 404 })
}

fn nothing() -> Value {
    json!({
        "kind": "QuestDBSnapshotList", "apiVersion": "crd.questdb.io/v1",
        "metadata": { "resourceVersion": "1" }, "items": [],
    })
}

#[tokio::test]
async fn a_kind_that_is_missing_is_told_until_it_is_there() {
    let stand = Arc::new(Stand::new(&[]));
    let said = Arc::<Mutex<Vec<Option<String>>>>::default();
    let client = late(Arc::default(), {
        let (stand, said) = (Arc::clone(&stand), Arc::clone(&said));
        move || said.lock().unwrap().push(stand.said("snapshots"))
    });
    let stop = CancellationToken::new();
    let upkeep = Upkeep { need: Need::Snapshots, ..upkeep(&stand, &stop) };
    let (listed, heard) = tokio::sync::oneshot::channel();
    let listed = Arc::new(Mutex::new(Some(listed)));
    let store = keep::<QuestDBSnapshot, _, _>(
        &upkeep,
        clustered(&client),
        &watcher::Config::default(),
        move |change| {
            if matches!(change.event, Event::InitDone) {
                listed.lock().unwrap().take().unwrap().send(()).unwrap();
            }
            std::future::ready(())
        },
    );
    heard.await.unwrap();
    assert!(store.ready().await);
    let before = said.lock().unwrap().remove(0).unwrap();
    assert!(
        before
            .starts_with("the cluster does not know questdbsnapshots.crd.questdb.io: apply the definitions"),
        "{before}"
    );
    assert_eq!(stand.said("snapshots"), None);
    stop.cancel();
}

/// An API server with a ConfigMap at the first list and without it at the next, after the watch between them broke.
fn losing(asked: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let asked = Arc::clone(&asked);
        async move {
            let number =
                if watches { asked.load(Ordering::SeqCst) } else { asked.fetch_add(1, Ordering::SeqCst) };
            if watches && number > 1 {
                std::future::pending::<()>().await;
            }
            let map = json!({ "metadata": { "name": "a", "namespace": "n", "labels": {
                names::LABEL_NAME: "trades", names::LABEL_NAMESPACE: "n", names::LABEL_DATABASE: "d",
            } } });
            let expired = json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired" });
            let body = match (watches, number) {
                (true, _) => json!({ "type": "ERROR", "object": expired }),
                (false, 0) => maps(&json!([map])),
                (false, _) => maps(&json!([])),
            };
            let answer = http::Response::builder().header("content-type", "application/json");
            answer.body(Body::from(format!("{body}\n").into_bytes()))
        }
    });
    Client::new(service, "default")
}

fn maps(items: &Value) -> Value {
    json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items })
}

#[tokio::test]
async fn whom_a_list_concerns_is_looked_at_once_the_store_is_as_the_list_was() {
    let stand = Stand::new(&[]);
    let stop = CancellationToken::new();
    let upkeep = upkeep(&stand, &stop);
    let (queue, mut asked) = crate::queue::Queue::new(1);
    queue.open();
    let wiring = Wiring { upkeep, queue, strays: Strays::default() };
    let owner =
        |map: &ConfigMap| map.labels().get(names::LABEL_NAME).map(|name| ObjectRef::new(name).within("n"));
    let sources = clustered(&losing(Arc::default()));
    let store = start(&wiring, sources, &watcher::Config::default(), owner);
    let trades = Some(ObjectRef::<QuestDB>::new("trades").within("n"));
    assert_eq!((asked.recv().await, store.keys().len()), (trades.clone(), 1));
    // What it has no more was told by nothing else.
    let told = tokio::time::timeout(Duration::from_secs(30), asked.recv()).await;
    assert_eq!((told, store.keys().len()), (Ok(trades), 0));
    stop.cancel();
}

/// Who has it and who had it, whatever became of it; each once.
#[test]
fn a_list_concerns_whoever_is_in_it_and_whoever_lost_by_it() {
    let map = |name: &str, of: &str| -> ConfigMap {
        let labels = json!({ names::LABEL_NAME: of });
        let metadata = json!({ "name": name, "namespace": "n", "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let (_, mut writer) = store::store();
    let concerned = Concerned::default();
    let mut tell = |event: Event<ConfigMap>| {
        let event = boxed::of(event, Box::new);
        let former = writer.take_in(&event);
        let change = Change::of(event, former);
        let owner = |map: &ConfigMap| Some(ObjectRef::<QuestDB>::new(map.labels().get(names::LABEL_NAME)?));
        let found = concerned.after(&change, owner);
        let mut found: Vec<_> = found.iter().map(|found| found.name().to_owned()).collect();
        found.sort();
        found
    };
    let mut list = |maps: Vec<ConfigMap>| {
        assert!(tell(Event::Init).is_empty());
        for map in maps {
            assert!(tell(Event::InitApply(map)).is_empty(), "not before the store is as the list was");
        }
        tell(Event::InitDone)
    };
    assert_eq!(list(vec![map("1", "a"), map("2", "b"), map("3", "c"), map("4", "c")]), ["a", "b", "c"]);
    let found = list(vec![map("2", "d"), map("3", "c"), map("4", "c")]);
    assert_eq!(found, ["a", "b", "c", "d"], "one lost what is gone, one what is another's now");
    assert_eq!(list(Vec::new()), ["c", "d"]);
    assert_eq!(tell(Event::Apply(map("5", "e"))), ["e"]);
    assert_eq!(tell(Event::Apply(map("5", "f"))), ["e", "f"], "one lost what is another's now");
    assert_eq!(tell(Event::Delete(map("5", "f"))), ["f"]);
}

/// A change that leaves it whose it is makes nobody look for it.
#[test]
fn what_is_called_anothers_is_looked_for_and_nothing_else_is() {
    let map = |of: &str, database: &str, text: &str| -> ConfigMap {
        let labels = json!({ names::LABEL_NAME: of, names::LABEL_DATABASE: database });
        let metadata = json!({ "name": "1", "namespace": "n", "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata, "data": { "a": text } })).unwrap()
    };
    let (_, mut writer) = store::store();
    let (strays, ours) = (Strays::default(), ObjectRef::<QuestDB>::new("a"));
    let owner = |map: &ConfigMap| Some(ObjectRef::<QuestDB>::new(map.labels().get(names::LABEL_NAME)?));
    let mut tell = |map: ConfigMap| {
        strays.none_left(&ours);
        let event = Event::Apply(Box::new(map));
        let former = writer.take_in(&event);
        note(&strays, &Change::of(event, former), &owner);
        strays.suspected(&ours)
    };
    assert_eq!(tell(map("a", "1", "x")), Some(false));
    assert_eq!(tell(map("a", "1", "y")), Some(false));
    assert_eq!(tell(map("a", "2", "y")), Some(true), "another database's");
    assert_eq!(tell(map("b", "2", "y")), Some(true), "another resource's");
    assert_eq!(tell(map("b", "1", "y")), Some(false), "it was not ours any more");
}

/// One that was never listed, and one whose picture was too old to count.
#[tokio::test]
async fn a_list_counts_once_it_was_taken_in_and_waits_for_nobody() {
    for was_listed in [false, true] {
        let stand = Stand::new(&[]);
        let (nodes, need) = (watched("Node"), Need::Databases);
        stand.watches.begun(&nodes, need);
        if was_listed {
            stand.watches.listed(&nodes);
            let denied = watcher::Error::InitialListFailed(refusal(403));
            stand.watches.heard(&nodes, &Heard::Broke(denied), need);
        }
        let refused = || stand.metrics.encode().unwrap().contains("watches_refused{kind=\"Node\"");
        let counts = || stand.watches.unseen(Some("any")).is_none() && !refused();
        let changes = [Event::Init, Event::InitDone].map(|event| Change::of(event, Former::none()));
        let news: News<ConfigMap> =
            News { source: 0, heard: Heard::Works, changes: changes.into(), listed: true };
        let taken_in = AtomicUsize::default();
        let tell = |_| {
            assert!(!counts(), "what is found by the list is not there yet");
            taken_in.fetch_add(1, Ordering::SeqCst);
            // Nobody drains the queue.
            std::future::pending::<()>()
        };
        let waits = take_in(&stand.watches, (&nodes, need), news, tell);
        assert!(tokio::time::timeout(Duration::from_millis(1), waits).await.is_err());
        assert!(counts() && taken_in.load(Ordering::SeqCst) == 2);
    }
}

fn of_one(name: &str) -> Watched {
    Watched::named::<Secret>("named Secret", Some("n")).one(name)
}

#[test]
fn who_ends_a_watch_ends_no_later_one() {
    let stand = Stand::new(&[]);
    let refused = || stand.metrics.encode().unwrap().contains("watches_refused{kind=\"named Secret\"");
    let denied = || Heard::Broke(watcher::Error::InitialListFailed(refusal(403)));
    let former = stand.watches.begun(&of_one("s"), Need::Wish);
    let next = stand.watches.begun(&of_one("s"), Need::Wish);
    stand.watches.forget(&of_one("s"), former);
    stand.watches.heard(&of_one("s"), &denied(), Need::Wish);
    assert!(refused(), "the later one is known");
    stand.watches.forget(&of_one("s"), next);
    assert!(!refused());
    // What ended says nothing any more.
    stand.watches.heard(&of_one("s"), &denied(), Need::Wish);
    assert!(!refused());
}

#[test]
fn watches_of_one_object_are_refused_as_long_as_one_of_them_is() {
    let stand = Stand::new(&[]);
    let refused = || stand.metrics.encode().unwrap().contains("watches_refused{kind=\"named Secret\"");
    let denied = || Heard::Broke(watcher::Error::InitialListFailed(refusal(403)));
    let lives = ["a", "b", "c"].map(|name| stand.watches.begun(&of_one(name), Need::Wish));
    for name in ["a", "b", "c", "a"] {
        stand.watches.heard(&of_one(name), &denied(), Need::Wish);
    }
    stand.watches.heard(&of_one("a"), &Heard::Works, Need::Wish);
    assert!(refused());
    stand.watches.heard(&of_one("b"), &Heard::Answered, Need::Wish);
    assert!(refused());
    // Begun anew nobody knows it.
    stand.watches.forget(&of_one("c"), lives[2]);
    assert!(!refused());
}

/// A database's Secret is one row of many: what is done for it goes through none of the others.
#[test]
fn many_watches_of_one_object_cost_each_other_nothing() {
    let stand = Stand::new(&[]);
    stand.watches.begun(&watched("A"), Need::Databases);
    let begun = std::time::Instant::now();
    let denied = || Heard::Broke(watcher::Error::InitialListFailed(refusal(403)));
    for number in 0..20_000 {
        let one = of_one(&number.to_string());
        stand.watches.begun(&one, Need::Wish);
        stand.watches.heard(&one, &if number % 2 == 0 { Heard::Works } else { denied() }, Need::Wish);
        stand.watches.listed(&one);
        assert!(stand.watches.unseen(Some("n")).is_some());
        // All take less than a second. Going through all of them each time takes minutes.
        assert!(begun.elapsed() < Duration::from_secs(20), "{number}");
    }
}

/// The row of a watch is there before its task has had a turn.
#[tokio::test]
async fn what_is_heard_out_is_known_from_the_first() {
    let stand = Stand::new(&[]);
    let stop = CancellationToken::new();
    let client = crate::played::client(|_, _| crate::played::Answer::Silence);
    let source = Source::new(&client, None, |client, _| kube::Api::<Secret>::all(client));
    hear(&upkeep(&stand, &stop), watched("A"), source, watcher::Config::default(), |_| async {});
    assert!(stand.said("api-server").unwrap().contains("watch of A: not listed yet"));
    stop.cancel();
}
