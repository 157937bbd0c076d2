//! The judge of operations: fails what ran out of time and what was set aside for good, and mints what follows from a
//! failure. Any number of replicas.
//!
//! *Invariant:* each operation is judged in a transaction of its own, under the locks of its database and then its own,
//! by what the rows say at that moment and by the database's clock. What another replica holds is left to it.
//! *Invariant:* the error that a user is told stays on the operation that failed; what takes it back is another operation.

mod unheard;
mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use domain::operation::Failure;
use domain::recovery::{
    Aftermath, AtDeadline, DEADLINE, Deadlines, WayBack, aftermath, at_deadline, kind_of,
};
use domain::{OnFailure, OperationId, OperationKind, OperationState};
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken};
use serde_json::json;
use store::{
    Audit, Database, Due, Ended, Error, Heard, Mint, Minted, OperationRecord, Store, Terms, Transaction,
    in_time,
};

use crate::doorbell::Doorbell;
use crate::heard::Hearing;
use crate::metrics::Metrics;
use crate::way_back;

/// Who takes back what failed.
pub const ACTOR: &str = "system";

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);
/// Most operations that are read at once.
const PAGE: u32 = 100;
/// Patience with one operation.
const DEADLINE_OF_ONE: Duration = Duration::from_secs(15);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The judge.
#[derive(Debug, Clone)]
pub struct Judge {
    /// Where operations are.
    pub store: Store,
    /// Rung after each mint.
    pub doorbell: Doorbell,
    /// What is counted.
    pub metrics: Metrics,
    /// How long what it mints may take.
    pub deadlines: Deadlines,
    /// Where it is looked up whether what was said by a deadline was heard: until then nothing runs out of time.
    pub hearing: Hearing,
    /// Beyond how long that is told as trouble.
    pub silence: Duration,
}

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Operations that ran out of time, or whose state was set aside for good, and failed.
    pub failed: usize,
    /// Operations that are late from now on, and go on.
    pub overdue: usize,
    /// Operations that were taken back.
    pub reverted: usize,
    /// Operations that failed with no way back.
    pub stuck: usize,
    /// Operations that others had locked.
    pub busy: usize,
    /// Operations that cannot be judged.
    pub unreadable: BTreeSet<OperationId>,
    /// Operations that are late, by which not all that was said of them was heard: they are not judged yet.
    pub unheard: usize,
    /// Whether that lasts so long for one of them that somebody must look.
    pub deaf: bool,
}

/// What was done about one operation.
#[derive(Debug, Default)]
struct Verdict {
    ended: Option<Ended>,
    overdue: bool,
    unheard: Option<Heard>,
    reverted: Option<(OperationKind, Minted)>,
    stuck: bool,
}

