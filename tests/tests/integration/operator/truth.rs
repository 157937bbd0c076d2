//! Whose is what, and who says so: identity, labels, records and annotations that somebody takes away or changes by hand.

use cloud::{
    ClientToken, DnsRecord, HostedZoneId, RecordChange, RecordKind, Role, Select, Tags, Volume, VolumeId,
    VolumeState, key,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use resources::{ChangeMeans, Phase, QuestDB, names};
use serde_json::{Value, json};
use testkit::{Failpoint, eventually, unique};

use super::rig::{PATIENCE, Rig, apply, listed_again, patiently, refusal};
use super::subject::Subject;
use crate::endpoint::{control, fault, serial};

/// A resource that somebody wrote by hand.
pub(super) fn plain(rig: &Rig, name: &str, policy: &str) -> Value {
    let mut plain = rig.managed(name, 1);
    plain["spec"].as_object_mut().unwrap().remove("instruction");
    plain["spec"]["storage"]["deletionPolicy"] = json!(policy);
    plain
}

pub(super) async fn identity(rig: &Rig, name: &str) -> String {
    eventually(PATIENCE, "an identity", async || rig.as_admin().get(name).await.ok()?.status?.database_id)
        .await
}

/// Its machine and its disk, once there are both.
pub(super) async fn made(rig: &Rig) -> (String, String) {
    eventually(PATIENCE, "machine and disk", async || {
        let (instances, mut volumes) = (rig.instances().await, rig.volumes().await);
        volumes.retain(|volume| volume.state == VolumeState::Available);
        assert!(instances.len() < 2 && volumes.len() < 2, "{instances:?} {volumes:?}");
        Some((instances.first()?.id.to_string(), volumes.first()?.id.to_string()))
    })
    .await
}

pub(super) async fn removed(rig: &Rig, name: &str) {
    rig.as_admin().delete(name, &DeleteParams::default()).await.unwrap();
    let_go(rig, name).await;
}

/// Waits for the end of a resource that was deleted.
async fn let_go(rig: &Rig, name: &str) {
    eventually(2 * PATIENCE, "the resource to be let go", async || {
        unprotect(rig, name).await;
        rig.as_admin().get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(rig.instances().await.len(), 0, "no machine is left");
}

/// Waits until no disk is left, where the policy is to delete it: the resource goes once its disk is being deleted.
pub(super) async fn no_disk(rig: &Rig) {
    eventually(PATIENCE, "the end of the disk, whose policy is to delete it", async || {
        rig.volumes().await.is_empty().then_some(())
    })
    .await;
}

/// The part of the controllers that protect what is in use: nothing is.
async fn unprotect(rig: &Rig, name: &str) {
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    let _ = claims.patch(&names::claim(name), &PatchParams::default(), &none).await;
    let volumes: Api<PersistentVolume> = Api::all(rig.admin.clone());
    let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_NAMESPACE, rig.namespace));
    for volume in volumes.list(&ours).await.unwrap().items {
        let _ = volumes.patch(&volume.name_any(), &PatchParams::default(), &none).await;
    }
}

/// A `PUT` of spec and name alone, as `kubectl replace` sends it.
async fn replace(rig: &Rig, name: &str) {
    eventually(PATIENCE, "nobody to be quicker", async || {
        let current = rig.as_admin().get(name).await.unwrap();
        let bare = json!({
            "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
            "metadata": { "name": name, "namespace": rig.namespace, "resourceVersion": current.metadata.resource_version },
            "spec": current.spec,
        });
        let bare: QuestDB = serde_json::from_value(bare).unwrap();
        rig.as_admin().replace(name, &PostParams::default(), &bare).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_resource_is_the_same_database_and_is_found_again_when_it_goes() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, "replaced", "Delete")).await.unwrap();
    let (id, before) = (identity(&rig, "replaced").await, made(&rig).await);
    let wrong = json!({ "status": { "databaseId": null } });
    let patch = Patch::Merge(&wrong);
    let status = refusal(rig.as_admin().patch_status("replaced", &PatchParams::default(), &patch).await);
    assert!(status.code == 422 && status.message.contains("status.databaseId is immutable"), "{status:?}");

    replace(&rig, "replaced").await;
    let again = eventually(PATIENCE, "the annotation and the finalizer to come back", async || {
        let found = rig.as_admin().get("replaced").await.unwrap();
        let named = found.annotations().get(names::ADOPTED_ID) == Some(&id);
        let written = found.annotations().contains_key(names::GENERATION);
        (named && written && !found.finalizers().is_empty()).then_some(found)
    })
    .await;
    assert_eq!(again.status.unwrap().database_id.as_ref(), Some(&id));
    assert_eq!(made(&rig).await, before);
    removed(&rig, "replaced").await;
    no_disk(&rig).await;
    assert_eq!(rig.groups().await.len(), 0);
    rig.end().await;
}

/// The database of a resource whose disk was destroyed with it, and the disk.
async fn destroyed(rig: &Rig, name: &str) -> (String, String) {
    apply(&rig.as_admin(), &plain(rig, name, "Delete")).await.unwrap();
    let (id, (_, disk)) = (identity(rig, name).await, made(rig).await);
    removed(rig, name).await;
    no_disk(rig).await;
    (id, disk)
}

/// Makes the resource again, with the annotation that names its database.
async fn begin_anew(rig: &Rig, name: &str, id: &str) {
    let mut again = plain(rig, name, "Delete");
    again["metadata"]["annotations"] = json!({ names::ADOPTED_ID: id });
    apply(&rig.as_admin(), &again).await.unwrap();
    assert_eq!(identity(rig, name).await, id);
}

/// The annotation, which copies of a resource take along, names the database whose disk was destroyed, and EC2 remembers for a day who
/// asked for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_begins_anew_on_the_day_on_which_its_disk_was_destroyed_gets_another_disk() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    let (id, disk) = destroyed(&rig, "anew").await;
    begin_anew(&rig, "anew", &id).await;
    assert_ne!(made(&rig).await.1, disk);
    removed(&rig, "anew").await;
    no_disk(&rig).await;
    rig.end().await;
}

