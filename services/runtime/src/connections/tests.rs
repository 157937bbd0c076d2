//! The bounds, on real connections.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::{Health, ops};

/// Within this all is done that is waited for.
const LONG: Duration = Duration::from_secs(30);
/// A silence that ends nothing here.
const ENDLESS: Duration = Duration::from_hours(1);
/// A silence that ends what is tested.
const SHORT: Duration = Duration::from_millis(500);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
const WELL: &[u8] = b"HTTP/1.1 200";

struct Server {
    address: SocketAddr,
    counts: Counts,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    async fn new(router: Router, most: u32, silence: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, stop) = (Counts::default(), CancellationToken::new());
        let bounds = Bounds { most, silence };
        let task = tokio::spawn(serve(listener, router, bounds, counts.clone(), stop.clone()));
        Self { address, counts, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

fn page() -> Router {
    Router::new().route("/", get(|| async { "a page" }))
}

/// A page that says when somebody asks for it, and waits for a word.
fn slow_page(asked: &Arc<Notify>, word: &Arc<Notify>) -> Router {
    let (asked, word) = (Arc::clone(asked), Arc::clone(word));
    let page = move || {
        let (asked, word) = (Arc::clone(&asked), Arc::clone(&word));
        async move {
            asked.notify_one();
            word.notified().await;
            "late"
        }
    };
    Router::new().route("/", get(page))
}

/// A connection that was answered and is open; `None` if it is refused.
async fn answered(address: SocketAddr, request: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request).await.ok()?;
    let mut begin = vec![0; WELL.len()];
    timeout(LONG, stream.read_exact(&mut begin)).await.expect("an answer or an end").ok()?;
    assert_eq!(begin, WELL);
    Some(stream)
}

/// Waits for the end of a connection; what came before.
async fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut came)).await;
    // Reset is closed, too.
    read.expect("the connection is closed").ok();
    came
}

#[tokio::test]
async fn beyond_the_bound_connections_are_closed_at_once_and_counted_and_a_free_place_is_taken() {
    let server = Server::new(page(), 2, ENDLESS).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = listener.local_addr().unwrap();
    tokio::spawn(ops::serve(listener, ops::router(Health::new(), Metrics::default()), server.stop.clone()));
    let first = answered(server.address, REQUEST).await.unwrap();
    let _second = answered(server.address, REQUEST).await.unwrap();
    for refused in 1..=3 {
        assert_eq!(closed(&mut server.connect().await).await, b"");
        assert_eq!((server.counts.open.get(), server.counts.refused.get()), (2, refused));
    }
    answered(other, HEALTH).await.expect("operations have connections of their own");
    drop(first);
    let again = async { while answered(server.address, REQUEST).await.is_none() {} };
    timeout(LONG, again).await.expect("its place is free again");
    server.stop.cancel();
}

#[tokio::test]
async fn a_connection_without_a_whole_request_is_closed_in_time() {
    let server = Server::new(page(), 9, SHORT).await;
    let table: [(&[u8], bool); 3] = [(b"", false), (b"GET / HTTP/1.1\r\nHost", false), (REQUEST, true)];
    for (said, is_answered) in table {
        let mut stream = server.connect().await;
        stream.write_all(said).await.unwrap();
        let came = closed(&mut stream).await;
        let told = String::from_utf8_lossy(&came);
        assert_eq!(came.starts_with(WELL), is_answered, "{}: {told}", String::from_utf8_lossy(said));
    }
    server.stop.cancel();
}

#[tokio::test]
async fn a_request_that_is_answered_late_is_not_silent() {
    let (asked, word) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = Server::new(slow_page(&asked, &word), 9, SHORT).await;
    let mut slow = server.connect().await;
    slow.write_all(REQUEST).await.unwrap();
    timeout(LONG, asked.notified()).await.expect("it is asked for");
    // As long as it takes until another one was silent for too long.
    closed(&mut server.connect().await).await;
    word.notify_one();
    let came = closed(&mut slow).await;
    assert!(came.starts_with(WELL) && came.ends_with(b"late"), "{}", String::from_utf8_lossy(&came));
    server.stop.cancel();
}

/// More than the system keeps for a reader who takes nothing; says when it is given up.
struct Large(Vec<u8>, Arc<Notify>);

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.1.notify_one();
    }
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_closed_in_time() {
    let gone = Arc::new(Notify::new());
    let given_up = Arc::clone(&gone);
    let large = move || {
        let gone = Arc::clone(&gone);
        async move { Bytes::from_owner(Large(vec![0; 64 << 20], gone)) }
    };
    let server = Server::new(Router::new().route("/", get(large)), 9, SHORT).await;
    let mut stream = server.connect().await;
    stream.write_all(REQUEST).await.unwrap();
    timeout(LONG, given_up.notified()).await.expect("the answer is given up");
    drop(stream);
    server.stop.cancel();
}

#[tokio::test]
async fn at_a_stop_requests_under_way_are_answered_and_connections_without_one_closed() {
    let (asked, word) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let server = Server::new(slow_page(&asked, &word), 9, ENDLESS).await;
    let (silent, mut half) = (server.connect().await, server.connect().await);
    half.write_all(b"GET / HTTP/1.1\r\nHost").await.unwrap();
    let mut slow = server.connect().await;
    slow.write_all(REQUEST).await.unwrap();
    timeout(LONG, asked.notified()).await.expect("it is asked for");
    server.stop.cancel();
    for mut without in [silent, half] {
        assert_eq!(closed(&mut without).await, b"");
    }
    assert!(!server.task.is_finished(), "a request is under way");
    word.notify_one();
    let came = closed(&mut slow).await;
    assert!(came.starts_with(WELL) && came.ends_with(b"late"), "{}", String::from_utf8_lossy(&came));
    timeout(LONG, server.task).await.expect("it ends").unwrap();
    assert_eq!((server.counts.open.get(), server.counts.refused.get()), (0, 0));
}

#[tokio::test]
async fn at_a_stop_whoever_takes_an_answer_slowly_gets_all_of_it() {
    const LENGTH: usize = 64 << 20;
    let router = Router::new().route("/", get(|| async { Bytes::from(vec![0; LENGTH]) }));
    let server = Server::new(router, 9, ENDLESS).await;
    let mut stream = answered(server.address, REQUEST).await.unwrap();
    server.stop.cancel();
    // By now the stop is known: another connection is not taken any more.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.task.is_finished(), "an answer is under way");
    let came = closed(&mut stream).await;
    assert!(came.len() >= LENGTH, "{} bytes", came.len());
    timeout(LONG, server.task).await.expect("it ends").unwrap();
}

#[test]
fn half_of_the_files_are_left_for_others() {
    let asked = Bounds { most: 4_096, silence: SHORT };
    for (files, most) in
        [(None, 4_096), (Some(1_048_576), 4_096), (Some(1_024), 512), (Some(i64::MAX), 4_096)]
    {
        assert_eq!(asked.within(files), Bounds { most, silence: SHORT }, "{files:?}");
    }
}

#[test]
fn what_is_counted_has_names() {
    let metrics = Metrics::default();
    let counts = Counts::new(&metrics, "http_connections");
    counts.refused.inc();
    let text = metrics.encode().unwrap();
    assert!(text.contains("\nhttp_connections 0\n"), "{text}");
    assert!(text.contains("\nhttp_connections_refused_total 1\n"), "{text}");
}
