//! The cluster's steps: the API server, the operator, the observer.

use domain::Position;

use super::Step;
use crate::Protocol;
use crate::guards::{self, Answer, Guard, is_gone};
use crate::state::{Ended, Instruction, Late, Object, Said, Seen, State, Wish};

/// What a stranger makes up.
const FAR: Position = Position { epoch: 9, seq: 9 };

pub(super) fn progress(protocol: &Protocol, state: &State, steps: &mut Vec<Step>) {
    if state.away {
        steps.push(Step::Return);
        return;
    }
    if !protocol.bounds.gossip {
        return;
    }
    for (database, resource) in state.resources.iter().enumerate() {
        let Some(object) = resource.object else { continue };
        if object.carried < Some(object.position) {
            steps.push(Step::Reconcile { database });
        }
        if resource.told != Some((state.postgres.term, object.version)) {
            steps.push(Step::Observe { database });
        }
    }
}

pub(super) fn chance(state: &State, steps: &mut Vec<Step>) {
    if state.left.outages > 0 && !state.away {
        steps.push(Step::Leave);
    }
    for (database, resource) in state.resources.iter().enumerate() {
        let Some(object) = resource.object else { continue };
        if state.left.strangers > 0 {
            steps.push(Step::StrangerSpeaks { database });
            steps.push(Step::StrangerRefuses { database });
        }
        if state.left.sleepers > 0 {
            steps.push(Step::ObserverSleeps { database });
            if object.carried < Some(object.position) {
                steps.push(Step::OperatorSleeps { database });
            }
        }
    }
}

pub(super) fn apply(protocol: &Protocol, state: &mut State, step: &Step) {
    match step {
        Step::Reconcile { database } => reconcile(protocol, state, *database),
        Step::Observe { database } => {
            let Some(seen) = state.look(*database) else { return };
            state.resources[*database].told = Some((seen.term, seen.version));
            state.gossip.push(Said::Seen(seen));
        }
        Step::Leave => {
            state.left.outages -= 1;
            state.away = true;
        }
        Step::Return => state.away = false,
        Step::Close { database } => {
            state.resources[*database].object = None;
            state.postgres.rows[*database].closed = true;
        }
        Step::OperatorSleeps { database } => {
            state.left.sleepers -= 1;
            let Some(seen) = state.look(*database) else { return };
            state.late.insert(Late::Status { database: *database, position: seen.position });
        }
        Step::ObserverSleeps { database } => {
            state.left.sleepers -= 1;
            let Some(seen) = state.look(*database) else { return };
            state.late.insert(Late::Say(Said::Seen(seen)));
            // Another one begins a term of its own, and tells everything.
            state.postgres.term += 1;
        }
        Step::StrangerSpeaks { database } => {
            state.left.strangers -= 1;
            let Some(seen) = state.look(*database) else { return };
            let made_up = Seen { position: FAR, carried: Some(FAR), foreign: true, ..seen };
            state.gossip.push(Said::Seen(made_up));
        }
        Step::StrangerRefuses { database } => {
            state.left.strangers -= 1;
            state.gossip.extend(state.postgres.rows[*database].desired.map(Said::Foreign));
        }
        _ => {}
    }
}

/// An apply arrives at the API server.
pub(super) fn admit(protocol: &Protocol, state: &mut State, asked: &Instruction) -> Ended {
    let resource = &mut state.resources[asked.database];
    match guards::admit(resource.object.as_ref(), asked, protocol.guards) {
        Answer::Refused(ended) => return ended,
        Answer::Unchanged => return Ended::Applied,
        Answer::Stored => {}
    }
    let Instruction { position, wish, .. } = *asked;
    let carried = resource.object.and_then(|object| object.carried);
    let version = resource.object.map_or(0, |object| object.version) + 1;
    resource.object = Some(Object { position, wish, carried, version });
    resource.told_again = false;
    if resource.highest.is_none_or(|(highest, _)| highest < position) {
        resource.highest = Some((position, wish.state));
    }
    Ended::Applied
}

/// The operator is done with the spec as it stands.
fn reconcile(protocol: &Protocol, state: &mut State, database: usize) {
    let Some(Object { position, wish: Wish { state: wanted, .. }, .. }) = state.resources[database].object
    else {
        return;
    };
    if is_gone(wanted) && !protocol.guards.hold(Guard::TombstoneStays) {
        state.resources[database].object = None;
        return;
    }
    report(protocol, state, database, position);
}

/// A status arrives at the API server.
pub(super) fn report(protocol: &Protocol, state: &mut State, database: usize, position: Position) {
    let resource = &mut state.resources[database];
    let Some(object) = &mut resource.object else { return };
    let carried = guards::status(object.carried, position, protocol.guards);
    if object.carried != Some(carried) {
        object.carried = Some(carried);
        object.version += 1;
        resource.told_again = false;
    }
}
