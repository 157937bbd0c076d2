//! What is put into a store is what is found in it, and a list is shown at its end.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::core::DynamicObject;
use proptest::prelude::*;
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule};
use serde_json::{Value, json};

use super::*;

const AWKWARD: &str = "\"quoted\"\\ \n\t\u{0} \u{7f} é 漢 \u{1f600} \u{2028} </x>";

fn metadata() -> Value {
    json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "17", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-02-01T23:59:59Z",
        "deletionGracePeriodSeconds": 0, "generateName": "g-", "finalizers": ["f", ""], "selfLink": "/",
        "labels": { "": "", "a": AWKWARD }, "annotations": { AWKWARD: "{\"json\":[1,2.5,null]}" },
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true, "blockOwnerDeletion": false,
        }],
    })
}

fn condition() -> Value {
    json!({
        "type": "Ready", "status": "False", "reason": "Why", "message": AWKWARD, "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": null,
        "lastHeartbeatTime": "2026-01-01T00:00:01Z",
    })
}

/// What is kept of an object, and what is found in the store of it.
fn round<K: Kept>(object: Value) -> (K, Arc<K>) {
    let object: K = serde_json::from_value(object).unwrap();
    let (store, mut writer) = store::<K>();
    writer.take_in(&Event::Apply(Box::new(object.clone())));
    // As it is unpacked, and not as it was told.
    store.fresh.clear();
    let found = store.get(&Key::of(&object)).unwrap();
    (object, found)
}

/// That all fields that somebody filled are there again, each as what it was.
fn check<K: Kept>(mut rest: Value, fields: &[&str]) {
    rest["metadata"] = metadata();
    let (object, found) = round::<K>(rest);
    assert_eq!(format!("{object:?}"), format!("{found:?}"));
    let shown = serde_json::to_value(&*found).unwrap();
    for field in fields {
        // A field that the type does not know would prove nothing.
        let value = shown.pointer(field);
        assert!(value.is_some_and(|value| !value.is_null()), "{field} in {shown}");
    }
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": {
            "containers": [{
                "name": "questdb", "image": "i", "command": [], "args": ["", AWKWARD],
                "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } }],
                "ports": [{ "containerPort": 9000, "name": "http" }],
                "resources": { "requests": { "cpu": "1500m", "memory": "1.5Gi" }, "limits": { "cpu": "2" } },
                "readinessProbe": { "httpGet": { "path": "/", "port": "http" }, "periodSeconds": 1 },
                "livenessProbe": { "tcpSocket": { "port": 9000 } },
                "securityContext": { "runAsUser": 10001, "readOnlyRootFilesystem": false },
            }],
            "tolerations": [{ "key": "k", "operator": "Exists", "tolerationSeconds": -1 }],
            "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "100Mi" } }],
        },
    })
}

#[test]
fn kinds_of_kubernetes_are_unpacked_as_they_were_packed() {
    check::<Secret>(
        json!({ "type": "Opaque", "data": { "k": "AAEC/w==", "empty": "" } }),
        &["/data/k", "/type"],
    );
    let map =
        json!({ "data": { "server.conf": AWKWARD }, "binaryData": { "b": "AAEC/w==" }, "immutable": true });
    check::<ConfigMap>(map, &["/data/server.conf", "/binaryData/b", "/immutable"]);
    let ports = json!([
        { "name": "a", "port": 1, "targetPort": "http", "nodePort": 30_000, "protocol": "TCP" },
        { "name": "b", "port": 2, "targetPort": 8812 },
    ]);
    let service = json!({
        "spec": { "ports": ports, "clusterIP": "None", "clusterIPs": ["None"], "selector": { "a": "b" } },
        "status": { "loadBalancer": { "ingress": [{ "hostname": "h" }] } },
    });
    check::<Service>(
        service,
        &["/spec/ports/0/targetPort", "/spec/ports/1/targetPort", "/status/loadBalancer"],
    );
    let set = json!({
        "spec": { "replicas": 0, "serviceName": "s", "selector": { "matchLabels": {} }, "template": template() },
        "status": { "replicas": 1, "readyReplicas": 0, "conditions": [condition()] },
    });
    check::<StatefulSet>(
        set,
        &[
            "/spec/template/spec/containers/0/livenessProbe/tcpSocket/port",
            "/spec/template/spec/containers/0/resources/limits/cpu",
            "/spec/template/spec/volumes/0/emptyDir/sizeLimit",
            "/status/conditions/0/lastTransitionTime",
        ],
    );
    let claim = json!({
        "spec": {
            "accessModes": ["ReadWriteOncePod"], "storageClassName": "", "volumeName": "v", "volumeMode": "Filesystem",
            "resources": { "requests": { "storage": "20Gi" } }, "selector": { "matchExpressions": [{
                "key": "k", "operator": "In", "values": ["v"],
            }] },
        },
        "status": { "phase": "Bound", "capacity": { "storage": "21474836480" }, "conditions": [condition()] },
    });
    check::<PersistentVolumeClaim>(claim, &["/spec/storageClassName", "/status/capacity/storage"]);
    let volume = json!({
        "spec": {
            "capacity": { "storage": "20Gi" }, "accessModes": ["ReadWriteOncePod"], "mountOptions": ["a"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "volumeAttributes": { "a": "b" } },
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": "n", "name": "c", "uid": "u" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                "key": "zone", "operator": "In", "values": ["a"],
            }] }] } },
        },
        "status": { "phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z" },
    });
    check::<PersistentVolume>(volume, &["/spec/csi/volumeAttributes/a", "/status/lastPhaseTransitionTime"]);
}

