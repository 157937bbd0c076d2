//! Carries out later what a cluster could not take when it came.
//!
//! One loop a cluster, in the process that speaks for the cluster. While the cluster does not answer nothing is tried.
//! *Invariant:* a parked instruction is taken away only after it was carried out or found to be superseded or refused,
//! and only at exactly its position: a newer one that was parked meanwhile stays. An older one never overtakes a newer
//! record on the topic: the resource's fence sees to that.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use runtime::{Backoff, CancellationToken};
use store::Parked;
use tracing::Instrument as _;

use crate::decide::{Dead, Job, Reason, Work};
use crate::fleet::Member;
use crate::work::{Ended, Error, Worker};

/// How often a loop looks when there was nothing to do.
const IDLE: Duration = Duration::from_secs(2);
/// How many are taken at a time.
const BATCH: u32 = 64;
/// How many are tried at once.
const PARALLEL: usize = 8;
/// How long one rests that its cluster refuses for now, by attempts.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// There is nothing to do, or it cannot be done now.
    Idle,
    /// This many were carried out or settled otherwise; there may be more.
    Drained(usize),
    /// Tried, without success.
    Stuck,
}

/// Drains the parked instructions of a cluster until it leaves the fleet.
pub async fn run(worker: Arc<Worker>, member: Arc<Member>, stop: CancellationToken) {
    loop {
        let round = match step(&worker, &member).await {
            Ok(round) => round,
            Err(error) => {
                tracing::warn!(cluster.name = %member.cluster.id, error = &error as &dyn std::error::Error, "parked instructions were not drained");
                Round::Stuck
            }
        };
        let pause = match round {
            Round::Drained(_) => Duration::ZERO,
            Round::Idle | Round::Stuck => IDLE.mul_f64(0.5 + runtime::backoff::random_share()),
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = member.left.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One round: what is due, tried side by side.
pub async fn step(worker: &Worker, member: &Member) -> Result<Round, Error> {
    let away = member.cluster.state == domain::ClusterState::Disabled;
    if away || !member.is_observed_here() || member.admits().is_err() || member.clients().is_err() {
        return Ok(Round::Idle);
    }
    let due = worker.store.parked_due(&member.cluster.id, BATCH).await.map_err(Error::Park)?;
    if due.is_empty() {
        return Ok(Round::Idle);
    }
    let settled = futures::stream::iter(due)
        .map(|parked| one(worker, member, parked))
        .buffer_unordered(PARALLEL)
        .filter(|settled| std::future::ready(*settled))
        .count()
        .await;
    Ok(if settled == 0 { Round::Stuck } else { Round::Drained(settled) })
}

/// Tries one; says whether it is parked no more.
async fn one(worker: &Worker, member: &Member, parked: Parked) -> bool {
    let span = tracing::info_span!("parked", db.id = %parked.database, cluster.name = %member.cluster.id, seq = %parked.position);
    runtime::trace::set_parent(&span, parked.traceparent.as_deref());
    async {
        match settle(worker, &parked).await {
            Ok(settled) => settled,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a parked instruction was not settled"
                );
                false
            }
        }
    }
    .instrument(span)
    .await
}

async fn settle(worker: &Worker, parked: &Parked) -> Result<bool, Error> {
    let ended = match job(parked) {
        Work::Carry(job) => {
            let ended = worker.carry(&job).await?;
            if let Ended::Park(trouble) = ended {
                let rest = rest(parked, trouble.cluster);
                let reason = (trouble.code, trouble.message.as_str());
                worker
                    .store
                    .park_longer(parked.database, parked.position, rest, reason)
                    .await
                    .map_err(Error::Park)?;
                return Ok(false);
            }
            if let Ended::Refused(reason) = &ended {
                worker.bury(&job.record, reason).await?;
            }
            worker.tell(&job, &ended).await?;
            ended
        }
        Work::Bury(dead) => {
            worker.bury(&dead.record, &dead.reason).await?;
            Ended::Refused(dead.reason)
        }
    };
    worker.store.unpark(&[(parked.database, parked.position)]).await.map_err(Error::Park)?;
    tracing::info!(
        ?ended,
        waited_s = jiff::Timestamp::now().duration_since(parked.parked_at).as_secs(),
        "parked instruction settled"
    );
    Ok(true)
}

/// The cluster's own trouble ends for all at once and is seen by its breaker: nobody should rest for long because of it.
fn rest(parked: &Parked, cluster: bool) -> Duration {
    if cluster {
        return crate::work::PARKED_FIRST;
    }
    let attempts = u32::try_from(parked.attempts).unwrap_or(u32::MAX);
    REST.ceiling(attempts).mul_f64(0.5 + 0.5 * runtime::backoff::random_share())
}

/// The job of a parked row: its bytes were decoded when they were parked, by a program that may have been another version.
fn job(parked: &Parked) -> Work {
    let record = bus::Record {
        topic: "parked_instructions".into(),
        partition: -1,
        offset: parked.position.seq,
        timestamp_ms: Some(parked.parked_at.as_millisecond()),
        key: Some(parked.database.to_string().into_bytes()),
        payload: Some(parked.payload.clone()),
        headers: Vec::new(),
    };
    match wire::Instruction::decode(&parked.payload) {
        Ok(instruction) => {
            Work::Carry(Box::new(Job { instruction, traceparent: parked.traceparent.clone(), record }))
        }
        Err(error) => {
            Work::Bury(Box::new(Dead { record, reason: Reason::new(error.code(), error.to_string()) }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::tests::instruction;

    fn parked(attempts: i64) -> Parked {
        let instruction = instruction();
        Parked {
            database: instruction.database,
            cluster: instruction.cluster.clone(),
            position: instruction.position,
            payload: instruction.encode(),
            traceparent: None,
            code: "unreachable".to_owned(),
            message: String::new(),
            attempts,
            parked_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_was_parked_is_what_is_carried_out() {
        let Work::Carry(carried) = job(&parked(0)) else { panic!("buried") };
        assert_eq!(carried.instruction, instruction());
        let spoilt = Parked { payload: vec![1, 2, 3], ..parked(0) };
        let Work::Bury(dead) = job(&spoilt) else { panic!("carried") };
        assert_eq!((dead.record.payload, dead.reason.code), (Some(vec![1, 2, 3]), "undecodable"));
    }

    #[test]
    fn a_resource_rests_longer_each_time_and_a_cluster_never_long() {
        assert!(rest(&parked(0), false) <= Duration::from_secs(1));
        let long = rest(&parked(100), false);
        assert!(long >= Duration::from_secs(30) && long <= Duration::from_mins(1));
        assert_eq!(rest(&parked(100), true), crate::work::PARKED_FIRST);
    }
}
