//! A disk that is all that is left of a database, on the real API server and with the AWS endpoint: which QuestDB is started on
//! it. Whether that serves is played.

use std::sync::Arc;

use cloud::{ClientToken, NewVolume, Owner, Role, VolumeId, VolumeKind, key};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use resources::names::{self, condition};
use resources::{Phase, QuestDB};
use serde_json::json;
use testkit::{eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::truth::{plain, removed};

/// The version that is asked for.
const FIRST: &str = domain::catalogue::DEFAULT_VERSION;
/// The one that had the disk.
const LATER: &str = "10.0.0";

/// The disk of a database, as its deletion left it.
async fn left(rig: &Rig, name: &str, database: &str) -> VolumeId {
    let tags = Owner { generation: Some(1), ..Owner::new(&rig.cluster, database, Role::Volume) }.tags();
    let new = NewVolume {
        zone: rig.zones().pop().unwrap(),
        size_gib: 20,
        kind: VolumeKind::Gp3,
        iops: Some(3_000),
        throughput: Some(125),
        encrypted: true,
        snapshot: None,
        tags: tags.named(format!("{}/{}/{name}", rig.cluster, rig.namespace)).with(key::QUESTDB, LATER),
    };
    let token = ClientToken::new(&rig.cluster, database, Role::Volume, 1);
    rig.aws.create_volume(&new, &token).await.unwrap().id
}

/// Whether the spec was accepted, and what is said of it.
fn accepted(resource: &QuestDB) -> Option<(bool, &str)> {
    let mut conditions = resource.status.as_ref()?.conditions.iter();
    let found = conditions.find(|found| found.type_ == condition::CONFIG_ACCEPTED)?;
    Some((found.status == "True", &found.message))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_questdb_than_had_it_is_started_on_a_disk_that_is_found_alone() {
    let rig = Arc::new(Rig::new().await);
    let others = Others::of(&rig);
    let (name, database) = (unique("heir"), uuid::Uuid::now_v7().hyphenated().to_string());
    let disk = left(&rig, &name, &database).await;
    let lease = rig.lease().await;
    let (kubeconfig, versions) = (rig.rights(&lease).await, format!("{FIRST},{LATER}"));
    let _operator = rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_QUESTDB_VERSIONS", &versions)]);
    let api = rig.as_admin();
    let mut heir = plain(&rig, &name, "Delete");
    heir["metadata"]["annotations"] = json!({ names::ADOPTED_ID: database });
    heir["spec"]["version"] = json!(FIRST);
    apply(&api, &heir).await.unwrap();
    let served = eventually(PATIENCE, "the version that had the disk to serve", async || {
        let found = api.get(&name).await.unwrap();
        let serves = found.status.as_ref().is_some_and(|status| status.version.is_some());
        serves.then_some(found)
    })
    .await;
    let (is_accepted, text) = accepted(&served).unwrap();
    let wanted =
        format!("QuestDB {FIRST} cannot read what {LATER} has written: ask for {LATER} or a later one");
    assert!(!is_accepted && text.contains(&wanted), "{text}");
    let status = served.status.as_ref().unwrap();
    assert_eq!(status.version.as_deref(), Some(LATER));
    assert_eq!(status.volume.as_ref().map(|volume| volume.id.as_str()), Some(disk.as_str()));
    let sets: Api<StatefulSet> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let template = sets.get(&name).await.unwrap().spec.unwrap().template;
    let image = template.spec.unwrap().containers.remove(0).image;
    assert_eq!(image, Some(domain::catalogue::image_of(LATER)));

    heir["spec"]["version"] = json!(LATER);
    apply(&api, &heir).await.unwrap();
    eventually(PATIENCE, "the version that had the disk to be accepted", async || {
        let found = api.get(&name).await.unwrap();
        let is_accepted = accepted(&found).is_some_and(|(is_accepted, _)| is_accepted);
        (is_accepted && found.status?.phase == Some(Phase::Ready)).then_some(())
    })
    .await;
    removed(&rig, &name).await;
    drop(others);
    rig.end().await;
}
