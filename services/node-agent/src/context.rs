//! What every part of the running agent shares: settings, clients, and caches of the objects that pods name.

use std::sync::Arc;
use std::time::Duration;

use cloud::Cloud;
use k8s_openapi::api::core::v1::{
    ConfigMap, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, Secret,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource};

use crate::disks::Disks;
use crate::metrics::Counts;
use crate::pod::content::Objects;
use crate::process::Processes;
use crate::settings::Settings;

/// Longest wait for an event to be taken. They are best effort.
const EVENT_DEADLINE: Duration = Duration::from_secs(5);

/// The ways out.
#[derive(Clone)]
pub struct Clients {
    /// The cluster's API server.
    pub client: Client,
    /// EC2.
    pub cloud: Arc<dyn Cloud>,
    /// Probes and the control API.
    pub http: reqwest::Client,
}

/// Caches kept by watches.
#[derive(Clone, Debug)]
pub struct Caches {
    /// `ConfigMaps` of the cluster.
    pub config_maps: Store<ConfigMap>,
    /// Secrets of the cluster.
    pub secrets: Store<Secret>,
    /// Attachments of the cluster.
    pub attachments: Store<VolumeAttachment>,
    /// Disks as the cluster knows them.
    pub volumes: Store<PersistentVolume>,
    /// Claims on them.
    pub claims: Store<PersistentVolumeClaim>,
}

/// Shared by all tasks.
#[derive(Clone)]
pub struct Context {
    /// Settings.
    pub settings: Arc<Settings>,
    /// The cluster's API server.
    pub client: Client,
    /// EC2.
    pub cloud: Arc<dyn Cloud>,
    /// Objects that pods name.
    pub caches: Caches,
    /// Volumes in use.
    pub disks: Disks,
    /// Processes by directory.
    pub processes: Processes,
    /// For probes.
    pub http: reqwest::Client,
    /// What is counted.
    pub counts: Counts,
    recorder: Recorder,
}

impl Context {
    /// From its parts.
    pub fn new(settings: Settings, clients: Clients, caches: Caches, counts: Counts) -> Self {
        let Clients { client, cloud, http } = clients;
        let reporter = Reporter {
            controller: "slipway-node-agent".to_owned(),
            instance: Some(format!("slipway-node-agent-{}", settings.cluster)),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            settings: Arc::new(settings),
            client,
            cloud,
            caches,
            disks: Disks::default(),
            processes: Processes,
            http,
            counts,
        }
    }

    /// Tells an event about a pod, without waiting and without minding if it is lost.
    pub fn tell(&self, pod: &Pod, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(900).collect()),
            action: reason.to_owned(),
            secondary: None,
        };
        let reference: ObjectReference = pod.object_ref(&());
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            let published = tokio::time::timeout(EVENT_DEADLINE, recorder.publish(&event, &reference)).await;
            if !matches!(published, Ok(Ok(()))) {
                tracing::debug!(event.reason = event.reason, "an event was lost");
            }
        });
    }

    /// `ConfigMaps` and Secrets of one namespace.
    pub fn objects<'a>(&'a self, namespace: &'a str) -> NamespaceObjects<'a> {
        NamespaceObjects { caches: &self.caches, namespace }
    }
}

/// `ConfigMaps` and Secrets of one namespace, from the caches.
#[derive(Debug)]
pub struct NamespaceObjects<'a> {
    caches: &'a Caches,
    namespace: &'a str,
}

impl Objects for NamespaceObjects<'_> {
    fn config_map(&self, name: &str) -> Option<ConfigMap> {
        let found = self.caches.config_maps.get(&ObjectRef::new(name).within(self.namespace));
        found.map(|found| (*found).clone())
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        let found = self.caches.secrets.get(&ObjectRef::new(name).within(self.namespace));
        found.map(|found| (*found).clone())
    }
}