impl Judge {
    /// Judges until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut retry = BACKOFF.start();
        let mut before = Round::default();
        while !stop.is_cancelled() {
            let wait = match self.round(&stop).await {
                Ok(round) => {
                    retry.reset();
                    told(&before, &round);
                    before = round;
                    EVERY
                }
                Err(error) => failed(&error, &mut retry),
            };
            runtime::backoff::sleep(wait, &stop).await;
        }
    }

    /// Looks once at everything that is due; ends early at `stop`. One operation that cannot be judged holds up no other.
    pub async fn round(&self, stop: &CancellationToken) -> Result<Round, Error> {
        let mut round = Round::default();
        let mut after = None;
        while let Some(page) = next(in_time(self.store.due(after, PAGE)).await?, &mut after, stop) {
            let page = self.leave_unheard(page, &mut round).await?;
            self.judge_all(&page, stop, &mut round).await?;
        }
        let mut after = None;
        while let Some(page) = next(in_time(self.store.lying_aside(after, PAGE)).await?, &mut after, stop) {
            self.judge_all(&page, stop, &mut round).await?;
        }
        self.metrics.operations.overdue.set(in_time(self.store.overdue_count()).await?);
        Ok(round)
    }

    async fn judge_all(
        &self,
        page: &[Due],
        stop: &CancellationToken,
        round: &mut Round,
    ) -> Result<(), Error> {
        for due in page.iter().take_while(|_| !stop.is_cancelled()) {
            self.judge(*due, round).await?;
        }
        Ok(())
    }

    async fn judge(&self, due: Due, round: &mut Round) -> Result<(), Error> {
        let looked = runtime::deadline(DEADLINE_OF_ONE, "a verdict", self.look(due)).await;
        match looked {
            Ok(Ok(Some(verdict))) => {
                self.count(&verdict, round);
                Ok(())
            }
            // Others were in the way: it is due again in the next round.
            Ok(Ok(None) | Err(Error::Busy(_))) | Err(_) => {
                round.busy += 1;
                Ok(())
            }
            Ok(Err(error)) if error.is_transient() => Err(error),
            Ok(Err(error)) => {
                let reason = runtime::telemetry::chain(&error);
                tracing::debug!(operation.id = %due.operation, reason, "an operation cannot be judged");
                round.unreadable.insert(due.operation);
                Ok(())
            }
        }
    }

    /// Judges one operation; `None` where somebody else has it.
    async fn look(&self, due: Due) -> Result<Option<Verdict>, Error> {
        let mut transaction = self.store.begin().await?;
        let Some(locked) = transaction.try_lock_database(due.database).await? else { return Ok(None) };
        let mut verdict = Verdict::default();
        let Some(record) = transaction.lock_operation(due.operation).await? else { return Ok(Some(verdict)) };
        if let Some(failure) = set_aside(&mut transaction, &record).await? {
            verdict.ended = Some(transaction.fail(&record, failure).await?);
        } else if record.late && record.overdue_since.is_none() {
            let heard = transaction.heard(due.operation, self.hearing.of(due.database)).await?;
            if heard.through {
                out_of_time(&mut transaction, &locked, &record, &mut verdict).await?;
            } else {
                verdict.unheard = Some(heard);
            }
        }
        // As it is now: what just failed is followed up in the same transaction.
        let record = transaction.lock_operation(due.operation).await?.unwrap_or(record);
        if !record.settled {
            self.follow_up(&mut transaction, &locked, &record, &mut verdict).await?;
        }
        transaction.commit().await?;
        log(&record, &verdict);
        Ok(Some(verdict))
    }

    /// Mints what follows from a failure, if it is one and something does.
    async fn follow_up(
        &self,
        transaction: &mut Transaction,
        locked: &Database,
        record: &OperationRecord,
        verdict: &mut Verdict,
    ) -> Result<(), Error> {
        match aftermath(record.subject(locked.position)) {
            Aftermath::Revert(way) => match self.revert(transaction, locked, record, way).await {
                Ok(reverted) => verdict.reverted = Some(reverted),
                // Nothing can be minted any more, today or later.
                Err(Error::Exhausted) => verdict.stuck = true,
                Err(error) => return Err(error),
            },
            Aftermath::Alarm => verdict.stuck = true,
            Aftermath::Nothing => {}
        }
        if record.operation.state == OperationState::Failed {
            transaction.settle(record.operation.id).await?;
        }
        Ok(())
    }

    async fn revert(
        &self,
        transaction: &mut Transaction,
        locked: &Database,
        record: &OperationRecord,
        way: WayBack,
    ) -> Result<(OperationKind, Minted), Error> {
        let desired = way_back::desired(transaction, locked, record, (way, &self.hearing)).await?;
        let kind = kind_of(&desired);
        let terms = Terms {
            deadline: self.deadlines.of(kind),
            on_failure: OnFailure::Keep,
            reverts: Some(record.operation.id),
        };
        let mint = Mint {
            kind,
            desired,
            actor: ACTOR.to_owned(),
            traceparent: record.traceparent.clone(),
            hash: wire::hash::of,
            terms,
        };
        let minted = transaction.change(locked, mint).await?;
        transaction.audit(&entry(locked, record, &minted)).await?;
        Ok((record.operation.kind, minted))
    }

    fn count(&self, verdict: &Verdict, round: &mut Round) {
        if let Some(ended) = &verdict.ended {
            self.metrics.operations.ended(ended);
            round.failed += 1;
        }
        if let Some((kind, _)) = &verdict.reverted {
            self.metrics.operations.reverted(*kind);
            self.doorbell.ring();
            round.reverted += 1;
        }
        if verdict.stuck {
            self.metrics.operations.stuck.inc();
            round.stuck += 1;
        }
        round.overdue += usize::from(verdict.overdue);
        if let Some(heard) = verdict.unheard {
            self.count_unheard(heard, round);
        }
    }
}

