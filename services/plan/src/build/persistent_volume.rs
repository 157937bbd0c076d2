//! The disk: as EC2 is asked for it, as Kubernetes knows it, and the pod's claim on it.

use cloud::{NewVolume, Role, Volume, VolumeKind, VolumeSnapshot, key};
use domain::catalogue;
use resources::{StorageSpec, VolumeType, names};
use serde_json::json;

use super::restorer::handed_on;
use super::{gibibytes, with_parts};
use crate::upgrade::NEVER;
use crate::{Kind, Manifest, Subject, Validated};

/// CSI driver of EBS.
const DRIVER: &str = "ebs.csi.aws.com";

/// What EC2 is asked for.
pub fn new_volume(validated: &Validated, zone: &str, copy: Option<&VolumeSnapshot>) -> NewVolume {
    let storage = &validated.storage;
    let (kind, throughput) = kind_of(storage);
    let tags = validated.subject.owner(Role::Volume).tags().named(validated.subject.display());
    // What it holds was written by QuestDB of the same major version, whatever is asked for before that starts on it.
    let tags = match copy.filter(|_| catalogue::is_comparable(&validated.version)) {
        Some(_) => tags.with(key::QUESTDB, &validated.version),
        None => tags,
    };
    // Of what a copy holds people have been told, whatever the version is like.
    let tags = match copy {
        Some(_) => tags,
        None => tags.with(key::SERVED, NEVER),
    };
    let tags = match copy.and_then(handed_on) {
        Some(unrestored) => tags.with(key::UNRESTORED, unrestored),
        None => tags,
    };
    NewVolume {
        zone: zone.to_owned(),
        size_gib: storage.size_gib,
        kind,
        iops: Some(storage.iops),
        throughput,
        encrypted: true,
        snapshot: copy.map(|copy| copy.id.to_string()),
        tags: match copy.and_then(|copy| copy.tags.get(key::BASIS)) {
            Some(basis) => tags.with(key::BASIS, basis),
            None => tags,
        },
    }
}

/// As which type EC2 is asked for a disk, and with which throughput where that type has one to be chosen.
pub(crate) fn kind_of(storage: &StorageSpec) -> (VolumeKind, Option<u32>) {
    match storage.volume_type {
        VolumeType::Gp3 => (VolumeKind::Gp3, Some(storage.throughput)),
        VolumeType::Io2 => (VolumeKind::Io2, None),
    }
}

/// The `PersistentVolume` of an EBS volume, kept for one claim.
pub fn persistent_volume(subject: &Subject, volume: &Volume) -> Manifest {
    let name = names::persistent_volume(volume.id.as_str());
    Manifest {
        kind: Kind::PersistentVolume,
        namespace: None,
        body: json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": name, "labels": subject.labels() },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": gibibytes(volume.size_gib) },
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "name": names::claim(&subject.name),
                    "namespace": subject.namespace,
                },
                "csi": { "driver": DRIVER, "fsType": "ext4", "volumeHandle": volume.id.as_str() },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{
                    "matchExpressions": [{ "key": names::LABEL_ZONE, "operator": "In", "values": [volume.zone] }],
                }] } },
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "volumeMode": "Filesystem",
            },
        }),
        name,
        uid: None,
    }
}

/// The claim, of the size it was first made with: Kubernetes refuses to expand claims without a storage class, so growth
/// is seen on the `PersistentVolume` and in status.
pub fn claim(subject: &Subject, volume: &Volume) -> Manifest {
    let name = names::claim(&subject.name);
    Manifest {
        kind: Kind::PersistentVolumeClaim,
        namespace: Some(subject.namespace.clone()),
        body: with_parts(
            json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": gibibytes(volume.size_gib) } },
                    "storageClassName": "",
                    "volumeMode": "Filesystem",
                    "volumeName": names::persistent_volume(volume.id.as_str()),
                },
            }),
            [("metadata", subject.unowned(&name))],
        ),
        name,
        uid: None,
    }
}
