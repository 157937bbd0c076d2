//! Another Postgres becomes the primary while users work.

#![cfg(test)]

use std::time::Instant;

use testkit::eventually;
use testkit::postgres::{Server, url_of};

use crate::rig::{Ground, PATIENCE, Rig, recovered};

/// Connections of the product.
const OURS: &str = "select count(*) from pg_stat_activity where application_name like 'slipway-%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_primary_loses_nothing_that_was_accepted() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    old.require_standby().await.unwrap();
    let ground = Ground { postgres: Some((old.url(), url_of(&[&old, &new]))), ..Ground::default() };
    let mut rig = Rig::on(ground).await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(91);
    load.goes_on(40).await;
    assert_ne!(old.query(OURS).await.unwrap(), "0", "nobody uses the primary");
    old.stop("immediate").await.unwrap();
    new.promote().await.unwrap();
    let begun = Instant::now();
    rig.database_url = new.url();
    load.goes_on(1).await;
    recovered("primary of Postgres crashed, standby promoted: changes accepted again", begun.elapsed());
    rig.recovery().await;
    recovered("primary of Postgres crashed, standby promoted: everything flows again", begun.elapsed());
    assert_ne!(new.query(OURS).await.unwrap(), "0", "the fault did not fire: nobody uses the new primary");

    // The old primary wakes as if nothing had happened. Nobody believes it.
    old.start().await.unwrap();
    let before = old.query("select count(*), max(minted_at) from databases").await.unwrap();
    load.goes_on(40).await;
    assert_eq!(old.query("select count(*), max(minted_at) from databases").await.unwrap(), before);
    let left = async || (old.query(OURS).await.ok()? == "0").then_some(());
    eventually(PATIENCE, "nobody at the old primary", left).await;
    rig.proven(load, &[]).await;
}
