//! The operator as a process: what it makes, that it makes it once whatever happens, and that it takes it away again. The
//! test stands in for the machine that joins and for Kubernetes' own controllers.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use resources::{Phase, QuestDB, names};
use serde_json::json;
use testkit::eventually;

use super::rig::{PATIENCE, Rig, apply, patiently};

fn database() -> String {
    uuid::Uuid::now_v7().hyphenated().to_string()
}

/// Waits until the resource is as it should be.
async fn until(rig: &Rig, name: &str, what: &str, is: impl Fn(&QuestDB) -> bool) -> QuestDB {
    let api = rig.as_admin();
    eventually(PATIENCE, what, async || api.get_opt(name).await.ok().flatten().filter(|found| is(found)))
        .await
}

fn condition<'a>(resource: &'a QuestDB, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = &resource.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.as_str(), found.message.as_str()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_that_cannot_be_carried_out_is_told_and_touches_nothing() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    let mut wrong = rig.unique("wrong", &database(), 1);
    wrong["spec"]["version"] = json!("0.0.1");
    wrong["spec"]["config"] = json!({ "pg.password": "x" });
    rig.provision(&wrong).await.unwrap();
    let told = until(&rig, "wrong", "a refusal", |found| {
        condition(found, names::condition::CONFIG_ACCEPTED).is_some_and(|(status, _)| status == "False")
    })
    .await;
    let (_, message) = condition(&told, names::condition::CONFIG_ACCEPTED).unwrap();
    assert!(message.contains("/spec/version") && message.contains("/spec/config/pg.password"), "{message}");
    assert_eq!(told.status.as_ref().unwrap().phase, Some(Phase::Degraded));
    assert!(
        rig.instances().await.is_empty() && rig.groups().await.is_empty() && rig.volumes().await.is_empty()
    );
    // The database can still be deleted, wrong as it is.
    wrong["spec"]["instruction"]["seq"] = json!(2);
    wrong["spec"]["runState"] = json!("Purged");
    rig.provision(&wrong).await.unwrap();
    until(&rig, "wrong", "its end", |found| phase(found) == Some(Phase::Deleted)).await;
    rig.end().await;
}

