//! What the operator sees of its cluster without asking: our own objects, by label, stripped of what we never read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::core::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt as _};
use plan::{Children, Holder, Rival, Settings, Subject, Validated};
use resources::{QuestDB, names};

use crate::database::address_of;
use crate::given::Given;
use crate::kept::Kept;
use crate::reach::Reach;
use crate::store::{Key, Store};
use crate::watch::{self, Hearing, Indexed, Wiring};

/// Stores of everything watched.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) resources: Store<QuestDB>,
    /// The same by the host of their routes.
    hosts: Indexed<QuestDB>,
    secrets: Store<Secret>,
    configs: Store<ConfigMap>,
    services: Store<Service>,
    stateful_sets: Store<StatefulSet>,
    pods: Store<Pod>,
    hears_pods: Hearing,
    claims: Store<PersistentVolumeClaim>,
    /// By database.
    volumes: Indexed<PersistentVolume>,
    /// By database.
    nodes: Indexed<Node>,
    /// By volume.
    attachments: Indexed<VolumeAttachment>,
    reach: Reach,
    /// Secrets that others made for databases.
    pub(crate) given: Given,
}

/// Databases in a page of a list, twice as many as of any other kind. They are the largest of all objects, and with as many in a page
/// they are the last to be there, while nothing else is left to do: between two pages all other kinds have their turn.
const DATABASES: u32 = 1_000;

impl Caches {
    /// Starts all watches.
    pub(crate) fn start(client: &Client, wiring: &Wiring) -> Self {
        let scope = &wiring.upkeep.scope;
        let ours = &watcher::Config::default().labels(names::LABEL_DATABASE);
        let (databases, all) =
            (&watcher::Config::default().page_size(DATABASES), &watcher::Config::default());
        let volumes = watch::start_indexed(
            wiring,
            watch::clustered(client),
            ours,
            |volume: &PersistentVolume| database(&volume.metadata),
            |volume| owner(&volume.metadata),
        );
        let known = volumes.store.clone();
        let hosts = watch::start_indexed(
            wiring,
            watch::namespaced(client, scope),
            databases,
            plan::host_key,
            |resource: &QuestDB| Some(ObjectRef::from_obj(resource)),
        );
        let resources = hosts.store.clone();
        watch::look_again(wiring, &resources);
        watch::look_at_definitions(client, &wiring.upkeep);
        let pods = watch::namespaced(client, scope);
        Self {
            hears_pods: Hearing::of(&pods),
            reach: Reach::start(client, wiring, &resources),
            given: Given::start(client, wiring),
            resources,
            hosts,
            secrets: children(client, wiring),
            configs: children(client, wiring),
            services: children(client, wiring),
            stateful_sets: children(client, wiring),
            pods: watch::start(wiring, pods, ours, |pod: &Pod| owner(&pod.metadata)),
            claims: children(client, wiring),
            nodes: watch::start_indexed(
                wiring,
                watch::clustered(client),
                ours,
                |node: &Node| database(&node.metadata),
                |node| owner(&node.metadata),
            ),
            // Made by Kubernetes, so without our labels: their volume leads to their owner.
            attachments: watch::start_indexed(
                wiring,
                watch::clustered(client),
                all,
                |attachment: &VolumeAttachment| attachment.spec.source.persistent_volume_name.clone(),
                move |attachment| {
                    let name = attachment.spec.source.persistent_volume_name.as_deref()?;
                    owner(&known.get(&Key::new(None, name))?.metadata)
                },
            ),
            volumes,
        }
    }

    /// Waits until it is known which databases there are in a namespace, and which kinds the cluster has. An error only means
    /// that the program ends.
    pub(crate) async fn ready(&self) -> bool {
        let (resources, kinds) = tokio::join!(self.resources.ready(), self.reach.ready());
        resources && kinds
    }

    /// The resources of these databases.
    pub(crate) fn resources_of(&self, databases: &BTreeSet<String>) -> Vec<Key> {
        if databases.is_empty() {
            return Vec::new();
        }
        self.resources
            .keys_of(|_, brief| brief.settled().is_some_and(|database| databases.contains(database)))
    }

    /// Other resources than this one that name a database, however loosely.
    pub(crate) fn namesakes(&self, resource: &QuestDB, database: &str) -> Vec<Holder> {
        let uid = resource.metadata.uid.as_deref();
        let known = self.resources.briefs();
        let others = known.iter().filter(|(_, other)| other.uid() != uid && other.claims(database));
        others
            .map(|(key, other)| Holder { name: key.to_string(), is_believed: other.is_believed() })
            .collect()
    }

    /// Whether a resource stands for a database by its status.
    pub(crate) fn is_believed(&self, resource: &Key, database: &str) -> bool {
        let told = self.resources.told_of(resource, |brief| brief.claims(database) && brief.is_believed());
        told.unwrap_or_default()
    }

    /// Routes of other databases to the host of this one's, as far as they are seen.
    pub(crate) fn rivals(
        &self,
        resource: &QuestDB,
        validated: &Validated,
        settings: &Settings,
    ) -> Vec<Rival> {
        let keys = plan::host_keys(validated, settings);
        let others: Vec<_> = keys.iter().flat_map(|key| self.hosts.of(key)).collect();
        let route = |kind, name: &str| self.reach.route(kind, &validated.subject.namespace, name);
        plan::rivals((resource, validated), &others, settings, route)
    }

    /// Disks of a database, by their label.
    pub(crate) fn volumes_of(&self, database: &str) -> Vec<Arc<PersistentVolume>> {
        self.volumes.of(database)
    }

