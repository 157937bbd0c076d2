//! An API server that is none: it answers an apply after a time, tells its watches, and keeps nothing. For what no small
//! machine can run: sixteen clusters, or ten thousand databases.
//!
//! HTTP/1.1 without TLS, the few requests that the provisioner makes, and no check of anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

/// Events that a watch may be behind.
const BEHIND: usize = 16_384;

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Answers an apply after this time.
    Answers(Duration),
    /// Takes requests and says nothing.
    Silent,
    /// Refuses every apply with 429.
    Refuses,
}

/// An apply that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Which of the servers.
    pub(crate) server: usize,
    /// The resource's name.
    pub(crate) name: String,
    /// When.
    pub(crate) at: Instant,
}

/// A server; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it is.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    number: usize,
    manner: Manner,
    version: AtomicU64,
    events: broadcast::Sender<String>,
    applied: mpsc::UnboundedSender<Applied>,
}

impl Server {
    /// Starts it; what is applied is told with its number.
    pub(crate) async fn start(
        number: usize,
        manner: Manner,
        applied: mpsc::UnboundedSender<Applied>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (events, _) = broadcast::channel(BEHIND);
        let state = Arc::new(State { number, manner, version: AtomicU64::new(1), events, applied });
        Ok(Self { url, task: tokio::spawn(accept(listener, state)) })
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> String {
        kubeconfig(&self.url)
    }
}

/// A kubeconfig that leads to a server without TLS.
pub(crate) fn kubeconfig(url: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    config.to_string()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Whether nothing but metadata is asked for of the object that it is about.
    pub(crate) of_metadata: bool,
    pub(crate) body: Vec<u8>,
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        // A connection that breaks is the other side's business.
        tokio::spawn(async move { state.serve(stream).await });
    }
}

impl State {
    async fn serve(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = Vec::new();
        while let Some(request) = read(&mut stream, &mut input).await? {
            if self.manner == Manner::Silent {
                return std::future::pending().await;
            }
            if request.query.contains("watch=true") {
                return self.watch(&mut stream).await;
            }
            let (status, answer) = self.answer(&request).await;
            stream.write_all(&response(status, &answer)).await?;
        }
        Ok(())
    }

    async fn answer(&self, request: &Request) -> (u16, Value) {
        match request.method.as_str() {
            "PATCH" => self.apply(request).await,
            "POST" => (201, serde_json::from_slice(&request.body).unwrap_or_default()),
            _ if request.path == "/version" => (200, version()),
            _ => (200, self.list()),
        }
    }

    async fn apply(&self, request: &Request) -> (u16, Value) {
        let Manner::Answers(latency) = self.manner else {
            return (429, refusal());
        };
        tokio::time::sleep(latency).await;
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let mut object: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        object["metadata"]["uid"] = format!("{version:032x}").into();
        let answer = metadata_of(&object);
        let event = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
        // Without a watch nobody hears it.
        let _ = self.events.send(event);
        let name = request.path.rsplit('/').next().unwrap_or_default().to_owned();
        let _ = self.applied.send(Applied { server: self.number, name, at: Instant::now() });
        (200, answer)
    }

    fn list(&self) -> Value {
        let version = self.version.load(Ordering::Relaxed).to_string();
        json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBList", "items": [],
            "metadata": {"resourceVersion": version},
        })
    }

    async fn watch(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        let mut events = self.events.subscribe();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        loop {
            let event = events.recv().await?;
            stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
        }
    }
}

/// Of an object what is answered to whoever asks for nothing but metadata.
pub(crate) fn metadata_of(object: &Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
    })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.4", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn refusal() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "too many requests", "details": {"retryAfterSeconds": 1},
    })
}

fn response(status: u16, answer: &Value) -> Vec<u8> {
    let body = answer.to_string();
    let retry = if status == 429 { "retry-after: 1\r\n" } else { "" };
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{retry}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The next request of a connection; nothing when the other side is done.
pub(crate) async fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> anyhow::Result<Option<Request>> {
    loop {
        if let Some((request, length)) = parse(input) {
            input.drain(..length);
            return Ok(Some(request));
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

/// A whole request at the beginning of `input`, and its length.
fn parse(input: &[u8]) -> Option<(Request, usize)> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(input.get(..end)?).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    let field = |wanted: &str| {
        let found = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim())
    };
    let length = field("content-length").map_or(Some(0), |value| value.parse::<usize>().ok())?;
    let of_metadata = field("accept").is_some_and(|accept| accept.contains("as=PartialObjectMetadata;"));
    let body = input.get(end + 4..end + 4 + length)?.to_vec();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
    Some((Request { method, path, query, of_metadata, body }, end + 4 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_one_by_one() {
        let text = b"PATCH /a/b?force=true HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET /version HTTP/1.1\r\n\r\n";
        assert_eq!(parse(&text[..60]), None, "a part is no request");
        let (first, length) = parse(text).unwrap();
        assert_eq!((first.method.as_str(), first.path.as_str()), ("PATCH", "/a/b"));
        assert_eq!((first.query.as_str(), first.body.as_slice()), ("force=true", &b"{}"[..]));
        let (second, _) = parse(&text[length..]).unwrap();
        assert_eq!(second.path, "/version");
    }

    #[test]
    fn whoever_asks_for_nothing_but_metadata_says_so() {
        for (accept, expected) in [
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", true),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", false),
            ("application/json", false),
        ] {
            let text = format!("PATCH /a HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()).unwrap().0.of_metadata, expected, "{accept}");
        }
    }
}
