//! The controller of `QuestDBSnapshot`: looks, lets `plan::snapshot` decide, does one thing, and says how it stands.
//!
//! *Invariant:* a pass over a snapshot that is whole or has failed, and owes nothing, sends no request, but for one list of all copies
//! that those which were whole share in a round, and for a single look for what this process had begun itself; one over a snapshot that
//! EBS only copies asks EC2 alone, once, together with others. Where this process may have left the database held under a debt that
//! somebody else has struck, it is looked at until that is known.

mod act;
mod begun;
mod checkpoints;
mod copies;
mod debts;
mod ended;
mod ground;
mod pace;
mod refusals;
mod settled;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::VolumeSnapshot;
use plan::snapshot::{self, Ground, Plan, Seen};
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase};
use tokio::sync::{Mutex, Semaphore};

use self::begun::Begun;
use self::checkpoints::Checkpoints;
use self::copies::{Copies, hear};
use self::ground::Look;
use self::pace::Rests;
use self::refusals::Refusals;
use crate::context::Context;
use crate::error::Error;
use crate::memory::Memories;
use crate::turn::Next;
use crate::write;

/// Databases that come to a stand at once. Each may take long for that, and those that are to be let go need places meanwhile.
pub(crate) const STANDS: u16 = 10;
/// After something was done: what was done shows soon.
const AFTER_STEP: Duration = Duration::from_millis(400);

/// What passes over snapshots share.
pub(crate) struct Snapshots {
    pub(crate) context: Arc<Context>,
    copies: Copies,
    rests: Rests,
    /// Attempts and what was asked of EC2, by uid of the snapshot.
    pub(crate) memories: Memories,
    begun: Begun,
    checkpoints: Checkpoints,
    refusals: Refusals,
    stands: Semaphore,
    /// One after the other looks whether nobody owes a release and writes down that it does.
    owing: Mutex<()>,
}

