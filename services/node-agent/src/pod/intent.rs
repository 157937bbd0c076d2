//! A pod's spec as far as the agent acts on it. Pure: `Pod` in, [`PodIntent`] or the first thing that is not supported
//! out. Nothing is silently left out that would change how the process runs.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, Pod, PodSpec};

use super::content::{self, Source};
use super::probe::{self, Probe};

/// The container name that means "a QuestDB".
pub const QUESTDB: &str = "questdb";

/// Which pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid: the same name may come again.
    pub uid: String,
}

impl PodKey {
    /// Of an object that the API server stored.
    pub fn of(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What to do when the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Start it again.
    Always,
    /// Start it again unless it ended well.
    OnFailure,
    /// Leave it.
    Never,
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeIntent {
    /// Its name within the pod.
    pub name: String,
    /// Where it comes from.
    pub source: VolumeSource,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// A claim, so a disk.
    Claim {
        /// Name of the claim.
        claim: String,
        /// The pod may not write.
        read_only: bool,
    },
    /// An empty directory that lives as long as the pod.
    Empty,
    /// Files made of objects, kept up to date.
    Content(Vec<Source>),
}

/// A volume at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The volume.
    pub volume: String,
    /// Absolute path in the container.
    pub path: String,
    /// Only this part of the volume.
    pub sub_path: Option<String>,
    /// The process may not write.
    pub read_only: bool,
}

/// The container that becomes a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerIntent {
    /// Its image.
    pub image: String,
    /// Variables, unresolved.
    pub env: Vec<EnvVar>,
    /// Objects whose keys become variables.
    pub env_from: Vec<EnvFromSource>,
    /// Volumes at paths, shortest path first.
    pub mounts: Vec<Mount>,
    /// Until it succeeds, the others wait.
    pub startup: Option<Probe>,
    /// Whether the pod may get traffic.
    pub readiness: Option<Probe>,
    /// Whether the process has to be started again.
    pub liveness: Option<Probe>,
}

/// User, group and the group that owns the volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `runAsUser`; root when absent.
    pub user: u32,
    /// `runAsGroup`; the user's number when absent.
    pub group: u32,
    /// `fsGroup`.
    pub fs_group: Option<u32>,
}

/// A pod with a QuestDB in it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodIntent {
    /// Which pod.
    pub key: PodKey,
    /// The process.
    pub container: ContainerIntent,
    /// Volumes.
    pub volumes: Vec<VolumeIntent>,
    /// Who it runs as.
    pub identity: Identity,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// What to do when the process ends.
    pub restart: RestartPolicy,
}

/// Something the agent cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox's node agent does not support {what}")]
pub struct Unsupported {
    /// What.
    pub what: String,
}

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported { what: what.into() })
}

/// Whether the pod has a container that becomes a process.
pub fn has_process(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|container| container.name == QUESTDB))
}

/// The grace of a pod that is being deleted, else the one of its spec.
pub fn grace(pod: &Pod) -> Duration {
    let of_spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(of_spec).unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Reads a pod with a process.
pub fn parse(pod: &Pod) -> Result<PodIntent, Unsupported> {
    let Some(spec) = &pod.spec else { return unsupported("a pod without a spec") };
    let Some(container) = spec.containers.iter().find(|container| container.name == QUESTDB) else {
        return unsupported("a pod without a container named questdb");
    };
    Ok(PodIntent {
        key: PodKey::of(pod),
        container: parse_container(container)?,
        volumes: volumes(spec)?,
        identity: identity(spec, container),
        grace: grace(pod),
        restart: match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        },
    })
}

fn parse_container(container: &Container) -> Result<ContainerIntent, Unsupported> {
    if container.command.is_some() || container.args.is_some() {
        return unsupported("command and args of the container questdb");
    }
    let ports = container.ports.clone().unwrap_or_default();
    let probe = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
        probe.as_ref().map(|probe| probe::parse(probe, &ports)).transpose()
    };
    Ok(ContainerIntent {
        image: container.image.clone().unwrap_or_default(),
        env: container.env.clone().unwrap_or_default(),
        env_from: container.env_from.clone().unwrap_or_default(),
        mounts: mounts(container)?,
        startup: probe(&container.startup_probe)?,
        readiness: probe(&container.readiness_probe)?,
        liveness: probe(&container.liveness_probe)?,
    })
}

