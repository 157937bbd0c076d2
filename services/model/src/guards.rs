//! What stands between a fault and a broken promise, each switchable.
//!
//! Where the product decides in a pure function, that function is called; where Postgres or an API server decides, the
//! comment names the statement or rule that is mirrored.

use std::collections::BTreeSet;

use domain::operation::{Progress, judge};
use domain::{OperationState, Position, RunState};

use crate::product;
use crate::state::{Ended, Instruction, Object, Operation, Row, Said, Seen};

/// Every guard of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guard {
    /// A change locks the database's row before it reads its position.
    RowLock,
    /// The relay marks a position as published after Kafka's word, not before.
    MarkAfterSend,
    /// The relay marks only what still is the desired state.
    MarkWhatWasSent,
    /// A lane keeps the newest of what waits.
    NewestInLane,
    /// A record is acknowledged after its effect is durable.
    AcknowledgeAfterEffect,
    /// Only the contiguous prefix of finished records is committed.
    ContiguousPrefix,
    /// A parked instruction is replaced by a newer one only.
    ParkNewer,
    /// A drained instruction is deleted at exactly its position.
    UnparkExactly,
    /// Of what is parked goes undrained only what its cluster is seen to be ahead of.
    UnparkPassed,
    /// The resource's spec moves forward only.
    Fence,
    /// Equal positions with other content are refused.
    EqualMeansEqual,
    /// What is purged stays purged.
    StaysPurged,
    /// A delete that meets no resource creates the tombstone.
    DeleteMakesTombstone,
    /// The resource of a deleted database stays.
    TombstoneStays,
    /// A tombstone goes only after everything that could bring the database back is gone.
    TombstoneOutlastsTheRest,
    /// The carried-out position of a resource's status moves forward only.
    StatusForward,
    /// Of a batch the newest observation stays.
    FoldNewest,
    /// A belief is replaced by a newer one only.
    BelieveNewer,
    /// A cluster is believed about its own databases only.
    OwnClusterOnly,
    /// What another cluster says became of an instruction moves no operation.
    OwnOutcomesOnly,
    /// Rows and offset of the sink move in one transaction.
    OffsetWithRows,
    /// The sink's offset moves by compare-and-set.
    OffsetCompared,
    /// Operations that ended do not move.
    EndsAreFinal,
    /// What is seen is said again.
    SayAgain,
    /// What lags is sent again.
    SendAgain,
    /// What is ahead of Postgres makes it mint again at a higher epoch.
    MintAgain,
    /// An observer's term is put above what was heard.
    TermAboveHeard,
}

impl Guard {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::RowLock,
        Self::MarkAfterSend,
        Self::MarkWhatWasSent,
        Self::NewestInLane,
        Self::AcknowledgeAfterEffect,
        Self::ContiguousPrefix,
        Self::ParkNewer,
        Self::UnparkExactly,
        Self::UnparkPassed,
        Self::Fence,
        Self::EqualMeansEqual,
        Self::StaysPurged,
        Self::DeleteMakesTombstone,
        Self::TombstoneStays,
        Self::TombstoneOutlastsTheRest,
        Self::StatusForward,
        Self::FoldNewest,
        Self::BelieveNewer,
        Self::OwnClusterOnly,
        Self::OwnOutcomesOnly,
        Self::OffsetWithRows,
        Self::OffsetCompared,
        Self::EndsAreFinal,
        Self::SayAgain,
        Self::SendAgain,
        Self::MintAgain,
        Self::TermAboveHeard,
    ];
}

/// Which guards hold: all, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// The one that was dropped.
    pub without: Option<Guard>,
}

impl Guards {
    /// Whether this one holds.
    pub fn hold(self, guard: Guard) -> bool {
        self.without != Some(guard)
    }
}

/// What the API server answers to an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The resource holds it now.
    Stored,
    /// Nothing changed.
    Unchanged,
    /// Refused, with what the provisioner makes of the refusal.
    Refused(Ended),
}

/// Whether a run state ends a database: mirrors `is_gone` in store/src/mint.rs.
pub fn is_gone(state: RunState) -> bool {
    matches!(state, RunState::Deleted | RunState::Purged)
}

/// The next states that may be asked for, as backend/src/api/databases has them, under the row lock.
pub fn may_follow(state: Option<RunState>) -> &'static [RunState] {
    match state {
        None => &[RunState::Running],
        Some(RunState::Running | RunState::Paused) => {
            &[RunState::Running, RunState::Deleted, RunState::Purged]
        }
        Some(RunState::Deleted) => &[RunState::Running, RunState::Purged],
        Some(RunState::Purged) => &[],
    }
}

/// An apply: mirrors the rules `FORWARD` and `STAYS_PURGED` in resources/src/fence.rs. What a refusal means is the
/// provisioner's own judgement.
pub fn admit(held: Option<&Object>, asked: &Instruction, guards: Guards) -> Answer {
    let Some(held) = held else {
        let ends = is_gone(asked.wish.state);
        let made = !ends || guards.hold(Guard::DeleteMakesTombstone);
        return if made { Answer::Stored } else { Answer::Unchanged };
    };
    if held.position == asked.position && held.wish == asked.wish {
        return Answer::Unchanged;
    }
    let forward = match asked.position.cmp(&held.position) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => !guards.hold(Guard::EqualMeansEqual),
        std::cmp::Ordering::Less => !guards.hold(Guard::Fence),
    };
    if !forward {
        return Answer::Refused(product::fenced(held, asked));
    }
    let returns = held.wish.state == RunState::Purged && asked.wish.state != RunState::Purged;
    if returns && guards.hold(Guard::StaysPurged) { Answer::Refused(Ended::Refused) } else { Answer::Stored }
}