#[test]
fn kinds_that_others_write_are_unpacked_as_they_were_packed() {
    let container = json!({
        "name": "questdb", "image": "", "imageID": "", "ready": false, "restartCount": 3, "started": false,
        "state": { "terminated": { "exitCode": -1, "signal": 9, "finishedAt": "2026-01-01T00:00:00Z" } },
    });
    let pod = json!({
        "spec": { "containers": [], "nodeName": "node" },
        "status": { "phase": "Running", "conditions": [condition()], "containerStatuses": [container] },
    });
    check::<Pod>(pod, &["/status/containerStatuses/0/state/terminated/exitCode", "/spec/nodeName"]);
    let node = json!({
        "spec": { "providerID": "aws:///z/i-1", "unschedulable": true, "taints": [{
            "key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z",
        }] },
        "status": { "conditions": [condition()], "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] },
    });
    check::<Node>(node, &["/spec/taints/0/timeAdded", "/status/conditions/0/lastHeartbeatTime"]);
    let source = json!({ "persistentVolumeName": "v" });
    let attachment = json!({ "spec": { "attacher": "a", "nodeName": "n", "source": source } });
    check::<VolumeAttachment>(attachment, &["/spec/source/persistentVolumeName"]);
    let ports = json!([{ "port": 9000, "endPort": 9010, "protocol": "TCP" }, { "port": "http" }]);
    let policy = json!({ "spec": { "podSelector": { "matchLabels": {} }, "policyTypes": ["Ingress"], "ingress": [
        { "ports": ports, "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }] }, {},
    ] } });
    check::<NetworkPolicy>(
        policy,
        &["/spec/ingress/0/ports/1/port", "/spec/ingress/0/from/0/ipBlock/except"],
    );
    for most in [json!(0), json!("50%")] {
        let budget =
            json!({ "spec": { "maxUnavailable": most, "selector": { "matchLabels": { "a": "b" } } } });
        check::<PodDisruptionBudget>(budget, &["/spec/maxUnavailable"]);
    }
    let route = json!({
        "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute",
        "spec": { "routes": [{ "match": "Host(`a`)", "priority": 18_446_744_073_709_551_615_u64, "weight": -1 }] },
        "status": null,
    });
    check::<DynamicObject>(route, &["/kind", "/spec/routes/0/priority"]);
}

#[test]
fn our_own_kinds_are_unpacked_as_they_were_packed() {
    let database = json!({
        "apiVersion": "crd.questdb.io/v1", "kind": "QuestDB",
        "spec": {
            "instruction": { "id": "i", "databaseId": "d", "epoch": 1, "seq": 2, "render": 1, "hash": "h" },
            "runState": "Paused", "storage": { "sizeGib": 20, "provisioned": true },
            "config": { "shared.worker.count": "2", "a": AWKWARD }, "network": { "monitor": {} },
        },
        "status": {
            "phase": "Ready", "observedGeneration": 3, "databaseId": "d", "conditions": [condition()],
            "volume": { "id": "vol-1", "zone": "z", "sizeGib": 20, "state": "available" },
        },
    });
    check::<QuestDB>(database, &["/spec/instruction/seq", "/spec/config/a", "/status/conditions/0/message"]);
    let snapshot =
        json!({ "spec": { "database": "a" }, "status": { "phase": "Copying", "conditions": [condition()] } });
    check::<QuestDBSnapshot>(snapshot, &["/spec/database", "/status/conditions/0/message"]);
    let spec = json!({ "database": "a", "schedule": "0 * * * *", "timeZone": "Europe/Berlin" });
    let schedule = json!({ "spec": spec, "status": { "conditions": [condition()] } });
    check::<QuestDBSnapshotSchedule>(schedule, &["/spec/timeZone", "/status/conditions/0/message"]);
}

/// Any JSON without numbers that are not whole, which no kind has.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_said_is_unpacked_as_it_was_packed(
        spec in any_json(),
        texts in prop::collection::btree_map(any::<String>(), any::<String>(), 0..6),
        bytes in prop::collection::btree_map("[a-z]{1,8}", any::<Vec<u8>>(), 0..4),
    ) {
        let metadata = json!({ "name": "a", "labels": texts, "annotations": texts });
        let (object, found) = round::<DynamicObject>(json!({ "metadata": metadata, "spec": spec }));
        prop_assert_eq!(&object, &*found);
        let object = Secret {
            metadata: object.metadata,
            data: Some(bytes.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value))).collect()),
            string_data: Some(texts),
            ..Secret::default()
        };
        let (object, found) = round::<Secret>(serde_json::to_value(object).unwrap());
        prop_assert_eq!(&object, &*found);
    }
}

