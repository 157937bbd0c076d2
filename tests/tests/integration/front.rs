//! An HTTP server before an API server, that sees every request and falls ill on demand: it answers in the server's
//! place, holds requests back, passes them on under another API group or as a newer program would write them, or keeps to
//! itself what open watches would tell, all of it or single events.

#![cfg(test)]

mod answers;
mod events;
mod seen;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use runtime::CancellationToken;
use serde_json::{Value, json};
use testkit::telling::{FORGOTTEN, Fate, Fates};
use testkit::{ClusterFacts, eventually, unique};
use tokio::sync::watch;

use self::answers::{Answers, Asked};
use self::events::Events;
pub(crate) use self::seen::Seen;

/// How long a fault may take to fire.
const PATIENCE: Duration = Duration::from_mins(3);

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is passed on.
    Pass,
    /// It is answered here: status and header `Retry-After`, in plain words as an overloaded API server does.
    Answer(u16, Option<u32>),
    /// It is answered here with a document, as somebody does who is no API server.
    Say(u16, &'static str),
    /// It is passed on when [`Front::release`] says so.
    Hold,
    /// It is passed on twice, and the second answer is given: as if one of before, which got no answer, were carried out right before it.
    Twice,
    /// A watch is told that what was at its version is forgotten, in the way of API servers: as an event.
    Forget,
    /// A list is answered as the first time after [`Front::remember_lists`].
    Older,
}

/// What becomes of what the server says to open watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watches {
    /// It is passed on.
    Told,
    /// It is lost, and the watch it was lost of stays open and silent for ever, as a connection that died without a word.
    Silent,
    /// The watch ends.
    Ended,
}

type Rule = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;
/// How many pieces were lost, by kind.
type Lost = Arc<Mutex<HashMap<String, usize>>>;

struct Shared {
    client: kube::Client,
    /// By which watches go on.
    of_watches: kube::Client,
    group: Option<String>,
    /// Whether what a provisioner applies is passed on as a newer one would render it.
    newer: AtomicBool,
    rule: Mutex<Rule>,
    seen: Mutex<Vec<(Seen, Act)>>,
    answers: Answers,
    released: watch::Sender<bool>,
    /// How many applies are under way.
    applying: Arc<AtomicUsize>,
    watches: watch::Sender<Watches>,
    lost: Lost,
    events: Events,
    /// The first answers to lists, once they are to be remembered.
    lists: Mutex<Option<HashMap<String, Bytes>>>,
    /// Where whoever asks for the databases of all namespaces is sent to.
    only: Mutex<Option<String>>,
    /// How many seconds the server's clock is ahead, by what its answers say.
    ahead: AtomicI64,
    /// A namespace, and the one that Leases of it are in instead.
    leases: Mutex<Option<(String, String)>>,
}

impl Shared {
    /// Takes a request in, and says what is done with it. Noted under the lock under which it is counted and falls under its
    /// rule: the order of what is seen is the order in which it came, and what came before a rule was set is not under that rule.
    fn take(&self, mut seen: Seen) -> (Seen, Act, Option<Applying>) {
        let (place, rule, applying) = {
            let mut all = self.seen.lock().unwrap();
            let applying = seen.is_apply().then(|| Applying::begin(&self.applying));
            seen.beside = applying.as_ref().map_or(0, |applying| applying.beside);
            all.push((seen.clone(), Act::Pass));
            (all.len() - 1, Arc::clone(&self.rule.lock().unwrap()), applying)
        };
        // Without the lock: a rule may look at what was seen.
        let act = rule(&seen);
        self.seen.lock().unwrap()[place].1 = act;
        (seen, act, applying)
    }
}

/// The server. Ends when dropped.
pub(crate) struct Front {
    shared: Arc<Shared>,
    url: String,
    stop: CancellationToken,
}

impl Front {
    /// Before the API server of a cluster, as the provisioner.
    pub(crate) async fn of(cluster: &ClusterFacts) -> Self {
        Self::start(&cluster.provisioner_kubeconfig, None).await
    }

    /// Before the API server that a kubeconfig leads to, as whom it names.
    pub(crate) async fn before(kubeconfig: &Path) -> Self {
        Self::start(kubeconfig, None).await
    }

