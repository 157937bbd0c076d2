//! The controller of `QuestDBSnapshotSchedule`: makes snapshots by the clock and removes those that retention lets go.
//!
//! *Invariant:* a snapshot, whose copy may go with it, is removed only by a schedule that the API server, asked right before, still has,
//! and as it was when that was decided. *Invariant:* nor is one that a database is still to begin with, by what the API server has, asked
//! in the last moments.

mod awaited;
mod removals;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::{Select, SnapshotId};
use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use plan::schedule::{self, Clock, Due};
use plan::snapshot;
use resources::names::snapshot::LABEL_SCHEDULE;
use resources::{QuestDBSnapshot, QuestDBSnapshotSchedule, QuestDBSnapshotScheduleStatus};

use self::awaited::Awaited;
use self::removals::{MOST_SLOW, Removals, Trouble, Weight, weight};
use crate::context::Context;
use crate::error::Error;
use crate::metrics::MISSED;
use crate::turn::Next;
use crate::{shown, write};

/// The longest time between two looks: clocks may be put right meanwhile.
const LONGEST: Duration = Duration::from_mins(30);
/// After something was done: what was done shows soon.
const AFTER_STEP: Duration = Duration::from_secs(1);

/// The place after a step or a status, about a schedule by name.
const STEP: &str = "operator.schedule.step";

/// What passes over schedules share.
pub(crate) struct Schedules {
    pub(crate) context: Arc<Context>,
    removals: Removals,
    awaited: Awaited,
}

/// What a pass is over.
struct Look<'a> {
    resource: &'a QuestDBSnapshotSchedule,
    own: &'a [&'a QuestDBSnapshot],
    due: Due,
    now: Timestamp,
}

/// How the removals of a pass went.
#[derive(Clone, Copy, Debug, Default)]
struct Removed {
    /// Whether there were any.
    tried: bool,
    /// Whether one went wrong.
    failed: bool,
    /// Whether some were left to the next pass.
    left: bool,
}