/// Its first disk is gone, so that nothing but a look keeps another one from being made for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_disk_is_asked_for_once_the_resource_is_on_its_way_out() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    let (id, _) = destroyed(&rig, "late").await;
    let token = |number| ClientToken::new(&rig.cluster, &id, Role::Volume, number);
    let asked =
        json!({ "kind": "delay", "action": "CreateVolume", "contains": token(1).as_str(), "delay_s": 60 });
    let place = format!("/faults/{}", fault(&asked).await);
    let since = serial().await;
    begin_anew(&rig, "late", &id).await;
    eventually(PATIENCE, "the request for a disk", async || {
        let met = control("GET", &place, &Value::Null).await;
        met["fired"].as_u64().is_some_and(|fired| fired > 0).then_some(())
    })
    .await;
    rig.as_admin().delete("late", &DeleteParams::default()).await.unwrap();
    control("DELETE", &place, &Value::Null).await;
    let_go(&rig, "late").await;
    let answer = control("GET", &format!("/journal?since={since}&action=CreateVolume"), &Value::Null).await;
    let tokens: Vec<&Value> =
        answer["calls"].as_array().unwrap().iter().map(|call| &call["params"]["ClientToken"]).collect();
    assert!(tokens.iter().any(|found| **found == token(1).as_str()), "{tokens:?}");
    assert!(tokens.iter().all(|found| **found != token(2).as_str()), "{tokens:?}");
    no_disk(&rig).await;
    rig.end().await;
}