fn map(namespace: &str, name: &str, version: &str) -> Box<ConfigMap> {
    let metadata = json!({ "name": name, "namespace": namespace, "resourceVersion": version });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn shown(store: &Store<ConfigMap>) -> Vec<String> {
    let version = |key| store.get(key)?.metadata.resource_version.clone();
    let mut shown: Vec<_> =
        store.keys().iter().map(|key| format!("{key}@{}", version(key).unwrap())).collect();
    shown.sort();
    shown
}

#[test]
fn what_is_told_of_an_object_that_changes_need_not_be_unpacked() {
    let (store, mut writer) = store::<ConfigMap>();
    let key = Key::new(Some("n"), "a");
    for version in ["1", "2"] {
        writer.take_in(&Event::Apply(map("n", "a", version)));
        writer.write().get_mut(&key).unwrap().text = "{".into();
        assert_eq!(store.get(&key).as_deref(), Some(&*map("n", "a", version)));
    }
    let before = writer.take_in(&Event::Apply(map("n", "a", "3"))).one();
    assert_eq!(before.as_deref(), Some(&*map("n", "a", "2")));
}

#[test]
fn what_an_object_was_before_it_changed_is_not_unpacked_again_where_somebody_had_looked_at_it() {
    let (store, mut writer) = store();
    let mut change = |version: &str| writer.take_in(&Event::Apply(map("n", "a", version))).one();
    assert_eq!(change("1"), None, "it is new");
    let seen = store.get(&Key::new(Some("n"), "a")).unwrap();
    assert!(change("2").is_some_and(|before| Arc::ptr_eq(&before, &seen)), "it is unpacked");
    assert_eq!(change("3").as_deref(), Some(&*map("n", "a", "2")), "nobody has looked at it");
    assert_eq!(change("3"), None, "it has not changed");
}

#[test]
fn objects_come_change_and_go_and_a_list_is_shown_whole_at_its_end() {
    let (store, mut writer) = store();
    let mut tell = |event| {
        let former = writer.take_in(&event);
        let version = |object: ConfigMap| object.metadata.resource_version;
        let mut former: Vec<_> = former.objects().filter_map(version).collect();
        former.sort();
        former
    };
    for event in [Event::Init, Event::InitApply(map("n", "a", "1")), Event::InitApply(map("n", "b", "2"))] {
        assert!(tell(event).is_empty());
    }
    assert!(store.keys().is_empty());
    assert!(tell(Event::InitDone).is_empty());
    assert_eq!(shown(&store), ["n/a@1", "n/b@2"]);
    assert_eq!(tell(Event::Apply(map("n", "a", "3"))), ["1"], "what changed, as it was");
    // One that is as it was has not changed, and the same name in another namespace is another object.
    for event in
        [Event::Apply(map("n", "a", "3")), Event::Apply(map("m", "a", "4")), Event::Apply(map("n", "c", "5"))]
    {
        assert!(tell(event).is_empty());
    }
    assert!(tell(Event::Delete(map("n", "b", "2"))).is_empty());
    assert_eq!(shown(&store), ["m/a@4", "n/a@3", "n/c@5"]);
    // What a list showed by half is not what there is.
    for event in [
        Event::Init,
        Event::InitApply(map("n", "x", "6")),
        Event::Init,
        Event::InitApply(map("n", "a", "3")),
        Event::InitApply(map("n", "c", "7")),
    ] {
        assert!(tell(event).is_empty());
    }
    assert_eq!(shown(&store), ["m/a@4", "n/a@3", "n/c@5"]);
    assert_eq!(tell(Event::InitDone), ["4", "5"], "what is gone, and what changed, as it was");
    assert_eq!(shown(&store), ["n/a@3", "n/c@7"]);
    assert!(store.has(&Key::new(Some("n"), "a")) && !store.has(&Key::new(Some("m"), "a")));
    assert!(store.get(&Key::new(Some("n"), "x")).is_none());
    let other_name = |key: &Key, (): &()| key.name() != "a";
    assert_eq!(store.keys_of(other_name), [Key::new(Some("n"), "c")]);
}

#[test]
fn what_changed_a_moment_ago_is_unpacked_once_and_never_as_it_was_before() {
    let (store, mut writer) = store::<ConfigMap>();
    let key = Key::new(Some("n"), "a");
    let found = || store.get(&key).map(|found| found.metadata.resource_version.clone().unwrap());
    let is_kept = || Arc::ptr_eq(&store.get(&key).unwrap(), &store.get(&key).unwrap());
    let list = |writer: &mut Writer<ConfigMap>, version: &str| {
        for event in [Event::Init, Event::InitApply(map("n", "a", version)), Event::InitDone] {
            writer.take_in(&event);
        }
    };
    list(&mut writer, "1");
    assert!(!is_kept(), "it only lies there");
    for version in ["2", "3"] {
        writer.take_in(&Event::Apply(map("n", "a", version)));
        assert_eq!((found().as_deref(), is_kept()), (Some(version), true));
        // Said again, which changes nothing.
        let before = store.get(&key).unwrap();
        writer.take_in(&Event::Apply(map("n", "a", version)));
        assert!(Arc::ptr_eq(&before, &store.get(&key).unwrap()), "{version}");
    }
    writer.take_in(&Event::Delete(map("n", "a", "3")));
    assert_eq!(found(), None);
    assert!(store.fresh.get(&key).is_none(), "nothing is kept of what is gone");
    writer.take_in(&Event::Apply(map("n", "a", "4")));
    assert_eq!((found().as_deref(), is_kept()), (Some("4"), true));
    list(&mut writer, "5");
    assert_eq!((found().as_deref(), is_kept()), (Some("5"), false));
    writer.take_in(&Event::Apply(map("n", "a", "6")));
    assert!(is_kept());
    for event in [Event::Init, Event::InitDone] {
        writer.take_in(&event);
    }
    assert_eq!(found(), None);
}

#[tokio::test]
async fn a_store_is_ready_once_a_list_has_ended_and_never_without_a_writer() {
    let (store, mut writer) = store::<ConfigMap>();
    let mut ready = Box::pin(store.ready());
    for event in [Event::Init, Event::InitApply(map("n", "a", "1")), Event::Apply(map("n", "b", "1"))] {
        writer.take_in(&event);
        assert!(futures::poll!(&mut ready).is_pending());
    }
    writer.take_in(&Event::InitDone);
    assert!(ready.await && store.get(&Key::new(Some("n"), "a")).is_some());
    drop(writer);
    assert!(store.ready().await, "what was listed stands");
    let (store, writer) = super::store::<ConfigMap>();
    drop(writer);
    assert!(!store.ready().await);
}

#[test]
fn a_text_that_cannot_be_read_is_an_object_that_is_not_seen() {
    let (store, mut writer) = store::<ConfigMap>();
    writer.take_in(&Event::Apply(map("n", "a", "1")));
    let key = Key::new(Some("n"), "a");
    writer.write().get_mut(&key).unwrap().text = "{".into();
    store.fresh.clear();
    assert!(store.get(&key).is_none());
    for event in [Event::Init, Event::InitDone] {
        assert_eq!(writer.take_in(&event).objects().count(), 0);
    }
}

#[test]
fn what_a_database_said_before_a_start_is_known_from_the_first_list() {
    let (store, mut writer) = store::<QuestDB>();
    let mut said = condition();
    (said["type"], said["status"]) = (json!("Degraded"), json!("True"));
    let object = json!({
        "metadata": metadata(),
        "spec": { "runState": "Paused", "storage": { "sizeGib": 20 } },
        "status": { "phase": "Pausing", "conditions": [said] },
    });
    let object: QuestDB = serde_json::from_value(object).unwrap();
    for event in [Event::Init, Event::InitApply(Box::new(object)), Event::InitDone] {
        writer.take_in(&event);
    }
    let known: Vec<bool> = store.briefs().iter().map(|(_, brief)| brief.is_degraded).collect();
    assert_eq!(known, [true]);
    let told = |name: &str| store.told_of(&Key::new(Some("n"), name), |brief| brief.is_degraded);
    assert_eq!((told("a"), told("b")), (Some(true), None));
}

/// There are tens of thousands of them.
#[test]
fn little_is_kept_of_an_object_beside_its_text() {
    assert_eq!((size_of::<Key>(), size_of::<Packed<Secret>>()), (16, 16));
    assert!(size_of::<Packed<QuestDB>>() <= 80);
}
