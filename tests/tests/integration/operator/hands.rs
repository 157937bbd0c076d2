//! What a hand changes or takes away of the disk's object, the credentials, the pod and the routes: ours comes back, and what was
//! not touched stays as it was.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::edits::resource;
use super::fields::meddle;
use super::foreign::{DEFINING, Kind, definition};
use super::others::Others;
use super::rig::PATIENCE;
use super::subject::Subject;

/// A database that serves by the help of others.
async fn served(name: &str) -> (Subject, Others) {
    let mut subject = Subject::new(&unique(name)).await;
    let others = Others::of(&subject.rig);
    subject.wish_run_state("Running").await;
    (subject, others)
}

/// Another pod than this one serves.
async fn restarted(subject: &Subject, before: &Pod) -> Pod {
    let pods = subject.pods();
    let after = eventually(PATIENCE, "another pod", async || {
        let found = pods.get_opt(&names::pod(&subject.name)).await.unwrap()?;
        (found.uid() != before.uid()).then_some(found)
    })
    .await;
    subject.carried_out(Phase::Ready).await;
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disks_object_is_put_right_and_made_again_for_the_same_disk_and_claim() {
    let (mut subject, _others) = served("disk").await;
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let client = subject.rig.admin.clone();
    let (disk, first) = (subject.volume().await, subject.pod().await);
    let name = names::persistent_volume(disk.id.as_str());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &subject.rig.namespace);
    let claim = claims.get(&names::claim(&subject.name)).await.unwrap();

    // Else the disk would go with its claim.
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    volumes.patch(&name, &PatchParams::default(), &Patch::Merge(&delete)).await.unwrap();
    let policy = async || {
        let spec = volumes.get_opt(&name).await.unwrap()?.spec?;
        spec.persistent_volume_reclaim_policy.filter(|policy| policy == "Retain").map(drop)
    };
    eventually(PATIENCE, "the disk to be kept", policy).await;
    let any = Api::all_with(client.clone(), &resource("", "v1", "PersistentVolume"));
    assert!(meddle(&client, &any, &name).await > 3);

    let before = volumes.get(&name).await.unwrap();
    volumes.delete(&name, &DeleteParams::default()).await.unwrap();
    let after = eventually(PATIENCE, "another object of the disk", async || {
        volumes.get_opt(&name).await.unwrap().filter(|found| found.uid() != before.uid())
    })
    .await;
    let (before, after) = (before.spec.unwrap(), after.spec.unwrap());
    assert_eq!((after.csi, after.node_affinity), (before.csi, before.node_affinity));
    policy().await.expect("it is kept");
    subject.carried_out(Phase::Ready).await;
    let found = claims.get(&names::claim(&subject.name)).await.unwrap();
    assert_eq!((found.uid(), subject.pod().await.uid()), (claim.uid(), first.uid()));
    assert_eq!(subject.volume().await.id, disk.id);
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_somebody_takes_out_come_back_and_those_deleted_are_drawn_anew() {
    let (mut subject, _others) = served("drawn").await;
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let secrets: Api<Secret> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    let own = names::credentials(&subject.name);
    let (before, first) = (secrets.get(&own).await.unwrap(), subject.pod().await);
    let values = before.data.clone().unwrap();
    let lost = [names::secret::PG_PASSWORD, names::secret::HTTP_PASSWORD];
    let none = json!({ "data": { lost[0]: null } });
    let without = secrets.patch(&own, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert!(!without.data.unwrap().contains_key(lost[0]));
    eventually(PATIENCE, "what was taken out to come back", async || {
        (secrets.get(&own).await.unwrap().data.as_ref() == Some(&values)).then_some(())
    })
    .await;
    subject.carried_out(Phase::Ready).await;
    let pod = subject.pod().await;
    assert_eq!(
        (pod.uid(), pod.metadata.deletion_timestamp),
        (first.uid(), None),
        "restarted for what it knows"
    );

    secrets.delete(&own, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "others to be drawn", async || {
        let data = secrets.get_opt(&own).await.unwrap()?.data?;
        lost.iter().all(|key| data.contains_key(*key) && data[*key] != values[*key]).then_some(())
    })
    .await;
    restarted(&subject, &first).await;
    let after = secrets.get(&own).await.unwrap();
    assert_eq!(after.labels(), before.labels());
    let mark = |secret: &Secret| secret.annotations().get(names::RESOURCE).cloned();
    assert_eq!((mark(&after), after.metadata.owner_references.as_ref()), (mark(&before), None));
    assert!(mark(&after).is_some(), "it would be taken for one that was kept");
    subject.purge_with_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_somebody_deletes_is_followed_by_one_on_the_same_machine() {
    let (mut subject, _others) = served("pod").await;
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let (first, machines, disk) = (subject.pod().await, subject.machines().await, subject.volume().await.id);
    subject.pods().delete(&names::pod(&subject.name), &DeleteParams::default()).await.unwrap();
    let second = restarted(&subject, &first).await;
    assert_eq!(second.labels(), first.labels());
    let ids = |machines: &[cloud::Instance]| machines.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&subject.machines().await), subject.volume().await.id), (ids(&machines), disk));
    subject.purge_with_others().await;
}

