//! The resource of a database that serves is deleted by hand: it comes back by itself, with the disk and the credentials that it
//! had, and one machine.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use resources::{Phase, names};
use serde_json::json;
use testkit::eventually;

use super::super::stale::launches;
use super::{Circle, ROUND};
use crate::endpoint::serial;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_deleted_by_hand_comes_back_with_its_disk_and_one_machine() {
    let circle = Circle::new().await;
    let _operator = circle.operator();
    let since = serial().await;
    let made = circle.create().await;
    let before = circle.carried_out(&made, 1, Phase::Ready).await;
    let (disk, machines) = (circle.disk(&made).await, circle.machines(&made).await);
    assert_eq!(machines.len(), 1, "{machines:?}");
    let secrets: Api<Secret> = Api::namespaced(circle.rig.admin.clone(), &circle.rig.namespace);
    let secret = async || secrets.get(&names::credentials(&made.resource)).await.unwrap();
    let opens = secret().await;
    let api = circle.rig.as_admin();
    // The policy lets it go only where it seems to be of a deleted database; the operator says again that it is not.
    let seems = Patch::Merge(json!({ "status": { "phase": "Deleted" } }));
    let is_same = |uid: Option<&String>| uid == before.metadata.uid.as_ref();
    eventually(ROUND, "the resource to be on its way out", async || {
        let _ = api.patch_status(&made.resource, &PatchParams::default(), &seems).await;
        let _ = api.delete(&made.resource, &DeleteParams::default()).await;
        let found = api.get_opt(&made.resource).await.ok()?;
        let goes = |found: &resources::QuestDB| {
            found.metadata.deletion_timestamp.is_some() || !is_same(found.metadata.uid.as_ref())
        };
        found.as_ref().is_none_or(goes).then_some(())
    })
    .await;
    let again = eventually(ROUND, "another resource", async || {
        circle.resource(&made).await.filter(|found| !is_same(found.metadata.uid.as_ref()))
    })
    .await;
    assert_eq!(json!(again.spec), json!(before.spec), "the same state at the same position");
    circle.carried_out(&made, 1, Phase::Ready).await;

    let opened = secret().await;
    assert_eq!(opened.metadata.uid, opens.metadata.uid, "other credentials were drawn");
    assert!(opened.data == opens.data, "other values were written");
    let of = opened.metadata.annotations.as_ref().and_then(|annotations| annotations.get(names::RESOURCE));
    assert_eq!(of, again.metadata.uid.as_ref(), "it is taken over again");
    let now = circle.machines(&made).await;
    assert!(now.len() == 1 && now != machines, "{machines:?}, then {now:?}");
    assert_eq!(circle.disk(&made).await, disk);
    let launches = launches(&circle.rig, since).await;
    let often = |action: &str| launches.iter().filter(|launch| *launch == action).count();
    assert_eq!((often("CreateVolume"), often("RunInstances")), (1, 2), "{launches:?}");
    assert_eq!(circle.ends_of(&disk, since).await, 0);
    circle.delete(&made).await;
    assert_eq!(circle.purge(&made).await.0, 202);
    eventually(ROUND, "the end of the disk", async || circle.disks(&made).await.is_empty().then_some(()))
        .await;
    circle.end().await;
}
