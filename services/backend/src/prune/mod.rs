//! Takes away what was kept long enough of what happened: events of operations, states that nothing can begin with any more,
//! entries of the audit; at last the operations themselves, dead letters that are settled, and alarms that are resolved.
//!
//! Any number of replicas take turns, by the database's clock. *Invariant:* a turn is many small statements, each with its
//! deadline and with a pause behind it, so that nobody who works waits for it. *Invariant:* two at once, or one that ends in the
//! middle, are wasteful and never wrong: what may go now may go later too ([`decide`]). *Invariant:* events go before the state
//! that their operation asked for, because it is by the states that they are found.

pub mod decide;

use std::time::Duration;

use domain::{InstructionId, OperationId};
use runtime::backoff::Retry;
use runtime::{Backoff, CancellationToken, Program};
use store::{Error, Mark, Past, Store, in_time};

use self::decide::{FOR_EVER, Stays, stays};
use crate::metrics::Metrics;

/// How often everything is looked at.
const EVERY: Duration = Duration::from_hours(1);
/// Most rows that one statement looks at or takes away.
pub const ROWS: u32 = 500;
/// Between two pieces of a turn.
const PAUSE: Duration = Duration::from_millis(100);
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(5));

/// For how long what happened is kept; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The history of an operation after its end.
    pub history: Option<Duration>,
    /// An entry of the audit.
    pub audit: Option<Duration>,
    /// An operation after its end, where its state is not kept.
    pub operations: Option<Duration>,
    /// A dead letter that is settled, an alarm that is resolved.
    pub settled: Option<Duration>,
}

/// Who takes it away.
#[derive(Debug, Clone)]
pub struct Pruner {
    /// From where.
    pub store: Store,
    /// What is counted.
    pub metrics: Metrics,
    /// What stays.
    pub retention: Retention,
    /// Most rows that one statement looks at or takes away.
    pub rows: u32,
}

/// How far a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// At the audit, behind an entry.
    Audit(Option<i64>),
    /// At what was minted, with the events of its operations, behind a place.
    History(Option<Mark>),
    /// At the operations, behind one.
    Operations(Option<OperationId>),
    /// At the dead letters, behind one.
    Letters(Option<i64>),
    /// At what is unclaimed.
    Unclaimed,
}

/// A piece of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Rows that went.
    pub gone: u64,
    /// What comes next; `None` at the end.
    pub next: Option<Stage>,
}

/// What of some rows may go.
#[derive(Debug, Default)]
struct Due {
    events: Vec<OperationId>,
    instructions: Vec<InstructionId>,
}

/// Prunes in a program.
pub(crate) fn start(program: &Program, store: Store, metrics: Metrics, retention: Retention) {
    let pruner = Pruner { store, metrics, retention, rows: ROWS };
    program.tasks.spawn("prune", pruner.run(program.stop()));
}

impl Stage {
    /// What a turn begins with.
    pub const FIRST: Self = Self::Audit(None);
}