    /// Before the API server of a cluster, as its administrator; resources of our group are of `group` behind it.
    pub(crate) async fn with_group(cluster: &ClusterFacts, group: &str) -> Self {
        Self::start(&cluster.kubeconfig, Some(group.to_owned())).await
    }

    async fn start(kubeconfig: &Path, group: Option<String>) -> Self {
        let pass: Rule = Arc::new(|_| Act::Pass);
        let shared = Arc::new(Shared {
            client: testkit::client(kubeconfig).await.unwrap(),
            of_watches: testkit::client_of_watches(kubeconfig).await.unwrap(),
            group,
            newer: AtomicBool::new(false),
            rule: Mutex::new(pass),
            seen: Mutex::default(),
            answers: Answers::default(),
            released: watch::Sender::new(false),
            applying: Arc::default(),
            watches: watch::Sender::new(Watches::Told),
            lost: Arc::default(),
            events: Events::default(),
            lists: Mutex::default(),
            only: Mutex::default(),
            ahead: AtomicI64::default(),
            leases: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let router = axum::Router::new().fallback(handle).with_state(Arc::clone(&shared));
        let server = axum::serve(listener, router).into_future();
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = server => {}
                () = stopped.cancelled() => {}
            }
        });
        Self { shared, url, stop }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "front",
            "clusters": [{ "name": "front", "cluster": { "server": self.url } }],
            "users": [{ "name": "front", "user": {} }],
            "contexts": [{ "name": "front", "context": { "cluster": "front", "user": "front" } }],
        });
        let path = folder.join(unique("kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// From now on this happens.
    pub(crate) fn set(&self, rule: impl Fn(&Seen) -> Act + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Arc::new(rule);
    }

    /// From now on whoever comes this way seems to be of a newer version, which renders instructions otherwise.
    pub(crate) fn render_anew(&self) {
        self.shared.newer.store(true, Ordering::Relaxed);
    }

    /// Everything passes, what is held included.
    pub(crate) fn release(&self) {
        self.set(|_| Act::Pass);
        self.shared.released.send_replace(true);
    }

    /// From now on all databases that there are seem to be those of this namespace; everything else is there as before.
    pub(crate) fn show_databases_of(&self, namespace: &str) {
        *self.shared.only.lock().unwrap() = Some(namespace.to_owned());
    }

    /// Has Leases of a namespace lie in another one: who asks for them competes with nobody who asks elsewhere.
    pub(crate) fn lease_elsewhere(&self, namespace: &str, other: &str) {
        *self.shared.leases.lock().unwrap() = Some((namespace.to_owned(), other.to_owned()));
    }

    /// From now on it seems to be later by so much: for whoever goes by what answers say of the server's clock.
    pub(crate) fn set_ahead(&self, by: SignedDuration) {
        self.shared.ahead.store(by.as_secs(), Ordering::Relaxed);
    }

    /// From now on the first answer to each list is remembered.
    pub(crate) fn remember_lists(&self) {
        *self.shared.lists.lock().unwrap() = Some(HashMap::new());
    }

    /// From now on this becomes of what watches are told, of open ones too.
    pub(crate) fn set_watches(&self, watches: Watches) {
        self.shared.watches.send_replace(watches);
    }

    /// How many pieces of what watches were to be told were lost so far.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.lock().unwrap().values().sum()
    }

    /// The same of watches of one kind, by its name in paths: of those nothing is told any more.
    pub(crate) fn lost_of(&self, kind: &str) -> usize {
        self.shared.lost.lock().unwrap().get(kind).copied().unwrap_or_default()
    }

    /// From now on the events of watches of these kinds, by their names in paths, have this fate, those of open ones too, and all
    /// others none; no kinds are all of them. A seed chooses.
    pub(crate) fn set_fate(&self, fate: Fate, kinds: &[&str], seed: u64) {
        self.shared.events.set(fate, kinds, seed);
    }

    /// From the next write of an object of this kind on, by its name in paths, the events of the kind are late, and all others are told
    /// as they come: until another fate is set.
    pub(crate) fn late_after_write(&self, kind: &str) {
        self.shared.events.late_after_write(kind);
    }

    /// How many events met which fate so far, by kind.
    pub(crate) fn fates(&self) -> BTreeMap<String, Fates> {
        self.shared.events.fates()
    }

    /// From now on applies are held, until the next release.
    pub(crate) fn hold_applies(&self) {
        self.hold_applies_of(|_| true);
    }

    /// The same of these applies alone: what was done already and is done again passes, and is not counted as held.
    pub(crate) fn hold_applies_of(&self, these: impl Fn(&Seen) -> bool + Send + Sync + 'static) {
        self.shared.released.send_replace(false);
        self.set(move |seen| if seen.is_apply() && these(seen) { Act::Hold } else { Act::Pass });
    }

    /// From now on a write is answered only when watches were told of it: who goes by them never looks, after one of its writes, at
    /// what was before it.
    pub(crate) fn tell_before_answers(&self) {
        self.shared.events.note_versions();
    }

    /// How many writes were answered although watches had not been told of them, because that took too long.
    pub(crate) fn told_late(&self) -> usize {
        self.shared.events.told_late()
    }

    /// Requests of a kind that came so far.
    pub(crate) fn seen(&self, kind: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|(seen, _)| kind(seen)).map(|(seen, _)| seen.clone()).collect()
    }

    /// How often the server has answered to what was asked about this.
    pub(crate) fn answers(&self, about: &str) -> usize {
        self.shared.answers.about(about)
    }

    /// Writes of objects of a kind, by its name in paths, that were refused because of another one over the same version: it had been
    /// answered less than so long before they came.
    pub(crate) fn repeated(&self, kind: &str, within: Duration) -> Vec<String> {
        self.shared.answers.repeated(kind, within)
    }

    /// Applies that came so far.
    pub(crate) fn applies(&self) -> usize {
        self.seen(Seen::is_apply).len()
    }

    /// How many requests did not pass so far: more than before means that a fault fired.
    pub(crate) fn harmed(&self) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|(_, act)| *act != Act::Pass).count()
    }

    /// Waits until a fault fired so often in all.
    pub(crate) async fn fired(&self, times: usize) {
        eventually(PATIENCE, "the fault to fire", async || (self.harmed() >= times).then_some(())).await;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.cancel();
        self.shared.released.send_replace(true);
    }
}

