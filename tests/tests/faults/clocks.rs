//! Programs whose wall clocks are ten minutes wrong, each another way, and jump while they work: nothing is decided by them.

#![cfg(test)]

use std::time::Duration;

use testkit::{Spawned, WrongClock, eventually};

use crate::recoveries::{self, recovered};
use crate::rig::{PATIENCE, Rig};

/// Ten minutes.
const SKEW: i64 = 600;

impl Rig {
    /// Waits until something was said at a time that is wrong by about this.
    async fn said_at(&self, skew: i64) {
        let near = format!(
            "select count(*) from observations where abs(extract(epoch from said_at - received_at) - {skew}) < 60"
        );
        let what = format!("something said by a clock that is wrong by {skew} s");
        eventually(PATIENCE, &what, async || (self.ask(&near).await != "0").then_some(())).await;
    }

    async fn wrong(&self, program: &str, clock: &WrongClock) -> Spawned {
        let started = match program {
            "provisioner" => self.provisioner_by(&clock.environment()),
            roles => self.backend_by(roles, &clock.environment()),
        };
        started.ready().await;
        started
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_wrong_and_jump_decide_nothing() {
    let rig = Rig::new().await;
    let [early, late] = ["early", "late"].map(|name| WrongClock::new(&rig.folder, name).unwrap());
    early.jump(-SKEW).unwrap();
    late.jump(SKEW).unwrap();
    let mut programs = vec![
        rig.wrong("api,relay,sink", &late).await,
        rig.wrong("relay,sink", &early).await,
        rig.wrong("provisioner", &early).await,
    ];
    let load = rig.load(121);
    load.goes_on(40).await;
    rig.said_at(-SKEW).await;
    // The other one speaks for the clusters now, and is late; then the clock of either jumps, there and back.
    programs.pop().unwrap().kill().await.unwrap();
    programs.push(rig.wrong("provisioner", &late).await);
    rig.said_at(SKEW).await;
    let mut longest = Duration::ZERO;
    for (a, b) in [(SKEW, -SKEW), (0, SKEW), (-SKEW, 0)] {
        early.jump(a).unwrap();
        late.jump(b).unwrap();
        load.goes_on(30).await;
        rig.said_at(b).await;
        longest = longest.max(rig.recovery().await);
    }
    recovered(recoveries::CLOCKS_JUMP, longest);
    for program in &mut programs {
        program.lives().unwrap();
    }
    rig.proven(load, &[]).await;
}
