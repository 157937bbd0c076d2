//! A container's part of a pod's spec, as far as the agent acts on it. Pure.

use std::collections::BTreeMap;
use std::ffi::OsString;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, PodSpec};

use super::environment;
use super::intent::{Unsupported, unsupported};
use super::probe::{self, Probe};

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

/// A container that becomes a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerIntent {
    /// Its name within the pod.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Program and arguments, unresolved; empty for what the image runs by itself, which is QuestDB.
    pub command: Vec<String>,
    /// Variables, unresolved.
    pub env: Vec<EnvVar>,
    /// Objects whose keys become variables.
    pub env_from: Vec<EnvFromSource>,
    /// Volumes at paths, shortest path first.
    pub mounts: Vec<Mount>,
    /// Who it runs as.
    pub identity: Identity,
    /// Until it succeeds, the others wait.
    pub startup: Option<Probe>,
    /// Whether the pod may get traffic.
    pub readiness: Option<Probe>,
    /// Whether the process has to be started again.
    pub liveness: Option<Probe>,
}

impl ContainerIntent {
    /// The command of its own, if it has one. `place` tells where a path inside the container is for the process.
    pub fn own_command(
        &self,
        variables: &BTreeMap<String, String>,
        place: impl Fn(&str) -> String,
    ) -> Option<Vec<OsString>> {
        let words = self.command.iter().map(|word| place(&environment::expand(word, variables)).into());
        (!self.command.is_empty()).then(|| words.collect())
    }
}

/// Reads a container of a pod.
pub(super) fn parse(spec: &PodSpec, container: &Container) -> Result<ContainerIntent, Unsupported> {
    if container.working_dir.is_some() {
        return unsupported(format!("workingDir of the container {}", container.name));
    }
    let ports = container.ports.clone().unwrap_or_default();
    let probe = |probe: &Option<k8s_openapi::api::core::v1::Probe>| {
        probe.as_ref().map(|probe| probe::parse(probe, &ports)).transpose()
    };
    Ok(ContainerIntent {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        command: command(container)?,
        env: container.env.clone().unwrap_or_default(),
        env_from: container.env_from.clone().unwrap_or_default(),
        mounts: mounts(container)?,
        identity: identity(spec, container),
        startup: probe(&container.startup_probe)?,
        readiness: probe(&container.readiness_probe)?,
        liveness: probe(&container.liveness_probe)?,
    })
}

/// Reads a container that has to end well before the others begin.
pub(super) fn parse_init(spec: &PodSpec, container: &Container) -> Result<ContainerIntent, Unsupported> {
    if container.restart_policy.is_some() {
        return unsupported(format!("restartPolicy of the init container {}", container.name));
    }
    let parsed = parse(spec, container)?;
    if parsed.command.is_empty() {
        // The image would run a QuestDB, which does not end.
        return unsupported(format!("the init container {} without a command", container.name));
    }
    Ok(parsed)
}

fn command(container: &Container) -> Result<Vec<String>, Unsupported> {
    let mut words = container.command.clone().unwrap_or_default();
    let arguments = container.args.clone().unwrap_or_default();
    if words.is_empty() && !arguments.is_empty() {
        return unsupported(format!("args without a command of the container {}", container.name));
    }
    words.extend(arguments);
    Ok(words)
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
    use super::super::intent;
    use super::super::translate::{self, Mapping};
    use super::*;
    use crate::fixture;

    #[test]
    fn a_command_is_taken_word_by_word_with_its_variables_and_places() {
        let mut pod = fixture::pod();
        let mut container = fixture::init_container();
        let script = "x=$(date); echo $$(B) $(NAME) \"$ROOT\" > /var/lib/questdb/a";
        container.command = Some(["/bin/sh", "-ec", script].map(str::to_owned).into());
        pod.spec.as_mut().unwrap().init_containers = Some(vec![container]);
        let intent = intent::parse(&pod).unwrap();
        let variables = BTreeMap::from([("NAME".to_owned(), "n".to_owned())]);
        let mappings = [Mapping { inside: "/var/lib/questdb".into(), outside: "/d/vol-1".into() }];
        let check = |place: &dyn Fn(&str) -> String, path: &str| {
            let words = intent.init[0].own_command(&variables, place).unwrap();
            let script = format!("x=$(date); echo $(B) n \"$ROOT\" > {path}/a");
            assert_eq!(words, ["/bin/sh", "-ec", &script].map(OsString::from));
        };
        check(&str::to_owned, "/var/lib/questdb");
        check(&|text| translate::paths(text, &mappings), "/d/vol-1");
        assert_eq!(intent.container.own_command(&variables, str::to_owned), None);
    }
}
