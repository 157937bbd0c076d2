//! Members of the consumer group that come and go.

#![cfg(test)]

use std::time::{Duration, Instant};

use crate::rig::{GRACE, Rig, recovered};

/// How long members come and go.
const STORM: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_rebalances_loses_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(41);
    let begun = Instant::now();
    let mut turns = 0;
    while begun.elapsed() < STORM {
        let second = rig.provisioner().await;
        load.goes_on(8).await;
        if turns % 2 == 0 {
            second.kill().await.unwrap();
        } else {
            second.terminate(GRACE).await.unwrap();
        }
        turns += 1;
    }
    assert!(turns > 3, "the fault did not fire: members came and went {turns} times only");
    println!("members came and went {turns} times in {:?}", begun.elapsed());
    let (_, settled) = rig.proven(load, &[]).await;
    recovered("members of the group coming and going for 30 s: no lag left", settled);
}
