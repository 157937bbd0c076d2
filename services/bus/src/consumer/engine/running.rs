//! The work itself: records begin, end, are held, or panic, each under its key.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::{Engine, Inner};
use crate::consumer::{Disposition, Handler, Turn};
use crate::lanes::{Entry, Place};
use crate::lock;
use crate::tracker::Ticket;

/// How long a record rests that made even the handling of its panic panic.
const AFTER_PANIC: Duration = Duration::from_secs(30);

/// A record to be worked on.
type Piece<H> = Entry<Arc<<H as Handler>::Work>>;

impl<H: Handler> Engine<H> {
    /// Starts what may start, each in a task of its own.
    pub(super) fn start(self: &Arc<Self>, inner: &mut Inner<H::Work>) {
        if !inner.open {
            return;
        }
        while let Some(entry) = inner.lanes.take() {
            let engine = Arc::clone(self);
            self.runtime.spawn(async move { engine.work(entry).await });
        }
    }

    /// The same, but the first of it is for the caller to work on.
    fn start_others(self: &Arc<Self>, inner: &mut Inner<H::Work>) -> Option<Piece<H>> {
        let first = inner.open.then(|| inner.lanes.take()).flatten()?;
        self.start(inner);
        Some(first)
    }

    /// Works on a record, and then on others as long as any may start: a task is not made anew for each of them.
    async fn work(self: Arc<Self>, first: Piece<H>) {
        let mut abandoned = pin!(self.abandoned.cancelled());
        let mut next = Some(first);
        while let Some(mut entry) = next {
            // Records that wait for nothing would keep the thread from everybody else.
            tokio::task::coop::consume_budget().await;
            let disposition = tokio::select! {
                biased;
                disposition = self.disposition(&mut entry) => Some(disposition),
                () = &mut abandoned => None,
            };
            next = self.ended(entry, disposition);
        }
    }

    /// What ran has ended, or was abandoned. Answers what is to be worked on next.
    fn ended(self: &Arc<Self>, entry: Piece<H>, disposition: Option<Disposition>) -> Option<Piece<H>> {
        match disposition {
            Some(Disposition::Done) => self.finish(&entry),
            Some(Disposition::Hold(after)) => self.hold(entry, after),
            None => {
                self.set_free(&entry);
                None
            }
        }
    }

    async fn disposition(self: &Arc<Self>, entry: &mut Piece<H>) -> Disposition {
        let (engine, place) = (Arc::clone(self), entry.place.clone());
        let turn = Turn::new(move || engine.end_turn(&place));
        let handled = self.handler.handle(Arc::clone(&entry.work), entry.attempt, &turn);
        match AssertUnwindSafe(handled).catch_unwind().await {
            Ok(disposition) => disposition,
            Err(_) => self.after_panic(entry).await,
        }
    }

    async fn after_panic(&self, entry: &mut Piece<H>) -> Disposition {
        let Ticket { partition, offset, .. } = entry.ticket;
        tracing::error!(
            kafka.partition = partition,
            kafka.offset = offset,
            "a record made its handler panic"
        );
        let panics = entry.panics;
        entry.panics = panics.saturating_add(1);
        let handled = self.handler.panicked(Arc::clone(&entry.work), panics);
        AssertUnwindSafe(handled).catch_unwind().await.unwrap_or(Disposition::Hold(AFTER_PANIC))
    }

    fn end_turn(self: &Arc<Self>, place: &Place) {
        let mut inner = lock(&self.inner);
        if inner.lanes.end_turn(place) {
            self.start(&mut inner);
        }
    }

    fn finish(self: &Arc<Self>, entry: &Piece<H>) -> Option<Piece<H>> {
        let mut inner = lock(&self.inner);
        inner.assignments.finish(entry.ticket);
        inner.lanes.finish(entry);
        let next = self.start_others(&mut inner);
        let load = inner.load();
        // Told once: nobody but who waits adds anything.
        let enough = inner.waits_for.take_if(|bound| !load.reaches(*bound)).is_some();
        drop(inner);
        if enough {
            self.less.notify_one();
        }
        next
    }

    /// The record is not dealt with, and somebody reads it again; here only its key is set free.
    fn set_free(self: &Arc<Self>, entry: &Piece<H>) {
        let mut inner = lock(&self.inner);
        inner.lanes.finish(entry);
        self.start(&mut inner);
    }

    fn hold(self: &Arc<Self>, mut entry: Piece<H>, after: Duration) -> Option<Piece<H>> {
        let mut inner = lock(&self.inner);
        if !inner.open || !inner.assignments.is_current(entry.ticket) {
            drop(inner);
            self.set_free(&entry);
            return None;
        }
        entry.attempt = entry.attempt.saturating_add(1);
        let (key, work) = (Arc::clone(&entry.place.key), Arc::clone(&entry.work));
        let superseded = inner.lanes.hold(entry);
        if let Some(old) = &superseded {
            inner.assignments.finish(old.ticket);
        }
        // Tickets do not tell them apart: where reading went back, another record may stand where this one stood.
        if superseded.as_ref().is_none_or(|old| !Arc::ptr_eq(&old.work, &work)) {
            self.wake_later(key, after);
        }
        let next = self.start_others(&mut inner);
        drop(inner);
        self.tell_superseded(superseded);
        next
    }

    fn wake_later(self: &Arc<Self>, key: Arc<str>, after: Duration) {
        let engine = Arc::downgrade(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            let Some(engine) = engine.upgrade() else { return };
            let mut inner = lock(&engine.inner);
            inner.lanes.wake(&key);
            engine.start(&mut inner);
        });
    }
}
