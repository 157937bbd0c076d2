//! A resource that somebody took away with its finalizer while no operator looked: its machine and its firewall are told, and
//! left as they are.

use std::sync::Arc;

use cloud::InstanceState;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::{Phase, QuestDB, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};

const COUNT: &str = "slipway_machines_unclaimed";
const FIREWALLS: &str = "slipway_firewalls_unclaimed";

/// A database without a control plane, once it serves.
async fn serving(rig: &Rig, object: &Value) -> QuestDB {
    let (api, name) = (rig.as_admin(), object["metadata"]["name"].as_str().unwrap());
    apply(&api, object).await.unwrap();
    eventually(2 * PATIENCE, "the database to serve", async || {
        let found = api.get(name).await.unwrap();
        let phase = found.status.as_ref().and_then(|status| status.phase);
        (phase == Some(Phase::Ready)).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_resource_was_taken_away_by_force_is_told_and_left() {
    let rig = Arc::new(Rig::new().await);
    let _others = Others::of(&rig);
    let lease = rig.lease().await;
    let kubeconfig = rig.rights(&lease).await;
    let start = || rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    let (operator, name) = (start(), unique("stripped"));
    let mut object = rig.managed(&name, 1);
    object["spec"].as_object_mut().unwrap().remove("instruction");
    let before = serving(&rig, &object).await.status.unwrap();
    assert_eq!(operator.metric(COUNT, "").await.to_bits(), 0.0_f64.to_bits());
    operator.terminate(PATIENCE).await.unwrap();

    let api = rig.as_admin();
    let stripped = json!({ "metadata": { "finalizers": null } });
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&stripped)).await.unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let (machine, database) = (rig.instances().await.remove(0), before.database_id.unwrap());
    let next = start();
    let counted = async |count: f64| {
        for metric in [COUNT, FIREWALLS] {
            let is = async || (next.metric(metric, "").await.to_bits() == count.to_bits()).then_some(());
            eventually(PATIENCE, &format!("{metric} to be {count}"), is).await;
        }
    };
    counted(1.0).await;
    let log = next.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("no resource stands for")).collect();
    let parts = [machine.id.as_str(), &database, &format!("{}/{name}", rig.namespace)];
    assert!(told.len() == 1 && parts.iter().all(|part| told[0].contains(part)), "{told:?}");
    let group = rig.groups().await.remove(0).id;
    let is_told = |line: &str| line.contains("without a resource") && line.contains(group.as_str());
    assert_eq!(log.lines().filter(|line| is_told(line)).count(), 1, "{log}");
    assert_eq!(rig.instances().await.remove(0).state, InstanceState::Running);

    // Made again with its identity, it has its machine back.
    object["metadata"]["annotations"] = json!({ names::ADOPTED_ID: database });
    let again = serving(&rig, &object).await.status.unwrap();
    assert_eq!(again.node.unwrap().instance_id.as_deref(), Some(machine.id.as_str()));
    counted(0.0).await;
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually(2 * PATIENCE, "the resource to be let go", async || {
        api.get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
    rig.end().await;
}
