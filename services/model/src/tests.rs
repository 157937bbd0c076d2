//! Everything that can happen within the bounds is checked, and each guard is shown to be needed.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries};

use super::*;
use crate::bounds::{CALM, Faults};
use crate::guards::Guard;

const THREADS: usize = 2;
/// Deeper than any history within the bounds.
const DEEP: usize = 100;
/// As deep as the widest bounds can be walked in seconds.
const SHALLOW: usize = 17;

/// Walks through every state, or through those that so many steps can lead to.
fn keeps_every_promise(name: &str, bounds: Bounds, deepest: usize) {
    let begun = Instant::now();
    let protocol = Protocol { bounds, guards: Guards::default() };
    let checker = protocol.checker().threads(THREADS).target_max_depth(deepest).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, {depth} steps deep, {:?}", begun.elapsed());
    for promise in Promise::ALL {
        checker.assert_no_discovery(promise.name());
    }
    checker.assert_any_discovery(REACHED);
    assert!(depth < deepest || deepest == SHALLOW, "{name} was not walked through to its end");
}

#[test]
fn records_that_come_again_do_no_harm() {
    keeps_every_promise("replays", Bounds::REPLAYS, DEEP);
}

#[test]
fn a_partition_may_move_while_work_is_in_flight() {
    keeps_every_promise("zombies", Bounds::ZOMBIES, DEEP);
}

#[test]
fn what_a_cluster_cannot_take_is_drained_in_order() {
    keeps_every_promise("parking", Bounds::PARKING, DEEP);
    keeps_every_promise("long parking", Bounds::LONG_PARKING, DEEP);
    keeps_every_promise("heirs", Bounds::HEIRS, DEEP);
    keeps_every_promise("passing", Bounds::PASSING, DEEP);
}

#[test]
fn neighbours_do_not_disturb_each_other() {
    keeps_every_promise("neighbours", Bounds::NEIGHBOURS, DEEP);
}

#[test]
fn reports_reach_postgres_and_never_go_back() {
    keeps_every_promise("sleepers", Bounds::SLEEPERS, DEEP);
    keeps_every_promise("strangers", Bounds::STRANGERS, DEEP);
}

#[test]
fn what_kafka_loses_is_said_again() {
    keeps_every_promise("losses", Bounds::LOSSES, DEEP);
}

#[test]
fn what_postgres_loses_is_noticed() {
    keeps_every_promise("lost rows", Bounds::LOST_ROWS, DEEP);
    keeps_every_promise("lost changes", Bounds::LOST_CHANGES, SHALLOW);
    keeps_every_promise("lost terms", Bounds::LOST_TERMS, DEEP);
}

#[test]
fn what_is_buried_stays_buried() {
    keeps_every_promise("burial", Bounds::BURIAL, DEEP);
}

/// A promise that is kept at rest is worth nothing where no rest comes: from every state the programs alone, without
/// chance or fault, can get there.
#[test]
fn the_programs_come_to_rest_from_everywhere() {
    let parking = Bounds { faults: Faults { timeouts: 1, outages: 1, ..CALM }, ..Bounds::PARKING };
    let losses = Bounds { faults: Faults { losses: 1, ..CALM }, ..Bounds::LOSSES };
    let all = [
        parking,
        losses,
        Bounds::NEIGHBOURS,
        Bounds::REPLAYS,
        Bounds::ZOMBIES,
        Bounds::SLEEPERS,
        Bounds::STRANGERS,
        Bounds::LOST_ROWS,
        Bounds::LOST_TERMS,
        Bounds::BURIAL,
    ];
    for bounds in all {
        let protocol = Protocol { bounds, guards: Guards::default() };
        let graph = explore(&protocol);
        let mut restful = vec![false; graph.into.len()];
        let mut next = graph.rests;
        while let Some(place) = next.pop() {
            if !std::mem::replace(&mut restful[place], true) {
                next.extend(&graph.into[place]);
            }
        }
        let restless = restful.iter().filter(|reached| !**reached).count();
        assert_eq!(restless, 0, "of {} states of {bounds:?}", restful.len());
    }
}

/// States by number.
struct Graph {
    /// From which states progress or repair leads into a state.
    into: Vec<Vec<usize>>,
    /// States from which neither leads anywhere.
    rests: Vec<usize>,
}

