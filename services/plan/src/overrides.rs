//! What people chose of the pod: whether it may be so, and what is left of the machine for QuestDB.
//!
//! *Invariant:* nothing that passes here reaches QuestDB's disk, credentials, ports or settings, gets more rights than
//! QuestDB has, or asks for more than the machine gives.

mod amounts;
mod annotations;
mod spelling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use domain::catalogue::InstanceType;
use domain::{Rule, Violation, Violations, reference_token};
use resources::names::{self, port};
use resources::{
    ContainerSpec, EnvSourceSpec, EnvSpec, MountSpec, PodOverrides, ProbesSpec, TolerationSpec, VolumeSpec,
};

use self::amounts::{LEAST, beside};
use crate::pod;
use crate::reach::{check_keys, is_domain, prefix_of};

pub(crate) use self::amounts::{Amounts, amounts, amounts_of_questdb, fit, mebibytes};

/// Volumes and containers that are ours.
const OUR_VOLUMES: [&str; 3] = ["data", "config", "secrets"];
const OUR_CONTAINERS: [&str; 3] = [pod::QUESTDB, pod::RESTORE, pod::LINK_CONFIG];
/// Folders of QuestDB's container that are ours, of the image's program, or of the system.
const OUR_FOLDERS: [&str; 9] =
    ["/var/lib/questdb", "/etc/questdb", "/app", "/root", "/usr", "/bin", "/sbin", "/lib", "/lib64"];
/// The image's script looks for a disk at this folder of root's home: a mount that has it in its path would send QuestDB
/// there.
const FORMER_ROOT: &str = "/.questdb";
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Variables by which QuestDB's image takes settings: they would win over server.conf.
const SETTINGS: [&str; 4] = ["QDB_", "QUESTDB_", "DO_CHOWN", "RUN_AS_ROOT"];
/// Of those, what only says how much is logged: the others could send a file somewhere.
const LEVEL_OF_LOG: (&str, &str) = ("QDB_LOG_W_", "_LEVEL");
/// Variables by which something else than QuestDB would be run in its container, or its script would do something else.
const LOADERS: [&str; 11] = [
    "LD_",
    "JAVA_",
    "JDK_",
    "_JAVA",
    "JVM_",
    "BASH_",
    "IGNORE_",
    "DEFAULT_LOCAL",
    "PROFILER_",
    "MALLOC_",
    "GLIBC_",
];
/// The same, of which the whole name counts.
const LOADER_NAMES: [&str; 9] =
    ["PATH", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "CLASSPATH", "GCONV_PATH", "LOCPATH"];
/// By these the operator's own Secrets end, or have them in their names: those of every database, which may be in the same
/// namespace. A Secret of people that is called so cannot be told from them by its name, and is to have another.
const OF_OPERATOR: (&str, &str) = ("-credentials", ".ilp.");

/// What the API server cannot know of a wish; of a type of machine that is not known nothing is asked.
pub(crate) fn check(
    overrides: &PodOverrides,
    instance_type: Option<&InstanceType>,
    violations: &mut Violations,
) {
    let mut checks = Checks { violations };
    checks.keys(overrides);
    checks.amounts(overrides, instance_type);
    checks.probes(overrides.probes.as_ref());
    checks.env("/spec/pod/env", &overrides.env, true);
    let volumes = checks.volumes(&overrides.volumes);
    let folders = [&OUR_FOLDERS[..], &SYSTEM[..]].concat();
    checks.mounts("/spec/pod/volumeMounts", &overrides.volume_mounts, (&volumes, &folders));
    checks.containers(&overrides.containers, &volumes);
    checks.tolerations(&overrides.tolerations);
    checks.accounts(overrides);
}

struct Checks<'a> {
    violations: &'a mut Violations,
}