/// A label more to look for, and clients would be sent to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_selects_its_pod_whatever_somebody_adds() {
    let (mut subject, _others) = served("selects").await;
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let services: Api<Service> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    for name in [subject.name.clone(), names::headless(&subject.name)] {
        let selector = async || services.get(&name).await.unwrap().spec.unwrap().selector;
        let before = selector().await;
        let more = json!({ "spec": { "selector": { "app": "theirs" } } });
        services.patch(&name, &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
        eventually(PATIENCE, &format!("the selector of {name}"), async || {
            (selector().await == before).then_some(())
        })
        .await;
    }
    subject.purge_with_others().await;
}

/// A kind that is defined by one test at a time.
const ROUTES: Kind = ("traefik.io", "v1alpha1", "ingressroutes", "IngressRoute");

/// Defines Traefik's routes anew, for who holds [`DEFINING`]; how they are asked for.
pub(super) async fn define_routes(client: &Client) -> ApiResource {
    define(client, ROUTES).await
}

/// Takes them away again.
pub(super) async fn undefine_routes(client: &Client) {
    undefine(client, ROUTES).await;
}

/// Defines a kind anew, for who holds [`DEFINING`]; how its objects are asked for.
async fn define(client: &Client, of: Kind) -> ApiResource {
    let (group, version, plural, kind) = of;
    undefine(client, of).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition(of)).await.unwrap();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Takes it away, if it is there, to its end: who comes next finds none that is going.
pub(super) async fn undefine(client: &Client, (group, _, plural, _): Kind) {
    let (definitions, name) =
        (Api::<CustomResourceDefinition>::all(client.clone()), format!("{plural}.{group}"));
    let _ = definitions.delete(&name, &DeleteParams::default()).await;
    eventually(PATIENCE, &format!("no definition of {name}"), async || {
        definitions.get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_somebody_changes_or_deletes_comes_back() {
    let _defining = DEFINING.lock().await;
    let (mut subject, _others) = served("route").await;
    let client = subject.rig.admin.clone();
    let resource = define_routes(&client).await;
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let network = json!({ "ingress": { "http": { "entryPoints": ["websecure"] }, "tls": {} } });
    subject.wish(|spec| spec["network"] = network).await;
    subject.carried_out(Phase::Ready).await;
    let routes: Api<DynamicObject> = Api::namespaced_with(client.clone(), &subject.rig.namespace, &resource);
    eventually(PATIENCE, "the route", async || routes.get_opt(&subject.name).await.ok()?).await;
    assert!(meddle(&client, &routes, &subject.name).await > 3);

    let before = routes.get(&subject.name).await.unwrap();
    let theirs = json!({ "metadata": { "labels": { names::LABEL_NAME: "theirs" } } });
    routes.patch(&subject.name, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    eventually(PATIENCE, "its label", async || {
        (routes.get(&subject.name).await.unwrap().labels() == before.labels()).then_some(())
    })
    .await;
    routes.delete(&subject.name, &DeleteParams::default()).await.unwrap();
    let after = eventually(PATIENCE, "another route", async || {
        routes.get_opt(&subject.name).await.unwrap().filter(|found| found.uid() != before.uid())
    })
    .await;
    let spec = |route: &DynamicObject| -> Value { route.data["spec"].clone() };
    assert_eq!(spec(&after), spec(&before));
    subject.purge_with_others().await;
    undefine_routes(&client).await;
}

/// The name of an object, by that of its database.
type Named = fn(&str) -> String;

/// The kinds of others that no other test lays hands on, and the name of the object that a database has of each.
const BESIDE: [(Kind, Named); 2] = [
    (("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor"), str::to_owned),
    (("traefik.io", "v1alpha1", "ingressroutetcps", "IngressRouteTCP"), names::route_pg),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_of_pods_and_a_route_over_tcp_come_back_whoever_changes_them() {
    let _defining = DEFINING.lock().await;
    let (mut subject, _others) = served("beside").await;
    let client = subject.rig.admin.clone();
    let mut resources = Vec::new();
    for (kind, _) in BESIDE {
        resources.push(define(&client, kind).await);
    }
    let _operator = subject.rig.start().await;
    subject.carried_out(Phase::Ready).await;
    let network = json!({
        "monitor": { "kind": "PodMonitor" }, "ingress": { "pg": { "entryPoints": ["postgres"] }, "tls": {} },
    });
    subject.wish(|spec| spec["network"] = network).await;
    subject.carried_out(Phase::Ready).await;
    for (resource, (_, named)) in resources.iter().zip(BESIDE) {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &subject.rig.namespace, resource);
        let (name, what) = (named(&subject.name), format!("the {}", resource.kind));
        let made = eventually(PATIENCE, &what, async || api.get_opt(&name).await.ok()?).await;
        assert!(meddle(&client, &api, &name).await > 3, "{what}");
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        let again = eventually(PATIENCE, &format!("another one than {what}"), async || {
            api.get_opt(&name).await.unwrap().filter(|found| found.uid() != made.uid())
        })
        .await;
        assert_eq!(again.data["spec"], made.data["spec"]);
    }
    subject.purge_with_others().await;
    for (kind, _) in BESIDE {
        undefine(&client, kind).await;
    }
}