/// How many records may be committed: the real tracker.
pub fn committable(read: usize, done: &BTreeSet<usize>, guards: Guards) -> usize {
    if !guards.hold(Guard::ContiguousPrefix) {
        return done.last().map_or(0, |last| last + 1);
    }
    product::committable(read, done)
}

/// Whether of two records that wait for one lane the one that came later goes: the real lanes.
pub fn arriving_goes(waiting: &Instruction, arriving: &Instruction, guards: Guards) -> bool {
    guards.hold(Guard::NewestInLane) && product::arriving_goes(waiting, arriving)
}

/// Parks: mirrors `park` in store/src/parked.rs, `where (excluded.epoch, excluded.seq) > (t.epoch, t.seq)`.
pub fn park(parked: Option<Instruction>, asked: Instruction, guards: Guards) -> Instruction {
    match parked {
        Some(parked) if guards.hold(Guard::ParkNewer) && asked.position <= parked.position => parked,
        _ => asked,
    }
}

/// What stays parked after a drain: mirrors `unpark` in store/src/parked.rs, which deletes by id and position.
pub fn unpark(parked: Option<Instruction>, done: Position, guards: Guards) -> Option<Instruction> {
    parked.filter(|parked| guards.hold(Guard::UnparkExactly) && parked.position != done)
}

/// Whether what is parked goes because something newer is seen in its cluster: mirrors `unpark_passed` in
/// store/src/parked.rs, `o.cluster_id = p.cluster_id and o.present and (o.epoch, o.seq) > (p.epoch, p.seq)`.
pub fn is_passed(row: &Row, guards: Guards) -> bool {
    let (Some(parked), Some(belief)) = (row.parked, row.belief) else { return false };
    !belief.foreign && (!guards.hold(Guard::UnparkPassed) || belief.position > parked.position)
}

/// Marks: mirrors `mark` in store/src/outbox.rs, `d.epoch = sent.epoch and d.seq = sent.seq`.
pub fn published(row: &Row, sent: Position, guards: Guards) -> Option<Position> {
    let stands = row.desired.map(|desired| desired.position);
    if !guards.hold(Guard::MarkWhatWasSent) {
        return stands;
    }
    if stands == Some(sent) { Some(sent) } else { row.published }
}

/// A status write: mirrors the rule `STATUS_FORWARD` in resources/src/fence.rs. That the operator writes with the
/// resource version it has read refuses more; the promises do not need it.
pub fn status(carried: Option<Position>, position: Position, guards: Guards) -> Position {
    match carried {
        Some(carried) if guards.hold(Guard::StatusForward) => carried.max(position),
        _ => position,
    }
}

/// The observations of a batch that are worth writing: the sink's own fold.
pub fn fold(batch: Vec<Seen>, guards: Guards) -> Vec<Seen> {
    if !guards.hold(Guard::FoldNewest) {
        let mut last: Vec<Seen> = Vec::new();
        for seen in batch {
            last.retain(|kept| (kept.database, kept.foreign) != (seen.database, seen.foreign));
            last.push(seen);
        }
        return last;
    }
    product::fold(&batch)
}

/// Whether an observation replaces what is believed: mirrors `doubt` in store/src/sink/owner.rs and the upsert in
/// store/src/observations.rs where nothing was ever gone, `(excluded.epoch, …, excluded.resource_version) > (t.epoch, …)`.
pub fn believes(row: &Row, seen: &Seen, guards: Guards) -> bool {
    if row.desired.is_none() || (seen.foreign && guards.hold(Guard::OwnClusterOnly)) {
        return false;
    }
    row.belief.is_none_or(|belief| !guards.hold(Guard::BelieveNewer) || order(seen) > order(&belief))
}

/// The term that an observer gets where more was heard than Postgres has terms for: mirrors `raise_terms` in
/// store/src/observers.rs, `set term = heard.term + 1 … where heard.term > o.term`.
pub fn raised(term: usize, rows: &[Row], guards: Guards) -> Option<usize> {
    let heard = rows.iter().filter_map(|row| row.belief).map(|belief| belief.term).max()?;
    (heard > term && guards.hold(Guard::TermAboveHeard)).then_some(heard + 1)
}

/// The order of beliefs.
pub fn order(seen: &Seen) -> (Position, usize, usize) {
    (seen.position, seen.term, seen.version)
}

/// Whether an operation's instruction will never be taken by the word of this: mirrors `hear` in store/src/sink.rs, which passes
/// over what another cluster says.
pub fn refuses(said: &Said, (database, position): (usize, Position), guards: Guards) -> bool {
    let one = match said {
        Said::Refused(one) => one,
        Said::Foreign(one) if !guards.hold(Guard::OwnOutcomesOnly) => one,
        Said::Applied(_) | Said::Foreign(_) | Said::Seen(_) => return false,
    };
    (one.database, one.position) == (database, position)
}

/// Where an operation goes: the real table, fed as store/src/progress.rs feeds it.
pub fn judged(
    operation: &Operation,
    progress: Progress,
    refused: bool,
    guards: Guards,
) -> Option<OperationState> {
    let open = !guards.hold(Guard::EndsAreFinal);
    let from = if open { OperationState::Pending } else { operation.state };
    let next = judge(from, operation.position, progress);
    let fails = refused && next.is_none() && from == OperationState::Pending;
    next.or_else(|| fails.then_some(OperationState::Failed))
}
