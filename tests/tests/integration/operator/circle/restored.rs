//! etcd is set back to before a database was asked for, while an operator leads: its resource is sent again, and what there is of it
//! in AWS is found again, not made again.

use resources::Phase;
use testkit::eventually;

use super::super::stale::launches;
use super::{Circle, ROUND};
use crate::endpoint::serial;
use crate::own::Own;

/// What an operator says that has noticed.
const NOTICED: &str = "everything is listed again";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_a_restored_cluster_has_lost_finds_its_machine_and_disk_again() {
    let mut own = Own::start().await;
    let circle = Circle::within(("own", "us-east-1"), [&own.admin, &own.provisioner, &own.operator]).await;
    own.back_up().await;
    // In the copy nobody leads. Should the server be away for longer than a lease lasts, the other one takes over.
    let operators = [circle.operator(), circle.operator()];
    let since = serial().await;
    let made = circle.create().await;
    let before = circle.carried_out(&made, 1, Phase::Ready).await;
    let (disk, machines) = (circle.disk(&made).await, circle.machines(&made).await);
    assert_eq!(machines.len(), 1, "{machines:?}");
    let term = circle.world.term("own").await;

    own.restore().await;
    circle.world.listed_after("own", &term).await;
    eventually(ROUND, "an operator that noticed", async || {
        operators.iter().any(|operator| operator.log().contains(NOTICED)).then_some(())
    })
    .await;
    let again = eventually(ROUND, "the resource again", async || {
        circle.resource(&made).await.filter(|found| found.metadata.uid != before.metadata.uid)
    })
    .await;
    assert_eq!(again.spec, before.spec, "the same state at the same position");
    circle.carried_out(&made, 1, Phase::Ready).await;

    assert_eq!((circle.disk(&made).await, circle.machines(&made).await), (disk, machines));
    let mut launches = launches(&circle.rig, since).await;
    launches.sort();
    assert_eq!(
        launches,
        ["CreateSecurityGroup", "CreateVolume", "RunInstances"],
        "each once, before and after"
    );
    // What it believes of the position may be from before the database served, and comes to its operation later.
    let open = "select count(*) from unclaimed where cluster_id = 'own' and resolved_at is null";
    let unended = "select count(*) from operations where state <> 'succeeded'";
    for wrong in [open, unended] {
        eventually(ROUND, "Postgres to be right again", async || {
            (circle.world.ask(wrong).await == "0").then_some(())
        })
        .await;
    }
    circle.end().await;
}
