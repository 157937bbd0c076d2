//! Carries out later what a cluster could not take when it came.
//!
//! One loop a cluster in every process that can reach it: a row is claimed for a while, so that two processes do not do
//! the same work, and comes free by itself when the one that claimed it is gone. While the cluster is not to be called
//! nothing is tried; when it is back, as many as its guard lets through. *Invariant:* a parked instruction is taken away
//! only after it was carried out or found to be superseded or refused, and only at exactly its position: a newer one that
//! was parked meanwhile stays. An older one never overtakes a newer record on the topic: the resource's fence sees to
//! that. *Invariant:* one that makes its handling panic ends neither the loop nor the program: it rests, and the second time
//! in a row it becomes a dead letter, as it would on the topic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use runtime::backoff::{Retry, random_share};
use runtime::{Backoff, CancellationToken};
use store::{Parked, in_time};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::decide::{self, Job, Reason, Work};
use crate::fleet::Member;
use crate::fleet::breaker::Phase;
use crate::work::{Ended, Error, PARKED_FOR_NEWER, PATIENCE, Worker};

/// How often a loop looks when there was nothing to do.
const IDLE: Duration = Duration::from_secs(2);
/// How long a loop waits after all it tried met a trouble of the whole cluster, by how often that was so.
const STUCK: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
/// How many are tried at once, at most.
const PARALLEL: u32 = 16;
/// How many rounds of that are claimed at a time.
const ROUNDS: u32 = 2;
/// How many are tried while the last ones all met a trouble of the whole cluster.
const SCOUTS: u32 = 1;
/// How long one rests that its cluster refuses for now, by attempts.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// Passed after a parked instruction was carried out and before it is taken away; its subject is the database.
pub const SETTLED: &str = "provisioner.drain.settled";

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// There is nothing to do, or it cannot be done now.
    Idle,
    /// This many were tried; there may be more.
    Tried(usize),
    /// None of those that were tried could be done, for a reason that holds for the whole cluster.
    Stuck,
}

/// What a try came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// It is parked no more.
    Settled,
    /// It rests, for a reason of its own.
    Rests,
    /// It rests, for a reason that others have too.
    Stuck,
}

/// Drains the parked instructions of a cluster until it leaves the fleet. At a stop those under way have as long as `grace` to
/// finish; what is left of them is done again by whoever claims it next.
pub async fn run(worker: Arc<Worker>, member: Arc<Member>, stop: CancellationToken, grace: Duration) {
    let mut phases = member.guard.watch();
    let mut stuck = STUCK.start();
    loop {
        phases.mark_unchanged();
        let careful = stuck.attempts() > 0;
        let round = tokio::select! {
            round = step(&worker, &member, careful) => round,
            () = over(&stop, grace) => return,
        };
        let round = match round {
            Ok(round) => round,
            Err(error) => {
                tracing::warn!(cluster.name = %member.cluster.id, error = &error as &dyn std::error::Error, "parked instructions were not drained");
                Round::Idle
            }
        };
        if !goes_on(pause(round, &mut stuck), [&stop, &member.left], &mut phases).await {
            return;
        }
    }
}

/// Pauses, but looks at once when the cluster may be back. Says whether another round is due: none is begun after an end, however
/// soon it would be, because it would have the whole grace anew and keep from others what it claims.
async fn goes_on(
    pause: Duration,
    ends: [&CancellationToken; 2],
    phases: &mut watch::Receiver<Phase>,
) -> bool {
    let [stop, left] = ends;
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = left.cancelled() => false,
        () = tokio::time::sleep(pause) => true,
        _ = phases.changed() => true,
    }
}

/// Comes when the program stops and its grace has passed.
async fn over(stop: &CancellationToken, grace: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(grace).await;
}

fn pause(round: Round, stuck: &mut Retry) -> Duration {
    match round {
        Round::Tried(_) => {
            stuck.reset();
            Duration::ZERO
        }
        Round::Idle => IDLE.mul_f64(0.5 + random_share()),
        Round::Stuck => Duration::from_millis(500) + stuck.next_delay(),
    }
}

