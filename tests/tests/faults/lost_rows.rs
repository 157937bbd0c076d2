//! A standby that lagged becomes the primary, and a user writes before anybody has noticed that rows are lost: at a position
//! that the cluster already holds with other content.

#![cfg(test)]

use kube::api::{Api, ListParams};
use reqwest::Method;
use resources::QuestDB;
use serde_json::{Value, json};
use testkit::postgres::{Server, url_of};
use testkit::{Spawned, Stopwatch, eventually};

use crate::recoveries::{self, Recovery, recovered};
use crate::rig::{Ground, NEAR, PATIENCE, Rig};

/// A sweep that does not wait for minutes, as it does in production.
const SWEEP: [&str; 6] = ["--sweep-period", "1s", "--sweep-grace", "2s", "--sweep-again", "5s"];

impl Rig {
    /// Position and size that its resource holds.
    async fn held(&self, id: &str) -> Option<((i64, i64), u32)> {
        let api: Api<QuestDB> = Api::namespaced(self.client.clone(), &format!("qdb-{}", self.tenant));
        let all = api.list(&ListParams::default()).await.ok()?.items;
        all.into_iter().find_map(|one| {
            let held = one.spec.instruction.as_ref().filter(|held| held.database_id == id)?;
            Some(((held.epoch, held.seq), one.spec.storage.size_gib))
        })
    }

    async fn holds(&self, id: &str, what: &str, fits: impl Fn((i64, i64), u32) -> bool) {
        eventually(PATIENCE, what, async || {
            self.held(id).await.filter(|(position, size)| fits(*position, *size)).map(drop)
        })
        .await;
    }

    /// Asks for a change until that is accepted.
    async fn insist(&self, id: &str, etag: &str, body: &Value) -> Value {
        let path = format!("/v1/databases/{id}");
        eventually(PATIENCE, "an acceptance", async || {
            let request = self.console.request(Method::PATCH, &path).json(body);
            let answer = request.header("If-Match", etag).send().await.ok()?;
            (answer.status() == 202).then_some(answer)?.json::<Value>().await.ok()
        })
        .await
    }

    /// An operation once it has ended.
    async fn ended(&self, accepted: &Value) -> Value {
        let path = format!("/v1/operations/{}", accepted["operation"]["id"].as_str().unwrap());
        eventually(PATIENCE, "the end of an operation", async || {
            let body: Value =
                self.console.request(Method::GET, &path).send().await.ok()?.json().await.ok()?;
            (!body["ended_at"].is_null()).then_some(body)
        })
        .await
    }

    async fn etag(&self, id: &str) -> String {
        let position =
            self.ask(&format!("select epoch || '-' || seq from databases where id = '{id}'")).await;
        format!("\"{position}\"")
    }
}

fn size(gib: u32) -> Value {
    json!({"storage": {"size_gib": gib}})
}

/// Two servers of Postgres, of which the second follows, and programs that find whichever is the primary.
async fn two_servers() -> (Server, Server, Rig) {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    let ground =
        Ground { postgres: Some(old.url()), programs: Some(url_of(&[&old, &new])), ..Ground::default() };
    let rig = Rig::on(ground).await;
    (old, new, rig)
}

/// A change at 1/2 that does not reach the standby, but reaches the cluster. Nothing that follows may ask for less: a disk does
/// not shrink. At the end the primary is gone.
async fn written_and_lost(rig: &Rig, (old, new): (&Server, &Server), id: &str) {
    old.followed_by(new).await.unwrap();
    new.stop("fast").await.unwrap();
    rig.insist(id, "\"1-1\"", &size(77)).await;
    rig.holds(id, "what will be lost", |position, _| position == (1, 2)).await;
    old.stop("immediate").await.unwrap();
}

/// The standby takes over, without that change; a user's change is accepted there at the position of the one that is lost, and
/// refused by the cluster. Gives what was answered, and since when the other server is the primary.
async fn written_again(rig: &mut Rig, new: &Server, id: &str, provisioner: &Spawned) -> (Value, Stopwatch) {
    new.start().await.unwrap();
    new.promote().await.unwrap();
    let begun = Stopwatch::start();
    rig.database_url = new.url();
    let left = rig.ask("select epoch || '/' || seq from databases").await;
    assert_eq!(left, "1/1", "the fault did not fire: nothing was lost");
    let early = rig.insist(id, "\"1-1\"", &size(300)).await;
    assert_eq!((&early["database"]["epoch"], &early["database"]["seq"]), (&json!(1), &json!(2)));
    eventually(PATIENCE, "the refusal of what the cluster cannot take", async || {
        provisioner.log().contains("other content at 1/2").then_some(())
    })
    .await;
    assert_ne!(rig.held(id).await, Some(((1, 2), 300)), "one position has one content");
    (early, begun)
}

/// The user hears that it failed; what takes it back outranks both, and so does the next change.
async fn told_and_outranked(rig: &Rig, id: &str, (early, begun): (Value, Stopwatch), recovery: Recovery) {
    let ended = rig.ended(&early).await;
    assert_eq!(ended["state"], "failed", "{ended}");
    rig.holds(id, "the way back", |position, _| position > (1, 2)).await;
    recovered(recovery, begun.elapsed());
    let etag = rig.etag(id).await;
    let again = rig.insist(id, &etag, &size(400)).await;
    assert_eq!(rig.ended(&again).await["state"], "succeeded");
    rig.holds(id, "the change", |_, size| size == 400).await;
    rig.settled().await;
    assert_eq!(rig.watched.wrong(), [""; 0]);
    rig.nobody_went_wrong();
    rig.nobody_is_busy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_accepted_before_lost_rows_are_noticed_is_told_and_outranked() {
    let (old, new, mut rig) = two_servers().await;
    let _api = rig.backend_with("api,relay", &[]).await;
    let sink = rig.sink(&SWEEP).await;
    let provisioner = rig.provisioner().await;
    let id = rig.victim(NEAR).await;
    written_and_lost(&rig, (&old, &new), &id).await;
    // Nobody listens now, so nobody can notice.
    sink.kill().await.unwrap();
    let early = written_again(&mut rig, &new, &id, &provisioner).await;
    let _sink = rig.sink(&SWEEP).await;
    told_and_outranked(&rig, &id, early, recoveries::ACCEPTED_ON_LOST).await;
}

/// The sink lives through it: what it has in memory is of the server that is gone. It stands still only until the user has written,
/// or it might hear first what the cluster holds, and the change would be minted above that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_lives_through_lost_rows_tells_what_was_accepted_meanwhile_and_has_it_outranked() {
    let (old, new, mut rig) = two_servers().await;
    let _api = rig.backend_with("api,relay", &[]).await;
    let mut sink = rig.sink(&SWEEP).await;
    let provisioner = rig.provisioner().await;
    let id = rig.victim(NEAR).await;
    let lost =
        format!("select count(*) from observations where database_id = '{id}' and (epoch, seq) = (1, 2)");
    written_and_lost(&rig, (&old, &new), &id).await;
    sink.halt().await.unwrap();
    let early = written_again(&mut rig, &new, &id, &provisioner).await;
    assert_eq!(rig.ask(&lost).await, "0", "the fault did not fire: the sink heard of what was lost first");
    sink.resume().await.unwrap();
    told_and_outranked(&rig, &id, early, recoveries::ACCEPTED_ON_LOST_AND_HEARD).await;
    let told =
        format!("select count(*) from unclaimed where database_id = '{id}' and code in ('ahead', 'content')");
    assert_eq!(rig.ask(&told).await, "1", "what the cluster holds and nobody minted was not shown to people");
    sink.lives().unwrap();
}
