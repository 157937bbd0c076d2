//! Doing: the steps of a plan, in order; a failure holds back the parts that need the failed one and no others. The only
//! place that writes to AWS, and with `report` the only one that writes to Kubernetes.
//!
//! *Invariant:* whatever cannot be undone is decided again on a live read, right before it is done.

mod aws;
pub(crate) mod contention;
mod current;
mod definition;
mod destroy;
mod dns;
mod drift;
mod failed;
mod key;
pub(crate) mod kubernetes;
mod last_look;
mod left;
mod opened;
mod reload;
mod secret;

use std::time::Instant;

use kube::runtime::reflector::ObjectRef;
use plan::{Action, Applied, Failure, Kind, Manifest, Plan, Step, Target, Validated};
use resources::{Phase, QuestDB};

use crate::context::Context;
use crate::error::Error;
use crate::report::{self, KIND, Position, WRITTEN};

/// What became of a plan, for the report and for the next look.
#[derive(Default)]
pub(crate) struct Written {
    /// For the report.
    pub(crate) applied: Applied,
    /// Version of the resource after our own last write to it.
    pub(crate) resource_version: Option<String>,
    /// The resource was let go: there is nothing left to report on.
    pub(crate) released: bool,
    /// Something is not asked for again, because it was a moment ago and need not show yet.
    pub(crate) skipped: bool,
    /// What the last step was to make was there all along, and is only not seen yet: nobody took it away.
    seen_late: bool,
    /// How a failure of this pass is counted that is counted by itself.
    pub(crate) category: Option<&'static str>,
    /// Failures of this very pass; the others of `applied` were remembered, and their steps not tried.
    pub(crate) failed_now: Vec<Failure>,
}

impl Written {
    /// Whether something was done that shows soon.
    pub(crate) const fn acted(&self) -> bool {
        self.applied.wrote || self.skipped
    }
}

/// One pass's steps.
pub(crate) struct Pass<'a> {
    pub(crate) context: &'a Context,
    pub(crate) resource: &'a QuestDB,
    pub(crate) validated: &'a Validated,
}

/// Carries out a plan.
pub(crate) async fn apply(
    context: &Context,
    resource: &QuestDB,
    validated: &Validated,
    plan: &Plan,
) -> Written {
    let pass = Pass { context, resource, validated };
    let mut written = Written::default();
    for action in &plan.actions {
        if written.applied.skips(action) {
            continue;
        }
        if let Some(failure) =
            context.memories.held(&pass.validated.subject.uid, pass.validated.generation, action.part)
        {
            written.applied.failures.push(failure);
            continue;
        }
        let (memories, uid) = (&context.memories, &validated.subject.uid);
        let brings = action.step.brings();
        if brings.as_ref().is_some_and(|what| memories.may_show_later(uid, what)) {
            written.skipped = true;
            continue;
        }
        // A step asks much of others: what it remembers meanwhile is not to be carried around by every pass.
        if let Err(error) = Box::pin(pass.act(action, &mut written)).await {
            if let Error::Contended { what } = &error {
                written.applied.contended.push(what.clone());
            }
            if matches!(error, Error::Denied { .. }) {
                written.applied.denied.push(error.stable());
            }
            if matches!(error, Error::Undeclared { .. }) {
                written.category = Some(error.category());
            }
            let failure = Box::pin(failed::told(&pass, action, &error)).await;
            if !failed::rests(action.part, &error) {
                written.failed_now.push(failure.clone());
            }
            written.applied.failures.push(failure);
            if matches!(error, Error::Lease) || action.step.writes_resource() {
                // Nobody else's turn is taken, and nothing more is done by a plan that rests on an older resource.
                break;
            }
        } else if let Some(what) = brings {
            memories.brought(uid, what);
        }
    }
    let beside = context.contention.beside_steps(validated, &context.settings, Instant::now());
    let contended = &mut written.applied.contended;
    contended.retain(|said| !beside.contains(said));
    contended.extend(beside);
    written
}

