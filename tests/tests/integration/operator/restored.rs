//! An API server whose store is restored from a copy so young that, by its version alone, it cannot be told from one that lost
//! nothing. Whoever leads at that moment loses the lease with it; a standby lives on with what it saw before.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use resources::{Phase, names};
use runtime::CancellationToken;
use serde_json::json;
use testkit::{eventually, unique};

use super::rig::{PATIENCE, Rig};
use super::rights::grant_at;
use super::subject::Subject;
use crate::own::Own;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_does_not_trust_what_it_saw_before_the_cluster_was_restored() {
    let mut own = Own::start().await;
    let rig = Arc::new(Rig::at([&own.admin, &own.provisioner, &own.operator]).await);
    let [lease, held] = [rig.lease().await, rig.lease().await];
    let mut subject = Subject::within(&rig, &unique("restored"));
    let way = async |home: &str| grant_at(&own.admin, &rig.admin, &[&rig.namespace], home).await;
    let (way, other_way) = (way(&lease).await, way(&held).await);
    let first = rig.spawn((&lease, &way), &[], &[]);
    subject.serving().await;
    first.kill().await.unwrap();
    let policies: Api<NetworkPolicy> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let policy = names::guard(&subject.name);
    let lets_in = async || json!(policies.get(&policy).await.unwrap().spec).to_string().contains("apps");
    // Nobody writes it before the copy is taken; what is in the cluster after the restore an operator may have written again.
    assert!(!lets_in().await, "the copy has the change already");
    // The copy has the lease too: one that is gone after the restore anybody could take at once.
    let stop = CancellationToken::new();
    let holder = tokio::spawn(hold(rig.clone(), held.clone(), stop.clone()));
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), &held);
    eventually(PATIENCE, "a lease that is held", async || leases.get_opt(names::OPERATOR).await.unwrap())
        .await;
    own.back_up().await;

    let leader = rig.spawn((&lease, &way), &[], &[]);
    let standby = rig.spawn((&held, &other_way), &[], &[]);
    subject.wish(|spec| spec["network"] = json!({ "allowedNamespaces": ["apps"] })).await;
    subject.carried_out(Phase::Ready).await;
    assert!(lets_in().await, "carried out");
    // It has read of the lease, and so of everything, after the copy was taken.
    eventually(PATIENCE, "a standby that sees all there is", async || standby.is_ready().await.then_some(()))
        .await;
    leader.kill().await.unwrap();
    let last = rig.as_admin().get(&subject.name).await.unwrap().resource_version().unwrap();

    own.restore().await;
    // Nobody but the test writes that.
    let copied = rig.as_admin().get(&subject.name).await.unwrap().spec;
    assert!(copied.instruction.is_some_and(|found| found.seq == 1), "the wish is not lost");
    own.written_past(last.parse().unwrap()).await;
    stop.cancel();
    holder.await.unwrap();
    // The provisioner says again what was lost; what it made of the policy is for the operator to find out.
    subject.say_again().await;
    eventually(PATIENCE, "the change again", async || lets_in().await.then_some(())).await;
    subject.carried_out(Phase::Ready).await;
    assert!(standby.log().contains("everything is listed again"), "{}", standby.log());
    subject.purge().await;
}

/// Holds a lease, as a leader does, until stopped; then it is given back. Each time that it is not what was written last, a new
/// term begins.
async fn hold(rig: Arc<Rig>, namespace: String, stop: CancellationToken) {
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), &namespace);
    let (mut term, mut last) = (jiff::Timestamp::now(), None);
    let held_by = async |holder: &str, term: jiff::Timestamp| {
        let now = jiff::Timestamp::now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": names::OPERATOR },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15,
                "acquireTime": format!("{term:.6}"), "renewTime": format!("{now:.6}"),
            },
        });
        let params = PatchParams::apply("somebody").force();
        leases.patch(names::OPERATOR, &params, &Patch::Apply(&lease)).await
    };
    while !stop.is_cancelled() {
        // While the server is away nobody can take it either.
        if let Ok(found) = leases.get_opt(names::OPERATOR).await {
            if found.and_then(|lease| lease.resource_version()) != last {
                term = jiff::Timestamp::now();
            }
            if let Ok(lease) = held_by("somebody", term).await {
                last = lease.resource_version();
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), stop.cancelled()).await;
    }
    held_by("", term).await.unwrap();
}