/// A page, if anybody is on it and there is time for it; the next one begins after its last.
fn next(page: Vec<Due>, after: &mut Option<OperationId>, stop: &CancellationToken) -> Option<Vec<Due>> {
    *after = Some(page.last().filter(|_| !stop.is_cancelled())?.operation);
    Some(page)
}

/// Why the state of an operation that no cluster has taken was set aside for good, if it was: its record can never be taken,
/// whatever time it still has.
async fn set_aside(
    transaction: &mut Transaction,
    record: &OperationRecord,
) -> Result<Option<Failure>, Error> {
    let operation = &record.operation;
    if operation.state != OperationState::Pending {
        return Ok(None);
    }
    transaction.why_aside(operation.database, operation.position).await
}

async fn out_of_time(
    transaction: &mut Transaction,
    locked: &Database,
    record: &OperationRecord,
    verdict: &mut Verdict,
) -> Result<(), Error> {
    let failure = || Failure { code: DEADLINE.to_owned(), message: words::out_of_time(record) };
    match at_deadline(record.subject(locked.position)) {
        AtDeadline::Fail => verdict.ended = Some(transaction.fail(record, failure()).await?),
        AtDeadline::Overdue => {
            transaction.mark_overdue(record, failure()).await?;
            verdict.overdue = true;
        }
        AtDeadline::Nothing => {}
    }
    Ok(())
}

fn entry(locked: &Database, record: &OperationRecord, minted: &Minted) -> Audit {
    Audit {
        tenant: Some(locked.tenant.clone()),
        principal: ACTOR.to_owned(),
        role: ACTOR.to_owned(),
        action: "operations.revert".to_owned(),
        subject: locked.id.to_string(),
        operation: Some(minted.operation),
        request_id: None,
        detail: json!({
            "reverts": record.operation.id.to_string(),
            "code": record.failure.as_ref().map(|failure| failure.code.as_str()),
            "epoch": minted.position.epoch,
            "seq": minted.position.seq,
        }),
    }
}

fn log(record: &OperationRecord, verdict: &Verdict) {
    let (operation, database) = (record.operation.id, record.operation.database);
    if let Some(ended) = &verdict.ended {
        let code = ended.code.as_deref().unwrap_or_default();
        let why = if code == DEADLINE { "ran out of time" } else { "failed: its state was set aside" };
        tracing::warn!(operation.id = %operation, db.id = %database, code, "operation {why}");
    }
    if verdict.overdue {
        tracing::error!(
            operation.id = %operation,
            db.id = %database,
            operation.kind = %record.operation.kind,
            "operation is overdue; it is not given up"
        );
    }
    if let Some((kind, minted)) = &verdict.reverted {
        tracing::warn!(
            operation.id = %minted.operation,
            operation.reverts = %operation,
            operation.kind = %kind,
            db.id = %database,
            db.position = %minted.position,
            "failed operation is taken back"
        );
    }
    if verdict.stuck {
        tracing::error!(operation.id = %operation, db.id = %database, "operation failed and has no way back");
    }
}

/// Says once that rounds fail, and how long to wait.
fn failed(error: &Error, retry: &mut Retry) -> Duration {
    if retry.attempts() == 0 {
        let reason = runtime::telemetry::chain(error);
        tracing::warn!(reason, "deadlines wait: they cannot be judged");
    }
    retry.next_delay().max(EVERY)
}

/// Tells what lasts from round to round once, when it begins.
fn told(before: &Round, now: &Round) {
    if now.deaf && !before.deaf {
        tracing::error!(
            "operations that are late are not judged: what clusters said of their databases was not heard to its end for too \
             long; look at the sinks' lag, and whether brokers and sinks run"
        );
    }
    for operation in now.unreadable.difference(&before.unreadable) {
        tracing::error!(operation.id = %operation, "an operation cannot be judged; it is tried again");
    }
}
