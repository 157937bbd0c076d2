//! From one run state to another and back: machines come and go, the disk is the same one, and a restart stops the pod once.
//! The test stands in for the machine that joins and for Kubernetes' own controllers.

use cloud::key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::DeleteParams;
use resources::{Phase, names};
use serde_json::json;
use testkit::eventually;

use super::rig::PATIENCE;
use super::subject::Subject;

const NAME: &str = "states";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_stops_and_returns_keeps_its_disk() {
    let mut subject = Subject::new(NAME).await;
    let _operator = subject.rig.start().await;
    subject.wish_run_state("Running").await;
    subject.join(1).await;
    subject.play_controller(None).await;
    let (born, claims) = (subject.volume().await, subject.rig.admin.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(claims, &subject.rig.namespace);
    let claim = async || claims.get(&names::claim(NAME)).await.unwrap().metadata.uid;
    let first_claim = claim().await;

    for (away, end, generation) in [("Paused", Phase::Paused, 2), ("Deleted", Phase::Deleted, 3)] {
        subject.wish_run_state(away).await;
        // Nothing runs the pod: its end is the kubelet's word.
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        eventually(PATIENCE, "the end of the StatefulSet", async || {
            subject.sets().get_opt(NAME).await.unwrap().is_none().then_some(())
        })
        .await;
        let _ = subject.pods().delete(&format!("{NAME}-0"), &at_once).await;
        subject.no_machine().await;
        subject.carried_out(end).await;
        assert_eq!(
            (subject.volume().await.id, claim().await),
            (born.id.clone(), first_claim.clone()),
            "{away}"
        );

        subject.wish_run_state("Running").await;
        subject.join(generation).await;
        subject.play_controller(None).await;
        let back = subject.volume().await;
        assert_eq!((&back.id, &back.zone), (&born.id, &born.zone), "{away} and back");
        assert_eq!(back.tags.get(key::GENERATION), Some(generation.to_string().as_str()));
        assert_eq!(claim().await, first_claim, "{away} and back");
    }

    let before = subject.play_controller(None).await;
    subject.wish(|spec| spec["restartNonce"] = json!("once")).await;
    subject.play_controller(Some("once")).await;
    eventually(PATIENCE, "the end of the pod that ran before", async || {
        let pod = subject.pods().get_opt(&format!("{NAME}-0")).await.unwrap();
        pod.is_none_or(|pod| pod.metadata.uid != before.metadata.uid).then_some(())
    })
    .await;
    let after = subject.play_controller(Some("once")).await;
    assert_ne!(after.metadata.uid, before.metadata.uid);
    assert_eq!(subject.volume().await.id, born.id);
    let machines = subject.rig.instances().await;
    let generations: Vec<_> =
        machines.iter().filter_map(|machine| machine.tags.get(key::GENERATION)).collect();
    assert_eq!(generations, ["3"], "a restart needs no other machine");
    subject.wish_run_state("Purged").await;
    subject.no_machine().await;
    subject.rig.end().await;
}
