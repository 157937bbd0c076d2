//! A server that fails at times, and then always: what it is asked meanwhile, and once it is well again.

#![cfg(test)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use testkit::{Random, how_long};
use wire::OutcomeKind;

use super::bulkhead::{all, behind_a_front, metric, others};
use super::rig::{Rig, Running};
use crate::front::{Act, Front, Seen};

/// How long an API server fails at times; usually until everything was applied once.
const FAILS_AT_FULL_LENGTH: Duration = Duration::from_mins(5);
/// Databases that change meanwhile, and as many that cannot.
const DATABASES: usize = 60;
/// How often they do.
const ROUND: Duration = Duration::from_secs(3);
/// Calls on trial that must go well before all go out again.
const TRIAL: usize = 8;
/// Calls that may go to a cluster at once; what was parked takes half of them.
const AT_ONCE: usize = 16;
const DRAINED_AT_ONCE: usize = AT_ONCE / 2;
/// A server in trouble gets less than sixty requests of any kind a second, twenty of which are changes.
const WITHIN: Duration = Duration::from_secs(10);
const MOST_REQUESTS: usize = 600;

/// Three of ten requests fail for so long, whatever they ask for, while each database changes again and again: the newest
/// state of each is applied, and that takes few more calls than there were changes.
async fn fails_at_times(rig: &Rig, front: &Front, time: Duration) {
    let random = Mutex::new(Random::new(34));
    front.set(move |_| {
        let mut random = random.lock().unwrap();
        if random.chance(30) {
            return Act::Answer(*random.pick(&[500, 503, 504]).unwrap(), None);
        }
        Act::Pass
    });
    let (mut instructions, begun, mut changes) = (others(rig, DATABASES), Instant::now(), 0);
    loop {
        for instruction in &instructions {
            rig.publish(instruction).await;
        }
        changes += instructions.len();
        if begun.elapsed() >= time {
            break;
        }
        testkit::lasting(ROUND).await;
        for instruction in &mut instructions {
            instruction.position.seq += 1;
        }
    }
    // The errors go on meanwhile.
    all(rig, &instructions, OutcomeKind::Applied).await;
    let (calls, harmed) = (front.applies(), front.harmed());
    println!("{changes} changes in {:?}: {calls} calls, {harmed} requests failed", begun.elapsed());
    assert!(harmed > 5, "the fault fired {harmed} times in {changes} changes");
    assert!(calls < changes * 5, "{calls} calls for {changes} changes");
}

/// Every apply fails, until all is parked and a few were tried in vain. One call at a time finds out that the server is well
/// again, one more for each that it answers well.
async fn fails_always(rig: &Rig, front: &Front, running: &Running) {
    front.set(|seen| if seen.is_apply() { Act::Answer(503, None) } else { Act::Pass });
    let instructions = others(rig, DATABASES);
    for instruction in &instructions {
        rig.publish(instruction).await;
    }
    all(rig, &instructions, OutcomeKind::Parked).await;
    metric(running, "provisioner_breaker{cluster=\"bare\"} 2").await;
    // Nor is anything of before on its way.
    metric(running, "provisioner_cluster_calls{cluster=\"bare\"} 0").await;
    // Probes are answered well all the time: the breaker is on trial again and again, with one call each time.
    let (before, harmed) = (front.applies(), front.harmed());
    front.fired(harmed + 3).await;
    let calls = front.seen(Seen::is_apply).split_off(before);
    let (begin, end) = (calls.first().unwrap().at, calls.last().unwrap().at);
    assert!(end - begin > Duration::from_millis(1_500), "{} calls in {:?}", calls.len(), end - begin);
    let before = front.applies();
    front.set(|_| Act::Pass);
    all(rig, &instructions, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    let calls = front.seen(Seen::is_apply).split_off(before);
    let beside: Vec<usize> = calls.iter().map(|seen| seen.beside).collect();
    let mut trial = beside.iter().take(TRIAL).enumerate();
    assert!(trial.all(|(calls, beside)| *beside <= calls / 2), "a herd: {beside:?}");
    assert!(beside.iter().all(|beside| *beside < DRAINED_AT_ONCE), "a herd: {beside:?}");
    assert!(beside.len() < DATABASES * 3 / 2, "{} calls for {DATABASES} parked instructions", beside.len());
}

/// The most requests of any kind that came within some time.
fn busiest(front: &Front, within: Duration) -> usize {
    let mut times: Vec<Instant> = front.seen(|_| true).into_iter().map(|seen| seen.at).collect();
    times.sort_unstable();
    let windows = (0..times.len()).map(|first| {
        let end = times[first] + within;
        times[first..].partition_point(|at| *at < end)
    });
    windows.max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_now_and_then_are_outlived_and_errors_without_end_are_not_asked_for() {
    let (rig, front) = behind_a_front().await;
    let running = rig.start(&[]);
    fails_at_times(&rig, &front, how_long(Duration::ZERO, FAILS_AT_FULL_LENGTH)).await;
    fails_always(&rig, &front, &running).await;
    let calls = front.seen(Seen::is_apply);
    assert!(calls.iter().all(|seen| seen.beside < AT_ONCE), "more calls at once than the cluster is to take");
    let touched: BTreeSet<String> = calls.into_iter().map(|seen| seen.path).collect();
    assert_eq!(touched.len(), DATABASES * 2);
    let busiest = busiest(&front, WITHIN);
    println!("at most {busiest} requests within {WITHIN:?}");
    assert!(busiest < MOST_REQUESTS, "{busiest} requests within {WITHIN:?}");
    running.stop().await;
}