    /// Whether one of the disks of a database has its object under the name that we give, made for its resource by its labels.
    pub(crate) fn has_own_volume(&self, subject: &Subject) -> bool {
        let own = Key::new(Some(&subject.namespace), &subject.name);
        self.volumes.any(&subject.database, |made_for| made_for.is(&own))
    }

    /// Nodes of a database, by their label.
    pub(crate) fn nodes_of(&self, database: &str) -> Vec<Arc<Node>> {
        self.nodes.of(database)
    }

    /// The database that has the Node of a name.
    pub(crate) fn database_of_node(&self, name: &str) -> Option<String> {
        database(&self.nodes.store.get(&Key::new(None, name))?.metadata)
    }

    /// The resources that disks and Nodes of a database name.
    pub(crate) fn owners_in_cluster(&self, database: &str) -> Vec<ObjectRef<QuestDB>> {
        let volumes = self.volumes.of(database).into_iter().filter_map(|volume| owner(&volume.metadata));
        let nodes = self.nodes.of(database).into_iter().filter_map(|node| owner(&node.metadata));
        volumes.chain(nodes).collect()
    }

    /// Whether there are credentials of ours under the name of a resource, whosever they are.
    pub(crate) fn has_credentials(&self, resource: &QuestDB) -> bool {
        let name = names::credentials(resource.metadata.name.as_deref().unwrap_or_default());
        self.secrets.has(&Key::new(resource.metadata.namespace.as_deref(), &name))
    }

    /// The version of the credentials of a database; none where there are none.
    pub(crate) fn version_of_credentials(&self, subject: &Subject) -> Option<String> {
        let secret = get(&self.secrets, &names::credentials(&subject.name), &subject.namespace, subject)?;
        secret.metadata.resource_version.clone()
    }

    /// Whether what is seen of the pods of a namespace is what there is, or was within this time.
    pub(crate) fn hears_pods(&self, namespace: &str, within: Duration) -> bool {
        self.hears_pods.is_heard(namespace, (Instant::now(), within))
    }

    /// Where the pod of this uid is reached, as far as it is seen.
    pub(crate) fn address(&self, subject: &Subject, uid: &str) -> Option<IpAddr> {
        let pod = get(&self.pods, &names::pod(&subject.name), &subject.namespace, subject)?;
        address_of(&pod, uid)
    }

    /// What a database was started with.
    pub(crate) fn in_force(&self, subject: &Subject) -> plan::InForce {
        let set = get(&self.stateful_sets, &subject.name, &subject.namespace, subject);
        let pod = get(&self.pods, &names::pod(&subject.name), &subject.namespace, subject);
        plan::InForce::of(set.as_deref(), pod.as_deref())
    }

    /// The objects of one database. An object of its name that is not its own is not among them.
    pub(crate) fn children(&self, subject: &Subject) -> Children {
        let namespace = subject.namespace.as_str();
        Children {
            config: get(&self.configs, &names::config(&subject.name), namespace, subject),
            claim: get(&self.claims, &names::claim(&subject.name), namespace, subject),
            ..self.resting_children(subject)
        }
    }

    /// The same without those that nothing rests on while it is paused ([`plan::rests_on_all`]): what nobody reads is not unpacked.
    pub(crate) fn resting_children(&self, subject: &Subject) -> Children {
        let namespace = subject.namespace.as_str();
        let mut persistent_volumes = self.volumes.of(&subject.database);
        persistent_volumes.retain(|volume| subject.owns(volume.metadata.labels.as_ref()));
        let mut nodes = self.nodes.of(&subject.database);
        nodes.retain(|node| node.labels().get(names::LABEL_DATABASE) == Some(&subject.database));
        let attachments =
            persistent_volumes.iter().flat_map(|volume| self.attachments.of(&volume.name_any())).collect();
        let mut children = Children {
            secret: get(&self.secrets, &names::credentials(&subject.name), namespace, subject),
            service: get(&self.services, &subject.name, namespace, subject),
            headless: get(&self.services, &names::headless(&subject.name), namespace, subject),
            stateful_set: get(&self.stateful_sets, &subject.name, namespace, subject),
            pod: get(&self.pods, &names::pod(&subject.name), namespace, subject),
            nodes,
            attachments,
            persistent_volumes,
            ..Children::default()
        };
        self.reach.fill(&mut children, subject);
        children
    }
}

/// Watches a kind of our own objects, which lie beside their resources.
pub(crate) fn children<K>(client: &Client, wiring: &Wiring) -> Store<K>
where
    K: Kept + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let sources = watch::namespaced(client, &wiring.upkeep.scope);
    let ours = watcher::Config::default().labels(names::LABEL_DATABASE);
    watch::start(wiring, sources, &ours, |object: &K| owner(object.meta()))
}

fn get<K: Kept>(store: &Store<K>, name: &str, namespace: &str, subject: &Subject) -> Option<Arc<K>> {
    let found = store.get(&Key::new(Some(namespace), name))?;
    subject.holds(found.meta()).then_some(found)
}

/// The database that an object's labels name.
fn database(metadata: &ObjectMeta) -> Option<String> {
    metadata.labels.as_ref()?.get(names::LABEL_DATABASE).cloned()
}

/// The resource that an object's labels name.
pub(crate) fn owner(metadata: &ObjectMeta) -> Option<ObjectRef<QuestDB>> {
    let labels = metadata.labels.as_ref()?;
    let name = labels.get(names::LABEL_NAME)?;
    let namespace = labels.get(names::LABEL_NAMESPACE)?;
    Some(ObjectRef::new(name).within(namespace))
}