/// One round: what is due, tried side by side; only a scout while nothing worked lately.
pub async fn step(worker: &Worker, member: &Member, careful: bool) -> Result<Round, Error> {
    let away = member.cluster.state == domain::ClusterState::Disabled;
    if away || member.clients().is_err() {
        return Ok(Round::Idle);
    }
    // Half of the cluster's calls at most: the other half is for what comes from the topic.
    let most = if careful { SCOUTS } else { PARALLEL.min(member.guard.bound() / 2).max(1) };
    let parallel = member.guard.room().min(most);
    if parallel == 0 {
        return Ok(Round::Idle);
    }
    let most = if careful { parallel } else { parallel * ROUNDS };
    // What the tries take at their slowest, but for a namespace that is made on the way: who dies with them should not keep
    // them from others for longer.
    let lease = (worker.call_timeout + PATIENCE) * ROUNDS;
    let claim = worker.store.claim_parked(&member.cluster.id, most, lease);
    let claimed = in_time(claim).await.map_err(Error::Park)?;
    for unreadable in &claimed.unreadable {
        tracing::error!(cluster.name = %member.cluster.id, reason = %unreadable, "a parked instruction cannot be read: it waits");
    }
    let due = claimed.parked;
    let count = due.len();
    let tried: Vec<Tried> = futures::stream::iter(due)
        .map(|parked| one(worker, member, parked))
        .buffer_unordered(parallel as usize)
        .collect()
        .await;
    Ok(if count == 0 {
        Round::Idle
    } else if tried.contains(&Tried::Stuck) && !tried.contains(&Tried::Settled) {
        Round::Stuck
    } else {
        Round::Tried(count)
    })
}

/// Tries one.
async fn one(worker: &Worker, member: &Member, parked: Parked) -> Tried {
    let span = tracing::info_span!("parked", db.id = %parked.database, cluster.name = %member.cluster.id, seq = %parked.position);
    runtime::trace::set_parent(&span, parked.traceparent.as_deref());
    async {
        let settled = match AssertUnwindSafe(settle(worker, &parked)).catch_unwind().await {
            Ok(settled) => settled,
            Err(_) => panicked(worker, &parked).await,
        };
        match settled {
            Ok(tried) => tried,
            // A matter of its partition of gossip, of which somebody was told: others of the cluster go on.
            Err(error) if error.is_silence() => Tried::Rests,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a parked instruction was not settled"
                );
                Tried::Stuck
            }
        }
    }
    .instrument(span)
    .await
}

async fn settle(worker: &Worker, parked: &Parked) -> Result<Tried, Error> {
    let ended = match job(parked, &worker.rules) {
        Work::Carry(job) => {
            let ended = worker.carry(&job).await?;
            match &ended {
                Ended::Park(trouble) => {
                    let reason = (trouble.code, trouble.message.as_str());
                    longer(worker, parked, rest(parked, trouble.cluster), reason).await?;
                    return Ok(if trouble.cluster { Tried::Stuck } else { Tried::Rests });
                }
                Ended::Refused(reason) => worker.bury(&job.record, reason).await?,
                Ended::Applied => worker.settle_letters(&job).await,
                Ended::Superseded(_) => {}
            }
            worker.tell(&job, &ended).await?;
            ended
        }
        Work::Wait(early) => {
            let reason = (crate::classify::code::NEWER_SCHEMA, early.reason.message.as_str());
            longer(worker, parked, PARKED_FOR_NEWER, reason).await?;
            return Ok(Tried::Rests);
        }
        Work::Bury(dead) => {
            worker.bury(&dead.record, &dead.reason).await?;
            Ended::Refused(dead.reason)
        }
    };
    runtime::failpoint::hit(SETTLED, parked.database).await;
    unpark(worker, parked).await?;
    tracing::info!(
        ?ended,
        waited_s = jiff::Timestamp::now().duration_since(parked.parked_at).as_secs(),
        "parked instruction settled"
    );
    Ok(Tried::Settled)
}

