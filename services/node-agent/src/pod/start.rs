//! One start of a container of a pod: image, files, disks, variables, command. Called when the disks are claimed; says why
//! it could not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::container::ContainerIntent;
use super::environment::{self, Addresses};
use super::intent::PodIntent;
use super::record::{self, Record};
use super::translate;
use super::volumes;
use crate::context::Context;
use crate::machine::Site;
use crate::process::{self, Interior, Launch, MountKind, MountPoint};
use crate::questdb;

/// What a start is about.
pub struct Request<'a> {
    /// Shared things.
    pub context: &'a Context,
    /// The machine.
    pub site: &'a Site,
    /// What the pod asks for.
    pub intent: &'a PodIntent,
    /// The container whose turn it is.
    pub container: &'a ContainerIntent,
    /// The pod itself.
    pub pod: &'a Pod,
    /// Its record, with the volumes claimed for it.
    pub record: &'a Record,
    /// Its directory.
    pub run_dir: &'a Path,
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image is not here.
    #[error("cannot pull the image")]
    Image(#[source] questdb::Error),
    /// Variables.
    #[error("cannot make the environment")]
    Environment(#[source] environment::Error),
    /// Volumes.
    #[error("cannot make the volumes")]
    Volumes(#[source] volumes::Error),
    /// A file of the host.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The process.
    #[error("cannot run the process")]
    Process(#[source] process::Error),
}

impl Error {
    /// As kubelet names it in a container's waiting state.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Image(_) => "ErrImagePull",
            Self::Environment(_) => "CreateContainerConfigError",
            Self::Volumes(_) => "ContainerCreating",
            Self::File { .. } | Self::Process(_) => "RunContainerError",
        }
    }
}

/// Starts it.
pub async fn start(request: &Request<'_>) -> Result<(), Error> {
    let Request { context, intent, container, record, run_dir, .. } = request;
    let settings = &context.settings;
    let library =
        questdb::library(settings.questdb_lib.as_deref(), &container.image).map_err(Error::Image)?;
    let mut variables = variables(request)?;
    std::fs::create_dir_all(run_dir).map_err(|source| Error::File { path: run_dir.to_path_buf(), source })?;
    let mounts = mounts(request)?;
    if questdb::reads_files(&container.image) {
        let mappings = volumes::mappings(&mounts);
        variables = with_contents(variables, |path| translate::paths(path, &mappings))?;
    }
    let (java, home) = questdb::java_home(&settings.java)
        .map_err(|source| Error::File { path: settings.java.clone(), source })?;
    let launch = match request.site.network.path() {
        Some(network) => {
            let installed = Installed { java, library: questdb::LIBRARY.into() };
            Launch {
                command: command(request, &variables, &installed, str::to_owned),
                interior: Some(interior(request, network, mounts, &library, home.as_deref())),
                ..plain(request, variables)
            }
        }
        None => without_namespaces(request, &variables, &mounts, &Installed { java, library })?,
    };
    // The record first: if the agent dies now, the next one knows whose process it finds.
    record.save(run_dir).map_err(|source| Error::File { path: run_dir.to_path_buf(), source })?;
    process::spawn(&launch).await.map_err(Error::Process)?;
    context.counts.starts.inc();
    tracing::info!(pod.name = %intent.key, container.name = container.name, address = record.address, "started a process");
    Ok(())
}

fn variables(request: &Request<'_>) -> Result<BTreeMap<String, String>, Error> {
    let Request { context, intent, container, pod, record, .. } = request;
    let addresses = Addresses { address: record.address.clone() };
    let objects = context.objects(&intent.key.namespace);
    let mut variables = environment::resolve(&container.env, &container.env_from, pod, &addresses, &objects)
        .map_err(Error::Environment)?;
    variables.entry("HOSTNAME".to_owned()).or_insert_with(|| intent.key.name.clone());
    Ok(variables)
}

/// Variables that name files of passwords become passwords. `place` tells where a path inside the container is.
fn with_contents(
    variables: BTreeMap<String, String>,
    place: impl Fn(&str) -> String,
) -> Result<BTreeMap<String, String>, Error> {
    let read = |(name, value): (String, String)| match name.strip_suffix("_FILE") {
        Some(bare) if bare.starts_with("QDB_") && bare.ends_with("_PASSWORD") => {
            let path = PathBuf::from(place(&value));
            let text = std::fs::read_to_string(&path).map_err(|source| Error::File { path, source })?;
            Ok((bare.to_owned(), text.trim_end().to_owned()))
        }
        _ => Ok((name, value)),
    };
    variables.into_iter().map(read).collect()
}

fn mounts(request: &Request<'_>) -> Result<Vec<MountPoint>, Error> {
    let Request { context, intent, container, pod, record, run_dir, .. } = request;
    volumes::write_content(context, intent, pod, run_dir).map_err(Error::Volumes)?;
    let disks = record.volumes.iter().map(|(name, id)| (name.clone(), id.as_str().into())).collect();
    let places =
        volumes::places(&context.settings.data_dir, intent, &disks, run_dir).map_err(Error::Volumes)?;
    volumes::mount_points(container, intent, &places).map_err(Error::Volumes)
}

/// Where the programs of an image are, as the process sees them.
struct Installed {
    java: PathBuf,
    library: PathBuf,
}

/// The container's own command, or QuestDB as the image's entry point starts it. `place` tells where a path inside the
/// container is for the process.
fn command(
    request: &Request<'_>,
    variables: &BTreeMap<String, String>,
    installed: &Installed,
    place: impl Fn(&str) -> String,
) -> Vec<OsString> {
    if let Some(words) = request.container.own_command(variables, &place) {
        return words;
    }
    let prepend = variables.get("JVM_PREPEND").map(|prepend| place(prepend));
    let Installed { java, library } = installed;
    let heap = &request.context.settings.heap;
    questdb::command(java, heap, library, &place(questdb::ROOT), prepend.as_deref())
}

fn plain(request: &Request<'_>, environment: BTreeMap<String, String>) -> Launch {
    let settings = &request.context.settings;
    Launch {
        stack: settings.stack.clone(),
        run_dir: request.run_dir.to_owned(),
        log: record::pod_dir(&settings.data_dir, &request.intent.key)
            .join(format!("{}.log", request.container.name)),
        command: Vec::new(),
        environment,
        interior: None,
    }
}

fn interior(
    request: &Request<'_>,
    network: PathBuf,
    mut mounts: Vec<MountPoint>,
    library: &Path,
    java_home: Option<&Path>,
) -> Interior {
    let shown = |source: &Path, target: String| MountPoint {
        kind: MountKind::ReadOnlyDirectory,
        source: source.to_owned(),
        target,
    };
    mounts.insert(0, shown(library, questdb::LIBRARY.to_owned()));
    if let Some(home) = java_home {
        mounts.insert(0, shown(home, home.to_string_lossy().into_owned()));
    }
    let Request { intent, container, .. } = request;
    if container.command.is_empty() && !mounts.iter().any(|mount| mount.target == questdb::ROOT) {
        tracing::warn!(pod.name = %intent.key, "no volume is mounted at {}", questdb::ROOT);
    }
    let identity = container.identity;
    Interior { network, mounts, user: identity.user, group: identity.group, extra_group: identity.fs_group }
}

fn without_namespaces(
    request: &Request<'_>,
    variables: &BTreeMap<String, String>,
    mounts: &[MountPoint],
    installed: &Installed,
) -> Result<Launch, Error> {
    volumes::link_nested(mounts)
        .map_err(|source| Error::File { path: request.run_dir.to_owned(), source })?;
    let mappings = volumes::mappings(mounts);
    let command = command(request, variables, installed, |text| translate::paths(text, &mappings));
    let variables = translate::environment(variables, &mappings, &request.record.address);
    Ok(Launch { command, ..plain(request, variables) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_from_files_are_put_into_the_environment() {
        let folder = std::env::temp_dir().join(format!("node-agent-passwords-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("pg-password"), "swordfish\n").unwrap();
        let place = |path: &str| path.replace("/etc/questdb/secrets", &folder.display().to_string());
        let read = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            with_contents(pairs.collect(), place)
        };
        let found = read(&[
            ("QDB_PG_PASSWORD_FILE", "/etc/questdb/secrets/pg-password"),
            ("QDB_PG_USER", "admin"),
            ("OTHER_PASSWORD_FILE", "/etc/questdb/secrets/pg-password"),
        ]);
        let expected = [
            ("OTHER_PASSWORD_FILE", "/etc/questdb/secrets/pg-password"),
            ("QDB_PG_PASSWORD", "swordfish"),
            ("QDB_PG_USER", "admin"),
        ];
        let found = found.unwrap();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
        let missing = read(&[("QDB_HTTP_PASSWORD_FILE", "/etc/questdb/secrets/none")]);
        assert!(matches!(missing, Err(Error::File { .. })), "{missing:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
