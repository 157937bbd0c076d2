//! An API server that keeps what it is given, and is nothing else: list, watch, read, write, of any kind, in memory. For
//! what a real one would be the bottleneck of: ten thousand databases with their objects, on a machine of two processors.
//!
//! No schema, no admission, no history: a watch begins at the present, and so does each page of a list. A server-side apply is
//! a merge. It counts what it is asked, so that a bench can say what a program asked for.

mod shelves;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::fake::{Request, kubeconfig, metadata_of, read};
pub(crate) use shelves::Place;
use shelves::{Shelves, Wanted};

/// Kind of the leader's Lease.
const LEASES: &str = "coordination.k8s.io/v1/leases";
/// Events that a watch may be behind.
const BEHIND: usize = 65_536;

/// The server; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    shelves: Mutex<Shelves>,
    events: broadcast::Sender<(String, Arc<str>)>,
    requests: AtomicU64,
    writes: AtomicU64,
}

/// What was asked so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Everything, watches and the Lease included.
    pub(crate) requests: u64,
    /// Writes of anything but the Lease.
    pub(crate) writes: u64,
}

impl Keeper {
    /// Starts it, empty.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (events, _) = broadcast::channel(BEHIND);
        let shared = Arc::new(Shared {
            shelves: Mutex::default(),
            events,
            requests: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        });
        Ok(Self { url, shared: Arc::clone(&shared), task: tokio::spawn(accept(listener, shared)) })
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> String {
        kubeconfig(&self.url)
    }

    /// Puts an object there, as somebody else would.
    pub(crate) fn put(&self, place: &Place, object: Value) {
        self.shared.write(place, "POST", object);
    }

    /// The leader is gone, and nobody need wait for the end of its Lease.
    pub(crate) fn forget_leader(&self, namespace: &str, name: &str) {
        self.shared.write(&Place::new(LEASES, Some(namespace), name), "DELETE", Value::Null);
    }

    /// How many objects of a kind hold this text.
    pub(crate) fn count(&self, kind: &str, text: &str) -> usize {
        let shelves = self.shared.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.count(kind, text)
    }

    /// Somebody else changes an object.
    pub(crate) fn patch(&self, place: &Place, patch: Value) {
        self.shared.write(place, "PATCH", patch);
    }

    /// Bytes of all objects of these kinds as they are served.
    pub(crate) fn bytes(&self, kinds: &[&str]) -> usize {
        let shelves = self.shared.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|kind| shelves.bytes(kind)).sum()
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Asked {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Asked { requests: read(&self.shared.requests), writes: read(&self.shared.writes) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // A connection that breaks is the other side's business.
        tokio::spawn(async move { shared.serve(stream).await });
    }
}

impl Shared {
    async fn serve(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Vec::new();
        while let Some(request) = read(&mut stream, &mut input).await? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let Some(place) = Place::of(&request.path) else {
                stream.write_all(&response(404, &missing())).await?;
                continue;
            };
            if request.query.contains("watch=true") {
                return self.watch(&mut stream, &place, &request.query).await;
            }
            let (status, answer) = self.answer(&request, &place);
            stream.write_all(&response(status, &answer)).await?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request, place: &Place) -> (u16, String) {
        if request.method != "GET" && place.kind != LEASES {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        if request.method == "GET" {
            let shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
            if place.name.is_none() {
                return (200, shelves.list(place, &wanted(&request.query)));
            }
            return shelves.get(place).map_or_else(|| (404, missing()), |object| (200, object.to_string()));
        }
        let body = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(object) = self.write(place, &request.method, body) else { return (404, missing()) };
        if request.of_metadata {
            let object: Value = serde_json::from_str(&object).unwrap_or_default();
            return (200, metadata_of(&object).to_string());
        }
        (if request.method == "POST" { 201 } else { 200 }, object.to_string())
    }

    /// Writes, and tells watches; nothing when there is nothing to write to.
    fn write(&self, place: &Place, method: &str, body: Value) -> Option<Arc<str>> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let (word, object) = shelves.write(place, method, body)?;
        let event = format!("{{\"type\":\"{word}\",\"object\":{object}}}\n");
        // Without a watch nobody hears it.
        let _ = self.events.send((place.kind.clone(), event.into()));
        Some(object)
    }

    async fn watch(&self, stream: &mut TcpStream, place: &Place, query: &str) -> anyhow::Result<()> {
        let mut events = self.events.subscribe();
        let selected = wanted(query).label.map(|label| format!("\"{label}\":"));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        loop {
            let (kind, event) = events.recv().await?;
            if kind == place.kind && selected.as_ref().is_none_or(|label| event.contains(label)) {
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
            }
        }
    }
}

/// What of all a query wants: the label that must be there, and which page.
fn wanted(query: &str) -> Wanted {
    let parameter = |name: &str| {
        let mut parts = query.split('&').filter_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        parts.next().map(|value| value.replace("%2F", "/"))
    };
    Wanted {
        label: parameter("labelSelector"),
        limit: parameter("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0),
        after: parameter("continue"),
    }
}

fn missing() -> String {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "not found",
    })
    .to_string()
}

fn response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_is_wanted() {
        let label = Some("questdb.io/database".to_owned());
        assert_eq!(wanted(""), Wanted::default());
        let first = wanted("&limit=500&labelSelector=questdb.io%2Fdatabase");
        assert_eq!(first, Wanted { label, limit: Some(500), after: None });
        assert_eq!(wanted("limit=2&continue=n%2Fa").after.as_deref(), Some("n/a"));
        assert_eq!(wanted("limit=0").limit, None, "as a real one takes it");
    }

    #[test]
    fn whoever_asks_for_nothing_but_metadata_gets_no_more() {
        let (events, _) = broadcast::channel(1);
        let (requests, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { shelves: Mutex::default(), events, requests, writes };
        let place = Place::new("v1/secrets", Some("a"), "b");
        for of_metadata in [false, true] {
            let (method, path, query) = ("PATCH".to_owned(), String::new(), String::new());
            let body = br#"{"kind": "Secret", "metadata": {"name": "b"}, "data": {"k": "v"}}"#.to_vec();
            let request = Request { method, path, query, of_metadata, body };
            let (status, answer) = shared.answer(&request, &place);
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((status, answer["metadata"]["name"].as_str()), (200, Some("b")));
            assert_eq!(answer.get("data").is_none(), of_metadata, "{answer}");
        }
    }
}
