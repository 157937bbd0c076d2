//! One pass over one database: observe, validate, plan, apply, report.

use std::time::Duration;

use jiff::Timestamp;
use plan::{Part, Plan, State, Subject, Validated};
use resources::QuestDB;

use crate::apply::{self, Written, kubernetes};
use crate::context::Context;
use crate::error::Error;
use crate::turn::Next;
use crate::{identity, observe, report};

/// Between two looks while something is waited for that tells nobody when it is done.
const AT_WORK: Duration = Duration::from_secs(1);
/// After something was written: what was written shows soon.
const AFTER_WRITE: Duration = Duration::from_millis(400);
/// Between two looks at a namespace of which not everything can be seen.
pub(crate) const UNSEEN: Duration = Duration::from_secs(5);
/// Between two looks at a disk that EBS copies a last time.
const COPYING: Duration = Duration::from_secs(5);
/// Between two looks at what only a person can cure.
const BROKEN: Duration = Duration::from_secs(30);

/// One pass.
pub(crate) async fn pass(resource: &QuestDB, context: &Context) -> Result<Next, Error> {
    if !context.whole.is_seen(resource.metadata.namespace.as_deref()) {
        // A part that is not shown to us would be taken for missing. Readiness tells which.
        return Ok(Next::Soon(UNSEEN));
    }
    let suspended = plan::is_suspended(resource);
    if suspended && kubernetes::lost_its_hold(resource) {
        // Nothing else is done meanwhile, but without it a deletion would not wait.
        kubernetes::hold(context, resource, None).await?;
        return Ok(Next::Change);
    }
    let Some(subject) = Subject::of(resource, &context.settings) else {
        if suspended {
            return suspend(context, resource, None).await;
        }
        return identity::settle(context, resource).await;
    };
    let validated = match plan::validate(resource, subject, &context.settings) {
        Ok(validated) => validated,
        Err(violations) => {
            report::write(context, resource, plan::refused(resource, &violations, Timestamp::now()), None)
                .await?;
            return Ok(Next::Rest(context.resync));
        }
    };
    let mut observed = observe::observe(context, resource, &validated).await?;
    let mut plan = plan::plan(resource, &validated, &observed, &context.settings);
    if let Some(found) = observe::protection(context, resource, (&validated, &observed), &plan).await? {
        observed.account.protection = Some(found);
        plan = plan::plan(resource, &validated, &observed, &context.settings);
    }
    let rehearsed = plan::rehearse(resource, &observed, &context.settings);
    if suspended {
        return suspend(context, resource, Some((&plan, rehearsed))).await;
    }
    let written = apply::apply(context, resource, &validated, &plan).await;
    let now = Timestamp::now();
    if !written.released {
        let mut status = plan::status(resource, &validated, &observed, (&plan, &written.applied), now);
        status.plan = rehearsed;
        report::write(context, resource, status, written.resource_version.as_deref()).await?;
    }
    Ok(next(context, &validated, &plan, &written))
}

/// Says what waits and does nothing; the end of the annotation is seen at once.
async fn suspend(
    context: &Context,
    resource: &QuestDB,
    planned: Option<(&Plan, Vec<String>)>,
) -> Result<Next, Error> {
    let mut status = plan::suspended(resource, planned.as_ref().map(|(plan, _)| *plan), Timestamp::now());
    status.plan = planned.map(|(_, rehearsed)| rehearsed).unwrap_or_default();
    report::write(context, resource, status, None).await?;
    Ok(Next::Rest(context.resync))
}

/// When to look again after a pass.
fn next(context: &Context, validated: &Validated, plan: &Plan, written: &Written) -> Next {
    let uid = &validated.subject.uid;
    if !written.failed_now.is_empty() {
        // One that may heal by itself is tried as if it were alone.
        let lasting = written.failed_now.iter().all(|failure| failure.lasting);
        return Next::Failed { delay: context.memories.failed(uid, lasting), lasting };
    }
    if written.released {
        return Next::Change;
    }
    if plan.is_settled() {
        return Next::Rest(context.resync.mul_f64(1.0 + runtime::backoff::random_share() / 2.0));
    }
    // A part that rests keeps its own time.
    let rests = |part| written.applied.holds_back(part);
    let mut waiting = plan
        .progress
        .iter()
        .filter(|progress| matches!(progress.state, State::Running(_)) && !rests(progress.part))
        .map(|progress| progress.part)
        .peekable();
    let waits = waiting.peek().is_some();
    Next::Soon(match (written.applied.wrote, waits) {
        (true, _) => AFTER_WRITE,
        (false, true) if waiting.all(|part| part == Part::LastCopy) => COPYING,
        (false, true) => AT_WORK,
        (false, false) if written.applied.failures.is_empty() => BROKEN,
        (false, false) => context.memories.rests_for(uid).unwrap_or(BROKEN).clamp(AT_WORK, BROKEN),
    })
}