/// What is done about one whose handling panicked. Whatever else went wrong before does not count: only a panic after a
/// panic says that there will be another.
async fn panicked(worker: &Worker, parked: &Parked) -> Result<Tried, Error> {
    tracing::error!("a parked instruction made its handler panic");
    let code = decide::code::PANICKED;
    if parked.code != code {
        longer(worker, parked, rest(parked, false), (code, "the handling of this instruction panicked"))
            .await?;
        return Ok(Tried::Rests);
    }
    let reason = Reason::new(code, "the handling of this instruction panicked again");
    worker.bury(&record(parked), &reason).await?;
    unpark(worker, parked).await?;
    Ok(Tried::Settled)
}

async fn unpark(worker: &Worker, parked: &Parked) -> Result<(), Error> {
    let done = [(parked.database, parked.position)];
    in_time(worker.store.unpark(&done)).await.map(drop).map_err(Error::Park)
}

async fn longer(worker: &Worker, parked: &Parked, rest: Duration, reason: (&str, &str)) -> Result<(), Error> {
    let message = store::storable(reason.1);
    let rested =
        worker.store.park_longer(parked.database, parked.position, rest, (reason.0, message.as_str()));
    in_time(rested).await.map(drop).map_err(Error::Park)
}

/// The cluster's own trouble ends for all at once, and the loop itself goes slow meanwhile: nobody should rest for long
/// because of it.
fn rest(parked: &Parked, cluster: bool) -> Duration {
    if cluster {
        return crate::work::PARKED_FIRST;
    }
    let attempts = u32::try_from(parked.attempts).unwrap_or(u32::MAX);
    REST.ceiling(attempts).mul_f64(0.5 + 0.5 * random_share())
}

/// The job of a parked row, decided upon as if it came from the topic: the program that parked it may have been another
/// version.
fn job(parked: &Parked, rules: &decide::Rules) -> Work {
    // It stands in no partition any more, and stood in the right one.
    match decide::decide(record(parked), &decide::Rules { partitions: None, ..*rules }) {
        Work::Carry(job) => Work::Carry(Box::new(Job { traceparent: parked.traceparent.clone(), ..*job })),
        // It was taken once, by a program with other rules.
        Work::Bury(dead) if dead.reason.code == decide::code::TOO_LARGE => {
            job(parked, &decide::Rules { largest: usize::MAX, ..*rules })
        }
        other => other,
    }
}

/// The record of a parked row, as far as it is still known.
fn record(parked: &Parked) -> bus::Record {
    let origin = parked.origin.as_ref();
    let headers = origin.map(|origin| origin.headers.as_slice()).unwrap_or_default();
    let mut headers: Vec<_> =
        headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
    for (name, value) in [
        (wire::headers::CLUSTER, parked.cluster.to_string()),
        (wire::headers::EPOCH, parked.position.epoch.to_string()),
        (wire::headers::SEQ, parked.position.seq.to_string()),
    ] {
        if !headers.iter().any(|(found, _)| found == name) {
            headers.push((name.to_owned(), value.into_bytes()));
        }
    }
    bus::Record {
        topic: origin.map_or("parked_instructions", |origin| &origin.topic).into(),
        partition: origin.map_or(-1, |origin| origin.partition),
        offset: origin.map_or(parked.position.seq, |origin| origin.offset),
        timestamp_ms: Some(parked.parked_at.as_millisecond()),
        key: Some(parked.database.to_string().into_bytes()),
        payload: Some(parked.payload.clone()),
        headers,
    }
}

#[cfg(test)]
mod tests {
    use store::Origin;

    use super::*;
    use crate::decide::tests::{RULES, instruction};

