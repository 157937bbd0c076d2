//! A tenant that asks for ten times as much as all others: it gets its share, and they notice nothing.

#![cfg(test)]

use std::time::Duration;

use store::{Role, Store};
use testkit::load::{Load, Plan};
use testkit::{Console, unique};

use crate::recoveries::{self, recovered};
use crate::rig::{FAR, NEAR, Rig, patient};

/// What each tenant may ask for in a second, and at once after a rest. The others ask for less.
const SHARE: [&str; 4] = ["--tenant-requests", "60", "--tenant-burst", "60"];
/// Users of the tenant in haste, who never rest.
const HASTY: u64 = 100;
/// Pause of each user of the others: two processors answer ten times as much only beside few requests.
const PAUSE: Duration = Duration::from_secs(2);
/// How many times as much as the others it asks for.
const TIMES: usize = 10;
/// The most memory of each program, in bytes. They are no release builds here.
const MEMORY: u64 = 256 * 1_024 * 1_024;

impl Rig {
    /// A console that asks for a tenant, and has that tenant's share.
    async fn console_of(&self, tenant: &str) -> Console {
        let store = Store::connect(&self.database_url, &patient()).unwrap();
        let wish =
            backend::tokens::Wish { role: Role::Console, tenant: None, name: unique("console"), days: None };
        let token = backend::tokens::create(&store, wish).await.unwrap();
        Console::at(&format!("http://{}", self.api), &token, tenant)
    }
}

/// How much the users of a load asked for, whatever became of it.
fn asked(load: &Load) -> usize {
    load.accepted() + load.unanswered()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_in_haste_gets_its_share_and_nobody_else_notices() {
    let rig = Rig::new().await;
    // The oracles look into one namespace.
    rig.ask(&format!("update clusters set namespace_template = 'qdb-{}'", rig.tenant)).await;
    let mut backend = rig.backend_with("api,relay,sink", &SHARE).await;
    let mut provisioner = rig.provisioner().await;
    let (calm, hasty) = (rig.console_of(&rig.tenant).await, rig.console_of(&unique("hasty")).await);
    let others = Load::start(&calm, &Plan { pause: PAUSE, ..Plan::new(131, &[NEAR, FAR]) });
    others.goes_on(10).await;
    let before = asked(&others);
    let plan = Plan { users: HASTY, databases: 2, pause: Duration::ZERO, ..Plan::new(132, &[NEAR, FAR]) };
    let crowd = Load::start(&hasty, &plan);
    others.goes_on(30).await;
    let passed = rig.recovery().await;
    let (much, little) = (asked(&crowd), asked(&others) - before);
    println!("{much} requests in haste, {} of them refused, beside {little}", crowd.unanswered());
    assert!(much >= TIMES * little, "the fault did not fire: {much} requests beside {little} are no haste");
    assert!(crowd.unanswered() > 0, "the fault did not fire: the share was enough");
    assert_eq!(others.unanswered(), 0, "others notice");
    for program in [&backend, &provisioner] {
        let peak = program.peak_memory().unwrap();
        println!("{} MB at most", peak / 1_000_000);
        assert!(peak < MEMORY, "{peak} bytes of memory");
    }
    let mut ledger = others.stop().await.unwrap();
    ledger.merge(crowd.stop().await.unwrap());
    rig.proven_of(&ledger, &[]).await;
    backend.lives().unwrap();
    provisioner.lives().unwrap();
    recovered(recoveries::BESIDE_HASTE, passed);
}