impl Snapshots {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let memories = Memories::default();
        memories.take_over();
        Self {
            copies: Copies::new(&context.cloud, &context.settings.cluster),
            rests: Rests::default(),
            begun: Begun::default(),
            checkpoints: Checkpoints::new(Instant::now(), context.questdb_lag),
            refusals: Refusals::default(),
            stands: Semaphore::new(usize::from(STANDS)),
            context,
            memories,
            owing: Mutex::default(),
        }
    }

    /// Keeps in mind only these.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.begun.retain(&known);
        self.checkpoints.retain(&known);
        self.refusals.retain(&known);
        self.rests.retain(&known);
        self.memories.retain(known);
    }

    /// One pass. Of those that cannot be read in whole, over such as owe a release alone.
    pub(crate) async fn pass(&self, resource: &QuestDBSnapshot) -> Result<Next, Error> {
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let made = self.checkpoints.own(uid).filter(|_| !snapshot::owes(resource));
        let Some(made) = made else { return self.go_on(resource).await };
        match self.take_back(resource, made).await? {
            None => self.go_on(resource).await,
            // With the object it would be forgotten that its database may be held.
            Some(again) if resource.metadata.deletion_timestamp.is_some() => Ok(Next::Soon(again)),
            Some(again) => Ok(pace::no_later(self.go_on(resource).await?, again)),
        }
    }

    /// The pass itself.
    async fn go_on(&self, resource: &QuestDBSnapshot) -> Result<Next, Error> {
        if let Some(what) = plan::unread(resource) {
            return self.let_go(resource, what).await;
        }
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let looked = Instant::now();
        if snapshot::is_settled(resource) {
            if self.begun.is_unseen(uid) {
                return self.look_beside(resource, looked).await;
            }
            return self.look_after(resource).await;
        }
        if let Some(left) = self.rests.left(resource, looked) {
            return Ok(Next::Soon(left));
        }
        let (copies, unseen) = match self.shown(resource).await {
            Ok(copies) => (copies, None),
            // Nothing is known anew, and the database has nothing to do with it.
            Err(error) if snapshot::is_copying(resource) => return Err(error),
            Err(error) => (Vec::new(), Some(error)),
        };
        let ground = if snapshot::rests_on_database(resource, &copies) {
            ground::look(self, resource, snapshot::owes(resource)).await?
        } else {
            Look::unclear("nothing rests on the database any more")
        };
        self.heard(uid, &ground.ground);
        let unseen = unseen.or(ground.blind);
        let seen = self.seen(resource, looked, (ground.ground, copies, unseen.is_none()));
        let plan = snapshot::plan(resource, &seen);
        if seen.conclusive && plan.step.is_none() {
            self.begun.seen(uid);
        }
        let done = match &plan.step {
            Some(step) => Some(act::carry_out(self, resource, step, ground.door.as_ref()).await),
            None => None,
        };
        let failure = match done {
            Some(Err(error)) => Some(error),
            Some(Ok(act::Done::Gone)) => {
                if let Some(note) = snapshot::left_to_others(resource, &seen.copies) {
                    self.context.events.done(resource, "LeftToOthers", note).await;
                }
                self.memories.forget(uid);
                return Ok(Next::Change);
            }
            Some(Ok(act::Done::Written(newer))) => {
                self.report(&newer, &snapshot::status(&newer, &seen, &plan, None)).await?;
                None
            }
            Some(Ok(act::Done::Elsewhere)) | None => None,
        };
        let failure = failure.or(unseen);
        self.conclude(resource, &seen, &plan, failure).await
    }

    /// What is known by a look that began then; whether EC2 told all that it was asked.
    fn seen(
        &self,
        resource: &QuestDBSnapshot,
        looked: Instant,
        (ground, copies, is_told): (Ground, Vec<VolumeSnapshot>, bool),
    ) -> Seen {
        let QuestDBSnapshot { metadata, spec, .. } = resource;
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let all = self.context.side.snapshots_of(metadata.namespace.as_deref(), &spec.database);
        let before = snapshot::comes_before(resource, all.iter().map(AsRef::as_ref));
        Seen {
            ground,
            copies,
            conclusive: is_told && self.memories.shows_all(uid, looked, self.context.ec2_lag),
            before: before.and_then(|one| one.metadata.name.clone()),
            known: self.checkpoints.known(uid, looked),
            refused: self.refusals.known(uid, looked),
            now: self.context.clock.now(),
        }
    }

    /// When to look again after a pass, so that what is due at its deadline is done then.
    pub(crate) fn in_time(&self, resource: &QuestDBSnapshot, next: Next) -> Next {
        pace::by_deadline(next, resource, self.context.clock.now())
    }

    /// The copies that EC2 shows of it. Nobody looks for those of one that is being deleted afterwards, and of one that had begun
    /// something is to be there, so that there are none only where the account is asked that they would be in.
    async fn shown(&self, resource: &QuestDBSnapshot) -> Result<Vec<VolumeSnapshot>, Error> {
        let found = hear(self.is_overdue(resource), self.copies.of(resource)).await?;
        let ends = resource.metadata.deletion_timestamp.is_some() && !snapshot::owes(resource);
        let may_be_there = ends && snapshot::identity(resource).is_some();
        if found.is_empty()
            && (may_be_there || snapshot::told_copy(resource).is_some())
            && let Some(what) = crate::observe::other_account(&self.context).await?
        {
            return Err(Error::Elsewhere { what });
        }
        Ok(found)
    }

    /// Whether its database is to be let go, whatever else is known.
    fn is_overdue(&self, resource: &QuestDBSnapshot) -> bool {
        snapshot::owes(resource) && snapshot::is_overdue(resource, self.context.clock.now())
    }

    /// Says what went wrong, if anything did, and when to look again.
    async fn conclude(
        &self,
        resource: &QuestDBSnapshot,
        seen: &Seen,
        plan: &Plan,
        failure: Option<Error>,
    ) -> Result<Next, Error> {
        let Some(failure) = failure else {
            if plan.step.is_some() {
                return Ok(Next::Soon(AFTER_STEP));
            }
            let version = self.report(resource, &snapshot::status(resource, seen, plan, None)).await?;
            if plan.settled {
                return Ok(self.after_end(resource));
            }
            let pause = pace::pause(resource, plan, seen.now);
            if let (Some(uid), Some(version)) = (&resource.metadata.uid, version) {
                self.rests.until(uid, &version, pause);
            }
            return Ok(Next::Soon(pause));
        };
        if !failure.is_conflict() {
            let text = failure.stable();
            self.report(resource, &snapshot::status(resource, seen, plan, Some(&text))).await?;
        }
        Err(failure)
    }

    /// Whether QuestDB told of its checkpoint was seen.
    fn heard(&self, uid: &str, ground: &Ground) {
        if matches!(ground, Ground::Unclear(_)) {
            self.checkpoints.silent(uid, Instant::now());
        }
    }

    /// Writes the status when it says something else than before; the version of the object that says so.
    async fn report(
        &self,
        resource: &QuestDBSnapshot,
        status: &QuestDBSnapshotStatus,
    ) -> Result<Option<String>, Error> {
        if resource.status.as_ref() == Some(status) {
            return Ok(resource.metadata.resource_version.clone());
        }
        let before = resource.status.as_ref().and_then(|status| status.phase);
        let report = QuestDBSnapshot { status: Some(status.clone()), ..resource.clone() };
        let written = match write::status(&self.context, &report).await {
            Err(error) if error.is_missing() => return Ok(None),
            other => other?,
        };
        runtime::failpoint::hit(act::STEP, resource.metadata.name.as_deref().unwrap_or_default()).await;
        if let Some(phase) = status.phase.filter(|phase| Some(*phase) != before) {
            if phase.is_final() {
                self.context.measures.snapshot(phase.as_str());
            }
            let note = format!("the snapshot of {} is {}", resource.spec.database, phase.as_str());
            if phase == SnapshotPhase::Failed {
                let note = status.message().map_or_else(|| note.clone(), |why| format!("{note}: {why}"));
                self.context.events.wrong(resource, phase.as_str(), note).await;
            } else {
                self.context.events.done(resource, phase.as_str(), note).await;
            }
            if let Some(told) = status.ready().filter(|told| told.reason == snapshot::COPY_OF_BEFORE) {
                self.context.events.wrong(resource, snapshot::COPY_OF_BEFORE, told.message.clone()).await;
            }
        }
        Ok(written.metadata.resource_version)
    }
}
