//! How much of each kind of object is kept in memory: what somebody here reads, and of what is not ours nothing at all.
//!
//! Whoever begins to read another field of a kept object takes its line out here. What is compared with our intention
//! (`ConfigMap`, Services, the `StatefulSet`, claims, `PersistentVolume`s) is kept whole.

pub(crate) mod brief;

use std::fmt::Debug;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, NodeStatus, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, PodStatus, Secret,
    Service,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use resources::{QuestDB, QuestDBSnapshot, QuestDBSnapshotSchedule, Readable, Seen, names};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::brief::{Brief, MadeFor};
use crate::watch::boxed::{self, Boxed};
use crate::watch::{self, Anew};

/// What a watch tells, with its objects in boxes.
pub(crate) type Told<K> = Result<Event<Box<K>>, watcher::Error>;

/// A kind of object that is watched.
pub(crate) trait Kept:
    Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What is known of an object without unpacking it.
    type Brief: Brief<Self>;

    /// Whether it is a database itself: whose it is never changes, as it may with what labels say.
    const IS_DATABASE: bool = false;

    fn brief(&self) -> Self::Brief {
        Brief::of(self)
    }

    /// A watch of the kind in a place; none is the whole cluster.
    fn watched(
        api: Api<Boxed<Self>>,
        _place: Option<&str>,
        config: watcher::Config,
        anew: Anew,
    ) -> BoxStream<'static, Told<Self>> {
        let told = watch::begin(api, config, anew);
        told.map(|told| told.map(|event| boxed::of(event, |boxed| boxed.0))).boxed()
    }

    /// Takes away what nobody reads.
    fn strip(&mut self) {}

    /// Whether it may be ours. What is not is never stored; it must never change its mind.
    fn is_ours(&self) -> bool {
        true
    }
}

/// A kind of our own. One that cannot be read in whole is kept as far as it can, and says so ([`resources::unread`]): else a single
/// one would hide all others of its place.
pub(crate) trait Own:
    Readable
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// As in [`Kept`].
    type Brief: Brief<Self>;

    /// As in [`Kept`].
    const IS_DATABASE: bool = false;
}

impl Own for QuestDB {
    type Brief = brief::Database;
    const IS_DATABASE: bool = true;
}

impl Own for QuestDBSnapshot {
    type Brief = brief::Uid;
}

impl Own for QuestDBSnapshotSchedule {
    type Brief = brief::Schedule;
}

impl<K: Own> Kept for K {
    type Brief = <K as Own>::Brief;
    const IS_DATABASE: bool = <K as Own>::IS_DATABASE;

    fn watched(
        api: Api<Boxed<Self>>,
        place: Option<&str>,
        config: watcher::Config,
        anew: Anew,
    ) -> BoxStream<'static, Told<Self>> {
        let client = api.into_client();
        let api: Api<Seen<K>> = match place {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let told = watch::begin(api, config, anew);
        told.map(|told| told.map(|event| boxed::of(event, |seen| seen.marked()))).boxed()
    }
}

impl Kept for ConfigMap {
    type Brief = ();
}

impl Kept for Service {
    type Brief = ();
}

impl Kept for StatefulSet {
    type Brief = ();
}

impl Kept for PersistentVolumeClaim {
    type Brief = ();
}

impl Kept for PersistentVolume {
    type Brief = MadeFor;
}

impl Kept for Secret {
    type Brief = ();

    /// That a key is there is what counts, and whether all is as it was written; a value is read live by whoever needs it.
    fn strip(&mut self) {
        plan::secrets::judge(self);
        for value in self.data.iter_mut().flat_map(|data| data.values_mut()) {
            *value = ByteString::default();
        }
        let said = [
            names::SECRET_OF,
            names::RESOURCE,
            names::secret::TYPE,
            names::secret::TAKEN_FROM,
            names::secret::REVISION,
            plan::secrets::IN_DOUBT,
        ];
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.retain(|key, _| said.contains(&key.as_str()));
        }
    }
}

impl Kept for Pod {
    type Brief = ();

