//! Definitions of other versions than the operator, on an API server of the test's own: a newer one, by which somebody wrote words that
//! the operator does not know, and an older one, which drops what it does not know itself.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Api, Client, CustomResourceExt as _};
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, SnapshotPhase, names};
use serde_json::{Value, json};
use testkit::{Failpoint, eventually, unique};

use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::rights::grant_at;
use super::snapshots::{Stage, make, settled};
use super::subject::Subject;
use super::truth::{made, plain};
use crate::front::{Front, Watches};
use crate::own::Own;

/// The operator's own definition with another schema.
fn definition(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
    with_schema(&resources::definition(), change)
}

fn with_schema(
    definition: &CustomResourceDefinition,
    change: impl FnOnce(&mut Value),
) -> CustomResourceDefinition {
    let mut definition = serde_json::to_value(definition).unwrap();
    change(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    serde_json::from_value(definition).unwrap()
}

/// One that knows another run state.
fn newer(schema: &mut Value) {
    let states = schema["properties"]["spec"]["properties"]["runState"]["enum"].as_array_mut();
    states.unwrap().push(json!("Hibernating"));
}

/// One from before there were instructions, and rules about them.
fn older(schema: &mut Value) {
    let spec = &mut schema["properties"]["spec"];
    spec["properties"].as_object_mut().unwrap().remove("instruction").unwrap();
    spec.as_object_mut().unwrap().remove("x-kubernetes-validations").unwrap();
    schema.as_object_mut().unwrap().remove("x-kubernetes-validations").unwrap();
}

/// Puts it in place of the one that is there.
async fn install(admin: &Client, mut definition: CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let name = definition.metadata.name.clone().unwrap();
    eventually(PATIENCE, "nobody to be quicker", async || {
        let found = api.get_metadata(&name).await.ok()?;
        definition.metadata.resource_version = found.metadata.resource_version;
        api.replace(&name, &PostParams::default(), &definition).await.ok()
    })
    .await;
}

/// Waits until it is told of a resource that it is not seen as it was written; what is told.
async fn told(rig: &Rig, name: &str) -> String {
    let events: Api<Event> = Api::namespaced(rig.admin.clone(), &rig.namespace);
    eventually(PATIENCE, &format!("an event about {name}"), async || {
        let all = events.list(&ListParams::default()).await.ok()?.items;
        let is_it = |event: &Event| {
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            event.reason.as_deref() == Some("DefinitionMismatch") && about == Some(name)
        };
        all.into_iter().find(is_it)?.note
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_outlives_a_newer_and_an_older_definition() {
    let own = Own::start().await;
    let rig = Arc::new(Rig::at([&own.admin, &own.provisioner, &own.operator]).await);
    let lease = rig.lease().await;
    let way = grant_at(&own.admin, &rig.admin, &[&rig.namespace], &lease).await;

    // Another one of the same namespace has words that the operator does not know, from its first list on.
    install(&rig.admin, definition(newer)).await;
    let kind = ApiResource::erase::<QuestDB>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &kind);
    let mut asleep = plain(&rig, "asleep", "Delete");
    asleep["spec"]["runState"] = json!("Hibernating");
    let asleep: DynamicObject = serde_json::from_value(asleep).unwrap();
    let written = eventually(PATIENCE, "the newer definition", async || {
        raw.create(&PostParams::default(), &asleep).await.ok()
    })
    .await;
    let _operator = rig.spawn((&lease, &way), &[], &[]);
    let (name, database) = (unique("kept"), uuid::Uuid::now_v7().hyphenated().to_string());
    let mut kept = rig.unique(&name, &database, 1);
    kept["metadata"]["labels"] = json!({ names::LABEL_MANAGED_BY: names::PROVISIONER });
    kept["spec"]["storage"]["deletionPolicy"] = json!("Delete");
    rig.provision(&kept).await.unwrap();
    let before = made(&rig).await;
    assert!(told(&rig, "asleep").await.contains("Hibernating"));
    let after = raw.get("asleep").await.unwrap();
    assert_eq!(
        after.metadata.resource_version, written.metadata.resource_version,
        "nothing is written to it"
    );

    // Of one that is managed only its instruction says so: without it, it would go with its disk.
    install(&rig.admin, definition(older)).await;
    let resources = rig.as_admin();
    eventually(PATIENCE, "the older definition", async || {
        resources.get(&name).await.ok()?.spec.instruction.is_none().then_some(())
    })
    .await;
    resources.delete(&name, &DeleteParams::default()).await.unwrap();
    let text = told(&rig, &name).await;
    assert!(text.contains("has no instruction"), "{text}");
    let left = resources.get(&name).await.unwrap().metadata;
    assert!(left.deletion_timestamp.is_some() && left.finalizers.is_some(), "{left:?}");
    assert_eq!(made(&rig).await, before, "nothing of it is touched");

    // With the operator's own it is said again, and goes as a managed one goes: its disk stays.
    install(&rig.admin, definition(|_| ())).await;
    eventually(PATIENCE, "the operator's own definition", async || {
        rig.provision(&kept).await.ok()?;
        // A server that still goes by the older one takes it too, and drops what that does not know.
        resources.get(&name).await.ok()?.spec.instruction.map(|_| ())
    })
    .await;
    let _others = Others::of(&rig);
    // What was said while a watch by the older one was still open is told by none: it is listed, within a minute.
    eventually(3 * PATIENCE, "the resource to be let go", async || {
        resources.get_opt(&name).await.ok()?.is_none().then_some(())
    })
    .await;
    let volumes = rig.volumes().await;
    assert_eq!(volumes.iter().map(|volume| volume.id.as_str()).collect::<Vec<_>>(), [before.1.as_str()]);
    assert!(rig.instances().await.is_empty(), "no machine is left");
    rig.aws.delete_volume(&volumes[0].id).await.unwrap();
}

/// Definitions by which copies may be archived, and schedules be suspended for a while.
async fn install_newer_of_snapshots(admin: &Client) {
    let archived = with_schema(&QuestDBSnapshot::crd(), |schema| {
        let policies = schema["properties"]["spec"]["properties"]["deletionPolicy"]["enum"].as_array_mut();
        policies.unwrap().push(json!("Archive"));
    });
    let suspended = with_schema(&QuestDBSnapshotSchedule::crd(), |schema| {
        schema["properties"]["spec"]["properties"]["suspend"] = json!({ "type": "string" });
    });
    install(admin, archived).await;
    install(admin, suspended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_or_schedule_that_cannot_be_read_stops_no_other() {
    let own = Own::start().await;
    let rig = Arc::new(Rig::at([&own.admin, &own.provisioner, &own.operator]).await);
    let lease = rig.lease().await;
    let way = grant_at(&own.admin, &rig.admin, &[&rig.namespace], &lease).await;
    install_newer_of_snapshots(&rig.admin).await;
    let write = async |kind: ApiResource, name: &str, spec: Value| {
        let api: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &kind);
        let object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": name }, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        eventually(PATIENCE, &format!("{name} to be taken"), async || {
            api.create(&PostParams::default(), &object).await.ok()
        })
        .await
    };
    let snapshot = || ApiResource::erase::<QuestDBSnapshot>(&());
    let schedule = || ApiResource::erase::<QuestDBSnapshotSchedule>(&());
    let asleep =
        write(snapshot(), "archived", json!({ "database": "nobody", "deletionPolicy": "Archive" })).await;
    write(
        schedule(),
        "nightly",
        json!({ "database": "nobody", "schedule": "0 3 * * *", "suspend": "at night" }),
    )
    .await;
    // One that every operator can read, of the same database.
    write(snapshot(), "plain", json!({ "database": "nobody" })).await;
    write(schedule(), "hourly", json!({ "database": "nobody", "schedule": "0 * * * *" })).await;
    let _operator = rig.spawn((&lease, &way), &[], &[]);

    let snapshots: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &snapshot());
    let schedules: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &schedule());
    for (api, name, reason) in [(&snapshots, "plain", "NoDatabase"), (&schedules, "hourly", "Scheduled")] {
        eventually(PATIENCE, &format!("a word about {name}"), async || {
            let found = api.get(name).await.ok()?;
            let mut conditions = found.data["status"]["conditions"].as_array()?.iter();
            conditions.any(|one| one["type"] == "Ready" && one["reason"] == reason).then_some(())
        })
        .await;
    }
    assert!(told(&rig, "archived").await.contains("Archive"));
    assert!(told(&rig, "nightly").await.contains("at night"));
    let after = snapshots.get("archived").await.unwrap().metadata.resource_version;
    assert_eq!(after, asleep.metadata.resource_version, "nothing is written to it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_watch_lost_beside_another_definition_is_listed() {
    let own = Own::start().await;
    let rig = Arc::new(Rig::at([&own.admin, &own.provisioner, &own.operator]).await);
    let lease = rig.lease().await;
    let way = grant_at(&own.admin, &rig.admin, &[&rig.namespace], &lease).await;
    let front = Front::before(&way).await;
    let _operator = rig.spawn((&lease, &front.kubeconfig(&testkit::scratch())), &[], &[]);
    let mut asleep = plain(&rig, "asleep", "Delete");
    asleep["spec"]["runState"] = json!("Paused");
    apply(&rig.as_admin(), &asleep).await.unwrap();
    let resources = rig.as_admin();
    let seen = async || {
        let found = resources.get("asleep").await.ok()?;
        (found.status?.observed_generation == found.metadata.generation).then_some(())
    };
    eventually(PATIENCE, "the first wish to be seen", seen).await;
    // Who began by one definition is to know of it before there is another.
    let known = async || (front.answers("/openapi/v3") > 0).then_some(());
    eventually(PATIENCE, "an answer about the definitions", known).await;

    // As a watch by an older definition loses it: silently, and nothing comes after.
    front.set_watches(Watches::Silent);
    asleep["spec"]["restartNonce"] = json!("one");
    apply(&resources, &asleep).await.unwrap();
    // That another watch lost something says nothing of this one.
    eventually(PATIENCE, "something lost", async || (front.lost_of("questdbs") > 0).then_some(())).await;
    front.set_watches(Watches::Told);
    assert_eq!(seen().await, None);
    install(&rig.admin, definition(newer)).await;
    eventually(3 * PATIENCE, "what was lost to be seen", seen).await;
}

/// Holds the database as a person does, long after its time by the API server's clock, until an operator has looked at the debt.
async fn is_left(own: &Own, rig: &Rig, stage: &Stage) {
    stage.questdb.sql("CHECKPOINT CREATE").await;
    let theirs = stage.questdb.held_since().await;
    let lease = rig.lease().await;
    let way = grant_at(&own.admin, &rig.admin, &[&rig.namespace], &lease).await;
    let front = Front::before(&way).await;
    front.set_ahead(SignedDuration::from_mins(20));
    let late = rig.spawn((&lease, &front.kubeconfig(&testkit::scratch())), &[], &[]);
    let looked = "controller=\"questdbsnapshot\",category=\"definition\"";
    eventually(PATIENCE, "looks at the debt", async || {
        let looks = late.metric("slipway_operator_pass_failures_total", looked).await;
        // The first may have found that QuestDB does not tell.
        (looks >= 2.0).then_some(())
    })
    .await;
    assert_eq!(stage.questdb.held_since().await, theirs, "a person's checkpoint is released");
    drop(late);
    stage.questdb.sql("CHECKPOINT RELEASE").await;
}

/// Nor can its database, whose definition is an older one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_is_not_held_for_ever_for_a_snapshot_that_cannot_be_read() {
    let own = Own::start().await;
    let rig = Arc::new(Rig::at([&own.admin, &own.provisioner, &own.operator]).await);
    let operator = async |places: &[&Failpoint]| {
        let lease = rig.lease().await;
        let way = grant_at(&own.admin, &rig.admin, &[&rig.namespace], &lease).await;
        rig.spawn((&lease, &way), places, &[])
    };
    let dies = Failpoint::abort("operator.snapshot.after", "CreateCheckpoint", &testkit::scratch());
    let mortal = operator(&[&dies]).await;
    let mut subject = Subject::within(&rig, &unique("held"));
    subject.serving().await;
    let stage = Stage::of(subject).await;
    // Long enough that the database is held within that time on busy processors, too; the test waits for its end.
    let snapshot = json!({
        "metadata": { "name": "archived" },
        "spec": { "database": stage.subject.name, "deadlineSeconds": 60 },
    });
    make(&stage.subject, snapshot).await;
    dies.fired().await;
    drop(mortal);
    assert!(stage.questdb.held_since().await.is_some());

    install_newer_of_snapshots(&rig.admin).await;
    install(&rig.admin, definition(older)).await;
    let kind = ApiResource::erase::<QuestDBSnapshot>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(rig.admin.clone(), &rig.namespace, &kind);
    let policy = async |policy: &str| {
        let change = Patch::Merge(json!({ "spec": { "deletionPolicy": policy } }));
        eventually(PATIENCE, &format!("policy {policy} to be taken"), async || {
            raw.patch("archived", &PatchParams::default(), &change).await.ok()
        })
        .await
    };
    let written = policy("Archive").await;
    let resources = rig.as_admin();
    eventually(PATIENCE, "the older definition", async || {
        resources.get(&stage.subject.name).await.ok()?.spec.instruction.is_none().then_some(())
    })
    .await;
    let heir = operator(&[]).await;
    assert!(told(&rig, "archived").await.contains("Archive"));
    eventually(3 * PATIENCE, "the release", async || {
        stage.questdb.held_since().await.is_none().then_some(())
    })
    .await;
    let after = raw.get("archived").await.unwrap().metadata.resource_version;
    assert_eq!(after, written.metadata.resource_version, "nothing is written to it");

    // Its debt stands, and whoever leads next knows nothing of it.
    drop(heir);
    is_left(&own, &rig, &stage).await;
    let heir = operator(&[]).await;

    // Read again, it is told how it ended, and its debt is struck.
    install(&rig.admin, definition(|_| ())).await;
    install(&rig.admin, QuestDBSnapshot::crd()).await;
    policy("Retain").await;
    let failed = settled(&stage.subject, "archived", SnapshotPhase::Failed).await;
    stage.is_free(&failed).await;
    eventually(PATIENCE, "the operator's own definition", async || {
        resources.get(&stage.subject.name).await.ok()?.spec.instruction.map(|_| ())
    })
    .await;
    stage.end(heir).await;
}
