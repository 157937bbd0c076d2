//! From a pod's volumes to directories of the host: resolving claims to disks that may be used now, writing files made
//! of objects, and the list of what the process sees where.
//!
//! *Invariant:* a claim's directory is handed out only while its `VolumeAttachment` says attached, EC2 says attached to
//! this very instance, both asked now, and no other process of this agent holds it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use cloud::{AttachmentState, InstanceId, Select, Volume, VolumeId};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;

use super::container::{ContainerIntent, Identity, Mount};
use super::content;
use super::filling;
use super::intent::{PodIntent, VolumeSource};
use super::translate::Mapping;
use super::writer;
use crate::api::{self, call, found};
use crate::context::Context;
use crate::disks;
use crate::manifest::DRIVER;
use crate::process::{MountKind, MountPoint};
use crate::settings::Settings;

/// Why volumes are not ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kubernetes or EC2 has to do something first.
    #[error("{0}")]
    NotYet(String),
    /// An object is missing.
    #[error("volume {volume}")]
    Content {
        /// The volume.
        volume: String,
        /// What is missing.
        #[source]
        source: content::Missing,
    },
    /// The API server did not answer.
    #[error("cannot look up a volume")]
    Api(#[source] api::Error),
    /// EC2 did not answer.
    #[error("cannot describe volume {volume}")]
    Cloud {
        /// The volume.
        volume: VolumeId,
        /// Why not.
        #[source]
        source: cloud::Error,
    },
    /// The host's file system refused.
    #[error("cannot prepare {path}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A mount names a volume the pod does not have.
    #[error("the pod has no volume {0}")]
    Unknown(String),
}

/// Where the agent keeps a disk.
pub fn disk_dir(data_dir: &Path, volume: &VolumeId) -> PathBuf {
    data_dir.join("volumes").join(volume.as_str())
}

/// Resolves every claim of the pod and takes its disk, which is there then. By name of the pod's volume.
pub async fn claim_disks(
    context: &Context,
    intent: &PodIntent,
    node: &str,
    instance: &InstanceId,
) -> Result<BTreeMap<String, VolumeId>, Error> {
    let mut disks = BTreeMap::new();
    for volume in &intent.volumes {
        let VolumeSource::Claim { claim, .. } = &volume.source else { continue };
        let (name, id) = bound_volume(context, &intent.key.namespace, claim).await?;
        require_attachment(context, &name, node)?;
        let described = require_attached(context, &id, instance).await?;
        if let Err(holder) = context.disks.claim(&id, &intent.key.uid, instance) {
            return Err(Error::NotYet(format!("volume {id} is still in use by pod {holder}")));
        }
        let Settings { data_dir, snapshots_dir, .. } = context.settings.as_ref();
        let prepared = filling::prepare(data_dir, snapshots_dir.as_deref(), &described).await;
        prepared.map_err(|source| Error::Write { path: disk_dir(data_dir, &id), source })?;
        disks.insert(volume.name.clone(), id);
    }
    Ok(disks)
}

/// Writes what is made of objects. Returns whether a file changed.
pub fn write_content(
    context: &Context,
    intent: &PodIntent,
    pod: &Pod,
    run_dir: &Path,
) -> Result<bool, Error> {
    let mut changed = false;
    for volume in &intent.volumes {
        let VolumeSource::Content(sources) = &volume.source else { continue };
        let objects = context.objects(&intent.key.namespace);
        let mut files = content::files(sources, pod, &objects)
            .map_err(|source| Error::Content { volume: volume.name.clone(), source })?;
        if intent.identity.fs_group.is_some() {
            for file in files.values_mut() {
                file.mode |= 0o440;
            }
        }
        let path = volume_dir(run_dir, &volume.name);
        let failed = |source| Error::Write { path: path.clone(), source };
        if writer::write(&path, &files).map_err(failed)? {
            changed = true;
            own(&path, intent.identity.fs_group).map_err(failed)?;
        }
    }
    Ok(changed)
}

/// Where each volume lies on the host; makes those that live as long as the pod.
pub fn places(
    data_dir: &Path,
    intent: &PodIntent,
    disks: &BTreeMap<String, VolumeId>,
    run_dir: &Path,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut places = BTreeMap::new();
    for volume in &intent.volumes {
        let path = match (&volume.source, disks.get(&volume.name)) {
            (VolumeSource::Claim { .. }, Some(disk)) => disk_dir(data_dir, disk),
            (VolumeSource::Claim { .. }, None) => return Err(Error::Unknown(volume.name.clone())),
            (VolumeSource::Empty | VolumeSource::Content(_), _) => volume_dir(run_dir, &volume.name),
        };
        let failed = |source| Error::Write { path: path.clone(), source };
        match &volume.source {
            VolumeSource::Claim { .. } => own_disk(&path, intent.identity).map_err(failed)?,
            VolumeSource::Empty => {
                fs::create_dir_all(&path).map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(failed)?;
            }
            VolumeSource::Content(_) => fs::create_dir_all(&path).map_err(failed)?,
        }
        places.insert(volume.name.clone(), path);
    }
    Ok(places)
}