    fn strip(&mut self) {
        if let Some(spec) = self.spec.take() {
            self.spec = Some(PodSpec { node_name: spec.node_name, ..PodSpec::default() });
        }
        if let Some(status) = self.status.take() {
            self.status = Some(PodStatus {
                conditions: status.conditions,
                container_statuses: status.container_statuses,
                init_container_statuses: status.init_container_statuses,
                phase: status.phase,
                pod_ip: status.pod_ip,
                ..PodStatus::default()
            });
        }
    }
}

impl Kept for Node {
    type Brief = ();

    fn strip(&mut self) {
        self.metadata.annotations = None;
        if let Some(status) = self.status.take() {
            self.status = Some(NodeStatus {
                conditions: status.conditions,
                addresses: status.addresses,
                ..NodeStatus::default()
            });
        }
    }
}

impl Kept for VolumeAttachment {
    type Brief = ();

    fn strip(&mut self) {
        self.metadata.annotations = None;
        self.spec.source.inline_volume_spec = None;
        self.status = None;
    }

    /// Made by Kubernetes for everybody's volumes; ours are told by their name, which cannot change.
    fn is_ours(&self) -> bool {
        let volume = self.spec.source.persistent_volume_name.as_deref();
        volume.is_some_and(|volume| volume.starts_with(&names::persistent_volume("")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use runtime::CancellationToken;
    use runtime::health::Readiness;
    use serde_json::{Value, json};

    use super::*;
    use crate::played::{self, Answer};
    use crate::scope::Scope;
    use crate::store::Key;
    use crate::watch::{Upkeep, Watches};

    /// A server that lists these objects of a kind and then says nothing more.
    fn listing(kind: &'static str, objects: Value) -> kube::Client {
        let list = move || played::list(kind, "crd.questdb.io/v1", &objects);
        played::client(move |_, watches| if watches { Answer::Silence } else { list() })
    }

    /// What is kept of a list of `newer`, which cannot be read for a `word`, and `plain`.
    async fn kept<K>(scope: Scope, both: [Value; 2], word: &str)
    where
        K: Kept + Readable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let named = |name: &str, mut object: Value| {
            object["metadata"] = json!({ "name": name, "namespace": "n" });
            object
        };
        let [newer, plain] = both;
        let kind = K::kind(&()).into_owned();
        let client = listing(kind.leak(), json!([named("newer", newer), named("plain", plain)]));
        let (stop, metrics) = (CancellationToken::new(), runtime::Metrics::default());
        let watches = Watches::new(&metrics, &Readiness::default(), &scope, String::new());
        let upkeep = Upkeep::played(watches, scope, &stop);
        let sources = watch::namespaced::<Boxed<K>>(&client, &upkeep.scope);
        let config = watcher::Config::default();
        let store = watch::keep(&upkeep, sources, &config, |_| std::future::ready(()));
        let ready = tokio::time::timeout(Duration::from_secs(30), store.ready()).await;
        assert_eq!(ready, Ok(true), "the list is not taken in");
        let found = |name| store.get(&Key::new(Some("n"), name)).expect("it is kept");
        assert!(resources::unread(found("newer").meta()).is_some_and(|why| why.contains(word)));
        assert_eq!(resources::unread(found("plain").meta()), None);
        stop.cancel();
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_hides_no_other() {
        let database = |state: &str| json!({ "spec": { "runState": state, "storage": { "sizeGib": 20 } } });
        let snapshot = |policy: &str| json!({ "spec": { "database": "d", "deletionPolicy": policy } });
        let schedule = |suspend: Value| json!({ "spec": { "database": "d", "schedule": "0 * * * *", "suspend": suspend } });
        for scope in [Scope::All, Scope::of(&["n".to_owned()])] {
            let databases = ["Hibernating", "Running"].map(database);
            kept::<QuestDB>(scope.clone(), databases, "Hibernating").await;
            kept::<QuestDBSnapshot>(scope.clone(), ["Archive", "Retain"].map(snapshot), "Archive").await;
            let schedules = [json!("at night"), json!(true)].map(schedule);
            kept::<QuestDBSnapshotSchedule>(scope, schedules, "at night").await;
        }
    }

    fn stripped<K: Kept>(object: Value) -> Value {
        let mut object: K = serde_json::from_value(object).unwrap();
        object.strip();
        serde_json::to_value(object).unwrap()
    }

    /// What says why a start fails.
    fn container(name: &str) -> Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        })
    }

