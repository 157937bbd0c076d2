//! Removes the tombstones that the backend asks to remove: custom resources of purged databases that no instruction can
//! bring back any more.
//!
//! *Invariant:* only the resource of exactly that database, purged, settled at exactly the position that was judged, is
//! removed, and only as it was read: whoever wakes up late finds another version and is refused. What became of it is
//! told by the observer, like every other change.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use resources::{Phase, QuestDB, RunState};
use runtime::CancellationToken;
use store::{Tombstone, in_time};

use crate::apply::{Failed, call_within};
use crate::fleet::Member;
use crate::work::Worker;

/// How often it is looked whether there is anything to remove.
const IDLE: Duration = Duration::from_secs(5);
/// How many are taken at a time, one after the other: nobody waits for them.
const BATCH: u32 = 16;
/// How long one rests that was tried: its operator may still have to let go of it.
const REST: Duration = Duration::from_mins(1);

/// What became of a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It is going.
    Removed,
    /// It was not there, or was going already.
    Gone,
    /// It is not what was asked for, or cannot be removed now.
    Kept(String),
}

/// Removes tombstones of a cluster until it leaves the fleet.
pub async fn run(worker: Arc<Worker>, member: Arc<Member>, stop: CancellationToken) {
    loop {
        // At a stop nobody waits for these either: one that was under way is tried again.
        let Some(round) = Box::pin(stop.run_until_cancelled(step(&worker, &member))).await else { return };
        if let Err(error) = round {
            tracing::debug!(cluster.name = %member.cluster.id, error = &error as &dyn std::error::Error, "tombstones were not read");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = member.left.cancelled() => return,
            () = tokio::time::sleep(IDLE.mul_f64(0.5 + runtime::backoff::random_share())) => {}
        }
    }
}

/// One round: what is due, one after the other.
pub async fn step(worker: &Worker, member: &Member) -> Result<usize, store::Error> {
    let away = member.cluster.state == domain::ClusterState::Disabled;
    if away || member.clients().is_err() {
        return Ok(0);
    }
    let due = in_time(worker.store.claim_tombstones(&member.cluster.id, BATCH, REST)).await?;
    let count = due.len();
    for tombstone in due {
        let tombstone = match tombstone {
            Ok(tombstone) => tombstone,
            Err(error) => {
                tracing::error!(cluster.name = %member.cluster.id, reason = %error, "a tombstone cannot be read: it stays");
                continue;
            }
        };
        match remove(member, &tombstone, worker.call_timeout).await {
            Ended::Removed => {
                tracing::info!(db.id = %tombstone.database, cluster.name = %member.cluster.id, "tombstone removed");
            }
            Ended::Gone => {}
            Ended::Kept(reason) => {
                tracing::warn!(db.id = %tombstone.database, cluster.name = %member.cluster.id, reason, "tombstone kept");
            }
        }
    }
    Ok(count)
}

async fn remove(member: &Member, tombstone: &Tombstone, limit: Duration) -> Ended {
    let client = match member.clients() {
        Ok(clients) => clients.calls,
        Err(trouble) => return Ended::Kept(trouble.message),
    };
    let namespace = member.cluster.namespace(&tombstone.tenant);
    let name = domain::id::resource_name(&tombstone.name, tombstone.database);
    let api: Api<QuestDB> = Api::namespaced(client, &namespace);
    let object = match call_within(member, limit, api.get_opt(&name)).await {
        Ok(Some(object)) => object,
        Ok(None) => return Ended::Gone,
        Err(failed) => return Ended::Kept(reason(failed)),
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ended::Gone;
    }
    if let Err(reason) = may_go(&object, tombstone) {
        return Ended::Kept(reason.to_owned());
    }
    let exactly = Preconditions {
        uid: object.metadata.uid.clone(),
        resource_version: object.metadata.resource_version.clone(),
    };
    let params = DeleteParams::default().preconditions(exactly);
    match call_within(member, limit, api.delete(&name, &params)).await {
        Ok(_) => Ended::Removed,
        Err(failed) => Ended::Kept(reason(failed)),
    }
}

/// Whether a resource is the tombstone that may be removed. Pure.
pub fn may_go(object: &QuestDB, tombstone: &Tombstone) -> Result<(), &'static str> {
    let instruction = object.spec.instruction.as_ref().ok_or("it is somebody's own")?;
    if instruction.database_id != tombstone.database.to_string() {
        return Err("it is another database's");
    }
    let position = (tombstone.position.epoch, tombstone.position.seq);
    if (instruction.epoch, instruction.seq) != position {
        return Err("it holds another position");
    }
    if object.spec.run_state != RunState::Purged {
        return Err("it is not purged");
    }
    let status = object.status.as_ref().ok_or("it has no status")?;
    let carried_out = status.instruction.as_ref().map(|done| (done.epoch, done.seq));
    if status.phase != Some(Phase::Deleted) || carried_out != Some(position) {
        return Err("its purge was not carried out");
    }
    Ok(())
}

fn reason(failed: Failed) -> String {
    match failed {
        Failed::NotTried(refusal) => format!("the cluster is not called now: {refusal:?}"),
        Failed::Late(trouble) => trouble.message,
        Failed::Call(error) => runtime::telemetry::chain(&error),
    }
}

#[cfg(test)]
mod tests {
    use domain::Position;
    use resources::{InstructionStatus, QuestDBStatus};

    use super::*;
    use crate::decide::tests::instruction;

    /// A purged database whose purge was carried out, and its tombstone.
    fn purged() -> (QuestDB, Tombstone) {
        let instruction = instruction();
        let mut object = crate::observe::translate::tests::object();
        object.spec.run_state = RunState::Purged;
        let Position { epoch, seq } = instruction.position;
        let carried_out = InstructionStatus { id: String::new(), epoch, seq, render: 1, hash: String::new() };
        object.status = Some(QuestDBStatus {
            phase: Some(Phase::Deleted),
            instruction: Some(carried_out),
            ..QuestDBStatus::default()
        });
        let tombstone = Tombstone {
            database: instruction.database,
            name: instruction.desired.name.clone(),
            tenant: instruction.tenant.clone(),
            position: instruction.position,
            attempts: 1,
        };
        (object, tombstone)
    }

    #[test]
    fn only_what_was_judged_is_removed() {
        let (object, tombstone) = purged();
        assert_eq!(may_go(&object, &tombstone), Ok(()));
        let spoils: [fn(&mut QuestDB, &mut Tombstone); 8] = [
            |object, _| object.spec.instruction = None,
            |_, tombstone| tombstone.database = domain::DatabaseId::mint(),
            |_, tombstone| tombstone.position.seq += 1,
            |_, tombstone| tombstone.position.epoch += 1,
            |object, _| object.spec.run_state = RunState::Deleted,
            |object, _| object.status = None,
            |object, _| object.status.as_mut().unwrap().phase = Some(Phase::Deleting),
            |object, _| object.status.as_mut().unwrap().instruction.as_mut().unwrap().seq -= 1,
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            let (mut object, mut tombstone) = purged();
            spoil(&mut object, &mut tombstone);
            assert!(may_go(&object, &tombstone).is_err(), "{number}");
        }
    }
}