impl Pass<'_> {
    async fn act(&self, action: &Action, written: &mut Written) -> Result<(), Error> {
        let name = action.step.name();
        let step = Box::pin(self.step(action, written));
        let result =
            if action.step.is_destructive() { self.context.within_lease(step).await } else { step.await };
        self.context.measures.step(name, &result);
        result?;
        let position = Position(&self.validated.subject.name, self.validated.generation);
        runtime::failpoint::hit(place(&action.step), position).await;
        runtime::failpoint::hit(KIND, report::Kind(position, name, object(&action.step))).await;
        written.applied.wrote = true;
        let seen_late = std::mem::take(&mut written.seen_late);
        let lost = self.context.strays.has_lost(&ObjectRef::from_obj(self.resource));
        if let Some(kind) = drift::put_right(action, lost)
            && !seen_late
            && crate::observe::is_settled(self.resource)
        {
            self.context.measures.drift(kind);
        }
        contention::records::changed(self, action);
        contention::identity::written(self, action);
        let (memories, uid) = (&self.context.memories, &self.validated.subject.uid);
        memories.went_well(uid, action.part);
        tracing::info!(step.name = name, step.part = %action.part, step.reason = action.reason, "did {name}");
        if !written.released {
            announce(self, action).await;
        }
        Ok(())
    }

    async fn step(&self, action: &Action, written: &mut Written) -> Result<(), Error> {
        let step = &action.step;
        match step {
            Step::AddFinalizer { .. }
            | Step::WriteGeneration { .. }
            | Step::WriteReleased { .. }
            | Step::RemoveFinalizer => self.on_resource(step, written).await,
            Step::CreateSecret(manifest) => {
                written.seen_late = secret::create(self, manifest).await?;
                Ok(())
            }
            Step::DrawKey(manifest, id) => key::draw(self, manifest, id).await,
            Step::RevokeKey(manifest) => key::revoke(self, manifest).await,
            Step::KeepSecret(manifest) => secret::keep(self, manifest).await,
            Step::SetCredentials(new) => secret::set(self, new).await,
            Step::Apply(manifest) => {
                written.seen_late = kubernetes::apply(self, manifest, action.writes_over).await?;
                Ok(())
            }
            Step::Delete(target) => {
                if stops_questdb(target) {
                    current::check(self, "QuestDB was stopped", plan::is_suspended).await?;
                }
                if let Some(seen) = &target.pod {
                    current::check_pod(self, seen).await?;
                }
                kubernetes::delete(self, target).await
            }
            Step::LabelNode { name, uid, labels } => kubernetes::label_node(self, name, uid, labels).await,
            Step::ProveLeft(left) => left::prove(self, left).await,
            Step::Reload(reload) => reload::reload(self, reload).await,
            Step::ChangeRecords { changes, led } => {
                let change = dns::change(self, changes).await;
                if change.is_err() && led.is_some() {
                    // Route 53 may carry it out all the same.
                    self.context.memories.asked(&self.validated.subject.uid);
                }
                written.applied.dns = Some((change?, led.clone()));
                Ok(())
            }
            Step::CreateSecurityGroup(_)
            | Step::AuthorizeIngress { .. }
            | Step::RevokeIngress { .. }
            | Step::SetMachineGroups { .. }
            | Step::GuardMetadata { .. }
            | Step::RunInstance { .. }
            | Step::CreateVolume(_)
            | Step::Tag { .. }
            | Step::ModifyVolume { .. }
            | Step::Protect { .. }
            | Step::Unprotect { .. }
            | Step::TerminateInstance { .. }
            | Step::DeleteSecurityGroup { .. }
            | Step::DeleteVolume { .. } => {
                // Before it too, should the step be given up on its way.
                self.remember(step);
                let result = aws::step(self, step).await;
                // After a failure too: its outcome may be unknown.
                self.remember(step);
                result
            }
        }
    }

    fn remember(&self, step: &Step) {
        let (memories, uid) = (&self.context.memories, &self.validated.subject.uid);
        memories.wrote(uid);
        if step.is_creation() {
            memories.asked(uid);
        }
    }

    async fn on_resource(&self, step: &Step, written: &mut Written) -> Result<(), Error> {
        let after = match step {
            Step::WriteGeneration { generation, launch, zone, beside } => {
                aws::check_no_living(self, *generation, beside.as_ref()).await?;
                kubernetes::write_generation(self, *generation, launch, zone).await?
            }
            Step::WriteReleased { released, unjoined } => {
                kubernetes::write_released(self, released, unjoined.as_deref()).await?
            }
            Step::RemoveFinalizer => {
                last_look::check_nothing_left(self).await?;
                kubernetes::release(self.context, self.resource).await?;
                written.released = true;
                return Ok(());
            }
            Step::AddFinalizer { identity } => {
                kubernetes::hold(self.context, self.resource, identity.as_deref()).await?
            }
            other => {
                return Err(Error::Stale { what: format!("{} is not a step on the resource", other.name()) });
            }
        };
        written.resource_version = after.resource_version;
        Ok(())
    }
}

