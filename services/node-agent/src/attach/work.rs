//! One step of one attachment: ask EC2 where it stands, do the next thing, write it down.

use std::collections::BTreeMap;

use cloud::{AttachmentState, InstanceId, Select, Volume, VolumeId};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::Attacher;
use super::decide::{self, FINALIZER, NODE_ID, Need};
use crate::api::{self, call, found};
use crate::disks;
use crate::manifest::{self, DRIVER};

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more to do.
    Done,
    /// EC2 or the cache needs a moment.
    Later,
    /// Its Node is not there, or is not one of ours.
    Aside,
}

/// Why a step did not come further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("cannot keep a VolumeAttachment")]
    Api(#[source] api::Error),
    /// EC2.
    #[error("cannot attach or detach volume {volume}")]
    Cloud {
        /// The volume.
        volume: VolumeId,
        /// Why not.
        #[source]
        source: cloud::Error,
    },
    /// The volume cannot be found out.
    #[error("persistent volume {0:?} is not there or not one of EBS")]
    Volume(String),
    /// The volume is somewhere else.
    #[error("volume {volume} is {state} for {instance}")]
    Elsewhere {
        /// The volume.
        volume: VolumeId,
        /// Where it is.
        instance: InstanceId,
        /// How.
        state: String,
    },
    /// EC2 does not know the volume (yet).
    #[error("EC2 does not know volume {0}")]
    Unknown(VolumeId),
    /// The instance has no device name left.
    #[error("instance {0} has no free device name")]
    Full(InstanceId),
}

impl Attacher {
    /// Does the next thing.
    pub(super) async fn step(&self, attachment: &VolumeAttachment) -> Result<Progress, Error> {
        match decide::need(attachment) {
            Need::Attach => self.attach(attachment).await,
            Need::Detach => self.detach(attachment).await,
            Need::Nothing => Ok(Progress::Done),
        }
    }

    /// Writes an error where the attach-detach controller looks for it. Best effort.
    pub(super) async fn report_error(&self, attachment: &VolumeAttachment, error: &Error) {
        let field = match decide::need(attachment) {
            Need::Detach => "detachError",
            Need::Attach | Need::Nothing => "attachError",
        };
        let error = serde_json::json!({"message": api::chain(error), "time": Time(Timestamp::now())});
        let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let patch = serde_json::json!({"status": {"attached": attached, field: error}});
        if let Err(error) = self.patch_status(attachment, &patch).await {
            tracing::warn!("{}", api::chain(&error));
        }
    }

    async fn attach(&self, attachment: &VolumeAttachment) -> Result<Progress, Error> {
        let Some(instance) = self.instance_of_node(&attachment.spec.node_name).await? else {
            return Ok(Progress::Aside);
        };
        let volume = self.volume(attachment).await?;
        let noted = decide::noted_instance(attachment);
        if noted.as_ref() != Some(&instance) || !decide::has_finalizer(attachment) {
            // The next look, at an object that carries both, goes on from here.
            self.note(attachment, &instance).await?;
            return Ok(Progress::Later);
        }
        let described = self.describe(&volume).await?.ok_or_else(|| Error::Unknown(volume.clone()))?;
        match disks::attachment(&described, &instance) {
            Some(AttachmentState::Attached) => self.report_attached(attachment, &described, &instance).await,
            Some(_) => Ok(Progress::Later),
            None => match described.live_attachments().next() {
                Some(other) => Err(Error::Elsewhere {
                    volume,
                    instance: other.instance.clone(),
                    state: other.state.to_string(),
                }),
                None => self.ask_for_attachment(&volume, &instance).await,
            },
        }
    }

    async fn ask_for_attachment(&self, volume: &VolumeId, instance: &InstanceId) -> Result<Progress, Error> {
        let failed = |source| Error::Cloud { volume: volume.clone(), source };
        let _turn = self.devices.lock().await;
        let all = Select::cluster(&self.context.settings.cluster);
        let volumes = self.context.cloud.describe_volumes(&all).await.map_err(failed)?;
        let device = decide::device(&volumes, instance).ok_or_else(|| Error::Full(instance.clone()))?;
        let asked = match self.context.cloud.attach_volume(volume, instance, &device).await {
            // What was described was old. The next description tells where it is.
            Err(cloud::Error::InUse { .. }) => return Ok(Progress::Later),
            other => other.map_err(failed)?,
        };
        tracing::info!(volume.id = %volume, instance.id = %instance, device, state = %asked.state, "attaching a volume");
        Ok(Progress::Later)
    }

    async fn report_attached(
        &self,
        attachment: &VolumeAttachment,
        described: &Volume,
        instance: &InstanceId,
    ) -> Result<Progress, Error> {
        let device = described.live_attachments().find(|found| found.instance == *instance);
        let metadata = device.map(|found| BTreeMap::from([("devicePath", found.device.as_str())]));
        let patch = serde_json::json!({"status": {
            "attached": true, "attachmentMetadata": metadata, "attachError": null, "detachError": null,
        }});
        self.patch_status(attachment, &patch).await?;
        self.context.counts.attached.inc();
        tracing::info!(volume.id = %described.id, instance.id = %instance, "a volume is attached");
        Ok(Progress::Done)
    }

