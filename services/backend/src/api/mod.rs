//! The HTTP API. A handler parses into domain types, runs one transaction, and answers.

mod answer;
mod aside;
mod auth;
mod body;
mod cancel;
mod census;
mod clusters;
mod databases;
mod events;
mod failure;
mod gate;
mod idempotency;
mod middleware;
mod operations;
mod pages;
mod precondition;
mod present;
mod query;
mod router;
mod shares;
mod strangers;
mod streams;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use auth::hash;
pub use gate::{Gate, Limits};
pub use router::{openapi, router};
pub use shares::{Share, Shares};
pub use streams::Streams;

use domain::catalogue::Offer;
use domain::recovery::Deadlines;
use runtime::ops::Pages;

use crate::doorbell::Doorbell;
use crate::heard::Hearing;
use crate::metrics::Metrics;

/// What handlers need. Clones share it.
#[derive(Debug, Clone)]
pub struct Api(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    store: store::Store,
    doorbell: Doorbell,
    streams: Streams,
    metrics: Metrics,
    pages: Pages,
    deadlines: Deadlines,
    gate: Gate,
    hearing: Hearing,
    shares: Shares,
    strangers: strangers::Strangers,
    told: unreadable::Told,
    census: census::Census,
    offer: Offer,
}

impl Api {
    /// An API over a store; it rings `doorbell` after each mint, hands its event streams to `streams` and shows `pages` to
    /// those who run it.
    pub fn new(
        store: store::Store,
        doorbell: Doorbell,
        streams: Streams,
        metrics: Metrics,
        pages: Pages,
    ) -> Self {
        let deadlines = Deadlines::default();
        let gate = Gate::new(Limits::default(), metrics.clone());
        let hearing =
            Hearing { topic: "provisioning.gossip".to_owned(), partitions: 1, delay: Duration::from_mins(1) };
        let shares = Shares::unbounded();
        let told = unreadable::Told::default();
        Self(Arc::new(Inner {
            store,
            doorbell,
            streams,
            metrics,
            pages,
            deadlines,
            gate,
            hearing,
            shares,
            strangers: strangers::Strangers::default(),
            told,
            census: census::Census::default(),
            offer: Offer::default(),
        }))
    }

    /// The same API with bounds for what each tenant may take; its own ones are none.
    #[must_use]
    pub fn with_shares(mut self, shares: Shares) -> Self {
        Arc::make_mut(&mut self.0).shares = shares;
        self
    }

    /// The same API with another topic of gossip, whose dead letters are no instructions, and by which it is known what was
    /// heard of a database.
    #[must_use]
    pub fn with_hearing(mut self, hearing: Hearing) -> Self {
        Arc::make_mut(&mut self.0).hearing = hearing;
        self
    }

    /// The same API behind a gate that somebody runs; its own one stays open.
    #[must_use]
    pub fn behind(mut self, gate: Gate) -> Self {
        Arc::make_mut(&mut self.0).gate = gate;
        self
    }

    /// The same API with other deadlines for what it mints.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        Arc::make_mut(&mut self.0).deadlines = deadlines;
        self
    }

    /// The same API with other versions and instance types on offer; its own ones are all that are known.
    #[must_use]
    pub fn offering(mut self, offer: Offer) -> Self {
        Arc::make_mut(&mut self.0).offer = offer;
        self
    }

    fn offer(&self) -> &Offer {
        &self.0.offer
    }

    fn deadlines(&self) -> &Deadlines {
        &self.0.deadlines
    }

    fn hearing(&self) -> &Hearing {
        &self.0.hearing
    }

    fn gossip_topic(&self) -> &str {
        &self.0.hearing.topic
    }

    fn gate(&self) -> &Gate {
        &self.0.gate
    }

    fn census(&self) -> &census::Census {
        &self.0.census
    }

    fn shares(&self) -> &Shares {
        &self.0.shares
    }

    fn strangers(&self) -> &strangers::Strangers {
        &self.0.strangers
    }

    fn pages(&self) -> &Pages {
        &self.0.pages
    }

    pub(crate) fn store(&self) -> &store::Store {
        &self.0.store
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    fn ring(&self) {
        self.0.doorbell.ring();
    }
}
