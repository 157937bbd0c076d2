//! Another Postgres becomes the primary while users work.

#![cfg(test)]

use kube::Api;
use kube::api::ListParams;
use reqwest::Method;
use resources::{QuestDB, RunState};
use testkit::postgres::{Server, url_of};
use testkit::{Stopwatch, eventually};

use crate::recoveries::{self, recovered};
use crate::rig::{BORN, FAR, Ground, NEAR, PATIENCE, Rig};

/// Connections of the product.
const OURS: &str = "select count(*) from pg_stat_activity where application_name like 'slipway-%'";
/// Looks often for what was lost, and at once.
const LOOKING: [&str; 4] = ["--sweep-period", "1s", "--sweep-grace", "5s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_primary_loses_nothing_that_was_accepted() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    old.require_standby().await.unwrap();
    let ground =
        Ground { postgres: Some(old.url()), programs: Some(url_of(&[&old, &new])), ..Ground::default() };
    let mut rig = Rig::on(ground).await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(91);
    load.goes_on(40).await;
    assert_ne!(old.query(OURS).await.unwrap(), "0", "nobody uses the primary");
    old.stop("immediate").await.unwrap();
    new.promote().await.unwrap();
    let begun = Stopwatch::start();
    rig.database_url = new.url();
    load.goes_on(1).await;
    recovered(recoveries::PROMOTED_ACCEPTS, begun.elapsed());
    rig.recovery().await;
    recovered(recoveries::PROMOTED, begun.elapsed());
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

/// A resource as it is in the cluster now.
async fn resource(rig: &Rig, id: &str) -> QuestDB {
    let api: Api<QuestDB> = Api::namespaced(rig.client.clone(), &format!("qdb-{}", rig.tenant));
    let of = |found: &QuestDB| found.spec.instruction.as_ref().is_some_and(|one| one.database_id == id);
    let mut found = api.list(&ListParams::default()).await.unwrap().items.into_iter().filter(of);
    let resource = found.next().expect("its resource");
    assert!(found.next().is_none(), "{id} has two resources");
    resource
}

/// What Postgres forgets while the clusters have it.
struct Lost {
    grown: String,
    deleted: String,
    forgotten: String,
}

impl Lost {
    /// Databases of which what is done now is lost with the old server.
    async fn with(rig: &Rig, grown: String, deleted: String) -> Self {
        rig.grow(&grown, 1).await;
        rig.grow(&grown, 2).await;
        let delete = rig.console.request(Method::DELETE, &format!("/v1/databases/{deleted}"));
        assert_eq!(delete.send().await.unwrap().status(), 202);
        let forgotten = rig.victim(FAR).await;
        let reached = async |id: &str, seq: i64| {
            let there = async || rig.watched.reached(id, (1, seq));
            eventually(PATIENCE, "the clusters at what will be lost", there).await
        };
        reached(&grown, 3).await;
        reached(&deleted, 2).await;
        Self { grown, deleted, forgotten }
    }

    /// What the clusters have and Postgres does not is outranked by what Postgres has, or shown as nobody's.
    async fn noticed(&self, rig: &Rig) {
        for id in [&self.grown, &self.deleted] {
            let outranked = async || rig.watched.reached(id, (2, 1));
            eventually(PATIENCE, "what is left, minted again above what was lost", outranked).await;
        }
        let unknown = format!(
            "select distinct code from unclaimed where database_id = '{}' and resolved_at is null",
            self.forgotten
        );
        let shown = async || (rig.ask(&unknown).await == "unknown_database").then_some(());
        eventually(PATIENCE, "the forgotten database shown as nobody's", shown).await;
    }

    /// Nothing was destroyed, and each was acted upon once.
    async fn healed(&self, rig: &Rig) {
        // Nobody knows of the change any more; but a disk that has grown cannot shrink, so its size is taken over.
        let left = resource(rig, &self.grown).await;
        assert_eq!(i64::from(left.spec.storage.size_gib), BORN + 2);
        let size =
            format!("select desired #>> '{{storage,size_gib}}' from databases where id = '{}'", self.grown);
        assert_eq!(rig.ask(&size).await, (BORN + 2).to_string());
        let left = resource(rig, &self.deleted).await;
        assert_eq!(left.spec.run_state, RunState::Running, "a delete that nobody knows of");
        let states = rig.watched.states(&self.forgotten);
        assert!(states.len() == 1 && !states[0].deleted, "touched, and nobody knows it: {states:?}");
        let ahead = "select count(*) from unclaimed where code = 'ahead' and resolved_at is not null";
        assert_eq!(rig.ask(ahead).await, "2", "each database that was ahead was shown, and is no more");
        // What grew may be minted twice: on old news first, which is refused, and then on the newest.
        let repairs = |id: &str| {
            format!("select count(*) from audit where action = 'databases.repair' and subject = '{id}'")
        };
        let minted = rig.ask(&repairs(&self.grown)).await;
        assert!(["1", "2"].contains(&minted.as_str()), "minted again {minted} times");
        assert_eq!(rig.ask(&repairs(&self.deleted)).await, "1", "minted again once");
        let wrong = rig.watched.wrong();
        let [came_back] = &wrong[..] else { panic!("{wrong:?}") };
        assert!(came_back.starts_with(&self.deleted) && came_back.contains("came back"), "{came_back}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_a_late_standby_lost_are_noticed_and_nothing_is_destroyed() {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let ground =
        Ground { postgres: Some(old.url()), programs: Some(url_of(&[&old, &new])), ..Ground::default() };
    let mut rig = Rig::on(ground).await;
    let backend = rig.backend_with("api,relay,sink", &LOOKING).await;
    let _provisioner = rig.provisioner().await;
    let (grown, deleted, written) = (rig.victim(NEAR).await, rig.victim(FAR).await, rig.victim(NEAR).await);
    old.followed_by(&new).await.unwrap();
    new.stop("fast").await.unwrap();
    let lost = Lost::with(&rig, grown, deleted).await;
    old.stop("immediate").await.unwrap();
    new.start().await.unwrap();
    new.promote().await.unwrap();
    let begun = Stopwatch::start();
    rig.database_url = new.url();
    let rows = rig.ask("select string_agg(epoch || '/' || seq, ' ') from databases").await;
    assert_eq!(rows, "1/1 1/1 1/1", "the fault did not fire: nothing is lost");

    // A user writes before anyone has noticed anything.
    let accepted = async || {
        let body = serde_json::json!({"storage": {"size_gib": BORN + 9}});
        let request = rig.console.request(Method::PATCH, &format!("/v1/databases/{written}"));
        let answer = request.header("If-Match", "\"1-1\"").json(&body).send().await.ok()?;
        (answer.status() == 202).then_some(())
    };
    eventually(PATIENCE, "a change accepted by the new primary", accepted).await;
    lost.noticed(&rig).await;
    rig.recovery().await;
    rig.settled().await;
    recovered(recoveries::COMMITS_LOST, begun.elapsed());
    lost.healed(&rig).await;
    let left = resource(&rig, &written).await;
    assert_eq!(i64::from(left.spec.storage.size_gib), BORN + 9, "what was written afterwards");
    assert!(backend.metric("gossip_unclaimed", "ahead").await >= 2.0, "nobody is told");
    rig.nobody_went_wrong();
    rig.nobody_is_busy().await;
}