/// What the process sees: each mount with where it comes from.
pub fn mount_points(
    container: &ContainerIntent,
    intent: &PodIntent,
    places: &BTreeMap<String, PathBuf>,
) -> Result<Vec<MountPoint>, Error> {
    let point = |mount: &Mount| {
        let place = places.get(&mount.volume).ok_or_else(|| Error::Unknown(mount.volume.clone()))?;
        let volume = intent.volumes.iter().find(|volume| volume.name == mount.volume);
        let from_objects = volume.is_some_and(|volume| matches!(volume.source, VolumeSource::Content(_)));
        let claim_is_read_only =
            matches!(volume.map(|volume| &volume.source), Some(VolumeSource::Claim { read_only: true, .. }));
        let source = match &mount.sub_path {
            Some(sub_path) => sub_path_of(place, sub_path, from_objects)?,
            None => place.clone(),
        };
        let read_only = mount.read_only || from_objects || claim_is_read_only;
        let kind = match (source.is_dir(), read_only) {
            (true, true) => MountKind::ReadOnlyDirectory,
            (true, false) => MountKind::Directory,
            (false, true) => MountKind::ReadOnlyFile,
            (false, false) => MountKind::File,
        };
        Ok(MountPoint { kind, source, target: mount.path.clone() })
    };
    container.mounts.iter().map(point).collect()
}

/// The same as paths, for a process that sees the host's.
pub fn mappings(mounts: &[MountPoint]) -> Vec<Mapping> {
    let mapping =
        |mount: &MountPoint| Mapping { inside: mount.target.clone(), outside: mount.source.clone() };
    mounts.iter().map(mapping).collect()
}

/// Without mounts, what is mounted below another mount has to be linked into it.
pub fn link_nested(mounts: &[MountPoint]) -> io::Result<()> {
    for mount in mounts {
        let parent = mounts.iter().filter_map(|other| {
            let rest = mount.target.strip_prefix(&other.target)?.strip_prefix('/')?;
            Some((other, rest))
        });
        let Some((parent, rest)) = parent.max_by_key(|(other, _)| other.target.len()) else { continue };
        let link = parent.source.join(rest);
        if let Some(directory) = link.parent() {
            fs::create_dir_all(directory)?;
        }
        link_over(&link, &mount.source)?;
    }
    Ok(())
}

fn link_over(link: &Path, target: &Path) -> io::Result<()> {
    match fs::symlink_metadata(link) {
        Ok(found) if found.is_dir() => {
            for entry in fs::read_dir(target)?.flatten() {
                link_over(&link.join(entry.file_name()), &entry.path())?;
            }
            return Ok(());
        }
        Ok(_) => fs::remove_file(link)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(target, link)
}

fn volume_dir(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join("volumes").join(name)
}

fn sub_path_of(place: &Path, sub_path: &str, from_objects: bool) -> Result<PathBuf, Error> {
    let source = place.join(sub_path);
    let failed = |error| Error::Write { path: source.clone(), source: error };
    if !source.exists() && !from_objects {
        fs::create_dir_all(&source).map_err(failed)?;
    }
    // Not resolved here: a mount keeps what it finds, as kubelet's does; a link follows what is written later.
    fs::metadata(&source).map(|_| source.clone()).map_err(failed)
}

async fn bound_volume(context: &Context, namespace: &str, claim: &str) -> Result<(String, VolumeId), Error> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), namespace);
    let object = found(call("get a claim", claims.get(claim)).await).map_err(Error::Api)?;
    let Some(object) = object else {
        return Err(Error::NotYet(format!("persistentvolumeclaim {claim:?} not found")));
    };
    let bound = object.status.and_then(|status| status.phase).as_deref() == Some("Bound");
    let name = object.spec.and_then(|spec| spec.volume_name).filter(|_| bound);
    let Some(name) = name else {
        return Err(Error::NotYet(format!("persistentvolumeclaim {claim:?} is not bound")));
    };
    let volumes = Api::<PersistentVolume>::all(context.client.clone());
    let volume = found(call("get a persistent volume", volumes.get(&name)).await).map_err(Error::Api)?;
    let source = volume.and_then(|volume| volume.spec).and_then(|spec| spec.csi);
    match source.filter(|source| source.driver == DRIVER) {
        Some(source) => Ok((name, VolumeId::new(source.volume_handle))),
        None => Err(Error::NotYet(format!("persistentvolume {name:?} is not one of driver {DRIVER}"))),
    }
}