/// An apply that is under way, until it is answered or its client has gone.
struct Applying {
    count: Arc<AtomicUsize>,
    beside: usize,
}

impl Applying {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        Self { beside: count.fetch_add(1, Ordering::Relaxed), count: Arc::clone(count) }
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let seen = Seen {
        method: parts.method.clone(),
        path: parts.uri.to_string(),
        authorization: text(header::AUTHORIZATION),
        body: String::from_utf8_lossy(&body).into_owned(),
        at: Instant::now(),
        beside: 0,
    };
    let (seen, act, _applying) = shared.take(seen);
    match act {
        Act::Pass => {}
        Act::Answer(status, retry_after) => return answer(status, retry_after),
        Act::Say(status, document) => {
            return (StatusCode::from_u16(status).unwrap(), document).into_response();
        }
        Act::Twice => drop(pass(&shared, seen.clone(), &parts.headers).await),
        Act::Forget => return FORGOTTEN.into_response(),
        Act::Older => {
            let older =
                shared.lists.lock().unwrap().as_ref().and_then(|lists| lists.get(seen.about()).cloned());
            let older = older.expect("a list that was remembered");
            return ([(header::CONTENT_TYPE, "application/json")], older).into_response();
        }
        Act::Hold => {
            let _ = shared.released.subscribe().wait_for(|released| *released).await;
        }
    }
    if seen.is_write() {
        shared.events.written(seen.kind_of_one());
    }
    let written = seen.is_write() && !seen.about().contains("/events") && shared.events.notes_versions();
    let written = written.then(|| seen.kind_of_one().to_owned());
    let asked = Asked::of(&seen);
    let mut answer = pass(&shared, seen, &parts.headers).await;
    if let Some(kind) = written {
        answer = shared.events.told_before(&kind, answer).await;
    }
    shared.answers.note(asked, answer.status());
    answer
}

fn answer(status: u16, retry_after: Option<u32>) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    let mut response = (status, "not now, says the front\n").into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

