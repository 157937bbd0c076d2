//! The backend's steps: mint, publish, mark, take gossip in, and what it repairs.

use backend::sweep::decide::Act;
use domain::operation::Progress;
use domain::{OperationState, Position, RunState};

use super::Step;
use crate::guards::{self, Guard, may_follow};
use crate::state::{Instruction, Late, Operation, Row, Said, Seen, State, Wish};
use crate::{Protocol, product};

/// API replicas that forget the lock.
const REPLICAS: usize = 2;

pub(super) fn progress(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    steps.extend(state.unlocked.keys().map(|replica| Step::MintWrite { replica: *replica }));
    if state.relay.is_some() {
        steps.push(Step::Mark);
    } else {
        let waits = |row: &Row| row.desired.is_some_and(|desired| row.published < Some(desired.position));
        let waiting = databases(state).filter(|database| waits(&state.postgres.rows[*database]));
        steps.extend(waiting.map(|database| Step::Publish { database }));
    }
    let unread = state.gossip.len() - state.postgres.offset;
    if unread > 0 {
        steps.push(Step::Absorb { count: 1 });
    }
    if unread > 1 {
        steps.push(Step::Absorb { count: unread });
    }
    if raised(protocol, state).is_some() {
        steps.push(Step::RaiseTerm);
    }
    let passed = |database: &usize| guards::is_passed(&state.postgres.rows[*database], protocol.guards);
    steps.extend(databases(state).filter(passed).map(|database| Step::Pass { database }));
    if protocol.guards.hold(Guard::MintAgain) {
        let lost = databases(state).filter(|database| acts(state, *database, Act::Repair));
        steps.extend(lost.map(|database| Step::MintAgain { database }));
    }
}

/// What is done when nothing else moves.
pub(super) fn repair(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    if protocol.bounds.resends == 0 {
        return;
    }
    for database in databases(state) {
        let row = &state.postgres.rows[database];
        let seen = state.look(database);
        let what = |seen: Seen| (seen.position, seen.wish, seen.carried);
        let unheard = seen.is_some() && seen.map(what) != row.belief.map(what);
        if unheard && !state.resources[database].told_again && protocol.guards.hold(Guard::SayAgain) {
            steps.push(Step::SayAgain { database });
        } else if acts(state, database, Act::Resend)
            && state.resends > 0
            && protocol.guards.hold(Guard::SendAgain)
        {
            steps.push(Step::SendAgain { database });
        }
    }
}

fn raised(protocol: &Protocol, state: &State) -> Option<usize> {
    guards::raised(state.postgres.term, &state.postgres.rows, protocol.guards)
}

/// Whether the sweep would do this.
fn acts(state: &State, database: usize, act: Act) -> bool {
    product::sweep(&state.postgres.rows[database], state.postgres.term) == Some(act)
}

pub(super) fn chance(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    if state.asked < protocol.bounds.mints {
        asks(protocol, state, steps);
    }
    if state.relay.is_some() && state.left.crashes > 0 {
        steps.push(Step::RelayCrash);
    }
    let unread = state.gossip.len() > state.postgres.offset;
    if unread && state.left.sleepers > 0 {
        steps.push(Step::SinkSleeps);
    }
    if unread && !protocol.guards.hold(Guard::OffsetWithRows) {
        steps.push(Step::SinkCrash);
    }
    if unread && state.left.losses > 0 {
        steps.push(Step::LoseGossip);
    }
    if state.standby.is_some() {
        steps.push(Step::FailOver);
    } else if state.left.failovers > 0 {
        steps.push(Step::StandbyLags);
    }
    if protocol.bounds.closing {
        let ended = databases(state).filter(|database| may_close(protocol, state, *database));
        steps.extend(ended.map(|database| Step::Close { database }));
    }
}

