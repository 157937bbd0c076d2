//! Serves HTTP over connections of which there are only so many, and none for long without a word.
//!
//! A connection costs memory and an open file before anything is known of whose it is. Beyond a bound further ones are closed at once:
//! that sends a load balancer elsewhere sooner than a line that does not move. One that sends no whole head of a request in time, at
//! its beginning or after an answer, is closed, and so is one that takes nothing of its answer for as long. *Invariant:* a request is
//! never cut off because its answer takes long to make: for that whoever makes it has a deadline. At a stop a connection is closed
//! unless the head of a request came whole: it is not waited for the rest of one.

mod patient;
mod under_way;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::patient::Patient;
use self::under_way::{Answer, UnderWay};
use crate::{Metrics, backoff, metrics};

/// How often it is told at most that connections are refused.
const TELL: Duration = Duration::from_mins(1);
/// How long none is taken after the system could not give one.
const REST: Duration = Duration::from_secs(1);

/// How many connections, and how long one may be without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most that are open at once.
    pub most: u32,
    /// How long one may send no whole head of a request, or take nothing of an answer.
    pub silence: Duration,
}

impl Default for Bounds {
    /// Longer without a word than load balancers usually keep a connection that nobody uses: else they would send requests
    /// into ones that are being closed.
    fn default() -> Self {
        Self { most: 4_096, silence: Duration::from_secs(75) }
    }
}

impl Bounds {
    /// No more connections than half of the files that the process may open: the others are for those without whom nothing can
    /// be answered.
    fn within(self, files: Option<i64>) -> Self {
        let half = files.and_then(|files| u32::try_from(files / 2).ok());
        Self { most: half.map_or(self.most, |half| half.min(self.most)), ..self }
    }
}

/// What is counted of connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    open: Gauge,
    refused: Counter,
}

impl Counts {
    /// Registers how many are open under this name, and how many were refused under one that is made of it.
    pub fn new(metrics: &Metrics, name: &str) -> Self {
        let refused = "Connections closed at once because as many were open as may be";
        Self {
            open: metrics.register(name, "Open connections", Gauge::default()),
            refused: metrics.register(&format!("{name}_refused"), refused, Counter::default()),
        }
    }
}

/// A connection's place among those that are open.
#[derive(Debug)]
struct Place {
    open: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    fn new(open: &Gauge, permit: OwnedSemaphorePermit) -> Self {
        open.inc();
        Self { open: open.clone(), _permit: permit }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// Serves `router` until `stop`; then requests under way are answered, and connections without one are closed.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    asked: Bounds,
    counts: Counts,
    stop: CancellationToken,
) {
    let bounds = asked.within(metrics::max_files());
    if bounds.most < asked.most {
        let (most, asked) = (bounds.most, asked.most);
        tracing::warn!(most, asked, "fewer connections than asked for: the process may open too few files");
    }
    let permits = Arc::new(Semaphore::new(bounds.most as usize));
    let (connections, service) = (TaskTracker::new(), TowerToHyperService::new(router));
    let mut told = None;
    while let Some(stream) = accept(&listener, &stop).await {
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            counts.refused.inc();
            tell(&mut told, bounds.most);
            continue;
        };
        let place = Place::new(&counts.open, permit);
        let connection = one(stream, service.clone(), bounds.silence, stop.clone());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The next connection; `None` at a stop.
async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                tracing::error!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "no connection can be taken"
                );
                backoff::sleep(REST, stop).await;
            }
        }
    }
}

/// Whether whoever connected has gone again.
fn is_of_peer(error: &io::Error) -> bool {
    let kinds =
        [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset];
    kinds.contains(&error.kind())
}

/// Serves a connection to its end.
async fn one(
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    silence: Duration,
    stop: CancellationToken,
) {
    let under_way = UnderWay::default();
    let stream = TokioIo::new(Patient::new(stream, silence, under_way.clone()));
    let begun = under_way.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (mark, answer) = (begun.begin(), service.call(request));
        async move { answer.await.map(|answer| answer.map(|body| Answer::new(body, mark))) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(silence)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // What came whole by now is answered.
            let now = poll_fn(|context| Poll::Ready(connection.as_mut().poll(context))).await;
            match now {
                Poll::Ready(ended) => ended,
                Poll::Pending if under_way.any() => connection.await,
                Poll::Pending => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &error as &(dyn std::error::Error + 'static), "a connection broke");
    }
}

fn tell(told: &mut Option<Instant>, most: u32) {
    if told.is_none_or(|told| told.elapsed() >= TELL) {
        *told = Some(Instant::now());
        tracing::warn!(most, "connections are refused: as many are open as may be");
    }
}

#[cfg(test)]
mod tests;