fn mounts(container: &Container) -> Result<Vec<Mount>, Unsupported> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        if mount.sub_path_expr.is_some() {
            return unsupported("subPathExpr");
        }
        let path = mount.mount_path.trim_end_matches('/').to_owned();
        let sub_path = mount.sub_path.clone().filter(|path| !path.is_empty());
        let clean = |path: &str| path.split('/').all(|part| part != "..") && !path.contains(['\n', '\t']);
        if !path.starts_with('/') || !clean(&path) || !sub_path.as_deref().is_none_or(clean) {
            return unsupported(format!("a mount at {:?}", mount.mount_path));
        }
        let read_only = mount.read_only == Some(true);
        mounts.push(Mount { volume: mount.name.clone(), path, sub_path, read_only });
    }
    mounts.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(mounts)
}

fn volumes(spec: &PodSpec) -> Result<Vec<VolumeIntent>, Unsupported> {
    let mut volumes = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let source = if let Some(claim) = &volume.persistent_volume_claim {
            let read_only = claim.read_only == Some(true);
            VolumeSource::Claim { claim: claim.claim_name.clone(), read_only }
        } else if volume.empty_dir.is_some() {
            VolumeSource::Empty
        } else {
            match content::sources(volume)? {
                Some(sources) => VolumeSource::Content(sources),
                None => return unsupported(format!("the source of volume {}", volume.name)),
            }
        };
        volumes.push(VolumeIntent { name: volume.name.clone(), source });
    }
    Ok(volumes)
}

fn identity(spec: &PodSpec, container: &Container) -> Identity {
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let of_container = container.security_context.clone().unwrap_or_default();
    let number = |value: i64| u32::try_from(value).ok();
    let user = of_container.run_as_user.or(of_pod.run_as_user).and_then(number).unwrap_or(0);
    let group = of_container.run_as_group.or(of_pod.run_as_group).and_then(number).unwrap_or(user);
    let fs_group = of_pod.fs_group.and_then(number);
    Identity { user, group, fs_group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_operators_pod_is_understood() {
        let intent = parse(&fixture::pod()).unwrap();
        assert_eq!(intent.key.to_string(), "qdb-t/db-0");
        assert_eq!(intent.grace, Duration::from_mins(1));
        assert_eq!(intent.restart, RestartPolicy::Always);
        assert_eq!(intent.identity, Identity { user: 10001, group: 10001, fs_group: Some(10001) });
        let paths: Vec<_> = intent.container.mounts.iter().map(|mount| mount.path.as_str()).collect();
        assert_eq!(paths, ["/etc/questdb/secrets", "/var/lib/questdb", "/var/lib/questdb/conf/server.conf"]);
        assert!(intent.container.startup.is_none());
        assert_eq!(intent.volumes.len(), 3);
    }

    #[test]
    fn what_is_not_supported_is_said() {
        let check = |change: fn(&mut Pod), expected: &str| {
            let mut pod = fixture::pod();
            change(&mut pod);
            assert!(parse(&pod).unwrap_err().what.contains(expected), "{expected}");
        };
        check(|pod| pod.spec.as_mut().unwrap().containers[0].command = Some(vec!["sh".into()]), "command");
        check(|pod| pod.spec.as_mut().unwrap().containers[0].name = "other".into(), "named questdb");
        check(|pod| mount(pod).mount_path = "/a/../b".into(), "a mount at");
        check(|pod| mount(pod).mount_path = "relative".into(), "a mount at");
        check(|pod| mount(pod).sub_path = Some("../x".into()), "a mount at");
        check(
            |pod| pod.spec.as_mut().unwrap().volumes.as_mut().unwrap()[1].config_map = None,
            "volume config",
        );
    }

    #[test]
    fn deletion_may_shorten_the_grace() {
        let mut pod = fixture::pod();
        pod.metadata.deletion_grace_period_seconds = Some(3);
        assert_eq!(grace(&pod), Duration::from_secs(3));
    }

    fn mount(pod: &mut Pod) -> &mut k8s_openapi::api::core::v1::VolumeMount {
        &mut pod.spec.as_mut().unwrap().containers[0].volume_mounts.as_mut().unwrap()[0]
    }
}
