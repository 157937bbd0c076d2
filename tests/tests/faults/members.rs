//! Members of the consumer group that come and go.

#![cfg(test)]

use std::time::{Duration, Instant};

use testkit::how_long;

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, Rig};

/// How long members come and go.
const STORM: Duration = Duration::from_secs(30);
const STORM_AT_FULL_LENGTH: Duration = Duration::from_mins(5);
/// In this time at least one has come and gone again.
const TURN: Duration = Duration::from_millis(7_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_rebalances_loses_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let lasts = how_long(STORM, STORM_AT_FULL_LENGTH);
    let load = rig.load_during(lasts, 41);
    let begun = Instant::now();
    let mut turns = 0;
    while begun.elapsed() < lasts {
        let second = rig.provisioner().await;
        load.goes_on(8).await;
        if turns % 2 == 0 {
            second.kill().await.unwrap();
        } else {
            second.terminate(GRACE).await.unwrap();
        }
        turns += 1;
    }
    assert!(TURN * turns >= lasts, "the fault did not fire: members came and went {turns} times only");
    println!("members came and went {turns} times in {:?}", begun.elapsed());
    let (_, settled) = rig.proven(load, &[]).await;
    recovered(recoveries::MEMBERS_COME_AND_GO, settled);
}
