//! One turn of one object: a pass, measured and traced, that ends with this process's leadership and whose panic is the
//! business of that object alone. What becomes of it is [`Next`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Resource;
use kube::runtime::controller::Action;
use plan::Part;
use resources::{QuestDB, names};
use runtime::TraceContext;
use tracing::{Instrument as _, Span};

use crate::context::Context;
use crate::error::Error;
use crate::lease::Leadership;
use crate::memory::Memories;
use crate::metrics::Measures;
use crate::{observe, reconcile};

/// When an object is looked at again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is as it should be.
    Rest(Duration),
    /// Something is under way or waited for.
    Soon(Duration),
    /// Somebody was quicker, and nothing else failed: when it is decided anew, which is as late as after a failure.
    Overtaken(Duration),
    /// A part could not be done; the report says which.
    Failed {
        /// When it is tried again.
        delay: Duration,
        /// Whether only a person or another wish cures it.
        lasting: bool,
        /// For metrics.
        category: &'static str,
    },
    /// Nothing is left to look at until it changes.
    Change,
}

impl Next {
    /// The word of controller-runtime for how a pass ended.
    pub(crate) const fn result(self) -> &'static str {
        match self {
            Self::Rest(_) | Self::Change => "success",
            Self::Soon(_) | Self::Overtaken(_) => "requeue_after",
            Self::Failed { .. } => "error",
        }
    }

    /// In how long it is due.
    pub(crate) const fn delay(self) -> Option<Duration> {
        match self {
            Self::Rest(delay) | Self::Soon(delay) | Self::Overtaken(delay) | Self::Failed { delay, .. } => {
                Some(delay)
            }
            Self::Change => None,
        }
    }

    pub(crate) fn action(self) -> Action {
        self.delay().map_or_else(Action::await_change, Action::requeue)
    }
}

/// Whose turns they are: how they are measured, and where failures are remembered.
pub(crate) struct Turns<'a> {
    pub(crate) leadership: &'a Leadership,
    pub(crate) measures: &'a Measures,
    pub(crate) memories: &'a Memories,
}

impl Turns<'_> {
    /// Takes one; `end` says how long it took.
    pub(crate) async fn take<K: Resource>(
        &self,
        resource: &K,
        span: Span,
        pass: impl Future<Output = Result<Next, Error>>,
        end: impl FnOnce(Next) -> Duration,
    ) -> Next {
        let _active = self.measures.begun();
        let pass = AssertUnwindSafe(pass).catch_unwind().instrument(span.clone());
        let result = match self.leadership.while_leading(pass).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => {
                self.measures.panicked();
                Err(Error::Panic)
            }
            None => Err(Error::Lease),
        };
        let uid = resource.meta().uid.as_deref().unwrap_or_default();
        let next = match &result {
            Ok(next) => *next,
            Err(error) => span.in_scope(|| missed(self.memories, uid, error)),
        };
        match next {
            Next::Failed { lasting, category, .. } => self.measures.failed(category, lasting),
            // The next one that is overtaken is decided anew later still.
            Next::Overtaken(_) => {}
            Next::Rest(_) | Next::Soon(_) | Next::Change => self.memories.succeeded(uid),
        }
        self.measures.ended(next.result(), end(next));
        next
    }
}

/// A pass broke off: when to look again. Whoever wrote the object itself meanwhile has it looked at anew.
fn missed(memories: &Memories, uid: &str, error: &Error) -> Next {
    let lasting = error.is_lasting();
    let delay = memories.failed(uid, lasting);
    if error.is_conflict() && !memories.overtaken(uid, Part::Resource, String::new()) {
        return Next::Overtaken(delay);
    }
    if error.is_trouble() || error.is_conflict() {
        tracing::warn!(
            error = %runtime::telemetry::chain(error),
            retry_ms = runtime::telemetry::millis(delay),
            "a pass failed"
        );
    }
    Next::Failed { delay, lasting, category: error.category() }
}

/// Takes a turn of a database; says when the next one is.
pub(crate) async fn take(resource: Arc<QuestDB>, context: Arc<Context>) -> Action {
    let Context { leadership, measures, memories, work, .. } = &*context;
    let turn = work.begin(&resource.metadata);
    let pass = Box::pin(reconcile::pass(&resource, &context));
    let turns = Turns { leadership, measures, memories };
    turns.take(&*resource, span(&resource), pass, |next| turn.end(next)).await.action()
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use runtime::Metrics;

    use super::*;
    use crate::lease::tests::leading;

    #[test]
    fn a_pass_in_which_somebody_was_quicker_has_failed_only_where_that_goes_on() {
        let memories = Memories::default();
        let stale = || missed(&memories, "a", &Error::Stale { what: "it has changed".to_owned() });
        for _ in 0..5 {
            assert!(matches!(stale(), Next::Overtaken(_)));
        }
        assert!(matches!(stale(), Next::Failed { lasting: false, category: "stale", .. }));
        memories.succeeded("a");
        let Next::Overtaken(delay) = stale() else { panic!("a pass has come through") };
        assert!(delay <= Duration::from_secs(1), "{delay:?}");
        assert_eq!(
            (Next::Overtaken(delay).result(), Next::Overtaken(delay).delay()),
            ("requeue_after", Some(delay))
        );
        let failed = missed(&memories, "b", &Error::Panic);
        assert!(matches!(failed, Next::Failed { lasting: true, category: "panic", .. }));
    }

    #[tokio::test]
    async fn turns_in_which_somebody_was_quicker_count_until_one_has_come_through() {
        let (_candidate, leadership) = leading(Some(Duration::from_mins(10)));
        let (measures, memories) = (Measures::new(&Metrics::default(), 1), Memories::default());
        let turns = Turns { leadership: &leadership, measures: &measures, memories: &memories };
        let metadata = ObjectMeta { uid: Some("a".to_owned()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, ..ConfigMap::default() };
        let take = async |result: Result<Next, Error>| {
            turns.take(&object, Span::none(), std::future::ready(result), |_| Duration::ZERO).await
        };
        let stale = || Err(Error::Stale { what: "it has changed".to_owned() });
        for _ in 0..5 {
            assert!(matches!(take(stale()).await, Next::Overtaken(_)));
            let overtaken = Next::Overtaken(Duration::ZERO);
            assert_eq!(take(Ok(overtaken)).await, overtaken, "whoever did the part counts that");
        }
        assert!(matches!(take(stale()).await, Next::Failed { category: "stale", .. }));
        take(Ok(Next::Change)).await;
        assert!(matches!(take(stale()).await, Next::Overtaken(_)));
    }
}