fn asks(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    for database in databases(state) {
        let row = &state.postgres.rows[database];
        let current = row.desired.map(|desired| desired.wish.state);
        let known = state.history.iter().any(|minted| minted.database == database);
        // A database that Postgres lost is not asked for again under its old identity.
        if current.is_none() && known {
            continue;
        }
        if !protocol.guards.hold(Guard::RowLock) && current == Some(RunState::Running) {
            let free = (0..REPLICAS).find(|replica| !state.unlocked.contains_key(replica));
            steps.extend(free.map(|replica| Step::MintLook { replica, database }));
            continue;
        }
        let within = |state: &&RunState| **state <= protocol.bounds.end;
        let asked = may_follow(current).iter().filter(within);
        steps.extend(asked.map(|state| Step::Mint { database, state: *state }));
    }
}

/// A tombstone goes when its end was carried out and reported, and nothing is left that could bring the database back:
/// mirrors `is_over` and `may_be_forgotten` in backend/src/sweep/decide.rs, where the topic's retention stands for the latter.
fn may_close(protocol: &Protocol, state: &State, database: usize) -> bool {
    let row = &state.postgres.rows[database];
    let Some((desired, belief)) = row.desired.zip(row.belief) else { return false };
    let over = desired.wish.state == RunState::Purged && belief.carried == Some(desired.position);
    let there = state.resources[database].object.is_some();
    let is_of_it = |instruction: &Instruction| instruction.database == database;
    let in_hand = state.provisioners.iter().any(|provisioner| {
        let lane = provisioner.lanes[database];
        lane.running.is_some() || lane.waiting.is_some() || provisioner.drains[database].is_some()
    });
    let on_its_way = in_hand
        || row.parked.is_some()
        || row.published != Some(desired.position)
        || state.relay.is_some_and(|sent| is_of_it(&sent))
        || state.topic.records.iter().any(is_of_it)
        || state.late.iter().any(|late| matches!(late, Late::Apply(instruction) if is_of_it(instruction)));
    over && there && !row.closed && !(on_its_way && protocol.guards.hold(Guard::TombstoneOutlastsTheRest))
}

pub(super) fn apply(protocol: &Protocol, state: &mut State, step: &Step) {
    match step {
        Step::Mint { database, state: wanted } => {
            let minted = next(state, *database, *wanted);
            state.asked += 1;
            mint(state, minted);
        }
        Step::MintLook { replica, database } => {
            let minted = next(state, *database, RunState::Running);
            state.asked += 1;
            state.unlocked.insert(*replica, minted);
        }
        Step::MintWrite { replica } => {
            if let Some(minted) = state.unlocked.remove(replica) {
                mint(state, minted);
            }
        }
        Step::MintAgain { database } => mint_again(state, *database),
        Step::Publish { .. } | Step::Mark | Step::RelayCrash => relay(protocol, state, step),
        Step::Absorb { count } => store(protocol, state, state.postgres.offset, *count),
        Step::SinkSleeps => {
            state.left.sleepers -= 1;
            let from = state.postgres.offset;
            state.late.insert(Late::Store { from, count: state.gossip.len() - from });
        }
        Step::RaiseTerm => {
            state.postgres.term = raised(protocol, state).unwrap_or(state.postgres.term);
        }
        Step::Pass { database } => state.postgres.rows[*database].parked = None,
        Step::SinkCrash => state.postgres.offset += 1,
        Step::SayAgain { database } => {
            state.resources[*database].told = None;
            state.resources[*database].told_again = true;
        }
        Step::SendAgain { database } => {
            state.resends -= 1;
            state.postgres.rows[*database].published = None;
        }
        Step::StandbyLags => {
            state.left.failovers -= 1;
            state.standby = Some(state.postgres.clone());
        }
        Step::FailOver => {
            state.postgres = state.standby.take().unwrap_or_default();
            state.failed_over = true;
        }
        Step::LoseGossip => {
            state.left.losses -= 1;
            state.gossip.pop();
            for resource in &mut state.resources {
                resource.told_again = false;
            }
        }
        _ => {}
    }
}