impl Pruner {
    /// Prunes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (mut retry, mut stage, mut gone) = (BACKOFF.start(), None, 0);
        // Sooner than later on: a program that is often started anew prunes too.
        let mut wait = idle() / 5;
        while runtime::backoff::sleep(wait, &stop).await {
            let piece = match self.go_on(stage).await {
                Ok(piece) => piece,
                Err(error) => {
                    wait = failed(&error, &mut retry);
                    continue;
                }
            };
            retry.reset();
            gone += piece.gone;
            if stage.is_some() && piece.next.is_none() {
                told(std::mem::take(&mut gone));
            }
            stage = piece.next;
            wait = if stage.is_some() { PAUSE } else { idle() };
        }
    }

    /// The next piece of a turn. Where none is under way, one begins if it is time and no other replica has it.
    async fn go_on(&self, stage: Option<Stage>) -> Result<Piece, Error> {
        if let Some(stage) = stage {
            return self.step(stage).await;
        }
        let begins = in_time(self.store.begin_pruning(EVERY)).await?;
        Ok(Piece { gone: 0, next: begins.then_some(Stage::FIRST) })
    }

    /// One piece of a turn. What failed may be done again.
    pub async fn step(&self, stage: Stage) -> Result<Piece, Error> {
        match stage {
            Stage::Audit(after) => self.audit(after).await,
            Stage::History(after) => self.history(after).await,
            Stage::Operations(after) => self.operations(after).await,
            Stage::Letters(after) => self.letters(after).await,
            Stage::Unclaimed => self.unclaimed().await,
        }
    }

    async fn audit(&self, after: Option<i64>) -> Result<Piece, Error> {
        let behind = Some(Stage::History(None));
        let Some(kept) = self.retention.audit else { return Ok(Piece { gone: 0, next: behind }) };
        let (gone, more) = in_time(self.store.prune_audit(after, kept, FOR_EVER, self.rows)).await?;
        self.metrics.pruned("audit", gone);
        Ok(Piece { gone, next: more.map(|after| Stage::Audit(Some(after))).or(behind) })
    }

    async fn history(&self, after: Option<Mark>) -> Result<Piece, Error> {
        let behind = Some(Stage::Operations(None));
        let Some(kept) = self.retention.history else { return Ok(Piece { gone: 0, next: behind }) };
        let page = in_time(self.store.pasts(after, self.rows)).await?;
        let due = Due::of(&page.rows, kept);
        let events = in_time(self.store.prune_events(&due.events, self.rows)).await?;
        self.metrics.pruned("operation_events", events);
        if events >= u64::from(self.rows) {
            // There may be more of them.
            return Ok(Piece { gone: events, next: Some(Stage::History(after)) });
        }
        let instructions = in_time(self.store.prune_instructions(&due.instructions)).await?;
        self.metrics.pruned("instructions", instructions);
        let next = page.next.map(|mark| Stage::History(Some(mark))).or(behind);
        Ok(Piece { gone: events + instructions, next })
    }

    async fn operations(&self, after: Option<OperationId>) -> Result<Piece, Error> {
        let behind = Some(Stage::Letters(None));
        let Some(kept) = self.retention.operations else { return Ok(Piece { gone: 0, next: behind }) };
        let (gone, more) = in_time(self.store.prune_operations(after, kept, self.rows)).await?;
        self.metrics.pruned("operations", gone);
        Ok(Piece { gone, next: more.map(|after| Stage::Operations(Some(after))).or(behind) })
    }

    async fn letters(&self, after: Option<i64>) -> Result<Piece, Error> {
        let behind = Some(Stage::Unclaimed);
        let Some(kept) = self.retention.settled else { return Ok(Piece { gone: 0, next: behind }) };
        let (gone, more) = in_time(self.store.prune_dead_letters(after, kept, self.rows)).await?;
        self.metrics.pruned("dead_letters", gone);
        Ok(Piece { gone, next: more.map(|after| Stage::Letters(Some(after))).or(behind) })
    }

    async fn unclaimed(&self) -> Result<Piece, Error> {
        let Some(kept) = self.retention.settled else { return Ok(Piece { gone: 0, next: None }) };
        let gone = in_time(self.store.prune_unclaimed(kept, self.rows)).await?;
        self.metrics.pruned("unclaimed", gone);
        // There may be more of them.
        Ok(Piece { gone, next: (gone >= u64::from(self.rows)).then_some(Stage::Unclaimed) })
    }
}

impl Due {
    fn of(rows: &[Past], kept: Duration) -> Self {
        let mut due = Self::default();
        for past in rows {
            match stays(past, kept) {
                Stays::Everything => {}
                Stays::State => due.events.push(past.operation),
                Stays::End => {
                    due.events.push(past.operation);
                    due.instructions.push(past.instruction);
                }
            }
        }
        due
    }
}

/// Twice a period, each replica at its own moment.
fn idle() -> Duration {
    EVERY.mul_f64(0.25 + 0.5 * runtime::backoff::random_share())
}

fn told(gone: u64) {
    if gone > 0 {
        tracing::info!(rows = gone, "what was kept long enough was taken away");
    }
}

/// Says once that it fails, and how long to wait.
fn failed(error: &Error, retry: &mut Retry) -> Duration {
    if retry.attempts() == 0 {
        let reason = runtime::telemetry::chain(error);
        tracing::warn!(reason, "what was kept long enough is not taken away; it is tried again");
    }
    // However many failed at once, none comes again at once.
    PAUSE + retry.next_delay()
}
