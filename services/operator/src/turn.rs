//! One turn of one database: a pass, measured and traced, that ends with this process's leadership and whose panic is the
//! business of that database alone. What becomes of it is [`Next`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::runtime::controller::Action;
use resources::{QuestDB, names};
use runtime::TraceContext;
use tracing::Instrument as _;

use crate::context::Context;
use crate::error::Error;
use crate::{observe, reconcile};

/// When a database is looked at again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is as it should be.
    Rest(Duration),
    /// Something is under way or waited for.
    Soon(Duration),
    /// A part could not be done; the report says which.
    Failed {
        /// When it is tried again.
        delay: Duration,
        /// Whether only a person or another wish cures it.
        lasting: bool,
    },
    /// Nothing is left to look at until it changes.
    Change,
}

impl Next {
    /// The word of controller-runtime for how a pass ended.
    pub(crate) const fn result(self) -> &'static str {
        match self {
            Self::Rest(_) | Self::Change => "success",
            Self::Soon(_) => "requeue_after",
            Self::Failed { .. } => "error",
        }
    }

    /// In how long it is due.
    pub(crate) const fn delay(self) -> Option<Duration> {
        match self {
            Self::Rest(delay) | Self::Soon(delay) | Self::Failed { delay, .. } => Some(delay),
            Self::Change => None,
        }
    }

    pub(crate) fn action(self) -> Action {
        self.delay().map_or_else(Action::await_change, Action::requeue)
    }
}

/// Takes a turn; says when the next one is.
pub(crate) async fn take(resource: Arc<QuestDB>, context: Arc<Context>) -> Action {
    let (turn, _active) = (context.work.begin(&resource.metadata), context.measures.begun());
    let pass = AssertUnwindSafe(Box::pin(reconcile::pass(&resource, &context))).catch_unwind();
    let result = match context.leadership.while_leading(pass.instrument(span(&resource))).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => {
            context.measures.panicked();
            Err(Error::Panic)
        }
        None => Err(Error::Lease),
    };
    let next = match &result {
        Ok(next) => *next,
        Err(error) => missed(&resource, error, &context),
    };
    if let Next::Failed { lasting, .. } = next {
        context.measures.failed(result.as_ref().err().map_or("step", Error::category), lasting);
    }
    context.measures.ended(next.result(), turn.end(next));
    next.action()
}

/// A pass broke off: when to look again.
fn missed(resource: &QuestDB, error: &Error, context: &Context) -> Next {
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    let lasting = error.is_lasting();
    let delay = context.memories.failed(uid, lasting);
    if !error.is_conflict() {
        tracing::warn!(
            db.resource = resource.metadata.name,
            db.namespace = resource.metadata.namespace,
            error = %runtime::telemetry::chain(error),
            retry_ms = runtime::telemetry::millis(delay),
            "a pass failed"
        );
    }
    Next::Failed { delay, lasting }
}

/// The span of a pass; while a change is being carried out, a child of the request that asked for it.
fn span(resource: &QuestDB) -> tracing::Span {
    let metadata = &resource.metadata;
    let instruction = resource.spec.instruction.as_ref();
    let span = tracing::info_span!(
        "reconcile",
        db.id = instruction.map(|instruction| instruction.database_id.as_str()),
        db.resource = metadata.name,
        db.namespace = metadata.namespace,
        db.epoch = instruction.map(|instruction| instruction.epoch),
        db.seq = instruction.map(|instruction| instruction.seq),
    );
    let parent = metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::TRACEPARENT));
    if let Some(parent) = parent.and_then(|parent| TraceContext::parse(parent).ok())
        && !observe::is_settled(resource)
    {
        parent.adopt(&span);
    }
    span
}