fn require_attachment(context: &Context, volume: &str, node: &str) -> Result<(), Error> {
    let attached = context.caches.attachments.find(|attachment| {
        attachment.spec.source.persistent_volume_name.as_deref() == Some(volume)
            && attachment.spec.node_name == node
            && attachment.metadata.deletion_timestamp.is_none()
            && attachment.status.as_ref().is_some_and(|status| status.attached)
    });
    match attached {
        Some(_) => Ok(()),
        None => Err(Error::NotYet(format!("waiting for volume {volume:?} to be attached to {node}"))),
    }
}

async fn require_attached(context: &Context, id: &VolumeId, instance: &InstanceId) -> Result<Volume, Error> {
    let described = context.cloud.describe_volumes(&Select::one(id.clone())).await;
    let described = described.map_err(|source| Error::Cloud { volume: id.clone(), source })?;
    let Some(volume) = described.into_iter().find(|volume| volume.id == *id) else {
        return Err(Error::NotYet(format!("EC2 does not know volume {id}")));
    };
    match disks::attachment(&volume, instance) {
        Some(AttachmentState::Attached) => Ok(volume),
        Some(state) => Err(Error::NotYet(format!("EC2 says volume {id} is {state} for {instance}"))),
        None => Err(Error::NotYet(format!("EC2 says volume {id} is not attached to {instance}"))),
    }
}

/// As `fsGroupChangePolicy: OnRootMismatch`: a big disk is walked through once, not at each start.
fn own_disk(path: &Path, identity: Identity) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let group = identity.fs_group.unwrap_or(identity.group);
    let privileged = nix::unistd::geteuid().is_root();
    if !privileged || (identity.user == 0 && group == 0) || fs::metadata(path)?.gid() == group {
        return Ok(());
    }
    own(path, Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o2775))
}

fn own(path: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group.filter(|_| nix::unistd::geteuid().is_root()) else { return Ok(()) };
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            own(&entry?.path(), Some(group))?;
        }
    }
    chown(path, None, Some(group))?;
    let bits = metadata.permissions().mode() | if metadata.is_dir() { 0o070 } else { 0 };
    let shared = bits | ((bits & 0o600) >> 3);
    fs::set_permissions(path, fs::Permissions::from_mode(shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::pod::intent;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("node-agent-volumes-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn the_operators_pod_sees_disk_config_and_secret() {
        let base = directory("mounts");
        let (run_dir, data) = (base.join("run"), base.join("data"));
        let intent = intent::parse(&fixture::pod()).unwrap();
        let disks = BTreeMap::from([("data".to_owned(), VolumeId::from("vol-1"))]);
        // A disk is made only where its first content is known.
        places(&data, &intent, &disks, &run_dir).unwrap_err();
        fs::create_dir_all(data.join("volumes/vol-1")).unwrap();
        fs::create_dir_all(run_dir.join("volumes/config")).unwrap();
        fs::write(run_dir.join("volumes/config/server.conf"), "x").unwrap();
        let places = places(&data, &intent, &disks, &run_dir).unwrap();
        let mounts = mount_points(&intent.container, &intent, &places).unwrap();
        let seen: Vec<_> = mounts.iter().map(|mount| (mount.kind, mount.target.as_str())).collect();
        let expected = [
            (MountKind::ReadOnlyDirectory, "/etc/questdb/secrets"),
            (MountKind::Directory, "/var/lib/questdb"),
            (MountKind::ReadOnlyFile, "/var/lib/questdb/conf/server.conf"),
        ];
        assert_eq!(seen, expected);
        assert_eq!(mounts[1].source, data.join("volumes/vol-1"));
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn nested_mounts_are_linked_where_nothing_can_be_mounted() {
        let base = directory("links");
        let (disk, config) = (base.join("disk"), base.join("config"));
        fs::create_dir_all(disk.join("conf")).unwrap();
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("server.conf"), "told").unwrap();
        fs::write(disk.join("conf/server.conf"), "default").unwrap();
        let mount = |kind, source: &Path, target: &str| MountPoint {
            kind,
            source: source.to_owned(),
            target: target.to_owned(),
        };
        let mounts = [
            mount(MountKind::Directory, &disk, "/var/lib/questdb"),
            mount(MountKind::ReadOnlyDirectory, &config, "/var/lib/questdb/conf"),
        ];
        link_nested(&mounts).unwrap();
        link_nested(&mounts).unwrap();
        assert_eq!(fs::read_to_string(disk.join("conf/server.conf")).unwrap(), "told");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_claim_without_its_disk_is_no_directory() {
        let base = directory("claims");
        let intent = intent::parse(&fixture::pod()).unwrap();
        let error = places(&base, &intent, &BTreeMap::new(), &base.join("run")).unwrap_err();
        assert!(matches!(error, Error::Unknown(name) if name == "data"));
        fs::remove_dir_all(base).unwrap();
    }
}
