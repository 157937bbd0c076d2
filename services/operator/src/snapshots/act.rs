//! Doing one step of a snapshot. The only place that writes to QuestDB, to EC2 and to the object for its sake.
//!
//! *Invariant:* a copy is destroyed only on the word of its object as the API server, asked right before, has it.

use std::time::Instant;

use cloud::{Disposition, Error as AwsError, NewSnapshot, SnapshotId, Tags, key};
use kube::Api;
use kube::api::ListParams;
use plan::snapshot::{Step, identity, owes, patience};
use resources::names::snapshot::{FINALIZER, IDENTITY, RELEASE_OWED};
use resources::{QuestDBSnapshot, Seen};
use serde_json::{Value, json};

use super::Snapshots;
use super::refusals::Refusals;
use crate::database::{self, Door};
use crate::error::Error;
use crate::{shown, write};

/// The place after a step or a status, about a snapshot by name.
pub(super) const STEP: &str = "operator.snapshot.step";

/// What a step changed.
pub(super) enum Done {
    /// The object, which is now this.
    Written(Box<QuestDBSnapshot>),
    /// Something else.
    Elsewhere,
    /// The object was let go.
    Gone,
}

/// Carries out a step.
pub(super) async fn carry_out(
    snapshots: &Snapshots,
    resource: &QuestDBSnapshot,
    step: &Step,
    door: Option<&Door>,
) -> Result<Done, Error> {
    let (context, name) = (&snapshots.context, step.name());
    let work = async {
        runtime::failpoint::hit("operator.snapshot.before", name).await;
        let done = one(snapshots, resource, step, door).await;
        runtime::failpoint::hit("operator.snapshot.after", name).await;
        runtime::failpoint::hit(STEP, resource.metadata.name.as_deref().unwrap_or_default()).await;
        done
    };
    let done = if step.is_destructive() { context.within_lease(work).await } else { work.await };
    context.measures.step(name, &done);
    match &done {
        Ok(_) => tracing::info!(step.name = name, "did {name}"),
        Err(error) if !error.is_trouble() => {
            let text = runtime::telemetry::chain(error);
            tracing::debug!(step.name = name, error = text, "somebody was quicker, or the namespace ends");
        }
        Err(error) => {
            let text = runtime::telemetry::chain(error);
            tracing::warn!(step.name = name, error = text, "could not do {name}");
            context.events.failed(resource, name, &text, &error.stable()).await;
        }
    }
    done
}

async fn one(
    snapshots: &Snapshots,
    resource: &QuestDBSnapshot,
    step: &Step,
    door: Option<&Door>,
) -> Result<Done, Error> {
    match step {
        Step::Hold => hold(snapshots, resource).await,
        Step::Owe => owe(snapshots, resource).await,
        Step::Strike => drop_finalizer(snapshots, resource, RELEASE_OWED).await,
        Step::LetGo => drop_finalizer(snapshots, resource, FINALIZER).await.map(|_| Done::Gone),
        Step::Checkpoint => checkpoint(snapshots, resource, entered(door)?).await,
        Step::Release => {
            let released = snapshots.context.databases.release(entered(door)?).await;
            released.map(|()| Done::Elsewhere).map_err(Error::database("release the checkpoint"))
        }
        Step::Begin(new) => begin(snapshots, resource, new).await,
        Step::Trust(id) => trust(snapshots, resource, id).await,
        Step::Discard(id) => discard(snapshots, resource, id).await,
    }
}

fn uid(resource: &QuestDBSnapshot) -> &str {
    resource.metadata.uid.as_deref().unwrap_or_default()
}

fn entered(door: Option<&Door>) -> Result<&Door, Error> {
    door.ok_or_else(|| Error::Stale { what: "QuestDB was not asked".to_owned() })
}

async fn hold(snapshots: &Snapshots, resource: &QuestDBSnapshot) -> Result<Done, Error> {
    let minted = || uuid::Uuid::now_v7().hyphenated().to_string();
    let identity = identity(resource).map_or_else(minted, str::to_owned);
    let metadata = json!({
        "finalizers": with_finalizer(resource, FINALIZER),
        "annotations": { IDENTITY: identity },
    });
    merge(snapshots, resource, "take the snapshot in hand", metadata).await
}