    #[test]
    fn no_password_and_nothing_large_is_kept() {
        let annotations = json!({ names::RESOURCE: "uid-1", "example.com/large": "x" });
        let secret =
            json!({ "metadata": { "annotations": annotations }, "data": { "pg-password": "c2VjcmV0" } });
        let secret = stripped::<Secret>(secret);
        assert_eq!(secret["data"], json!({ "pg-password": "" }));
        let doubted = json!({ names::RESOURCE: "uid-1", plan::secrets::IN_DOUBT: "true" });
        assert_eq!(secret["metadata"]["annotations"], doubted, "it has no copy of what it holds");
        let node = stripped::<Node>(json!({
            "metadata": { "name": "n", "labels": { "a": "b" }, "annotations": { "a": "b" } },
            "spec": { "providerID": "aws:///z/i-1", "unschedulable": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "images": [{ "names": ["large"] }] },
        }));
        assert_eq!(node["spec"], json!({ "providerID": "aws:///z/i-1", "unschedulable": true }));
        assert_eq!(node["status"], json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
        assert_eq!(node["metadata"], json!({ "name": "n", "labels": { "a": "b" } }));
        let pod = stripped::<Pod>(json!({
            "metadata": { "annotations": { "crd.questdb.io/checksum": "c" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "questdb" }] },
            "status": {
                "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }],
                "initContainerStatuses": [container("link-config")], "containerStatuses": [container("questdb")],
            },
        }));
        assert_eq!(pod["spec"], json!({ "containers": [], "nodeName": "n" }));
        assert_eq!(pod["metadata"]["annotations"]["crd.questdb.io/checksum"], "c");
        assert_eq!(
            pod["status"],
            json!({
                "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }],
                "initContainerStatuses": [container("link-config")], "containerStatuses": [container("questdb")],
            })
        );
    }

    #[test]
    fn of_credentials_it_is_kept_whether_they_are_as_they_were_written() {
        let said = |hand: fn(&mut Value)| {
            let values = json!({ "pg-user": "YQ==", "pg-password": "c2VjcmV0" });
            let copied: BTreeMap<String, ByteString> = serde_json::from_value(values.clone()).unwrap();
            let mut secret = json!({ "metadata": { "annotations": { names::secret::REVISION: "r" } } });
            secret["data"] = values;
            secret["data"][names::secret::WRITTEN] = json!(plan::secrets::copy(Some("r"), copied));
            hand(&mut secret);
            let kept = stripped::<Secret>(secret);
            let mut values = kept["data"].as_object().unwrap().values();
            assert!(values.all(|value| value == ""), "{kept}");
            kept["metadata"]["annotations"].clone()
        };
        let plain = json!({ names::secret::REVISION: "r" });
        assert_eq!(said(|_| {}), plain);
        assert_eq!(said(|secret| secret["data"]["theirs"] = json!("YQ==")), plain, "it is not ours");
        let hands: [fn(&mut Value); 5] = [
            |secret| secret["data"]["pg-password"] = json!("eA=="),
            |secret| drop(secret["data"].as_object_mut().unwrap().remove("pg-user")),
            |secret| drop(secret["data"].as_object_mut().unwrap().remove(names::secret::WRITTEN)),
            |secret| secret["data"][names::secret::WRITTEN] = json!("eA=="),
            |secret| secret["metadata"]["annotations"][names::secret::REVISION] = json!("s"),
        ];
        for (number, hand) in hands.into_iter().enumerate() {
            let found = said(hand);
            assert_eq!(found[plan::secrets::IN_DOUBT], "true", "{number}: {found}");
        }
    }

    #[test]
    fn attachments_of_others_are_not_ours() {
        let check = |volume: Value, expected: bool| {
            let attachment: VolumeAttachment = serde_json::from_value(json!({
                "spec": { "attacher": "ebs.csi.aws.com", "nodeName": "n", "source": volume },
            }))
            .unwrap();
            assert_eq!(attachment.is_ours(), expected, "{volume}");
        };
        check(json!({ "persistentVolumeName": names::persistent_volume("vol-1") }), true);
        check(json!({ "persistentVolumeName": "pvc-1" }), false);
        check(json!({}), false);
    }
}