/// A tool has another identity in what it applies, and applies that whenever it is not so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_somebody_else_writes_on_is_told_and_left() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, "argued", "Delete")).await.unwrap();
    let (id, before) = (identity(&rig, "argued").await, made(&rig).await);
    let theirs = "0192f3a4-0000-7d8e-9f00-112233445566";
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { names::ADOPTED_ID: theirs } } }));
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    // It is left where it is theirs, with all that a pass has to say of the database.
    let told = eventually(PATIENCE, "the other to be told, and left", async || {
        let found = rig.as_admin().get("argued").await.unwrap();
        if found.annotations().get(names::ADOPTED_ID).is_none_or(|named| named != theirs) {
            rig.as_admin().patch("argued", &somebody, &patch).await.unwrap();
            return None;
        }
        let status = found.status?;
        let mut conditions = status.conditions.into_iter();
        let told = conditions.find(|found| found.type_ == names::condition::CONTENDED)?;
        let is_cared_for = status.steps.iter().any(|step| step.name == "volume");
        (told.status == "True" && is_cared_for).then_some(told)
    })
    .await;
    assert!(told.message.contains(names::ADOPTED_ID) && told.message.contains(&id), "{}", told.message);
    let told = rig.as_admin().get("argued").await.unwrap().status.unwrap().database_id;
    assert_eq!((told, made(&rig).await), (Some(id), before));
    removed(&rig, "argued").await;
    no_disk(&rig).await;
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_made_again_under_its_name_returns_to_the_disk_that_was_kept() {
    let rig = Rig::new().await;
    let _operator = rig.start().await;
    apply(&rig.as_admin(), &plain(&rig, "again", "Retain")).await.unwrap();
    let (id, (machine, disk)) = (identity(&rig, "again").await, made(&rig).await);
    removed(&rig, "again").await;
    assert_eq!(rig.volumes().await.len(), 1, "its policy is to keep the disk");

    apply(&rig.as_admin(), &plain(&rig, "again", "Delete")).await.unwrap();
    assert_eq!(identity(&rig, "again").await, id);
    let after = made(&rig).await;
    assert!(after.1 == disk && after.0 != machine, "{after:?}");
    let mut other = plain(&rig, "other", "Delete");
    other["metadata"]["annotations"] = json!({ names::ADOPTED_ID: id });
    apply(&rig.as_admin(), &other).await.unwrap();
    let told = eventually(PATIENCE, "the second claim on one database to be told", async || {
        let conditions = rig.as_admin().get("other").await.ok()?.status?.conditions;
        conditions
            .into_iter()
            .find(|found| found.type_ == names::condition::CONFLICT && found.status == "True")
    })
    .await;
    assert!(told.message.contains("again stands for"), "{}", told.message);
    rig.as_admin().delete("other", &DeleteParams::default()).await.unwrap();
    removed(&rig, "again").await;
    no_disk(&rig).await;
    rig.end().await;
}