impl Schedules {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, removals: Removals::default(), awaited: Awaited::default() }
    }

    /// Keeps in mind only these.
    pub(crate) fn retain(&self, known: impl Fn(&str) -> bool) {
        self.removals.retain(known);
    }

    /// One pass.
    pub(crate) async fn pass(&self, resource: &QuestDBSnapshotSchedule) -> Result<Next, Error> {
        if resource.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        let now = self.context.clock.now();
        let mut found = self.own(resource);
        let spec = &resource.spec;
        let clock = match Clock::new(&spec.schedule, &spec.time_zone, now) {
            Ok(clock) => clock,
            Err(error) => {
                self.report(resource, &schedule::status(resource, &all_of(&found), Err(&error), now)).await?;
                return Ok(Next::Change);
            }
        };
        let mut due = schedule::due(resource, &clock, &all_of(&found), now);
        let mut tried = self.removals.to_try(uid_of(resource), &due.remove, Instant::now());
        let mut looked = Ok(());
        if !tried.is_empty() {
            // What is kept instead has to be there.
            looked = self.mark_gone(&mut found, now).await;
            due = schedule::due(resource, &clock, &all_of(&found), now);
        }
        self.keep_awaited(resource, &found, &mut due);
        tried.retain(|name| looked.is_ok() && due.remove.contains(name));
        if looked.is_ok() {
            looked = self.keep_asked_for(resource, &found, (&mut due, &mut tried)).await;
        }
        self.removals.keep(uid_of(resource), &due.remove);
        let own = all_of(&found);
        // First: what may not be made for want of room is made once there is some. What may not be removed keeps nothing from being made.
        let removed = self.remove_surplus(resource, &own, &tried).await;
        let made = self.make(resource, &due).await;
        let is_made = made.is_ok();
        let mut look = Look { resource, own: &own, due, now };
        match made.and(looked).and(removed) {
            Ok(removed) => self.conclude(&look, removed).await,
            Err(error) => {
                look.due.create.take_if(|_| is_made);
                self.tell_failure(&look, &error).await?;
                Err(error)
            }
        }
    }

    /// Says what could not be done of what is left to do.
    async fn tell_failure(&self, left: &Look<'_>, error: &Error) -> Result<(), Error> {
        let Look { resource, own, due, now } = left;
        if error.is_conflict() {
            return Ok(());
        }
        let text = error.stable();
        self.report(resource, &schedule::failed(resource, own, due, &text, *now)).await?;
        self.context.events.wrong(*resource, "ScheduleFailed", text).await;
        Ok(())
    }

    /// Says how it stands after what was due was done, but for what could not be removed; when to look again.
    async fn conclude(&self, look: &Look<'_>, removed: Removed) -> Result<Next, Error> {
        let Look { resource, own, due, now } = look;
        let trouble = self.removals.trouble(uid_of(resource), Instant::now());
        let status = match &trouble {
            Some(trouble) => schedule::unremoved(resource, own, due, &trouble.text, *now),
            None => schedule::status(resource, own, Ok(due), *now),
        };
        self.report(resource, &status).await?;
        if let Some(trouble) = trouble.as_ref().filter(|_| removed.failed) {
            self.context.events.wrong(*resource, "ScheduleFailed", trouble.text.clone()).await;
        }
        if let Due { let_pass: true, held_back: Some(why), .. } = due {
            // The report's next word is of the next time, which comes at once.
            self.context.measures.snapshot(MISSED);
            self.context.events.wrong(*resource, "SnapshotMissed", why.clone()).await;
        }
        if let Some(Trouble { lasting, category, again, .. }) = trouble {
            let delay = if removed.left { AFTER_STEP } else { again.max(AFTER_STEP).min(until(due, *now)) };
            return Ok(Next::Failed { delay, lasting, category });
        }
        let acted = due.create.is_some() || removed.tried;
        Ok(if acted { Next::Soon(AFTER_STEP) } else { Next::Rest(until(due, *now)) })
    }

    /// Removes these. What one may not be removed for keeps no other; an error is one of which all of them would come to nothing.
    async fn remove_surplus(
        &self,
        resource: &QuestDBSnapshotSchedule,
        own: &[&QuestDBSnapshot],
        tried: &[String],
    ) -> Result<Removed, Error> {
        let (uid, mut slow) = (uid_of(resource), 0);
        let mut removed = Removed { tried: !tried.is_empty(), ..Removed::default() };
        for name in tried {
            let Err(error) = self.remove(resource, own, name).await else {
                self.removals.done(uid, name);
                done(resource).await;
                continue;
            };
            let weight = weight(&error);
            // That the schedule has changed says nothing of the snapshot.
            if !error.is_conflict() || weight == Weight::One {
                let moment = (Instant::now(), runtime::backoff::random_share());
                self.removals.failed(uid, name, &error, moment);
            }
            if weight == Weight::All {
                return Err(error);
            }
            let error = runtime::telemetry::chain(&error);
            tracing::warn!(error, "could not remove QuestDBSnapshot {name}");
            removed.failed = true;
            slow += usize::from(weight == Weight::Slow);
            if slow == MOST_SLOW {
                return Ok(Removed { left: true, ..removed });
            }
        }
        Ok(removed)
    }

    async fn make(&self, resource: &QuestDBSnapshotSchedule, due: &Due) -> Result<(), Error> {
        let Some(time) = due.create else { return Ok(()) };
        self.create(resource, &schedule::snapshot(resource, time)).await?;
        done(resource).await;
        Ok(())
    }

    /// Asks EC2 for the copies of all that succeeded, and marks those as without one that it does not show.
    async fn mark_gone(&self, own: &mut [Arc<QuestDBSnapshot>], now: Timestamp) -> Result<(), Error> {
        let copy = |one: &QuestDBSnapshot| snapshot::whole_copy(one).map(|(id, _)| id);
        let ids = own.iter().filter_map(|one| copy(one)).collect();
        let there = self.context.cloud.describe_snapshots(&Select::Ids(ids)).await;
        let there = there.map_err(Error::aws("look for the copies that are kept"))?;
        let there: HashSet<SnapshotId> = there.into_iter().map(|copy| copy.id).collect();
        for one in own.iter_mut().filter(|one| copy(one).is_some_and(|id| !there.contains(&id))) {
            let status = Some(snapshot::looked_after(one, false, now));
            *one = Arc::new(QuestDBSnapshot { status, ..(**one).clone() });
        }
        Ok(())
    }

    fn own(&self, resource: &QuestDBSnapshotSchedule) -> Vec<Arc<QuestDBSnapshot>> {
        let namespace = resource.metadata.namespace.as_deref();
        let mut own = self.context.side.snapshots_of(namespace, &resource.spec.database);
        own.retain(|one| {
            let labels = one.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(LABEL_SCHEDULE)) == resource.metadata.name.as_ref()
        });
        own
    }

    /// The name is the fence: one time is one snapshot, however often it is made.
    async fn create(&self, resource: &QuestDBSnapshotSchedule, made: &QuestDBSnapshot) -> Result<(), Error> {
        let api = self.snapshots(resource);
        let name = made.metadata.name.as_deref().unwrap_or_default();
        match self.context.call("make a snapshot", api.create(&write::parameters(), made)).await {
            Ok(_) => {
                let note = format!("made QuestDBSnapshot {name}");
                self.context.events.done(resource, "SnapshotMade", note).await;
                Ok(())
            }
            Err(Error::Kubernetes { source, .. }) if is_there(&source) => {
                let found = self.context.call("look at a snapshot", api.get_metadata_opt(name)).await?;
                let labelled = |key: &str| found.as_ref()?.metadata.labels.as_ref()?.get(key);
                if found.is_some() && labelled(LABEL_SCHEDULE) != resource.metadata.name.as_ref() {
                    return Err(Error::Foreign { what: format!("QuestDBSnapshot {name}") });
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes exactly what was seen; gone already is done.
    async fn remove(
        &self,
        resource: &QuestDBSnapshotSchedule,
        own: &[&QuestDBSnapshot],
        name: &str,
    ) -> Result<(), Error> {
        let Some(seen) = own.iter().find(|one| one.metadata.name.as_deref() == Some(name)) else {
            return Ok(());
        };
        let preconditions = Preconditions { uid: seen.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let api = self.snapshots(resource);
        let removal = async {
            check_current(resource, shown::now(&self.context, resource).await?.as_ref())?;
            self.context.call("remove a snapshot", api.delete(name, &parameters)).await
        };
        match self.context.within_lease(removal).await {
            Err(error) if error.is_missing() => return Ok(()),
            other => other?,
        };
        let note = format!("removed QuestDBSnapshot {name}, which retention does not keep");
        self.context.events.done(resource, "SnapshotRemoved", note).await;
        Ok(())
    }

    fn snapshots(&self, resource: &QuestDBSnapshotSchedule) -> Api<QuestDBSnapshot> {
        let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.context.client.clone(), namespace)
    }

    /// Writes the status when it says something else than before.
    async fn report(
        &self,
        resource: &QuestDBSnapshotSchedule,
        status: &QuestDBSnapshotScheduleStatus,
    ) -> Result<(), Error> {
        if resource.status.as_ref() == Some(status) {
            return Ok(());
        }
        let report = QuestDBSnapshotSchedule { status: Some(status.clone()), ..resource.clone() };
        write::status(&self.context, &report).await?;
        done(resource).await;
        Ok(())
    }
}

/// An error unless a schedule is still there and wants what it wanted, by what the API server has now. Pure.
fn check_current(seen: &QuestDBSnapshotSchedule, now: Option<&QuestDBSnapshotSchedule>) -> Result<(), Error> {
    let is_current = now
        .map(|now| &now.metadata)
        .is_some_and(|now| shown::is_same_wish(&seen.metadata, now) && now.deletion_timestamp.is_none());
    if is_current {
        return Ok(());
    }
    Err(Error::Stale {
        what: "the schedule changed, or went, before a snapshot was removed by it".to_owned(),
    })
}

fn uid_of(resource: &QuestDBSnapshotSchedule) -> &str {
    resource.metadata.uid.as_deref().unwrap_or_default()
}

/// Where a test may end the process: right after a write.
async fn done(resource: &QuestDBSnapshotSchedule) {
    runtime::failpoint::hit(STEP, resource.metadata.name.as_deref().unwrap_or_default()).await;
}

fn all_of(own: &[Arc<QuestDBSnapshot>]) -> Vec<&QuestDBSnapshot> {
    own.iter().map(AsRef::as_ref).collect()
}

/// In how long the next time comes.
fn until(due: &Due, now: Timestamp) -> Duration {
    let next = due.next.map(|next| next.duration_since(now));
    let next = next.and_then(|next| Duration::try_from(next).ok());
    next.unwrap_or(LONGEST).min(LONGEST)
}

fn is_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    type Change = fn(&mut QuestDBSnapshotSchedule);

    #[test]
    fn nothing_is_removed_by_a_schedule_that_changed_or_went() {
        let seen: QuestDBSnapshotSchedule = serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshotSchedule",
            "metadata": { "name": "nightly", "namespace": "ns", "uid": "u", "generation": 2 },
            "spec": { "database": "trades", "schedule": "0 3 * * *" },
        }))
        .unwrap();
        assert!(check_current(&seen, Some(&seen)).is_ok());
        let table: [(&str, Change, bool); 5] = [
            ("a status", |now| now.metadata.resource_version = Some("9".to_owned()), true),
            ("another wish", |now| now.metadata.generation = Some(3), false),
            ("another one of its name", |now| now.metadata.uid = Some("v".to_owned()), false),
            (
                "on its way out",
                |now| now.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)),
                false,
            ),
            ("without a uid", |now| now.metadata.uid = None, false),
        ];
        for (what, change, goes) in table {
            let mut now = seen.clone();
            change(&mut now);
            let found = check_current(&seen, Some(&now));
            assert_eq!(found.is_ok(), goes, "{what}");
            assert!(found.err().is_none_or(|error| error.is_conflict()), "{what}: it is decided anew");
        }
        assert!(check_current(&seen, None).is_err());
        let mut nameless = seen;
        nameless.metadata.uid = None;
        assert!(check_current(&nameless, Some(&nameless)).is_err(), "nobody knows which it is");
    }
}
