//! The controller of `QuestDBSnapshot`: looks, lets `plan::snapshot` decide, does one thing, and says how it stands.
//!
//! *Invariant:* a pass over a snapshot that is whole or has failed, and owes nothing, sends no request.

mod act;
mod ground;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{Select, TagFilter, VolumeSnapshot, key};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::reflector::Store;
use plan::snapshot::{self, Plan, Seen};
use resources::{QuestDBSnapshot, QuestDBSnapshotStatus, SnapshotPhase, names};
use tokio::sync::Mutex;

use crate::context::Context;
use crate::database::Databases;
use crate::error::Error;
use crate::memory::Memories;
use crate::turn::Next;

/// After something was done: what was done shows soon.
const AFTER_STEP: Duration = Duration::from_millis(400);
/// Between two looks while something is waited for, at first and at last.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// What passes over snapshots share.
pub(crate) struct Snapshots {
    pub(crate) context: Arc<Context>,
    /// Every snapshot in sight.
    pub(crate) known: Store<QuestDBSnapshot>,
    databases: Databases,
    /// Attempts and what was asked of EC2, by uid of the snapshot.
    pub(crate) memories: Memories,
    /// Checkpoints that this process asked for, by uid of the snapshot.
    checkpoints: std::sync::Mutex<std::collections::HashMap<String, Timestamp>>,
    /// One after the other looks whether nobody owes a release and writes down that it does.
    owing: Mutex<()>,
}

impl Snapshots {
    pub(crate) fn new(context: Arc<Context>, known: Store<QuestDBSnapshot>) -> Result<Self, reqwest::Error> {
        let memories = Memories::default();
        memories.take_over();
        Ok(Self {
            context,
            known,
            databases: Databases::new()?,
            memories,
            checkpoints: std::sync::Mutex::default(),
            owing: Mutex::default(),
        })
    }

    /// One pass.
    pub(crate) async fn pass(&self, resource: &QuestDBSnapshot) -> Result<Next, Error> {
        if snapshot::is_settled(resource) {
            return Ok(Next::Change);
        }
        let uid = resource.metadata.uid.as_deref().unwrap_or_default();
        let looked = Instant::now();
        let (copies, unseen) = match self.copies(resource).await {
            Ok(copies) => (copies, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let ground = ground::look(self, resource).await?;
        let unseen = unseen.or(ground.blind);
        let all = self.known.state();
        let before = snapshot::comes_before(resource, all.iter().map(AsRef::as_ref));
        let seen = Seen {
            ground: ground.ground,
            copies,
            conclusive: unseen.is_none() && self.memories.shows_all(uid, looked, self.context.ec2_lag),
            before: before.and_then(|one| one.metadata.name.clone()),
            checkpoint: self.checkpoint(uid),
            now: Timestamp::now(),
        };
        let plan = snapshot::plan(resource, &seen);
        let done = match &plan.step {
            Some(step) => Some(act::carry_out(self, resource, step, ground.door.as_ref()).await),
            None => None,
        };
        let failure = match done {
            Some(Err(error)) => Some(error),
            Some(Ok(act::Done::Gone)) => {
                self.memories.retain(|known| known != uid);
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
            self.report(resource, &snapshot::status(resource, seen, plan, None)).await?;
            return Ok(if plan.settled { Next::Change } else { Next::Soon(pause(resource, seen.now)) });
        };
        if !failure.is_conflict() {
            let text = failure.stable();
            self.report(resource, &snapshot::status(resource, seen, plan, Some(&text))).await?;
        }
        Err(failure)
    }

    /// Snapshots in EC2 with the identity of this one.
    async fn copies(&self, resource: &QuestDBSnapshot) -> Result<Vec<VolumeSnapshot>, Error> {
        let Some(identity) = snapshot::identity(resource) else { return Ok(Vec::new()) };
        let filter = TagFilter::cluster(&self.context.settings.cluster).and(key::SNAPSHOT, &[identity]);
        let found = self.context.cloud.describe_snapshots(&Select::Tags(filter)).await;
        let mut found = found.map_err(Error::aws("look for snapshots"))?;
        // An object that was copied brings the identity of the first along, and has nothing of it.
        found.retain(|copy| snapshot::is_of(resource, &copy.tags));
        Ok(found)
    }

    fn checkpoint(&self, uid: &str) -> Option<Timestamp> {
        self.locked().get(uid).copied()
    }

    fn remember(&self, uid: &str, checkpoint: Option<Timestamp>) {
        let mut checkpoints = self.locked();
        match checkpoint {
            Some(since) => checkpoints.insert(uid.to_owned(), since),
            None => checkpoints.remove(uid),
        };
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<String, Timestamp>> {
        self.checkpoints.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn api(&self, resource: &QuestDBSnapshot) -> Api<QuestDBSnapshot> {
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.context.client.clone(), namespace)
    }

    /// Writes the status when it says something else than before.
    async fn report(&self, resource: &QuestDBSnapshot, status: &QuestDBSnapshotStatus) -> Result<(), Error> {
        if resource.status.as_ref() == Some(status) {
            return Ok(());
        }
        let before = resource.status.as_ref().and_then(|status| status.phase);
        let report = QuestDBSnapshot { status: Some(status.clone()), ..resource.clone() };
        let name = resource.metadata.name.as_deref().unwrap_or_default();
        let manager = Some(names::OPERATOR.to_owned());
        let parameters = PostParams { field_manager: manager, ..PostParams::default() };
        let api = self.api(resource);
        let written = self.context.call("write the status", api.replace_status(name, &parameters, &report));
        match written.await {
            Err(Error::Kubernetes { source, .. }) if crate::apply::kubernetes::is_missing(&source) => {
                return Ok(());
            }
            other => other?,
        };
        if let Some(phase) = status.phase.filter(|phase| Some(*phase) != before) {
            let note = format!("the snapshot of {} is {}", resource.spec.database, phase.as_str());
            if phase == SnapshotPhase::Failed {
                self.context.events.wrong(resource, phase.as_str(), note).await;
            } else {
                self.context.events.done(resource, phase.as_str(), note).await;
            }
        }
        Ok(())
    }
}

/// The longer something takes, the seldomer it is looked at.
fn pause(resource: &QuestDBSnapshot, now: Timestamp) -> Duration {
    let made = resource.metadata.creation_timestamp.as_ref();
    let age = made.map_or(SignedDuration::ZERO, |made| now.duration_since(made.0));
    let (shortest, longest) = WAIT;
    Duration::try_from(age).map_or(shortest, |age| (age / 20).clamp(shortest, longest))
}
