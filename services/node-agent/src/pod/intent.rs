//! A pod's spec as far as the agent acts on it. Pure: `Pod` in, [`PodIntent`] or the first thing that is not supported
//! out. Nothing is silently left out that would change how the process runs.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::container::{self, ContainerIntent, Identity};
use super::content::{self, Source};
use super::record::Stage;

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

/// A pod with a QuestDB in it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodIntent {
    /// Which pod.
    pub key: PodKey,
    /// What has to end well before, in this order.
    pub init: Vec<ContainerIntent>,
    /// The process.
    pub container: ContainerIntent,
    /// Volumes.
    pub volumes: Vec<VolumeIntent>,
    /// Who the volumes belong to.
    pub identity: Identity,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// What to do when the process ends.
    pub restart: RestartPolicy,
}

impl PodIntent {
    /// The container whose turn it is.
    pub fn at(&self, stage: Stage) -> Option<&ContainerIntent> {
        match stage {
            Stage::Init(index) => self.init.get(index),
            Stage::Main => Some(&self.container),
        }
    }
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

/// How many containers have to end well before the others begin.
pub fn init_count(pod: &Pod) -> usize {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref()).map_or(0, Vec::len)
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
    let init = spec.init_containers.iter().flatten();
    let container = container::parse(spec, container)?;
    Ok(PodIntent {
        key: PodKey::of(pod),
        init: init.map(|container| container::parse_init(spec, container)).collect::<Result<_, _>>()?,
        identity: container.identity,
        container,
        volumes: volumes(spec)?,
        grace: grace(pod),
        restart: match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        },
    })
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
        check(|pod| pod.spec.as_mut().unwrap().containers[0].args = Some(vec!["-x".into()]), "args without");
        check(|pod| pod.spec.as_mut().unwrap().containers[0].working_dir = Some("/x".into()), "workingDir");
        check(|pod| init(pod).command = None, "init container restore without a command");
        check(|pod| init(pod).restart_policy = Some("Always".into()), "restartPolicy of the init");
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
    fn init_containers_are_read_in_order_and_run_as_they_ask() {
        let mut pod = fixture::pod();
        let first = init(&mut pod);
        first.args = Some(vec!["arg".into()]);
        let mut second = first.clone();
        second.name = "second".into();
        second.security_context = serde_json::from_value(serde_json::json!({"runAsUser": 0})).unwrap();
        pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap().push(second);
        let intent = parse(&pod).unwrap();
        let names: Vec<_> = intent.init.iter().map(|container| container.name.as_str()).collect();
        assert_eq!(names, ["restore", "second"]);
        assert_eq!(
            intent.at(Stage::Init(0)).unwrap().command,
            ["/bin/sh", "-ec", "touch \"$ROOT/x\"", "arg"]
        );
        assert_eq!(intent.at(Stage::Init(1)).unwrap().identity.user, 0);
        assert_eq!(intent.identity.user, 10001);
        assert_eq!(intent.at(Stage::Init(2)), None);
        assert!(intent.at(Stage::Main).unwrap().command.is_empty());
        assert_eq!(init_count(&pod), 2);
    }

    #[test]
    fn deletion_may_shorten_the_grace() {
        let mut pod = fixture::pod();
        pod.metadata.deletion_grace_period_seconds = Some(3);
        assert_eq!(grace(&pod), Duration::from_secs(3));
    }

    fn init(pod: &mut Pod) -> &mut k8s_openapi::api::core::v1::Container {
        let found = pod.spec.as_mut().unwrap().init_containers.get_or_insert_default();
        if found.is_empty() {
            found.push(fixture::init_container());
        }
        &mut found[0]
    }

    fn mount(pod: &mut Pod) -> &mut k8s_openapi::api::core::v1::VolumeMount {
        &mut pod.spec.as_mut().unwrap().containers[0].volume_mounts.as_mut().unwrap()[0]
    }
}