/// *Invariant:* of all snapshots of a database, at most one owes a release: two would release each other's checkpoints.
async fn owe(snapshots: &Snapshots, resource: &QuestDBSnapshot) -> Result<Done, Error> {
    let _one_after_the_other = snapshots.owing.lock().await;
    // One that cannot be read in whole may owe one, too, and must not keep the others from being read.
    let namespace = resource.metadata.namespace.as_deref().unwrap_or_default();
    let list: Api<Seen<QuestDBSnapshot>> = Api::namespaced(snapshots.context.client.clone(), namespace);
    let all = snapshots.context.call("list the snapshots", list.list(&ListParams::default())).await?.items;
    let other = all.iter().map(|seen| &seen.object).find(|other| {
        other.spec.database == resource.spec.database
            && other.metadata.uid != resource.metadata.uid
            && owes(other)
    });
    if let Some(other) = other {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        return Err(Error::Stale { what: format!("QuestDBSnapshot {name} of the same database is at work") });
    }
    let metadata = json!({ "finalizers": with_finalizer(resource, RELEASE_OWED) });
    let written = merge(snapshots, resource, "write down that a release is owed", metadata).await?;
    snapshots.checkpoints.unmade(uid(resource));
    Ok(written)
}

async fn checkpoint(snapshots: &Snapshots, resource: &QuestDBSnapshot, door: &Door) -> Result<Done, Error> {
    let (context, checkpoints) = (&snapshots.context, &snapshots.checkpoints);
    let Ok(_place) = snapshots.stands.try_acquire() else {
        return Err(Error::Stale { what: "other databases come to a stand first".to_owned() });
    };
    let before = checkpoints.asks(uid(resource), Instant::now());
    let answer = context.databases.hold(door, patience(resource, context.clock.now())).await;
    match &answer {
        Ok(()) | Err(database::Error::Unreadable { .. }) => checkpoints.answered(uid(resource), before),
        // A clear no made none.
        Err(database::Error::Refused { .. } | database::Error::Denied { .. }) => {
            checkpoints.refused(uid(resource), before);
        }
        Err(database::Error::Silent { .. }) => checkpoints.unheard(uid(resource), Instant::now()),
    }
    answer.map_err(Error::database("make a checkpoint"))?;
    let held = context.databases.held(door).await.map_err(Error::database("ask for the checkpoint"))?;
    if let Some(held) = held {
        checkpoints.made(uid(resource), held.since);
    }
    Ok(Done::Elsewhere)
}

async fn begin(snapshots: &Snapshots, resource: &QuestDBSnapshot, new: &NewSnapshot) -> Result<Done, Error> {
    let answer = snapshots.context.cloud.create_snapshot(new).await;
    // A clear no leaves nothing to be waited for.
    if answer.as_ref().err().is_none_or(AwsError::outcome_unknown) {
        snapshots.memories.asked(uid(resource));
        snapshots.begun.begun(uid(resource));
    }
    heard(&snapshots.refusals, resource, answer, ("begin the snapshot", Refusals::begun))
}

async fn trust(snapshots: &Snapshots, resource: &QuestDBSnapshot, id: &SnapshotId) -> Result<Done, Error> {
    // A look that does not show the tag yet must not condemn the copy.
    snapshots.memories.asked(uid(resource));
    let tags = Tags::new().with(key::CONSISTENT, "true");
    let tagged = snapshots.context.cloud.create_tags(&[id.as_str()], &tags).await;
    heard(&snapshots.refusals, resource, tagged, ("mark the snapshot as trusted", Refusals::forget))
}

/// What EC2 answered to a call about a copy; `done` says what that means for what it refused before, once it has done it. What it refuses,
/// and would refuse in a second too, is not asked for again at once: the database would stand still for that.
fn heard<T>(
    refusals: &Refusals,
    resource: &QuestDBSnapshot,
    answer: Result<T, AwsError>,
    (call, done): (&'static str, fn(&Refusals, &str)),
) -> Result<Done, Error> {
    let is_refused = answer.as_ref().err().is_some_and(|error| error.disposition() != Disposition::Retry);
    let answer = answer.map_err(Error::aws(call));
    match &answer {
        Ok(_) => done(refusals, uid(resource)),
        Err(error) if is_refused => {
            let moment = (Instant::now(), runtime::backoff::random_share());
            refusals.refused(uid(resource), error.stable(), moment);
        }
        Err(_) => {}
    }
    answer.map(|_| Done::Elsewhere)
}

async fn discard(snapshots: &Snapshots, resource: &QuestDBSnapshot, id: &SnapshotId) -> Result<Done, Error> {
    check_current(resource, shown::now(&snapshots.context, resource).await?.as_ref())?;
    snapshots.memories.asked(uid(resource));
    match snapshots.context.cloud.delete_snapshot(id).await {
        Ok(()) | Err(AwsError::NotFound { .. }) => Ok(Done::Elsewhere),
        Err(error) => Err(Error::aws("destroy the snapshot")(error)),
    }
}

/// An error unless an object is what was seen of it, by what the API server has now: whoever deleted it may want its copy kept by now.
/// Pure.
fn check_current(seen: &QuestDBSnapshot, now: Option<&QuestDBSnapshot>) -> Result<(), Error> {
    let known = seen.metadata.uid.as_ref().zip(seen.metadata.resource_version.as_ref());
    let found = now.and_then(|now| now.metadata.uid.as_ref().zip(now.metadata.resource_version.as_ref()));
    if known.is_some() && known == found {
        return Ok(());
    }
    Err(Error::Stale { what: "the snapshot changed, or went, before its copy was destroyed".to_owned() })
}

fn with_finalizer(resource: &QuestDBSnapshot, name: &str) -> Vec<String> {
    let mut finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == name) {
        finalizers.push(name.to_owned());
    }
    finalizers
}

