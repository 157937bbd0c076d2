//! Steps as data: what can be done.

mod brings;

use std::collections::BTreeMap;

use cloud::{IngressRule, InstanceId, Launch, NewSecurityGroup, NewVolume, RecordChange, SecurityGroupId};
use cloud::{SnapshotId, Tags, VolumeChange, VolumeId};
use kube::core::ObjectMeta;
use serde_json::Value;

use crate::secrets::NewCredentials;
use crate::{Led, Left, PodSeen, Reload};

/// Kinds of Kubernetes objects that the operator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Credentials.
    Secret,
    /// server.conf.
    ConfigMap,
    /// Names within the cluster.
    Service,
    /// The pod's keeper.
    StatefulSet,
    /// The pod.
    Pod,
    /// The disk as Kubernetes knows it.
    PersistentVolume,
    /// The pod's hold on the disk.
    PersistentVolumeClaim,
    /// The machine as Kubernetes knows it.
    Node,
    /// Who may come in.
    NetworkPolicy,
    /// What keeps a drain from the pod.
    PodDisruptionBudget,
    /// Prometheus' operator's, by Service.
    ServiceMonitor,
    /// Prometheus' operator's, by pod.
    PodMonitor,
    /// Traefik's, for HTTP.
    IngressRoute,
    /// Traefik's, for TCP.
    IngressRouteTcp,
    /// A copy of the disk.
    Snapshot,
}

impl Kind {
    /// Its name in Kubernetes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::StatefulSet => "StatefulSet",
            Self::Pod => "Pod",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Node => "Node",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::ServiceMonitor => "ServiceMonitor",
            Self::PodMonitor => "PodMonitor",
            Self::IngressRoute => "IngressRoute",
            Self::IngressRouteTcp => "IngressRouteTCP",
            Self::Snapshot => "QuestDBSnapshot",
        }
    }

    /// Group, version and plural of a kind that is not Kubernetes' own, so that a cluster may lack it.
    pub const fn definition(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::ServiceMonitor => Some(("monitoring.coreos.com", "v1", "servicemonitors")),
            Self::PodMonitor => Some(("monitoring.coreos.com", "v1", "podmonitors")),
            Self::IngressRoute => Some(("traefik.io", "v1alpha1", "ingressroutes")),
            Self::IngressRouteTcp => Some(("traefik.io", "v1alpha1", "ingressroutetcps")),
            Self::Secret
            | Self::ConfigMap
            | Self::Service
            | Self::StatefulSet
            | Self::Pod
            | Self::PersistentVolume
            | Self::PersistentVolumeClaim
            | Self::Node
            | Self::NetworkPolicy
            | Self::PodDisruptionBudget
            | Self::Snapshot => None,
        }
    }

    /// Fields in which nothing of others may stand beside ours, because more would mean something else: each is one value
    /// with one owner.
    pub(crate) const fn whole_fields(self) -> &'static [&'static str] {
        match self {
            Self::NetworkPolicy => &["/spec"],
            Self::PodDisruptionBudget | Self::Service => &["/spec/selector"],
            _ => &[],
        }
    }
}

/// An object as we intend it: our fields and no others.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Kind.
    pub kind: Kind,
    /// Namespace; `None` for what belongs to the whole cluster.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The object.
    pub body: Value,
    /// Uid of the object to change; `None` when there must be none yet.
    pub uid: Option<String>,
}

/// An object to delete: exactly the one that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind.
    pub kind: Kind,
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Version at which it was decided.
    pub resource_version: Option<String>,
    /// Without waiting for anybody's word that it has ended: its machine is proved to be down.
    pub at_once: bool,
    /// How the pod was seen that goes along, where it decides what becomes of the database: the object goes only while it is still so.
    pub pod: Option<PodSeen>,
}

impl Target {
    /// The object of this kind with this metadata, at whatever version.
    pub(crate) fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: None,
            at_once: false,
            pod: None,
        }
    }
}

