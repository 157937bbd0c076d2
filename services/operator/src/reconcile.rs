//! One pass over one database: observe, validate, plan, apply, report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::runtime::controller::Action;
use plan::{Plan, State, Subject, Validated};
use resources::{QuestDB, names};
use runtime::TraceContext;
use tracing::Instrument as _;

use crate::apply::{self, Written};
use crate::context::Context;
use crate::error::Error;
use crate::{observe, report};

/// Between two looks at a database that is as it should be, without jitter.
const AT_REST: Duration = Duration::from_secs(40);
/// Between two looks while something is waited for that tells nobody when it is done.
const AT_WORK: Duration = Duration::from_secs(1);
/// After something was written: what was written shows soon.
const AFTER_WRITE: Duration = Duration::from_millis(400);
/// Between two looks at what only a person can cure.
const BROKEN: Duration = Duration::from_secs(30);

/// One pass, measured and traced.
pub(crate) async fn reconcile(resource: Arc<QuestDB>, context: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    context.measures.begun();
    let span = span(&resource);
    let result = pass(&resource, &context).instrument(span).await;
    let word = match &result {
        Ok(_) => "success",
        Err(_) => "error",
    };
    context.measures.ended(word, started.elapsed());
    if let Err(error) = &result {
        context.measures.failed(error.category());
    }
    result
}

/// When to look again after a pass that failed.
pub(crate) fn on_error(resource: &QuestDB, error: &Error, context: &Context) -> Action {
    let uid = resource.metadata.uid.as_deref().unwrap_or_default();
    let delay = context.memories.failed(uid, error.is_lasting());
    if !error.is_conflict() {
        tracing::warn!(
            db.resource = resource.metadata.name,
            db.namespace = resource.metadata.namespace,
            error = %runtime::telemetry::chain(error),
            retry_ms = runtime::telemetry::millis(delay),
            "a pass failed"
        );
    }
    Action::requeue(delay)
}

async fn pass(resource: &QuestDB, context: &Context) -> Result<Action, Error> {
    let Some(subject) = Subject::of(resource, &context.settings) else {
        if resource.metadata.deletion_timestamp.is_none() {
            apply::kubernetes::hold(context, resource, true).await?;
        }
        return Ok(Action::requeue(AT_WORK));
    };
    let validated = match plan::validate(resource, subject, &context.settings) {
        Ok(validated) => validated,
        Err(violations) => {
            report::write(context, resource, plan::refused(resource, &violations, Timestamp::now()), None)
                .await?;
            return Ok(Action::requeue(AT_REST));
        }
    };
    let mut observed = observe::observe(context, resource, &validated).await?;
    let mut plan = plan::plan(resource, &validated, &observed, &context.settings);
    if let Some(found) = observe::protection(context, resource, (&validated, &observed), &plan).await? {
        observed.account.protection = Some(found);
        plan = plan::plan(resource, &validated, &observed, &context.settings);
    }
    let written = apply::apply(context, resource, &validated, &plan).await;
    let now = Timestamp::now();
    if !written.released {
        let status = plan::status(resource, &validated, &observed, (&plan, &written.applied), now);
        report::write(context, resource, status, written.resource_version.as_deref()).await?;
    }
    Ok(next(context, &validated, &plan, &written))
}

/// When to look again after a pass.
fn next(context: &Context, validated: &Validated, plan: &Plan, written: &Written) -> Action {
    let uid = &validated.subject.uid;
    if !written.failed_now.is_empty() {
        // One that may heal by itself is tried as if it were alone.
        let lasting = written.failed_now.iter().all(|failure| failure.lasting);
        return Action::requeue(context.memories.failed(uid, lasting));
    }
    context.memories.succeeded(uid);
    if written.released {
        return Action::await_change();
    }
    if plan.is_settled() {
        return Action::requeue(AT_REST.mul_f64(1.0 + runtime::backoff::random_share() / 2.0));
    }
    // A part that rests keeps its own time.
    let rests = |part| written.applied.holds_back(part);
    let waits = plan
        .progress
        .iter()
        .any(|progress| matches!(progress.state, State::Running(_)) && !rests(progress.part));
    Action::requeue(match (written.applied.wrote, waits) {
        (true, _) => AFTER_WRITE,
        (false, true) => AT_WORK,
        (false, false) if written.applied.failures.is_empty() => BROKEN,
        (false, false) => context.memories.rests_for(uid).unwrap_or(BROKEN).clamp(AT_WORK, BROKEN),
    })
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