async fn drop_finalizer(
    snapshots: &Snapshots,
    resource: &QuestDBSnapshot,
    name: &str,
) -> Result<Done, Error> {
    let finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
    let others: Vec<_> = finalizers.into_iter().filter(|finalizer| finalizer != name).collect();
    let done = match merge(snapshots, resource, "remove a finalizer", json!({ "finalizers": others })).await {
        Err(error) if error.is_missing() => Ok(Done::Gone),
        other => other,
    };
    // While the debt stands, what is known of whose the checkpoint is stands with it.
    if done.is_ok() {
        snapshots.checkpoints.forget(uid(resource));
    }
    done
}

async fn merge(
    snapshots: &Snapshots,
    resource: &QuestDBSnapshot,
    what: &'static str,
    metadata: Value,
) -> Result<Done, Error> {
    let written = write::metadata_of(&snapshots.context, resource, what, metadata).await?;
    Ok(Done::Written(Box::new(written)))
}

#[cfg(test)]
mod tests {
    use cloud::Call;

    use super::*;

    fn snapshot() -> QuestDBSnapshot {
        serde_json::from_value(json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDBSnapshot",
            "metadata": { "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7" },
            "spec": { "database": "trades", "deletionPolicy": "Delete" },
        }))
        .unwrap()
    }

    #[test]
    fn what_ec2_refuses_is_remembered_until_it_does_that() {
        let (refusals, snapshot) = (Refusals::default(), snapshot());
        let call = |code: &str| Box::new(Call::new("CreateSnapshot", "no").with_code(code));
        let hear = |answer: Result<(), AwsError>, done: fn(&Refusals, &str)| {
            let is_done = heard(&refusals, &snapshot, answer, ("begin the snapshot", done)).is_ok();
            (is_done, refusals.known("u", Instant::now()).map(|refused| refused.rests))
        };
        let limit = || Err(AwsError::Quota { call: call("SnapshotLimitExceeded") });
        let busy = || Err(AwsError::Throttled { retry_after: None, call: call("RequestLimitExceeded") });
        assert_eq!(hear(busy(), Refusals::begun), (false, None), "it may do that in a second");
        for done in [Refusals::begun, Refusals::forget] {
            assert_eq!(hear(limit(), done), (false, Some(true)));
            assert_eq!(hear(busy(), done), (false, Some(true)), "nothing else is known");
            assert_eq!(hear(Ok(()), done), (true, None));
        }
    }

    #[test]
    fn no_copy_is_destroyed_on_the_word_of_an_object_that_changed_or_went() {
        let seen = snapshot();
        assert!(check_current(&seen, Some(&seen)).is_ok());
        let changed = |change: fn(&mut QuestDBSnapshot)| {
            let mut changed = seen.clone();
            change(&mut changed);
            changed
        };
        let kept = changed(|now| now.metadata.resource_version = Some("8".to_owned()));
        let another = changed(|now| now.metadata.uid = Some("v".to_owned()));
        for now in [None, Some(&kept), Some(&another)] {
            let refused = check_current(&seen, now).err();
            assert!(refused.is_some_and(|error| error.is_conflict()), "it is decided anew: {now:?}");
        }
        let unknown = changed(|now| now.metadata.resource_version = None);
        assert!(check_current(&unknown, Some(&unknown)).is_err(), "what cannot be compared is not the same");
    }
}
