//! What the operator sees of its cluster without asking: our own objects, by label, stripped of what we never read.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::core::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use plan::{Children, Subject};
use resources::{QuestDB, names};

use crate::watch::{self, Wiring};

/// Stores of everything watched.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) resources: Store<QuestDB>,
    secrets: Store<Secret>,
    configs: Store<ConfigMap>,
    services: Store<Service>,
    stateful_sets: Store<StatefulSet>,
    pods: Store<Pod>,
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    nodes: Store<Node>,
    attachments: Store<VolumeAttachment>,
}

impl Caches {
    /// Starts all watches; resources of one namespace only, if one is named.
    pub(crate) fn start(client: &Client, wiring: &Wiring, namespace: Option<&str>) -> Self {
        let ours = || watcher::Config::default().labels(names::LABEL_DATABASE);
        let all = watcher::Config::default;
        let volumes = watch::start(wiring, Api::all(client.clone()), ours(), |volume: &PersistentVolume| {
            owner(&volume.metadata)
        });
        let known = volumes.clone();
        let resources = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        Self {
            resources: watch::start(wiring, resources, all(), |resource: &QuestDB| {
                Some(ObjectRef::from_obj(resource))
            }),
            secrets: watch::start(wiring, Api::all(client.clone()), ours(), |object: &Secret| {
                owner(&object.metadata)
            }),
            configs: watch::start(wiring, Api::all(client.clone()), ours(), |object: &ConfigMap| {
                owner(&object.metadata)
            }),
            services: watch::start(wiring, Api::all(client.clone()), ours(), |object: &Service| {
                owner(&object.metadata)
            }),
            stateful_sets: watch::start(wiring, Api::all(client.clone()), ours(), |object: &StatefulSet| {
                owner(&object.metadata)
            }),
            pods: watch::start(wiring, Api::all(client.clone()), ours(), |object: &Pod| {
                owner(&object.metadata)
            }),
            claims: watch::start(
                wiring,
                Api::all(client.clone()),
                ours(),
                |object: &PersistentVolumeClaim| owner(&object.metadata),
            ),
            nodes: watch::start(wiring, Api::all(client.clone()), ours(), |node: &Node| {
                owner(&node.metadata)
            }),
            // Made by Kubernetes, so without our labels: their volume leads to their owner.
            attachments: watch::start(
                wiring,
                Api::all(client.clone()),
                all(),
                move |attachment: &VolumeAttachment| {
                    let name = attachment.spec.source.persistent_volume_name.as_deref()?;
                    owner(&known.get(&ObjectRef::new(name))?.metadata)
                },
            ),
            volumes,
        }
    }

    /// Waits until every store has been filled once. An error only means that the program ends.
    pub(crate) async fn ready(&self) -> bool {
        let waits = tokio::join!(
            self.resources.wait_until_ready(),
            self.secrets.wait_until_ready(),
            self.configs.wait_until_ready(),
            self.services.wait_until_ready(),
            self.stateful_sets.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.claims.wait_until_ready(),
            self.volumes.wait_until_ready(),
            self.nodes.wait_until_ready(),
            self.attachments.wait_until_ready(),
        );
        let (resources, secrets, configs, services, sets, pods, claims, volumes, nodes, attachments) = waits;
        [resources, secrets, configs, services, sets, pods, claims, volumes, nodes, attachments]
            .iter()
            .all(Result::is_ok)
    }

    /// The objects of one database. An object of its name that is not its own is not among them.
    pub(crate) fn children(&self, subject: &Subject) -> Children {
        let namespace = subject.namespace.as_str();
        let own = |labels: &Option<BTreeMap<String, String>>| subject.owns(labels.as_ref());
        let persistent_volumes = self.volumes.state_filter(|volume| own(&volume.metadata.labels));
        let named: Vec<&str> =
            persistent_volumes.iter().filter_map(|volume| volume.metadata.name.as_deref()).collect();
        let attachments = self.attachments.state_filter(|attachment| {
            attachment.spec.source.persistent_volume_name.as_deref().is_some_and(|name| named.contains(&name))
        });
        Children {
            secret: get(&self.secrets, &names::credentials(&subject.name), namespace, subject),
            config: get(&self.configs, &names::config(&subject.name), namespace, subject),
            service: get(&self.services, &subject.name, namespace, subject),
            headless: get(&self.services, &names::headless(&subject.name), namespace, subject),
            stateful_set: get(&self.stateful_sets, &subject.name, namespace, subject),
            pod: get(&self.pods, &names::pod(&subject.name), namespace, subject),
            claim: get(&self.claims, &names::claim(&subject.name), namespace, subject),
            nodes: self
                .nodes
                .state_filter(|node| node.labels().get(names::LABEL_DATABASE) == Some(&subject.database)),
            attachments,
            persistent_volumes,
        }
    }
}

fn get<K>(store: &Store<K>, name: &str, namespace: &str, subject: &Subject) -> Option<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone,
{
    let found = store.get(&ObjectRef::new(name).within(namespace))?;
    subject.owns(found.meta().labels.as_ref()).then_some(found)
}

/// The resource that an object's labels name.
fn owner(metadata: &ObjectMeta) -> Option<ObjectRef<QuestDB>> {
    let labels = metadata.labels.as_ref()?;
    let name = labels.get(names::LABEL_NAME)?;
    let namespace = labels.get(names::LABEL_NAMESPACE)?;
    Some(ObjectRef::new(name).within(namespace))
}
