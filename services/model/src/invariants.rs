//! What Slipway promises, as functions of two states that follow each other, or of a state in which nothing more moves.

use domain::{OperationState, Position, RunState};

use crate::guards::{is_gone, order};
use crate::state::{Instruction, Object, Row, Seen, State};
use crate::step::{Source, Step};

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// What was accepted last is what the custom resource holds in the end.
    NothingAcceptedIsLost,
    /// The position of a custom resource never falls.
    NothingOlderWins,
    /// A parked instruction never replaces a newer one.
    ParkedNeverOvertakes,
    /// No older instruction brings back what was deleted, and nothing brings back what was purged.
    NothingDeletedReturns,
    /// One position means one content, for ever.
    OnePositionOneContent,
    /// What is reported, in the cluster and in Postgres, never goes back.
    StatusNeverGoesBack,
    /// An operation that ended does not move.
    EndsAreFinal,
    /// What is believed in the end is what is there, and every operation has ended.
    TheNewestIsBelieved,
    /// What one cluster says of the databases of another is not believed.
    OnlyTheOwnClusterIsBelieved,
    /// A sink that lost its partition writes nothing.
    GossipIsTakenInOnce,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NothingAcceptedIsLost,
        Self::NothingOlderWins,
        Self::ParkedNeverOvertakes,
        Self::NothingDeletedReturns,
        Self::OnePositionOneContent,
        Self::StatusNeverGoesBack,
        Self::EndsAreFinal,
        Self::TheNewestIsBelieved,
        Self::OnlyTheOwnClusterIsBelieved,
        Self::GossipIsTakenInOnce,
    ];
}

/// The promise that a step broke.
pub fn broken(before: &State, step: &Step, after: &State) -> Option<Promise> {
    resources(before, step, after).or_else(|| {
        // A failover takes Postgres back; what it had said before is outside of what it can promise.
        if matches!(step, Step::FailOver) { None } else { postgres(before, after) }
    })
}

fn resources(before: &State, step: &Step, after: &State) -> Option<Promise> {
    before.resources.iter().zip(&after.resources).find_map(|(old, new)| {
        let object = new.object?;
        spec(old.highest, &object, step).or_else(|| {
            let old = old.object?;
            if old.position == object.position && old.wish != object.wish {
                return Some(Promise::OnePositionOneContent);
            }
            (object.carried < old.carried).then_some(Promise::StatusNeverGoesBack)
        })
    })
}

fn spec(highest: Option<(Position, RunState)>, object: &Object, step: &Step) -> Option<Promise> {
    let (position, state) = highest?;
    let purged = state == RunState::Purged && object.wish.state != RunState::Purged;
    let returns = object.position < position && is_gone(state) && !is_gone(object.wish.state);
    if purged || returns {
        return Some(Promise::NothingDeletedReturns);
    }
    let parked = matches!(step, Step::Carry { source: Source::Parked, .. });
    let overtaken = if parked { Promise::ParkedNeverOvertakes } else { Promise::NothingOlderWins };
    (object.position < position).then_some(overtaken)
}

fn postgres(before: &State, after: &State) -> Option<Promise> {
    if is_minted_twice(before, after) {
        return Some(Promise::OnePositionOneContent);
    }
    // Taken-in gossip is forgotten from the front, so an offset is counted from the end.
    let unread = |state: &State| state.gossip.len() - state.postgres.offset;
    if unread(after) > unread(before) && after.gossip.len() <= before.gossip.len() {
        return Some(Promise::GossipIsTakenInOnce);
    }
    before.postgres.rows.iter().zip(&after.postgres.rows).find_map(|(old, new)| row(old, new))
}

/// Whether a position was given to a second content. After a failover it may be: the fence and the epoch see to that.
fn is_minted_twice(before: &State, after: &State) -> bool {
    let Some((newest, earlier)) = after.history.split_last() else { return false };
    let same = |one: &Instruction| (one.database, one.position) == (newest.database, newest.position);
    let other = |one: &Instruction| same(one) && one.wish != newest.wish;
    !after.failed_over && before.history.len() < after.history.len() && earlier.iter().any(other)
}

fn row(before: &Row, after: &Row) -> Option<Promise> {
    if after.misled || after.belief.is_some_and(|belief| belief.foreign) {
        return Some(Promise::OnlyTheOwnClusterIsBelieved);
    }
    let believed = |belief: &Seen| (order(belief), belief.carried);
    if after.belief.as_ref().map(believed) < before.belief.as_ref().map(believed) {
        return Some(Promise::StatusNeverGoesBack);
    }
    let moved = before
        .operations
        .iter()
        .zip(&after.operations)
        .any(|(old, new)| old.state.is_terminal() && old.state != new.state);
    moved.then_some(Promise::EndsAreFinal)
}

/// The promise that a state breaks in which nothing moves any more.
pub fn unkept(state: &State, gossip: bool) -> Option<Promise> {
    (0..state.resources.len()).find_map(|database| {
        let row = &state.postgres.rows[database];
        let desired = row.desired.filter(|_| !row.closed)?;
        let object = state.resources[database].object.as_ref();
        let held =
            object.is_some_and(|object| object.position == desired.position && object.wish == desired.wish);
        if !held {
            return (!is_shown(row, object)).then_some(Promise::NothingAcceptedIsLost);
        }
        (gossip && !is_known(row, object)).then_some(Promise::TheNewestIsBelieved)
    })
}

/// After Postgres lost rows the cluster may hold what nobody there remembers: a purge, which is final, or other content at
/// a position that was given again. Then people must be shown so: by the failed operation, or by the sweep, which reports
/// other content from what is believed. (What becomes of the operation then is not promised.)
fn is_shown(row: &Row, object: Option<&Object>) -> bool {
    let failed = row.operations.last().is_some_and(|newest| newest.state == OperationState::Failed);
    let purged = object.is_some_and(|object| object.wish.state == RunState::Purged);
    let other = |belief: &Seen| {
        row.desired.is_some_and(|desired| desired.position == belief.position && desired.wish != belief.wish)
    };
    (failed && purged) || row.belief.as_ref().is_some_and(other)
}

fn is_known(row: &Row, object: Option<&Object>) -> bool {
    let Some((object, belief)) = object.zip(row.belief) else { return false };
    let same =
        (belief.position, belief.wish, belief.carried) == (object.position, object.wish, object.carried);
    let newest = row.operations.last().map(|operation| operation.state);
    let ended = row.operations.iter().all(|operation| operation.state.is_terminal());
    same && ended && matches!(newest, Some(OperationState::Succeeded | OperationState::Failed))
}
