//! Kinds that are missing, denied, or denied in one namespace only.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::runtime::reflector::ObjectRef;
use runtime::health::Readiness;
use serde_json::json;

use super::*;
use crate::played::{self, Answer};
use crate::strays::Strays;
use crate::watch::Upkeep;

const PATIENCE: Duration = Duration::from_secs(30);

struct Stand {
    others: Others,
    /// Databases that are to be looked at.
    asked: tokio::sync::mpsc::Receiver<ObjectRef<QuestDB>>,
    stop: CancellationToken,
}

impl Stand {
    /// `answer` is asked for the routes of a namespace; the cluster knows no monitors.
    fn new(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let client = played::client(move |path, watches| match path {
            "/apis/traefik.io/v1alpha1" => Answer::Is(200, served(&["ingressroutes", "ingressroutetcps"])),
            "/apis/monitoring.coreos.com/v1" => Answer::Is(404, json!("404 page not found")),
            _ if watches => Answer::Silence,
            path => answer(path.split('/').nth(5).unwrap_or_default()),
        });
        let scope = Scope::Only(["a", "b"].map(str::to_owned).into());
        let (stop, metrics) = (CancellationToken::new(), runtime::Metrics::default());
        let (queue, asked) = crate::queue::Queue::new(100);
        queue.open();
        let watches = Watches::new(&metrics, &Readiness::default(), &scope, "grant me".to_owned());
        let upkeep = Upkeep::played(watches, scope, &stop);
        let wiring = Wiring { upkeep, queue, strays: Strays::default() };
        let (resources, mut writer) = store::store();
        for event in [watcher::Event::Init, asking("a"), asking("b"), watcher::Event::InitDone] {
            writer.take_in(&event);
        }
        Self { others: Others::start(&client, &wiring, &resources), asked, stop }
    }

    fn children(&self, namespace: &str) -> Children {
        let mut children = Children::default();
        self.others.fill(&mut children, &subject(namespace));
        children
    }

    async fn eventually(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        while !is_so(self) {
            assert!(tokio::time::Instant::now() < until, "{what}: {:?}", self.children("b").unseen);
            beat.tick().await;
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn served(kinds: &[&str]) -> serde_json::Value {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|name| json!({ "name": name, "singularName": "", "namespaced": true, "kind": name, "verbs": ["list"] }))
        .collect();
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "traefik.io/v1alpha1", "resources": kinds })
}

const DATABASE: &str = "0192f3a4-5b6c-7d8e-9f00-112233445566";

fn subject(namespace: &str) -> Subject {
    let [cluster, name, uid, database] = ["eu", "trades", "uid", DATABASE].map(str::to_owned);
    Subject { cluster, namespace: namespace.to_owned(), name, uid, database }
}

/// A database that asks for monitors.
fn asking(namespace: &str) -> watcher::Event<Box<QuestDB>> {
    let spec = json!({ "version": "9.0.0", "storage": { "sizeGib": 20 }, "network": { "monitor": {} } });
    let mut database = QuestDB::new("trades", serde_json::from_value(spec).unwrap());
    database.metadata.namespace = Some(namespace.to_owned());
    watcher::Event::InitApply(Box::new(database))
}

/// A route of the database trades in a namespace.
fn route(namespace: &str) -> serde_json::Value {
    let labels = json!({
        names::LABEL_NAME: "trades", names::LABEL_NAMESPACE: namespace, names::LABEL_DATABASE: DATABASE,
    });
    let metadata = json!({ "name": "trades", "namespace": namespace, "labels": labels });
    json!({ "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": metadata })
}

fn routes(namespace: &str) -> Answer {
    played::list("IngressRoute", "traefik.io/v1alpha1", &json!([route(namespace)]))
}

