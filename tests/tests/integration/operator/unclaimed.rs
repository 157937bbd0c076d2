//! A resource that somebody took away with its finalizer while no operator looked: its machine is told, and left as it is.

use std::time::Duration;

use cloud::InstanceState;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::Phase;
use serde_json::json;
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::PATIENCE;
use super::subject::Subject;

const COUNT: &str = "slipway_machines_unclaimed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_resource_was_taken_away_by_force_is_told_and_left() {
    let mut subject = Subject::new(&unique("stripped")).await;
    let _others = Others::of(&subject.rig);
    let lease = testkit::temporary_namespace(&subject.rig.admin, "lease").await.unwrap();
    let kubeconfig = subject.rig.rights(&lease).await;
    let rig = std::sync::Arc::clone(&subject.rig);
    let start = || rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    let operator = start();
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(operator.metric(COUNT, "").await.to_bits(), 0.0_f64.to_bits());
    operator.terminate(Duration::from_secs(30)).await.unwrap();

    let api = rig.as_admin();
    let stripped = json!({ "metadata": { "finalizers": null } });
    api.patch(&subject.name, &PatchParams::default(), &Patch::Merge(&stripped)).await.unwrap();
    api.delete(&subject.name, &DeleteParams::default()).await.unwrap();
    let machine = rig.instances().await.remove(0);
    let next = start();
    let counted = async |count: f64| {
        let what = format!("{count} machines that nobody claims");
        let is = async || (next.metric(COUNT, "").await.to_bits() == count.to_bits()).then_some(());
        eventually(PATIENCE, &what, is).await;
    };
    counted(1.0).await;
    let log = next.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("no resource stands for")).collect();
    let names = [machine.id.as_str(), &subject.database, &format!("{}/{}", rig.namespace, subject.name)];
    assert!(told.len() == 1 && names.iter().all(|name| told[0].contains(name)), "{told:?}");
    assert_eq!(rig.instances().await.remove(0).state, InstanceState::Running);

    // Made again with its identity, it has its machine back.
    subject.wish_run_state("Running").await;
    counted(0.0).await;
    let serving = subject.carried_out(Phase::Ready).await;
    assert_eq!(serving.status.unwrap().node.unwrap().instance_id.as_deref(), Some(machine.id.as_str()));
    subject.purge_with_others().await;
}
