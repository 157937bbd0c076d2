//! Members of the consumer group that come and go.

#![cfg(test)]

use std::time::{Duration, Instant};

use testkit::{eventually, how_long, partitions};

use crate::recoveries::{self, recovered};
use crate::rig::{GRACE, PATIENCE, Rig};

/// How long members come and go.
const STORM: Duration = Duration::from_secs(30);
const STORM_AT_FULL_LENGTH: Duration = Duration::from_mins(5);
/// In this time one comes and goes again. Not less: the group waits for one that was killed until its session of six
/// seconds is over, and takes two rebalances, each of which members hear of by their next heartbeat, to give the next
/// one its share.
const TURN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_rebalances_loses_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let lasts = how_long(STORM, STORM_AT_FULL_LENGTH);
    let load = rig.load_during(lasts, 41);
    let begun = Instant::now();
    let mut turns = 0;
    // As long, and so often: a machine that stands still for a while makes some turns longer.
    while begun.elapsed() < lasts || TURN * turns < lasts {
        let second = rig.provisioner().await;
        load.goes_on(8).await;
        if turns % 2 == 0 {
            // As a rule before the group has given it anything.
            second.kill().await.unwrap();
        } else {
            let has = async || (!partitions(&second.log()).is_empty()).then_some(());
            eventually(PATIENCE, "the fault to fire: partitions of a member that came", has).await;
            second.terminate(GRACE).await.unwrap();
        }
        turns += 1;
    }
    println!("members came and went {turns} times in {:?}", begun.elapsed());
    let (_, settled) = rig.proven(load, &[]).await;
    recovered(recoveries::MEMBERS_COME_AND_GO, settled);
}