#[tokio::test]
async fn a_kind_that_one_namespace_denies_is_neither_there_nor_missing_in_it() {
    let let_in = Arc::<AtomicBool>::default();
    let opened = Arc::clone(&let_in);
    let mut stand = Stand::new(move |namespace| {
        if namespace == "b" && !opened.load(Ordering::SeqCst) { played::denial() } else { routes(namespace) }
    });
    // Before anything is known of a kind it is not missing.
    let before = stand.children("a");
    assert!(before.served.is_empty() && before.unseen.values().all(|unseen| *unseen == Unseen::Yet));
    assert_eq!(before.unseen.len(), KINDS.len());
    assert!(stand.others.ready().await, "a kind that is denied holds nothing up");
    let is_refused = |stand: &Stand| {
        let children = stand.children("b");
        matches!(children.unseen.get(&Kind::IngressRoute), Some(Unseen::Refused(_)))
    };
    stand.eventually("the refusal in b to be told", is_refused).await;
    stand.eventually("a to be seen", |stand| stand.children("a").served.len() == 2).await;
    let (a, b) = (stand.children("a"), stand.children("b"));
    assert_eq!(
        (a.unseen.len(), a.others.len()),
        (0, 2),
        "the monitors are missing, and both kinds of routes are there"
    );
    assert!(b.served.is_empty() && b.others.is_empty());
    let Some(Unseen::Refused(text)) = b.unseen.get(&Kind::IngressRoute) else { panic!("{b:?}") };
    assert!(
        text.contains("list ingressroutes.traefik.io in namespace b") && text.contains("grant me"),
        "{text}"
    );
    while stand.asked.try_recv().is_ok() {}
    let_in.store(true, Ordering::SeqCst);
    stand.eventually("b to be seen", |stand| stand.children("b").served.len() == 2).await;
    assert_eq!(stand.children("b").others.len(), 2);
    // Who has some is looked at, although it may ask for none any more.
    let trades = ObjectRef::<QuestDB>::new("trades").within("b");
    let asked = tokio::time::timeout(PATIENCE, stand.asked.recv()).await.unwrap();
    assert_eq!(asked, Some(trades.clone()));
    // Nobody in another namespace is, although it asks for some too.
    while let Ok(asked) = stand.asked.try_recv() {
        assert_eq!(asked, trades);
    }
}

/// A look at routes of an API server that never answers.
fn unanswered(queue: Queue, resources: Store<QuestDB>) -> Look {
    let (kind, metrics, scope) = (Kind::IngressRoute, runtime::Metrics::default(), Scope::All);
    Look {
        kind,
        resource: api_resource(kind),
        client: played::client(|_, _| Answer::Silence),
        known: Known::default(),
        queue,
        watches: Watches::new(&metrics, &Readiness::default(), &scope, String::new()),
        scope,
        resources,
    }
}

#[tokio::test]
async fn who_asks_for_none_any_more_is_looked_at_for_what_it_has() {
    let (queue, mut asked) = crate::queue::Queue::new(100);
    queue.open();
    // No database asks for any.
    let look = unanswered(queue, store::store().0);
    let (store, mut writer) = store::store();
    for namespace in ["a", "b"] {
        writer.take_in(&watcher::Event::Apply(serde_json::from_value(route(namespace)).unwrap()));
    }
    // As after a watch that was broken a while and found everything as it had been: no change tells of them.
    look.look_again(Some(&store), Some("b")).await;
    assert_eq!(asked.try_recv(), Ok(ObjectRef::new("trades").within("b")));
    assert!(asked.try_recv().is_err(), "only those of the place");
}

#[tokio::test]
async fn who_asks_for_some_is_looked_at_once_they_are_defined_otherwise() {
    let (queue, mut asked) = crate::queue::Queue::new(100);
    queue.open();
    let stop = CancellationToken::new();
    let (resources, mut writer) = store::store();
    for event in [watcher::Event::Init, asking("a"), watcher::Event::InitDone] {
        writer.take_in(&event);
    }
    // Nothing is ever listed, which would have it looked at, too.
    let look = unanswered(queue, resources);
    let watches = look.watches.clone();
    let told = told_again(&watches, &mut asked);
    let mut looked: Option<fn()> = None;
    let found = tokio::select! {
        () = look.watch(&stop, &mut looked) => panic!("nobody watches any more"),
        found = tokio::time::timeout(PATIENCE, told) => found.unwrap(),
    };
    assert_eq!(found, ObjectRef::new("trades").within("a"));
}

/// Who is looked at once the definitions are said to be others: from the moment on in which somebody listens.
async fn told_again(
    watches: &Watches,
    asked: &mut tokio::sync::mpsc::Receiver<ObjectRef<QuestDB>>,
) -> ObjectRef<QuestDB> {
    loop {
        watches.standing().others_redefined();
        if let Ok(Some(found)) = tokio::time::timeout(Duration::from_millis(10), asked.recv()).await {
            return found;
        }
    }
}
