//! The events of open watches on their way through the front, one by one, as their fate has them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::Value;
use testkit::telling::{Fate, Fates, Said, Teller};
use tokio::sync::watch;

/// How long an answer may wait for what watches are told: of what nobody watches nobody is told.
const TELLING: Duration = Duration::from_secs(5);

/// The newest version that watches were told of, by kind.
type Versions = BTreeMap<String, u64>;

/// What becomes of the events of all watches, and what became of them.
#[derive(Default)]
pub(super) struct Events {
    order: watch::Sender<Order>,
    /// Of which kind events are to be late from its next write on.
    next: Mutex<Option<String>>,
    fates: Arc<Mutex<BTreeMap<String, Fates>>>,
    /// None while nobody wants to know.
    versions: Arc<watch::Sender<Option<Versions>>>,
    /// How many answers waited in vain for watches that are told of other objects of the kind.
    late: AtomicUsize,
}

/// What is to become of them.
#[derive(Default)]
struct Order {
    fate: Fate,
    /// None are all.
    kinds: Vec<String>,
    seed: u64,
    /// How often all of them were to be told as they come.
    told: usize,
}

impl Order {
    /// The fate of the events of a kind, the seed by which it chooses, and how often there was none so far.
    fn of(&self, kind: &str) -> (Fate, u64, usize) {
        let meant = self.kinds.is_empty() || self.kinds.iter().any(|meant| meant == kind);
        (if meant { self.fate } else { Fate::Told }, self.seed, self.told)
    }
}

impl Events {
    pub(super) fn set(&self, fate: Fate, kinds: &[&str], seed: u64) {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        // No write sets another one meanwhile.
        let mut next = self.next.lock().unwrap();
        *next = None;
        self.order.send_modify(|order| {
            let told = order.told + usize::from(fate == Fate::Told);
            *order = Order { fate, kinds, seed, told };
        });
    }

    /// From the next write of a kind on its events are late.
    pub(super) fn late_after_write(&self, kind: &str) {
        *self.next.lock().unwrap() = Some(kind.to_owned());
    }

    /// Something of a kind is about to be written: what is told of it comes later.
    pub(super) fn written(&self, kind: &str) {
        let mut next = self.next.lock().unwrap();
        if let Some(kind) = next.take_if(|next| *next == kind) {
            self.order.send_modify(|order| (order.fate, order.kinds) = (Fate::Late, vec![kind]));
        }
    }

    pub(super) fn fates(&self) -> BTreeMap<String, Fates> {
        self.fates.lock().unwrap().clone()
    }

    /// From now on it is known how far watches were told.
    pub(super) fn note_versions(&self) {
        self.versions.send_replace(Some(Versions::default()));
    }

    pub(super) fn notes_versions(&self) -> bool {
        self.versions.borrow().is_some()
    }

    pub(super) fn told_late(&self) -> usize {
        self.late.load(Ordering::Relaxed)
    }

    /// The answer to a write of an object of a kind, once watches were told of the version that is stored now.
    pub(super) async fn told_before(&self, kind: &str, answer: Response) -> Response {
        let (parts, body) = answer.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let stored: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Some(version) = version_of(&stored) {
            let told = tokio::time::timeout(TELLING, self.have_told(kind, version)).await;
            let is_watched = self.versions.borrow().as_ref().is_some_and(|told| told.contains_key(kind));
            if told.is_err() && is_watched {
                self.late.fetch_add(1, Ordering::Relaxed);
            }
        }
        Response::from_parts(parts, Body::from(body))
    }

    /// Waits until watches of a kind were told of this version.
    async fn have_told(&self, kind: &str, version: u64) {
        let mut versions = self.versions.subscribe();
        let told = versions.wait_for(|versions| {
            let told = versions.as_ref().and_then(|versions| versions.get(kind));
            told.is_some_and(|told| *told >= version)
        });
        let _ = told.await;
    }

    /// What a watch of a kind is told of what the server says.
    pub(super) fn told(&self, kind: &str, body: Body) -> Body {
        let mut order = self.order.subscribe();
        let mut teller = Teller::new(kind);
        let (fate, seed, ended) = order.borrow_and_update().of(kind);
        // Nothing is held back yet.
        teller.turn(fate, seed);
        let (fates, versions) = (Arc::clone(&self.fates), Arc::clone(&self.versions));
        let (pieces, kind) = (body.into_data_stream(), kind.to_owned());
        let told = Told { pieces, kind, teller, order, ended, fates, versions };
        Body::from_stream(futures::stream::unfold(Some(told), |told| async move { told?.next().await }))
    }
}

/// One watch.
struct Told {
    pieces: BodyDataStream,
    kind: String,
    teller: Teller,
    order: watch::Receiver<Order>,
    /// How often its events had no fate so far.
    ended: usize,
    fates: Arc<Mutex<BTreeMap<String, Fates>>>,
    versions: Arc<watch::Sender<Option<Versions>>>,
}

impl Told {
    /// What it is told next, and who tells what comes after.
    async fn next(mut self) -> Option<(Result<Bytes, axum::Error>, Option<Self>)> {
        loop {
            let said = tokio::select! {
                // What comes after an order has its fate, however late both are heard.
                biased;
                Ok(()) = self.order.changed() => self.turn(),
                () = until(self.teller.due()) => self.teller.tell(),
                piece = self.pieces.next() => match piece {
                    Some(Ok(piece)) => self.teller.hear(&piece, Instant::now()),
                    Some(Err(error)) => return Some((Err(error), None)),
                    None => self.teller.end(),
                },
            };
            self.count();
            self.note(&said.text);
            let text = Bytes::from(said.text);
            match (said.ends, text.is_empty()) {
                (true, true) => return None,
                (true, false) => return Some((Ok(text), None)),
                (false, true) => {}
                (false, false) => return Some((Ok(text), Some(self))),
            }
        }
    }

    /// There is another order. What was held back is told where it was to be told meanwhile, too.
    fn turn(&mut self) -> Said {
        let (fate, seed, ended) = self.order.borrow_and_update().of(&self.kind);
        let mut said = Said::default();
        if mem::replace(&mut self.ended, ended) != ended {
            said = self.teller.turn(Fate::Told, seed);
        }
        if !said.ends {
            let Said { text, ends } = self.teller.turn(fate, seed);
            said.text.extend(text);
            said.ends = ends;
        }
        said
    }

    fn count(&mut self) {
        let more = self.teller.take_fates();
        if more != Fates::default() {
            let mut fates = self.fates.lock().unwrap();
            let all = fates.entry(self.kind.clone()).or_default();
            *all = all.and(more);
        }
    }

    fn note(&self, text: &[u8]) {
        if self.versions.borrow().is_none() {
            return;
        }
        let Some(newest) = text.split(|byte| *byte == b'\n').filter_map(version_in).max() else { return };
        self.versions.send_modify(|versions| {
            let told = versions.get_or_insert_default().entry(self.kind.clone()).or_default();
            *told = newest.max(*told);
        });
    }
}

/// The version of the object that a watch tells of in a line.
fn version_in(line: &[u8]) -> Option<u64> {
    let event: Value = serde_json::from_slice(line).ok()?;
    version_of(&event["object"])
}

/// The version of an object.
fn version_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// For ever, where there is no time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
