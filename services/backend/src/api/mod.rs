//! The HTTP API. A handler parses into domain types, runs one transaction, and answers.

mod answer;
mod auth;
mod body;
mod clusters;
mod databases;
mod events;
mod failure;
mod idempotency;
mod middleware;
mod operations;
mod precondition;
mod present;
mod query;
mod router;
mod streams;

use std::sync::Arc;

pub(crate) use auth::hash;
pub use router::{openapi, router};
pub use streams::Streams;

use crate::doorbell::Doorbell;
use crate::metrics::Metrics;

/// What handlers need. Clones share it.
#[derive(Debug, Clone)]
pub struct Api(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: store::Store,
    doorbell: Doorbell,
    streams: Streams,
    metrics: Metrics,
}

impl Api {
    /// An API over a store; it rings `doorbell` after each mint and hands its event streams to `streams`.
    pub fn new(store: store::Store, doorbell: Doorbell, streams: Streams, metrics: Metrics) -> Self {
        Self(Arc::new(Inner { store, doorbell, streams, metrics }))
    }

    fn store(&self) -> &store::Store {
        &self.0.store
    }

    fn streams(&self) -> &Streams {
        &self.0.streams
    }

    fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    fn ring(&self) {
        self.0.doorbell.ring();
    }
}