fn explore(protocol: &Protocol) -> Graph {
    let mut graph = Graph { into: Vec::new(), rests: Vec::new() };
    let (mut places, mut queue) = (HashMap::new(), VecDeque::from(protocol.init_states()));
    let mut place = |state: &State, into: &mut Vec<Vec<usize>>| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let known = places.len();
        let place = *places.entry(hasher.finish()).or_insert(known);
        if place == known {
            into.push(Vec::new());
        }
        (place, place == known)
    };
    for state in &queue {
        place(state, &mut graph.into);
    }
    while let Some(state) = queue.pop_front() {
        let (from, _) = place(&state, &mut graph.into);
        let progress = step::progress(protocol, &state);
        if progress.is_empty() {
            graph.rests.push(from);
        }
        let count = progress.len();
        for (index, step) in progress.into_iter().chain(step::chance(protocol, &state)).enumerate() {
            let Some(after) = protocol.next_state(&state, step) else { continue };
            let (to, is_new) = place(&after, &mut graph.into);
            if index < count {
                graph.into[to].push(from);
            }
            if is_new {
                queue.push_back(after);
            }
        }
    }
    graph
}

/// Guard, where its absence is seen, and the promise that is broken then.
const NEEDED: &[(Guard, Bounds, Promise)] = &[
    (Guard::RowLock, Bounds::REPLAYS, Promise::OnePositionOneContent),
    (Guard::MarkAfterSend, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::MarkWhatWasSent, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::NewestInLane, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::AcknowledgeAfterEffect, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::ContiguousPrefix, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::ParkNewer, Bounds::LONG_PARKING, Promise::NothingAcceptedIsLost),
    (Guard::UnparkExactly, Bounds::PARKING, Promise::NothingAcceptedIsLost),
    (Guard::UnparkPassed, Bounds::PASSING, Promise::NothingAcceptedIsLost),
    (Guard::Fence, Bounds::ZOMBIES, Promise::NothingOlderWins),
    (Guard::Fence, Bounds::REPLAYS, Promise::NothingDeletedReturns),
    (Guard::Fence, Bounds::PARKING, Promise::ParkedNeverOvertakes),
    (Guard::EqualMeansEqual, Bounds::LOST_CHANGES, Promise::OnePositionOneContent),
    (Guard::StaysPurged, Bounds::LOST_ROWS, Promise::NothingDeletedReturns),
    (Guard::DeleteMakesTombstone, Bounds::REPLAYS, Promise::NothingAcceptedIsLost),
    (Guard::TombstoneStays, Bounds::BURIAL, Promise::NothingDeletedReturns),
    (Guard::TombstoneOutlastsTheRest, Bounds::BURIAL, Promise::NothingDeletedReturns),
    (Guard::StatusForward, Bounds::SLEEPERS, Promise::StatusNeverGoesBack),
    (Guard::FoldNewest, Bounds::SLEEPERS, Promise::TheNewestIsBelieved),
    (Guard::BelieveNewer, Bounds::SLEEPERS, Promise::StatusNeverGoesBack),
    (Guard::OwnClusterOnly, Bounds::STRANGERS, Promise::OnlyTheOwnClusterIsBelieved),
    (Guard::OwnOutcomesOnly, Bounds::STRANGERS, Promise::OnlyTheOwnClusterIsBelieved),
    (Guard::OffsetWithRows, Bounds::SLEEPERS, Promise::TheNewestIsBelieved),
    (Guard::OffsetCompared, Bounds::SLEEPERS, Promise::GossipIsTakenInOnce),
    (Guard::EndsAreFinal, Bounds::SLEEPERS, Promise::EndsAreFinal),
    (Guard::SayAgain, Bounds::LOSSES, Promise::TheNewestIsBelieved),
    (Guard::SendAgain, Bounds::LOSSES, Promise::NothingAcceptedIsLost),
    (Guard::MintAgain, Bounds::LOST_ROWS, Promise::NothingAcceptedIsLost),
    (Guard::TermAboveHeard, Bounds::LOST_TERMS, Promise::TheNewestIsBelieved),
];

#[test]
fn every_guard_is_needed() {
    let mut idle = Vec::new();
    for (guard, bounds, promise) in NEEDED {
        let protocol = Protocol { bounds: *bounds, guards: Guards { without: Some(*guard) } };
        let name = promise.name();
        let enough = HasDiscoveries::AnyOf([name].into());
        let checker = protocol.checker().threads(THREADS).finish_when(enough).spawn_bfs().join();
        match checker.discovery(name) {
            Some(path) => println!("without {guard:?}, {promise:?} is broken: {:?}", path.into_actions()),
            None => idle.push((guard, promise)),
        }
    }
    assert!(idle.is_empty(), "without these nothing went wrong: {idle:?}");
}

#[test]
fn every_guard_is_in_the_table() {
    for guard in Guard::ALL {
        assert!(NEEDED.iter().any(|(needed, _, _)| needed == guard), "{guard:?}");
    }
}