/// Whether QuestDB stops where this is deleted, be it to start again: its pod, unless there is proof that nothing runs in it any more, or
/// what makes that.
const fn stops_questdb(target: &Target) -> bool {
    matches!(target.kind, Kind::StatefulSet | Kind::Pod) && !target.at_once
}

/// Where a test may end the process: right after a write.
const fn place(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer { .. }
        | Step::WriteGeneration { .. }
        | Step::WriteReleased { .. }
        | Step::RemoveFinalizer
        | Step::CreateSecret(_)
        | Step::DrawKey(..)
        | Step::RevokeKey(_)
        | Step::KeepSecret(_)
        | Step::SetCredentials(_)
        | Step::Apply(_)
        | Step::Delete(_)
        | Step::LabelNode { .. }
        | Step::Reload(_) => WRITTEN,
        Step::CreateSecurityGroup(_)
        | Step::AuthorizeIngress { .. }
        | Step::RevokeIngress { .. }
        | Step::SetMachineGroups { .. }
        | Step::GuardMetadata { .. }
        | Step::RunInstance { .. }
        | Step::CreateVolume(_)
        | Step::Tag { .. }
        | Step::ModifyVolume { .. }
        | Step::Protect { .. }
        | Step::Unprotect { .. }
        | Step::TerminateInstance { .. }
        | Step::DeleteSecurityGroup { .. }
        | Step::DeleteVolume { .. }
        | Step::ChangeRecords { .. } => "operator.aws",
        Step::ProveLeft(_) => "operator.proof",
    }
}

/// The kind of object that a step is about, where steps of its name are about many.
const fn object(step: &Step) -> &'static str {
    match step {
        Step::Apply(Manifest { kind, .. }) | Step::Delete(Target { kind, .. }) => kind.as_str(),
        _ => "",
    }
}

/// Users see what becomes of machine, disk, pod and name; the rest is in the log, and phases are told by the report. Each
/// event is a write, so the first machine, disk and name of a new database are told by the steps of its status alone.
async fn announce(pass: &Pass<'_>, action: &Action) {
    let phase = pass.resource.status.as_ref().and_then(|status| status.phase);
    let is_new = matches!(phase, None | Some(Phase::Pending | Phase::Provisioning));
    let told = match &action.step {
        Step::RunInstance { generation, .. } => !is_new || *generation > 1,
        Step::CreateVolume(_) | Step::ChangeRecords { .. } => !is_new,
        Step::ModifyVolume { .. }
        | Step::TerminateInstance { .. }
        | Step::DeleteVolume { .. }
        | Step::Reload(_) => true,
        Step::Delete(target) => target.kind == Kind::Pod,
        // Somebody meant to change who comes in.
        Step::SetCredentials(_) => action.puts_right,
        _ => false,
    };
    if told {
        pass.context
            .events
            .done(pass.resource, action.step.name(), format!("{}: {}", action.part, action.reason))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stops_questdb_is_deleted_by_the_word_of_its_resource_as_it_is_now() {
        for (kind, at_once, stops) in [
            (Kind::StatefulSet, false, true),
            (Kind::Pod, false, true),
            // Its machine is down, whatever is wished.
            (Kind::Pod, true, false),
            (Kind::Service, false, false),
            (Kind::Node, false, false),
        ] {
            let (name, uid) = ("a".to_owned(), "u".to_owned());
            let target =
                Target { kind, namespace: None, name, uid, resource_version: None, at_once, pod: None };
            assert_eq!(stops_questdb(&target), stops, "{kind:?} {at_once}");
        }
    }
}
