//! The events of open watches on their way through the front, one by one, as their fate has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::{Body, BodyDataStream, Bytes};
use futures::StreamExt as _;
use testkit::telling::{Fate, Fates, Teller};
use tokio::sync::watch;

/// What becomes of the events of all watches, and what became of them.
#[derive(Default)]
pub(super) struct Events {
    order: watch::Sender<Order>,
    fates: Arc<Mutex<BTreeMap<String, Fates>>>,
}

/// What is to become of them.
#[derive(Default)]
struct Order {
    fate: Fate,
    /// None are all.
    kinds: Vec<String>,
    seed: u64,
}

impl Order {
    /// The fate of the events of a kind, and the seed by which it chooses.
    fn of(&self, kind: &str) -> (Fate, u64) {
        let meant = self.kinds.is_empty() || self.kinds.iter().any(|meant| meant == kind);
        (if meant { self.fate } else { Fate::Told }, self.seed)
    }
}

impl Events {
    pub(super) fn set(&self, fate: Fate, kinds: &[&str], seed: u64) {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        self.order.send_replace(Order { fate, kinds, seed });
    }

    pub(super) fn fates(&self) -> BTreeMap<String, Fates> {
        self.fates.lock().unwrap().clone()
    }

    /// What a watch of a kind is told of what the server says.
    pub(super) fn told(&self, kind: &str, body: Body) -> Body {
        let mut order = self.order.subscribe();
        let mut teller = Teller::new(kind);
        let (fate, seed) = order.borrow_and_update().of(kind);
        // Nothing is held back yet.
        teller.turn(fate, seed);
        let fates = Arc::clone(&self.fates);
        let told = Told { pieces: body.into_data_stream(), kind: kind.to_owned(), teller, order, fates };
        Body::from_stream(futures::stream::unfold(Some(told), |told| async move { told?.next().await }))
    }
}

/// One watch.
struct Told {
    pieces: BodyDataStream,
    kind: String,
    teller: Teller,
    order: watch::Receiver<Order>,
    fates: Arc<Mutex<BTreeMap<String, Fates>>>,
}

impl Told {
    /// What it is told next, and who tells what comes after.
    async fn next(mut self) -> Option<(Result<Bytes, axum::Error>, Option<Self>)> {
        loop {
            let said = tokio::select! {
                piece = self.pieces.next() => match piece {
                    Some(Ok(piece)) => self.teller.hear(&piece, Instant::now()),
                    Some(Err(error)) => return Some((Err(error), None)),
                    None => self.teller.end(),
                },
                Ok(()) = self.order.changed() => {
                    let (fate, seed) = self.order.borrow_and_update().of(&self.kind);
                    self.teller.turn(fate, seed)
                }
                () = until(self.teller.due()) => self.teller.tell(),
            };
            self.count();
            let text = Bytes::from(said.text);
            match (said.ends, text.is_empty()) {
                (true, true) => return None,
                (true, false) => return Some((Ok(text), None)),
                (false, true) => {}
                (false, false) => return Some((Ok(text), Some(self))),
            }
        }
    }

    fn count(&mut self) {
        let more = self.teller.take_fates();
        if more != Fates::default() {
            let mut fates = self.fates.lock().unwrap();
            let all = fates.entry(self.kind.clone()).or_default();
            *all = all.and(more);
        }
    }
}

/// For ever, where there is no time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