/// Takes every label off an object, and waits until ours are back on the same object.
async fn bare<K>(api: Api<K>, name: &str)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let before = api.get(name).await.unwrap();
    let none = json!(
        before.labels().keys().map(|key| (key.clone(), Value::Null)).collect::<serde_json::Map<_, _>>()
    );
    let patch = json!({ "metadata": { "labels": none } });
    let after = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(after.labels().len(), 0);
    eventually(PATIENCE, &format!("the labels of {} {name}", K::kind(&())), async || {
        let found = api.get(name).await.unwrap();
        assert_eq!(found.meta().uid, before.meta().uid, "made again instead of put right");
        let ours = [names::LABEL_DATABASE, names::LABEL_NAME, names::LABEL_NAMESPACE];
        ours.iter().all(|key| found.labels().get(*key) == before.labels().get(*key)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lost_its_labels_is_still_ours_and_gets_them_back() {
    let mut subject = Subject::new(&unique("bare")).await;
    let _operator = subject.rig.start().await;
    let born = subject.serving().await;
    let (client, namespace, name) =
        (subject.rig.admin.clone(), subject.rig.namespace.clone(), subject.name.clone());
    let status = born.status.unwrap();
    let (node, disk) =
        (status.node.unwrap().name.unwrap(), names::persistent_volume(&status.volume.unwrap().id));
    bare::<ConfigMap>(Api::namespaced(client.clone(), &namespace), &names::config(&name)).await;
    bare::<Secret>(Api::namespaced(client.clone(), &namespace), &names::credentials(&name)).await;
    bare::<Service>(Api::namespaced(client.clone(), &namespace), &name).await;
    bare::<PersistentVolumeClaim>(Api::namespaced(client.clone(), &namespace), &names::claim(&name)).await;
    bare::<PersistentVolume>(Api::all(client.clone()), &disk).await;
    bare::<Node>(Api::all(client), &node).await;
    bare(subject.sets(), &name).await;
    bare(subject.pods(), &names::pod(&name)).await;
    subject.carried_out(Phase::Ready).await;
    assert_eq!(subject.rig.instances().await.len(), 1);
    subject.purge().await;
}

async fn addresses(rig: &Rig, name: &str) -> Vec<DnsRecord> {
    let mut records = rig.records(name).await;
    records.retain(|record| record.kind == RecordKind::A);
    records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_comes_back_when_somebody_changes_it_and_is_kept_by_a_pause() {
    let mut subject = Subject::new(&unique("name")).await;
    let lease = subject.rig.lease().await;
    let kubeconfig = subject.rig.rights(&lease).await;
    let operator = subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_ZONE_PERIOD", "1s")]);
    let born = subject.serving().await;
    let name = born.status.unwrap().dns.unwrap().name;
    let records = subject.rig.records(&name).await;
    assert_eq!(records.len(), 2, "{records:?}");
    let address = addresses(&subject.rig, &name).await.remove(0);
    let theirs = DnsRecord { values: vec!["192.0.2.9".to_owned()], ..address.clone() };
    let gone = records.iter().cloned().map(RecordChange::Delete).collect();
    for changes in [vec![RecordChange::Upsert(theirs)], gone] {
        listed_again(&operator).await;
        let zone = HostedZoneId::new(subject.rig.zone());
        patiently(|| subject.rig.aws.change_records(&zone, &changes)).await;
        eventually(PATIENCE, "both records to be as they were", async || {
            let found = subject.rig.records(&name).await;
            (found.len() == 2 && found.iter().all(|record| records.contains(record))).then_some(())
        })
        .await;
        subject.carried_out(Phase::Ready).await;
    }

    subject.wish_run_state("Paused").await;
    eventually(PATIENCE, "the address to go", async || {
        addresses(&subject.rig, &name).await.is_empty().then_some(())
    })
    .await;
    let kept = subject.rig.records(&name).await;
    assert_eq!(kept.iter().map(|record| record.kind.clone()).collect::<Vec<_>>(), [RecordKind::Txt]);
    eventually(PATIENCE, "the name to be reserved", async || {
        let dns = subject.rig.as_admin().get(&subject.name).await.ok()?.status?.dns?;
        (dns.name == name && dns.is_reserved()).then_some(())
    })
    .await;
    subject.purge().await;
    assert_eq!(subject.rig.records(&name).await, [], "a purge gives the name back");
}

pub(super) async fn annotate(subject: &Subject, key: &str, value: Value) {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let api = subject.rig.as_admin();
    api.patch(&subject.name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wish_is_told_before_it_is_done_and_waits_while_nothing_is_to_be_done() {
    let mut subject = Subject::new(&unique("told")).await;
    let _operator = subject.rig.start().await;
    subject.serving().await;
    let api = subject.rig.as_admin();

    annotate(&subject, names::DRY_RUN, json!(r#"{"restartNonce":"once"}"#)).await;
    let lines = eventually(PATIENCE, "the answer to another spec", async || {
        let lines = api.get(&subject.name).await.ok()?.status?.plan;
        (!lines.is_empty()).then_some(lines)
    })
    .await;
    assert!(lines[0].starts_with("restart /spec/restartNonce"), "{lines:?}");
    annotate(&subject, names::DRY_RUN, Value::Null).await;

    annotate(&subject, names::PAUSE_RECONCILE, json!("true")).await;
    subject.wish(|spec| spec["storage"]["sizeGib"] = json!(30)).await;
    let (generation, status) = eventually(PATIENCE, "what waits to be told", async || {
        let found = api.get(&subject.name).await.ok()?;
        let status = found.status.filter(|status| !status.pending.is_empty())?;
        Some((found.metadata.generation, status))
    })
    .await;
    assert_eq!(status.observed_generation, generation, "it was seen");
    let pending = &status.pending[0];
    assert_eq!((pending.field.as_str(), pending.means), ("/spec/storage/sizeGib", ChangeMeans::Online));
    assert_eq!(status.plan, Vec::<String>::new());
    let paused =
        status.conditions.iter().find(|found| found.type_ == names::condition::RECONCILE_PAUSED).unwrap();
    assert_eq!(paused.status, "True");
    assert_eq!(subject.volume().await.size_gib, 20, "nothing is done");
    annotate(&subject, names::PAUSE_RECONCILE, Value::Null).await;
    let done = subject.carried_out(Phase::Ready).await.status.unwrap();
    assert_eq!((subject.volume().await.size_gib, done.pending.len()), (30, 0));
    subject.purge().await;
}

/// The first thing that is said of it is that nothing is done: what was made before that is known all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_wait_before_anything_is_said_of_it_is_held_for_its_machine() {
    let mut subject = Subject::new(&unique("begun")).await;
    let (lease, folder) = (subject.rig.lease().await, testkit::scratch());
    let launched = Failpoint::hold("operator.kind", &format!("{}:1:RunInstance", subject.name), &folder);
    let kubeconfig = subject.rig.rights(&lease).await;
    let _operator = subject.rig.spawn((&lease, &kubeconfig), &[&launched], &[]);
    let api = subject.rig.as_admin();
    subject.wish_run_state("Running").await;
    launched.fired().await;
    // What the pass that is held here is to say is refused, because the resource changes meanwhile.
    annotate(&subject, names::PAUSE_RECONCILE, json!("true")).await;
    launched.release().unwrap();
    let told = eventually(PATIENCE, "a word that nothing is done", async || {
        let status = api.get(&subject.name).await.ok()?.status?;
        let mut conditions = status.conditions.iter();
        let is_told = conditions
            .any(|found| found.type_ == names::condition::RECONCILE_PAUSED && found.status == "True");
        is_told.then_some(status)
    })
    .await;
    assert_eq!(told.database_id.as_ref(), Some(&subject.database));

    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch(&subject.name, &PatchParams::default(), &free).await.unwrap();
    eventually(PATIENCE, "the finalizer to come back", async || {
        let found = api.get(&subject.name).await.unwrap();
        (!found.finalizers().is_empty()).then_some(())
    })
    .await;
    annotate(&subject, names::PAUSE_RECONCILE, Value::Null).await;
    let served = subject.served().await;
    subject.exists_once(&served).await;
    subject.purge().await;
}

/// Takes the database's tag off its disk and its firewall while nobody is there to see it, has the resource deleted, and
/// returns the identity and what is left of the disk.
async fn bared_and_removed(rig: &Rig, policy: &str) -> (String, Vec<Volume>) {
    let operator = rig.start().await;
    apply(&rig.as_admin(), &plain(rig, "bare", policy)).await.unwrap();
    let database = identity(rig, "bare").await;
    let (_, disk) = made(rig).await;
    eventually(PATIENCE, "a word about the disk", async || {
        let told = rig.as_admin().get("bare").await.ok()?.status?.volume?.id;
        (told == disk).then_some(())
    })
    .await;
    drop(operator);
    let of_database = Select::database(&rig.cluster, &database);
    let group = patiently(|| rig.aws.describe_security_groups(&of_database)).await.remove(0).id;
    let tags = Tags::new().with(key::DATABASE, "lost");
    rig.aws.create_tags(&[disk.as_str(), group.as_str()], &tags).await.unwrap();
    let _operator = rig.start().await;
    removed(rig, "bare").await;
    let (group, disk) = (Select::one(group), Select::one(VolumeId::new(disk)));
    let groups = patiently(|| rig.aws.describe_security_groups(&group)).await;
    assert!(groups.is_empty(), "{policy}: a firewall leaked: {groups:?}");
    (database, patiently(|| rig.aws.describe_volumes(&disk)).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lost_its_tags_goes_or_is_tagged_again_when_its_resource_goes() {
    let rig = Rig::new().await;
    let (_, left) = bared_and_removed(&rig, "Delete").await;
    let living = |volume: &&Volume| !matches!(volume.state, VolumeState::Deleting | VolumeState::Deleted);
    assert_eq!(left.iter().find(living), None);
    rig.end().await;

    let rig = Rig::new().await;
    let (database, left) = bared_and_removed(&rig, "Retain").await;
    assert_eq!(left[0].tags.get(key::DATABASE), Some(database.as_str()), "{left:?}");
    rig.aws.delete_volume(&left[0].id).await.unwrap();
    rig.end().await;
}