    async fn detach(&self, attachment: &VolumeAttachment) -> Result<Progress, Error> {
        let Some(instance) = decide::noted_instance(attachment) else { return Ok(Progress::Done) };
        let volume = self.volume(attachment).await?;
        let refused = self.context.cloud.detach_volume(&volume, &instance).await.err();
        match refused {
            None => tracing::info!(volume.id = %volume, instance.id = %instance, "detaching a volume"),
            Some(cloud::Error::NotFound { .. } | cloud::Error::IncorrectState { .. }) => {}
            Some(source) => return Err(Error::Cloud { volume, source }),
        }
        // Even "not attached" is asked about: `detaching` is refused in the same words.
        match self.describe(&volume).await? {
            Some(described) if disks::attachment(&described, &instance).is_some() => Ok(Progress::Later),
            _ => self.let_go(attachment).await,
        }
    }

    async fn let_go(&self, attachment: &VolumeAttachment) -> Result<Progress, Error> {
        let finalizers = attachment.metadata.finalizers.iter().flatten();
        let rest: Vec<_> = finalizers.filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = serde_json::json!({"metadata": {
            "resourceVersion": attachment.metadata.resource_version, "finalizers": rest,
        }});
        if !self.patch(attachment, &patch).await? {
            return Ok(Progress::Later);
        }
        self.context.counts.detached.inc();
        tracing::info!(attachment.name = attachment.metadata.name, "a volume is detached");
        Ok(Progress::Done)
    }

    async fn note(&self, attachment: &VolumeAttachment, instance: &InstanceId) -> Result<(), Error> {
        let finalizers = attachment.metadata.finalizers.iter().flatten().map(String::as_str);
        let rest = finalizers.filter(|finalizer| *finalizer != FINALIZER);
        let finalizers: Vec<&str> = rest.chain([FINALIZER]).collect();
        let patch = serde_json::json!({"metadata": {
            "resourceVersion": attachment.metadata.resource_version,
            "finalizers": finalizers,
            "annotations": {NODE_ID: instance.as_str()},
        }});
        self.patch(attachment, &patch).await.map(|_| ())
    }

    /// A conflict or an absence means that the cache is behind, and the next look tells: then nothing was done.
    async fn patch(&self, attachment: &VolumeAttachment, patch: &serde_json::Value) -> Result<bool, Error> {
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        let (attachments, parameters, patch) =
            (self.attachments(), PatchParams::default(), Patch::Merge(patch));
        let patched = attachments.patch(name, &parameters, &patch);
        match found(call("patch a VolumeAttachment", patched).await) {
            Err(error) if error.is_conflict() => Ok(false),
            other => other.map(|found| found.is_some()).map_err(Error::Api),
        }
    }

    async fn patch_status(
        &self,
        attachment: &VolumeAttachment,
        patch: &serde_json::Value,
    ) -> Result<(), Error> {
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        let (attachments, parameters, patch) =
            (self.attachments(), PatchParams::default(), Patch::Merge(patch));
        let patched = attachments.patch_status(name, &parameters, &patch);
        found(call("patch a VolumeAttachment's status", patched).await).map(|_| ()).map_err(Error::Api)
    }

    async fn volume(&self, attachment: &VolumeAttachment) -> Result<VolumeId, Error> {
        let name = attachment.spec.source.persistent_volume_name.clone().unwrap_or_default();
        let volumes = Api::<PersistentVolume>::all(self.context.client.clone());
        let volume = found(call("get a persistent volume", volumes.get(&name)).await).map_err(Error::Api)?;
        let source = volume.and_then(|volume| volume.spec).and_then(|spec| spec.csi);
        match source.filter(|source| source.driver == DRIVER) {
            Some(source) => Ok(VolumeId::new(source.volume_handle)),
            None => Err(Error::Volume(name)),
        }
    }

    /// `None` for a Node that an agent of this cluster did not register.
    async fn instance_of_node(&self, name: &str) -> Result<Option<InstanceId>, Error> {
        let nodes = Api::<Node>::all(self.context.client.clone());
        let node = found(call("get a node", nodes.get(name)).await).map_err(Error::Api)?;
        let ours = node.filter(|node| {
            let annotations = node.metadata.annotations.as_ref();
            let owner = annotations.and_then(|annotations| annotations.get(manifest::MANAGED_BY));
            owner == Some(&self.context.settings.cluster)
        });
        let provider_id = ours.and_then(|node| node.spec).and_then(|spec| spec.provider_id);
        Ok(provider_id.as_deref().and_then(manifest::instance_of_provider_id).map(InstanceId::from))
    }

    async fn describe(&self, volume: &VolumeId) -> Result<Option<Volume>, Error> {
        let described = self.context.cloud.describe_volumes(&Select::one(volume.clone())).await;
        let described = described.map_err(|source| Error::Cloud { volume: volume.clone(), source })?;
        Ok(described.into_iter().find(|found| found.id == *volume))
    }

    fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.context.client.clone())
    }
}