fn phase(resource: &QuestDB) -> Option<Phase> {
    resource.status.as_ref()?.phase
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_it_makes_everything_once_and_takes_it_away() {
    let rig = Rig::new().await;
    let database = database();
    rig.provision(&rig.unique("once", &database, 1)).await.unwrap();
    kill_when(&rig, "the finalizer", async || {
        rig.as_admin().get("once").await.unwrap().metadata.finalizers.map(drop)
    })
    .await;
    kill_when(&rig, "a security group", async || rig.groups().await.pop().map(drop)).await;
    kill_when(&rig, "an instance", async || rig.instances().await.pop().map(drop)).await;
    kill_when(&rig, "a volume", async || rig.volumes().await.pop().map(drop)).await;
    let mut operator = rig.start().await;
    join(&rig, &database).await;
    let sets: Api<StatefulSet> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    eventually(PATIENCE, "a StatefulSet", async || sets.get_opt("once").await.unwrap()).await;
    let secret: Secret = secret(&rig).await;

    assert_eq!((rig.instances().await.len(), rig.volumes().await.len(), rig.groups().await.len()), (1, 1, 1));
    let instance = rig.instances().await.remove(0);
    assert_eq!(instance.tags.get(cloud::key::GENERATION), Some("1"), "no launch was given up");
    let volume = rig.volumes().await.remove(0);
    let volumes: Api<PersistentVolume> = Api::all(rig.admin.clone());
    let found = volumes.get(&names::persistent_volume(volume.id.as_str())).await.unwrap();
    assert_eq!(found.spec.unwrap().claim_ref.unwrap().name.as_deref(), Some("data-once-0"));
    assert!(patiently(|| rig.aws.describe_protection(&instance.id)).await.termination);

    operator.kill().await.unwrap();
    rig.provision(&purged(&rig, &database)).await.unwrap();
    kill_when(&rig, "the end of the StatefulSet", async || {
        sets.get_opt("once").await.unwrap().is_none().then_some(())
    })
    .await;
    kill_when(&rig, "the end of the instance", async || rig.instances().await.is_empty().then_some(())).await;
    let _operator = rig.start().await;
    let ended = async || {
        let mut left = rig.volumes().await;
        left.retain(|volume| volume.state != cloud::VolumeState::Deleted);
        (left.is_empty() && rig.groups().await.is_empty()).then_some(())
    };
    eventually(PATIENCE, "the end of volume and group", ended).await;
    play_controllers(&rig).await;
    let gone = until(&rig, "once", "its end", |found| phase(found) == Some(Phase::Deleted)).await;
    let carried = gone.status.unwrap().instruction.unwrap();
    assert_eq!((carried.epoch, carried.seq), (1, 2));
    let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    assert!(secrets.get_opt(secret.metadata.name.as_deref().unwrap()).await.unwrap().is_none());
    let services: Api<Service> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    assert!(services.list(&ListParams::default()).await.unwrap().items.is_empty());
    let nodes: Api<Node> = Api::all(rig.admin.clone());
    assert!(nodes.get_opt(&node_name(&database)).await.unwrap().is_none());
    rig.end().await;
}

fn purged(rig: &Rig, database: &str) -> serde_json::Value {
    let mut object = rig.unique("once", database, 2);
    object["spec"]["runState"] = json!("Purged");
    object
}

/// Starts an operator and kills it as soon as something is there.
async fn kill_when(rig: &Rig, what: &str, is: impl AsyncFnMut() -> Option<()>) {
    let mut operator = rig.start().await;
    eventually(PATIENCE, what, is).await;
    operator.kill().await.unwrap();
}

async fn secret(rig: &Rig) -> Secret {
    let secrets: Api<Secret> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let secret = secrets.get(&names::credentials("once")).await.unwrap();
    let data = secret.data.as_ref().unwrap();
    assert!(data[names::secret::PG_PASSWORD].0.len() >= 20);
    assert_ne!(data[names::secret::PG_PASSWORD], data[names::secret::HTTP_PASSWORD]);
    secret
}

fn node_name(database: &str) -> String {
    names::node(&database[28..], 1)
}

/// The machine joins: a ready Node with its provider id.
async fn join(rig: &Rig, database: &str) {
    let instance = eventually(PATIENCE, "a running instance", async || {
        rig.instances().await.pop().filter(|instance| instance.state == cloud::InstanceState::Running)
    })
    .await;
    rig.node(&node_name(database), &instance, (database, "once")).await;
}

/// What Kubernetes' controllers would do: objects that are being deleted and that nothing uses are let go.
async fn play_controllers(rig: &Rig) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let volumes: Api<PersistentVolume> = Api::all(rig.admin.clone());
    let free = json!({ "metadata": { "finalizers": null } });
    eventually(PATIENCE, "claim and volume to be on their way out", async || {
        let claim = claims.get_opt("data-once-0").await.unwrap();
        if claim.as_ref().is_some_and(|claim| claim.metadata.deletion_timestamp.is_some()) {
            let _ = claims.patch("data-once-0", &PatchParams::default(), &Patch::Merge(&free)).await;
        }
        let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_NAMESPACE, rig.namespace));
        let left = volumes.list(&ours).await.unwrap().items;
        for volume in left.iter().filter(|volume| volume.metadata.deletion_timestamp.is_some()) {
            let name = volume.metadata.name.as_deref().unwrap();
            let _ = volumes.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await;
        }
        (claim.is_none() && left.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_somebody_else_is_left_alone() {
    let rig = Rig::new().await;
    let configs: Api<ConfigMap> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let foreign: ConfigMap = serde_json::from_value(
        json!({ "metadata": { "name": names::config("taken") }, "data": { "a": "b" } }),
    )
    .unwrap();
    configs.create(&PostParams::default(), &foreign).await.unwrap();
    let _operator = rig.start().await;
    let mut plain = rig.managed("taken", 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    plain["spec"]["storage"]["deletionPolicy"] = json!("Delete");
    apply(&rig.as_admin(), &plain).await.unwrap();
    let told = until(&rig, "taken", "a word about it", |found| {
        condition(found, names::condition::DEGRADED).is_some_and(|(status, _)| status == "True")
    })
    .await;
    let (_, message) = condition(&told, names::condition::DEGRADED).unwrap();
    assert!(message.contains("ConfigMap taken-config exists and is not ours"), "{message}");
    let kept = configs.get(&names::config("taken")).await.unwrap();
    assert_eq!(kept.data, foreign.data);
    rig.as_admin().delete("taken", &DeleteParams::default()).await.unwrap();
    let api = rig.as_admin();
    eventually(PATIENCE, "the resource to be let go", async || {
        play_claims(&rig).await;
        api.get_opt("taken").await.unwrap().is_none().then_some(())
    })
    .await;
    let (instances, groups) = (rig.instances().await, rig.groups().await);
    assert!(instances.is_empty() && groups.is_empty(), "forgotten: {instances:?} {groups:?}");
    assert_eq!(configs.get(&names::config("taken")).await.unwrap().data, foreign.data);
    rig.end().await;
}

/// Lets claims and volumes go that are being deleted, if there are any.
pub(super) async fn play_claims(rig: &Rig) {
    let free = json!({ "metadata": { "finalizers": null } });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    for claim in claims.list(&ListParams::default()).await.unwrap().items {
        let name = claim.metadata.name.as_deref().unwrap();
        let _ = claims.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await;
    }
    let volumes: Api<PersistentVolume> = Api::all(rig.admin.clone());
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_NAMESPACE, rig.namespace));
    for volume in volumes.list(&ours).await.unwrap().items {
        if volume.metadata.deletion_timestamp.is_some() {
            let name = volume.metadata.name.as_deref().unwrap();
            let _ = volumes.patch(name, &PatchParams::default(), &Patch::Merge(&free)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_operators_one_leads_and_the_other_takes_over() {
    let rig = Rig::new().await;
    let namespace = rig.lease().await;
    let leases: Api<Lease> = Api::namespaced(rig.admin.clone(), &namespace);
    let holder = async || {
        let lease = leases.get_opt(names::OPERATOR).await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    };
    let mut first = rig.start_with_lease(&namespace).await;
    let leads = eventually(PATIENCE, "a leader", holder).await;
    let second = rig.start_with_lease(&namespace).await;
    apply(&rig.as_admin(), &wrong(&rig)).await.unwrap();
    until(&rig, "led", "a pass", |found| phase(found).is_some()).await;
    let record = async || leases.get(names::OPERATOR).await.unwrap().spec.unwrap();
    let before = record().await;
    assert_eq!(
        before.holder_identity.as_deref(),
        Some(leads.as_str()),
        "a second operator takes nothing from the first"
    );

    first.kill().await.unwrap();
    let other = async || holder().await.filter(|holder| *holder != leads);
    eventually(PATIENCE, "another leader", other).await;
    // By what both wrote, and not since the kill: the first one may have renewed it long before that.
    let (renewed, taken) = (before.renew_time.unwrap(), record().await.acquire_time.unwrap());
    let waited = taken.0.duration_since(renewed.0);
    assert!(
        waited >= SignedDuration::from_secs(14),
        "a lease is taken after {waited}, before it has run out"
    );
    drop(second);
    rig.end().await;
}

/// A resource that nothing is made of.
fn wrong(rig: &Rig) -> serde_json::Value {
    let mut object = rig.managed("led", 1);
    object["spec"].as_object_mut().unwrap().remove("instruction");
    object["spec"]["version"] = json!("0.0.1");
    object
}