fn relay(protocol: &Protocol, state: &mut State, step: &Step) {
    let after = protocol.guards.hold(Guard::MarkAfterSend);
    match step {
        Step::Publish { database } => {
            let row = &mut state.postgres.rows[*database];
            let Some(desired) = row.desired else { return };
            state.relay = Some(desired);
            if after {
                state.topic.records.push(desired);
            } else {
                row.published = Some(desired.position);
            }
        }
        Step::Mark => {
            let Some(sent) = state.relay.take() else { return };
            if after {
                let row = &mut state.postgres.rows[sent.database];
                row.published = guards::published(row, sent.position, protocol.guards);
            } else {
                state.topic.records.push(sent);
            }
        }
        _ => {
            state.left.crashes -= 1;
            state.relay = None;
        }
    }
}

/// The next desired state of a database.
fn next(state: &State, database: usize, wanted: RunState) -> Instruction {
    let stands = state.postgres.rows[database].desired;
    let position = stands.map_or(Position::FIRST, |stands| stands.position.next().unwrap_or(stands.position));
    Instruction { database, position, wish: Wish { state: wanted, nonce: state.asked } }
}

fn mint(state: &mut State, minted: Instruction) {
    let row = &mut state.postgres.rows[minted.database];
    row.desired = Some(minted);
    row.operations.push(Operation { position: minted.position, state: OperationState::Pending });
    state.history.push(minted);
}

/// The current desired state once more, above everything that the cluster may hold.
fn mint_again(state: &mut State, database: usize) {
    let row = &state.postgres.rows[database];
    let Some((desired, belief)) = row.desired.zip(row.belief) else { return };
    let Some(position) = desired.position.above(belief.position) else { return };
    mint(state, Instruction { position, ..desired });
}

/// Takes a batch of gossip in: rows, operations and offset, or nothing.
pub(super) fn store(protocol: &Protocol, state: &mut State, from: usize, count: usize) {
    if from != state.postgres.offset && protocol.guards.hold(Guard::OffsetCompared) {
        return;
    }
    let end = (from + count).min(state.gossip.len());
    let batch = state.gossip[from..end].to_vec();
    state.postgres.offset = end;
    let seen = batch.iter().filter_map(|said| if let Said::Seen(seen) = said { Some(*seen) } else { None });
    let mut touched: Vec<usize> = Vec::new();
    for seen in guards::fold(seen.collect(), protocol.guards) {
        let row = &mut state.postgres.rows[seen.database];
        if guards::believes(row, &seen, protocol.guards) {
            row.belief = Some(seen);
            touched.push(seen.database);
        }
    }
    touched.extend(batch.iter().filter_map(|said| match said {
        Said::Applied(one) | Said::Refused(one) | Said::Foreign(one) => Some(one.database),
        Said::Seen(_) => None,
    }));
    for database in touched {
        move_operations(protocol, &mut state.postgres.rows[database], database, &batch);
    }
}

fn move_operations(protocol: &Protocol, row: &mut Row, database: usize, batch: &[Said]) {
    let applied = batch.iter().filter_map(|said| match said {
        Said::Applied(one) if one.database == database => Some(one.position),
        _ => None,
    });
    let held = row.belief.map(|belief| belief.position);
    let progress = Progress {
        carried_out: row.belief.and_then(|belief| belief.carried),
        applied: applied.chain(held).max(),
    };
    for operation in &mut row.operations {
        let which = (database, operation.position);
        let refused = batch.iter().find(|said| guards::refuses(said, which, protocol.guards));
        if let Some(next) = guards::judged(operation, progress, refused.is_some(), protocol.guards) {
            row.misled |= next == OperationState::Failed && matches!(refused, Some(Said::Foreign(_)));
            operation.state = next;
        }
    }
}

fn databases(state: &State) -> std::ops::Range<usize> {
    0..state.postgres.rows.len()
}