async fn pass(shared: &Shared, seen: Seen, headers: &HeaderMap) -> Response {
    let watched = seen.is_watch().then(|| seen.kind().to_owned());
    let list = seen.is_list().then(|| seen.about().to_owned());
    let is_of_lease = seen.is_of_lease();
    let (mut path, mut body) = (seen.path, seen.body);
    if let Some(group) = &shared.group {
        path = path.replace("/apis/crd.questdb.io/", &format!("/apis/{group}/"));
        body = body.replace("\"crd.questdb.io/v1\"", &format!("\"{group}/v1\""));
    }
    if is_of_lease && let Some((from, to)) = &*shared.leases.lock().unwrap() {
        path = path.replace(&format!("/namespaces/{from}/"), &format!("/namespaces/{to}/"));
        body = body.replace(&format!("\"{from}\""), &format!("\"{to}\""));
    }
    if shared.newer.load(Ordering::Relaxed) {
        body = rendered_anew(body);
    }
    if let Some(only) = &*shared.only.lock().unwrap() {
        path = path.replace(
            "/apis/crd.questdb.io/v1/quest",
            &format!("/apis/crd.questdb.io/v1/namespaces/{only}/quest"),
        );
    }
    let mut request = axum::http::Request::builder().method(seen.method).uri(path);
    for name in [header::ACCEPT, header::CONTENT_TYPE] {
        if let Some(value) = headers.get(&name) {
            request = request.header(name, value);
        }
    }
    let request = request.body(kube::client::Body::from(body.into_bytes())).unwrap();
    let client = if watched.is_some() { &shared.of_watches } else { &shared.client };
    match client.send(request).await {
        Ok(answer) => {
            let mut answer = answer.map(Body::new);
            if let Some(kind) = watched.filter(|_| answer.status().is_success()) {
                answer = answer.map(|body| shared.events.told(&kind, told(shared, &kind, body)));
            }
            // One that the server did not make, being busy, shows nothing of before.
            if let Some(list) = list.filter(|_| answer.status().is_success()) {
                answer = remembered(shared, list, answer).await;
            }
            answer.headers_mut().remove(header::TRANSFER_ENCODING);
            answer.headers_mut().remove(header::CONNECTION);
            date(answer.headers_mut(), shared.ahead.load(Ordering::Relaxed));
            answer
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// An answer says of when it is; by a clock that is ahead, where it is to be.
fn date(headers: &mut HeaderMap, ahead: i64) {
    if ahead != 0 {
        let now = Timestamp::now() + SignedDuration::from_secs(ahead);
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap();
        headers.insert(header::DATE, text.parse().unwrap());
    }
}

/// An apply of an instruction as the next version of the translator would have it: with something more in it.
fn rendered_anew(body: String) -> String {
    let Ok(mut object) = serde_json::from_str::<Value>(&body) else { return body };
    let Some(render) = object["spec"]["instruction"]["render"].as_i64() else { return body };
    object["spec"]["instruction"]["render"] = json!(render + 1);
    object["spec"]["config"]["of.the.newer.program"] = json!("1");
    object.to_string()
}

async fn remembered(shared: &Shared, list: String, answer: Response) -> Response {
    let (parts, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    if let Some(lists) = shared.lists.lock().unwrap().as_mut() {
        lists.entry(list).or_insert_with(|| body.clone());
    }
    Response::from_parts(parts, Body::from(body))
}

/// What a watch is told until something of it is lost; then nothing any more, not even its end.
fn told(shared: &Shared, kind: &str, body: Body) -> Body {
    // What was set before does not end what begins now.
    let watches = shared.watches.subscribe();
    let (pieces, lost, kind) = (body.into_data_stream(), Arc::clone(&shared.lost), kind.to_owned());
    let pieces = futures::stream::unfold((pieces, watches), move |(mut pieces, mut watches)| {
        let (lost, kind) = (Arc::clone(&lost), kind.clone());
        async move {
            loop {
                tokio::select! {
                    piece = pieces.next() => {
                        if *watches.borrow() != Watches::Silent {
                            return Some((piece?, (pieces, watches)));
                        }
                        *lost.lock().unwrap().entry(kind).or_default() += 1;
                        let _ = watches.wait_for(|watches| *watches == Watches::Ended).await;
                        return None;
                    }
                    Ok(()) = watches.changed() => {
                        if *watches.borrow_and_update() == Watches::Ended {
                            return None;
                        }
                    }
                }
            }
        }
    });
    Body::from_stream(pieces)
}