/// Something to do. Each can be done twice.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Hold the resource until everything is gone, and say beside whose it is.
    AddFinalizer {
        /// Identity of the database, for the annotation of a resource without an instruction.
        identity: Option<String>,
    },
    /// Write down which machine is about to be launched, before it is.
    WriteGeneration {
        /// Generation.
        generation: u64,
        /// Hash of the launch parameters.
        launch: String,
        /// Zone.
        zone: String,
        /// The machine that serves on beside it, until the database has moved.
        beside: Option<InstanceId>,
    },
    /// Make credentials, unless there are some.
    CreateSecret(Manifest),
    /// Draw the key of this id, and hand its private half out in this Secret, unless that is there.
    DrawKey(Manifest, String),
    /// Delete the Secret in which a key was to be handed out, if it is there: nobody has noted whether it was.
    RevokeKey(Manifest),
    /// Write over the Secret with the credentials, as it was seen, by what it is known, so that it does not go with its resource
    /// before its time, or at all: it stays with the disk.
    KeepSecret(Manifest),
    /// Write other credentials, or where the same come from by now.
    SetCredentials(Box<NewCredentials>),
    /// Make an object what we intend.
    Apply(Manifest),
    /// Delete an object.
    Delete(Target),
    /// Create the firewall.
    CreateSecurityGroup(NewSecurityGroup),
    /// Let these in.
    AuthorizeIngress {
        /// Group.
        group: SecurityGroupId,
        /// Rules.
        rules: Vec<IngressRule>,
    },
    /// Keep these out.
    RevokeIngress {
        /// Group.
        group: SecurityGroupId,
        /// Rules.
        rules: Vec<IngressRule>,
    },
    /// Put a machine into these security groups and no others.
    SetMachineGroups {
        /// Instance.
        instance: InstanceId,
        /// Groups.
        groups: Vec<SecurityGroupId>,
    },
    /// Have a machine's metadata service answer its own processes alone, and these in sessions alone.
    GuardMetadata {
        /// Instance.
        instance: InstanceId,
    },
    /// Launch the machine of a generation that is written down.
    RunInstance {
        /// Generation.
        generation: u64,
        /// Zone.
        zone: String,
        /// Parameters.
        launch: Box<Launch>,
    },
    /// Create the disk.
    CreateVolume(NewVolume),
    /// Say on something in EC2 whose it is, and on the disk which machine it serves.
    Tag {
        /// Its id.
        resource: String,
        /// Tags.
        tags: Tags,
    },
    /// Grow or retune the disk.
    ModifyVolume {
        /// Volume.
        volume: VolumeId,
        /// Change.
        change: VolumeChange,
    },
    /// Say on a Node that its machine serves this database.
    LabelNode {
        /// Node.
        name: String,
        /// Its uid.
        uid: String,
        /// Labels.
        labels: BTreeMap<String, String>,
    },
    /// Change records, all or none.
    ChangeRecords {
        /// Changes.
        changes: Vec<RecordChange>,
        /// Which name then leads where; `None` when one is given back.
        led: Option<Led>,
    },
    /// Write down that the machine may be taken down, before its protection is.
    WriteReleased {
        /// All generations of which that is so.
        released: String,
        /// Of one that did not join the cluster, or whose Node did not become ready: it and those right before it of which that is
        /// so too.
        unjoined: Option<String>,
    },
    /// Prove, by live looks, that the database can do without a machine: nothing pins it, and nobody there can write to the disk.
    ProveLeft(Left),
    /// Put the protection back on a machine that serves after all.
    Protect {
        /// Instance.
        instance: InstanceId,
    },
    /// Take the protection off.
    Unprotect {
        /// Instance.
        instance: InstanceId,
    },
    /// End the machine.
    TerminateInstance {
        /// Instance.
        instance: InstanceId,
    },
    /// Remove the firewall.
    DeleteSecurityGroup {
        /// Group.
        group: SecurityGroupId,
    },
    /// Destroy the disk, once EC2 and Kubernetes both say, asked again, that nothing holds it, and EC2 that its last copy is
    /// complete.
    DeleteVolume {
        /// Volume.
        volume: VolumeId,
        /// Its last copy; none where none is kept.
        copy: Option<SnapshotId>,
        /// `PersistentVolume` whose attachments count.
        persistent_volume: String,
    },
    /// Tell a running QuestDB to read server.conf again, and look whether it did.
    Reload(Reload),
    /// Let the resource go.
    RemoveFinalizer,
}

impl Step {
    /// Name for logs, metrics and events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AddFinalizer { .. } => "AddFinalizer",
            Self::WriteGeneration { .. } => "WriteGeneration",
            Self::CreateSecret(_) => "CreateSecret",
            Self::DrawKey(..) => "DrawKey",
            Self::RevokeKey(_) => "RevokeKey",
            Self::KeepSecret(_) => "KeepSecret",
            Self::SetCredentials(_) => "SetCredentials",
            Self::Apply(_) => "Apply",
            Self::Delete(_) => "Delete",
            Self::CreateSecurityGroup(_) => "CreateSecurityGroup",
            Self::AuthorizeIngress { .. } => "AuthorizeIngress",
            Self::RevokeIngress { .. } => "RevokeIngress",
            Self::SetMachineGroups { .. } => "SetMachineGroups",
            Self::GuardMetadata { .. } => "GuardMetadata",
            Self::RunInstance { .. } => "RunInstance",
            Self::CreateVolume(_) => "CreateVolume",
            Self::Tag { .. } => "Tag",
            Self::ModifyVolume { .. } => "ModifyVolume",
            Self::LabelNode { .. } => "LabelNode",
            Self::ChangeRecords { .. } => "ChangeRecords",
            Self::WriteReleased { .. } => "WriteReleased",
            Self::ProveLeft(_) => "ProveLeft",
            Self::Protect { .. } => "Protect",
            Self::Unprotect { .. } => "Unprotect",
            Self::TerminateInstance { .. } => "TerminateInstance",
            Self::DeleteSecurityGroup { .. } => "DeleteSecurityGroup",
            Self::DeleteVolume { .. } => "DeleteVolume",
            Self::Reload(_) => "Reload",
            Self::RemoveFinalizer => "RemoveFinalizer",
        }
    }

    /// Whether it writes to the resource itself, with the version that was seen: where that is refused, the whole plan rests
    /// on something older.
    pub const fn writes_resource(&self) -> bool {
        matches!(
            self,
            Self::AddFinalizer { .. }
                | Self::WriteGeneration { .. }
                | Self::WriteReleased { .. }
                | Self::RemoveFinalizer
        )
    }

    /// Whether it makes something in EC2, which may show it only later, and may do so although nobody heard an answer.
    pub const fn is_creation(&self) -> bool {
        matches!(self, Self::CreateSecurityGroup(_) | Self::RunInstance { .. } | Self::CreateVolume(_))
    }

    /// Whether it takes something away that cannot be made again as it was; such steps get a shorter deadline, from what
    /// remains of the leader's lease.
    pub const fn is_destructive(&self) -> bool {
        matches!(
            self,
            Self::Delete(_)
                | Self::RevokeKey(_)
                | Self::Unprotect { .. }
                | Self::TerminateInstance { .. }
                | Self::DeleteSecurityGroup { .. }
                | Self::DeleteVolume { .. }
                | Self::RemoveFinalizer
        )
    }
}