impl Checks<'_> {
    fn say(&mut self, pointer: impl Into<String>, rule: Rule, detail: impl Into<String>) {
        self.violations.push(Violation::new(pointer.into(), rule, detail.into()));
    }

    /// Says that something is there already, unless it is free.
    fn unless(&mut self, free: bool, pointer: String, detail: &str) {
        if !free {
            self.say(pointer, Rule::Conflict, detail);
        }
    }

    fn keys(&mut self, overrides: &PodOverrides) {
        check_keys("/spec/pod/labels", &overrides.labels, self.violations);
        check_keys("/spec/pod/annotations", &overrides.annotations, self.violations);
        let pointer = |list: &str, key: &str| format!("/spec/pod/{list}/{}", reference_token(key));
        for key in overrides.labels.keys() {
            let prefix = prefix_of(key);
            let chosen_by = key == "app.kubernetes.io/name";
            if chosen_by || (annotations::is_of_kubernetes(prefix) && prefix != "app.kubernetes.io") {
                self.say(
                    pointer("labels", key),
                    Rule::Conflict,
                    "a label that Kubernetes or the operator goes by",
                );
            }
        }
        for (key, value) in &overrides.annotations {
            if let Some((rule, why)) = annotations::refused(key, value) {
                self.say(pointer("annotations", key), rule, why);
            }
        }
    }

    fn amounts(&mut self, overrides: &PodOverrides, instance_type: Option<&InstanceType>) {
        let Some(kind) = instance_type else { return };
        let room = Amounts::of_machine(kind);
        let beside = beside(overrides);
        if let Some(chosen) = overrides.resources.as_ref().map(Amounts::read) {
            if !LEAST.fits(chosen) {
                self.say("/spec/pod/resources", Rule::Range, "QuestDB needs 500m and 1Gi at least");
            }
            if !chosen.plus(beside).fits(room) {
                self.say("/spec/pod/resources", Rule::Range, too_much(room, &kind.name));
            }
        } else if !LEAST.plus(beside).fits(room) {
            self.say("/spec/pod/containers", Rule::Range, too_much(room, &kind.name));
        }
    }

    fn probes(&mut self, probes: Option<&ProbesSpec>) {
        let Some(probes) = probes else { return };
        let all =
            [("startup", &probes.startup), ("readiness", &probes.readiness), ("liveness", &probes.liveness)];
        for (name, probe) in all {
            let Some(probe) = probe else { continue };
            if probe.timeout_seconds.is_some_and(|timeout| timeout > probe.period_seconds) {
                let pointer = format!("/spec/pod/probes/{name}/timeoutSeconds");
                self.say(pointer, Rule::Range, "an answer may not take longer than until the next question");
            }
        }
        if probes.startup.as_ref().is_some_and(|probe| probe.period_seconds * probe.failure_threshold < 60) {
            let detail = "a start may replay much: a minute at least, else it would be ended again and again";
            self.say("/spec/pod/probes/startup", Rule::Range, detail);
        }
    }

    /// What the operator hands to a QuestDB, or to people, is no other container's, be it of this database or of another.
    fn secret(&mut self, pointer: String, name: &str) {
        let (end, within) = OF_OPERATOR;
        let ours = name.ends_with(end) || name.contains(within);
        self.unless(!ours, pointer, "a name that credentials of databases have");
    }

    /// Says that a text is not spelt as it has to be, unless it is.
    fn spelt(&mut self, good: bool, pointer: String) {
        if !good {
            self.say(pointer, Rule::Format, "Kubernetes takes no such name there");
        }
    }

    fn source(&mut self, pointer: &str, from: &EnvSourceSpec) {
        for (kind, key) in
            [("secretKeyRef", &from.secret_key_ref), ("configMapKeyRef", &from.config_map_key_ref)]
        {
            let good = key.as_ref().is_none_or(|key| spelling::is_entry(&key.key));
            self.spelt(good, format!("{pointer}/valueFrom/{kind}/key"));
        }
    }

    fn env(&mut self, pointer: &str, env: &[EnvSpec], of_questdb: bool) {
        let mut names = BTreeSet::new();
        for (index, variable) in env.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            let name = variable.name.as_str();
            if !names.insert(name) {
                self.say(
                    format!("{pointer}/name"),
                    Rule::Conflict,
                    "a variable of this name is there already",
                );
            }
            if let Some(key) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) {
                self.secret(format!("{pointer}/valueFrom/secretKeyRef/name"), &key.name);
            }
            if let Some(from) = &variable.value_from {
                self.source(&pointer, from);
            }
            if of_questdb && is_of_questdb(name) {
                let detail = "settings of QuestDB belong to /spec/config, and some to the operator";
                self.say(format!("{pointer}/name"), Rule::Conflict, detail);
            }
            let sources = variable.value_from.as_ref().map(|from| {
                usize::from(from.secret_key_ref.is_some()) + usize::from(from.config_map_key_ref.is_some())
            });
            if !matches!((&variable.value, sources), (Some(_), None) | (None, Some(1))) {
                let detail = "needs a value, or one place where it is read from";
                self.say(pointer, Rule::Required, detail);
            }
        }
    }

    /// The names of the volumes.
    fn volumes<'v>(&mut self, volumes: &'v [VolumeSpec]) -> BTreeSet<&'v str> {
        let mut names = BTreeSet::new();
        for (index, volume) in volumes.iter().enumerate() {
            let pointer = format!("/spec/pod/volumes/{index}");
            if !names.insert(volume.name.as_str()) || OUR_VOLUMES.contains(&volume.name.as_str()) {
                self.say(format!("{pointer}/name"), Rule::Conflict, "a volume of this name is there already");
            }
            if let Some(secret) = &volume.secret {
                self.secret(format!("{pointer}/secret/secretName"), &secret.secret_name);
            }
            let sources = [volume.config_map.is_some(), volume.secret.is_some(), volume.empty_dir.is_some()];
            if sources.into_iter().filter(|source| *source).count() != 1 {
                let detail = "needs one of configMap, secret and emptyDir";
                self.say(pointer, Rule::Required, detail);
            }
        }
        names
    }

    /// Mounts of one container, of these volumes and not in these folders.
    fn mounts(&mut self, pointer: &str, mounts: &[MountSpec], (volumes, taken): (&BTreeSet<&str>, &[&str])) {
        let mut paths: Vec<&str> = Vec::new();
        for (index, mount) in mounts.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            if !volumes.contains(mount.name.as_str()) {
                let detail = "is not the name of one of /spec/pod/volumes";
                self.say(format!("{pointer}/name"), Rule::Unknown, detail);
            }
            let path = mount.mount_path.as_str();
            if !is_folder(path) {
                let detail = "must be the path of a folder below the root, without '.' or '..' in it";
                self.say(format!("{pointer}/mountPath"), Rule::Format, detail);
            } else if path.contains(FORMER_ROOT)
                || taken.iter().chain(&paths).any(|other| overlaps(path, other))
            {
                let detail = "overlaps with a folder that is there already";
                self.say(format!("{pointer}/mountPath"), Rule::Conflict, detail);
            }
            paths.push(path);
        }
    }

    fn containers(&mut self, containers: &[ContainerSpec], volumes: &BTreeSet<&str>) {
        // The line protocol's port is QuestDB's even while it is shut: the pod has it as soon as a key is given.
        let (mut names, mut port_names) = (BTreeSet::new(), BTreeSet::from(["http", "pg", "min", "ilp"]));
        let mut ports = BTreeSet::from([port::HTTP, port::PG, port::MIN, port::ILP]);
        for (index, container) in containers.iter().enumerate() {
            let pointer = format!("/spec/pod/containers/{index}");
            let name = container.name.as_str();
            if !names.insert(name) || OUR_CONTAINERS.contains(&name) {
                self.say(
                    format!("{pointer}/name"),
                    Rule::Conflict,
                    "a container of this name is there already",
                );
            }
            self.spelt(spelling::is_image(&container.image), format!("{pointer}/image"));
            for (index, port) in container.ports.iter().enumerate() {
                let pointer = format!("{pointer}/ports/{index}");
                self.spelt(spelling::is_port(&port.name), format!("{pointer}/name"));
                let free = ports.insert(port.container_port);
                self.unless(free, format!("{pointer}/containerPort"), "the port is taken");
                let free = port_names.insert(port.name.as_str());
                self.unless(free, format!("{pointer}/name"), "a port of this name is there already");
            }
            self.env(&format!("{pointer}/env"), &container.env, false);
            self.mounts(&format!("{pointer}/volumeMounts"), &container.volume_mounts, (volumes, &SYSTEM));
        }
    }

    fn tolerations(&mut self, tolerations: &[TolerationSpec]) {
        for (index, toleration) in tolerations.iter().enumerate() {
            let key = toleration.key.as_str();
            let good = spelling::is_taint(key, toleration.value.as_deref());
            self.spelt(good, format!("/spec/pod/tolerations/{index}"));
            if key == names::TAINT || key.starts_with("node.kubernetes.io/") {
                let detail = "the operator decides what the pod bears of its machine's state";
                self.say(format!("/spec/pod/tolerations/{index}/key"), Rule::Conflict, detail);
            }
        }
    }

    fn accounts(&mut self, overrides: &PodOverrides) {
        let named = [
            ("serviceAccountName", &overrides.service_account_name),
            ("priorityClassName", &overrides.priority_class_name),
        ];
        for (field, name) in named {
            self.spelt(name.as_deref().is_none_or(is_domain), format!("/spec/pod/{field}"));
        }
        let ours = [names::OPERATOR, names::PROVISIONER];
        if overrides.service_account_name.as_deref().is_some_and(|name| ours.contains(&name)) {
            self.say("/spec/pod/serviceAccountName", Rule::Conflict, "the account of a program of Slipway");
        }
        if overrides.priority_class_name.as_deref().is_some_and(|name| name.starts_with("system-")) {
            self.say("/spec/pod/priorityClassName", Rule::Conflict, "a class of Kubernetes itself");
        }
    }
}

/// Whether a variable would be heeded by QuestDB, its script, or what loads it.
fn is_of_questdb(variable: &str) -> bool {
    let (before, after) = LEVEL_OF_LOG;
    let level = variable.starts_with(before) && variable.ends_with(after);
    let loads = LOADER_NAMES.contains(&variable);
    loads || (!level && SETTINGS.iter().chain(&LOADERS).any(|prefix| variable.starts_with(prefix)))
}

fn too_much(room: Amounts, instance_type: &str) -> String {
    format!("{instance_type} has {room} for all containers together")
}

fn is_folder(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether one folder is the other, or lies in it.
fn overlaps(one: &str, other: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    within(one, other) || within(other, one)
}

/// A hash for each field that was chosen.
pub(crate) fn digests(overrides: &PodOverrides, digest: fn(&[u8]) -> String) -> BTreeMap<String, String> {
    let value = serde_json::to_value(overrides).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(field, value)| (field.clone(), digest(value.to_string().as_bytes()))).collect()
}