    fn parked(attempts: i64) -> Parked {
        let instruction = instruction();
        Parked {
            database: instruction.database,
            cluster: instruction.cluster.clone(),
            position: instruction.position,
            payload: instruction.encode(),
            origin: None,
            traceparent: None,
            code: "unreachable".to_owned(),
            message: String::new(),
            attempts,
            parked_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_was_parked_is_what_is_carried_out() {
        let Work::Carry(carried) = job(&parked(0), &RULES) else { panic!("buried") };
        assert_eq!(carried.instruction, instruction());
        let spoilt = Parked { payload: vec![1, 2, 3], ..parked(0) };
        let Work::Bury(dead) = job(&spoilt, &RULES) else { panic!("carried") };
        assert_eq!((dead.record.payload, dead.reason.code), (Some(vec![1, 2, 3]), "undecodable"));
    }

    #[tokio::test]
    async fn no_round_begins_after_a_stop_however_much_is_due() {
        let (stop, left) = (CancellationToken::new(), CancellationToken::new());
        let (phase, mut phases) = watch::channel(Phase::Closed);
        assert!(goes_on(Duration::ZERO, [&stop, &left], &mut phases).await);
        stop.cancel();
        for number in 0..64 {
            phase.send_replace(Phase::Trial);
            assert!(!goes_on(Duration::ZERO, [&stop, &left], &mut phases).await, "{number}");
        }
    }

    #[test]
    fn a_dead_letter_of_a_parked_row_says_where_the_record_stood() {
        let headers = vec![("x".to_owned(), "y".to_owned())];
        let origin = Origin { topic: "instructions".to_owned(), partition: 5, offset: 77, headers };
        let spoilt = Parked { payload: vec![1, 2, 3], origin: Some(origin), ..parked(0) };
        let Work::Bury(dead) = job(&spoilt, &RULES) else { panic!("carried") };
        let letter = decide::letter(&dead.record, &dead.reason, "provisioner");
        assert_eq!((letter.topic.as_str(), letter.partition, letter.offset), ("instructions", 5, 77));
        assert_eq!((letter.position, letter.database), (Some(spoilt.position), Some(spoilt.database)));
        assert!(letter.headers.contains(&("x".to_owned(), "y".to_owned())));
    }

    #[test]
    fn what_was_parked_is_not_too_large_for_who_drains_it() {
        let strict = decide::Rules { largest: 10, ..RULES };
        let Work::Carry(carried) = job(&parked(0), &strict) else { panic!("buried") };
        assert_eq!(carried.instruction, instruction());
        let spoilt = Parked { payload: vec![0xff; 100], ..parked(0) };
        let Work::Bury(dead) = job(&spoilt, &strict) else { panic!("carried") };
        assert_eq!(dead.reason.code, "undecodable", "the reason is the one that counts");
    }

    #[test]
    fn what_waits_for_a_newer_program_goes_on_waiting_until_this_is_it() {
        let waiting = Parked { payload: vec![0x08, 99, 0x10, 99], ..parked(3) };
        let Work::Wait(early) = job(&waiting, &RULES) else { panic!("not waiting") };
        assert_eq!((early.database, early.position), (waiting.database, waiting.position));
    }

    #[test]
    fn a_trouble_of_the_whole_cluster_slows_the_loop_down() {
        let mut stuck = STUCK.start();
        for round in 0..20 {
            let pause = pause(Round::Stuck, &mut stuck);
            assert!(pause >= Duration::from_millis(500) && pause <= Duration::from_secs(16), "{round}");
        }
        assert!(stuck.attempts() > 0);
        assert_eq!(pause(Round::Tried(1), &mut stuck), Duration::ZERO);
        assert_eq!(stuck.attempts(), 0);
    }

    #[test]
    fn a_resource_rests_longer_each_time_and_a_cluster_never_long() {
        assert!(rest(&parked(0), false) <= Duration::from_secs(1));
        let long = rest(&parked(100), false);
        assert!(long >= Duration::from_secs(30) && long <= Duration::from_mins(1));
        assert_eq!(rest(&parked(100), true), crate::work::PARKED_FIRST);
    }
}
