//! Undeletes that race purges, while a real operator is at any point of what came before: what an undelete was accepted for is
//! there, and stays. By a seed that can be played again: `SLIPWAY_RACE_SEED`.

use futures::future::{join, join_all};
use resources::Phase;
use serde_json::Value;
use testkit::{Random, eventually};

use super::{Circle, Made, ROUND, seq};
use crate::endpoint::serial;

/// Databases that are raced for at once.
const AT_ONCE: u64 = 3;
/// How often one of them is.
const RACES: u32 = 2;
/// As often as makes it no accident that one of both never won: twelve lives may all go to the purge at the first race, where the
/// processors favour it.
const BATCHES: u64 = 12;

/// Who won.
#[derive(Debug, Default)]
struct Tally {
    undeletes: u32,
    purges: u32,
}

impl Circle {
    /// Asks for nothing, some times: who comes to a lock first is left to chance.
    async fn dawdle(&self, of: &Made, times: u64) {
        for _ in 0..times {
            // What is answered is nobody's business.
            let _ = self.console.get(&format!("/v1/databases/{}", of.id)).await;
        }
    }

    /// How far the operator may be with a deletion when the race begins: nowhere, on its way, done.
    async fn is_somewhere(&self, of: &Made, at: i64, random: &mut Random) {
        match random.below(3) {
            0 => {}
            1 => {
                eventually(ROUND, "the operator at work", async || {
                    let phase = self.resource(of).await?.status?.phase?;
                    [Phase::Deleting, Phase::Deleted].contains(&phase).then_some(())
                })
                .await;
            }
            _ => {
                self.carried_out(of, at, Phase::Deleted).await;
            }
        }
    }

    /// Both at once.
    async fn race(&self, of: &Made, random: &mut Random) -> [(u16, Value); 2] {
        let (before, after) = (random.below(4), random.below(4));
        let undelete = async {
            self.dawdle(of, before).await;
            self.ask(of, "undelete", &Value::Null).await
        };
        let purge = async {
            self.dawdle(of, after).await;
            self.purge(of).await
        };
        let (undelete, purge) = join(undelete, purge).await;
        [undelete, purge]
    }

    async fn is_destroyed(&self, of: &Made) {
        eventually(ROUND, "the end of the disk", async || self.disks(of).await.is_empty().then_some(()))
            .await;
    }

    /// A database that is deleted and raced for until a purge wins, or often enough; at the end it is purged.
    async fn life(&self, mut random: Random) -> Tally {
        let (made, mut tally) = (self.create().await, Tally::default());
        self.carried_out(&made, 1, Phase::Ready).await;
        let disk = self.disk(&made).await;
        for _ in 0..RACES {
            let since = serial().await;
            let at = self.delete(&made).await;
            self.is_somewhere(&made, at, &mut random).await;
            match self.race(&made, &mut random).await {
                [(202, accepted), (409, told)] => {
                    assert_eq!(told["code"], "living", "{told:#}");
                    assert_eq!(self.disks(&made).await, [disk.as_str()], "once it was accepted");
                    self.carried_out(&made, seq(&accepted), Phase::Ready).await;
                    assert_eq!(self.disks(&made).await, [disk.as_str()], "once it serves again");
                    assert_eq!(self.ends_of(&disk, since).await, 0, "somebody tried to destroy it");
                    tally.undeletes += 1;
                }
                [(409, told), (202, _)] => {
                    assert_eq!(told["code"], "purged", "{told:#}");
                    self.is_destroyed(&made).await;
                    // EC2 shows it before the call is answered, and the journal has it only then.
                    let is_seen = async || (self.ends_of(&disk, since).await > 0).then_some(());
                    eventually(ROUND, "somebody seen to destroy it", is_seen).await;
                    tally.purges += 1;
                    return tally;
                }
                both => panic!("{both:?}"),
            }
        }
        self.delete(&made).await;
        let (status, purged) = self.purge(&made).await;
        assert_eq!(status, 202, "{purged:#}");
        self.is_destroyed(&made).await;
        tally
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_undelete_was_accepted_for_is_there_whoever_asked_for_its_end() {
    let seed = testkit::seed("SLIPWAY_RACE_SEED");
    let circle = Circle::new().await;
    let _operator = circle.operator();
    let mut sum = Tally::default();
    for batch in 0..BATCHES {
        if sum.undeletes > 0 && sum.purges > 0 {
            break;
        }
        let lives = (0..AT_ONCE).map(|number| {
            let random = Random::new(seed.wrapping_add(AT_ONCE * batch + number));
            circle.life(random)
        });
        for tally in join_all(lives).await {
            sum.undeletes += tally.undeletes;
            sum.purges += tally.purges;
        }
    }
    assert!(sum.undeletes > 0 && sum.purges > 0, "seed {seed}: one of both never won: {sum:?}");
    println!("seed {seed}: {sum:?}");
    eventually(ROUND, "no machine left", async || circle.rig.instances().await.is_empty().then_some(()))
        .await;
    circle.end().await;
}
