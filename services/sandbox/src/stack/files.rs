//! The files that servers and clients of a stack are configured by. Written anew on every start; holds no data.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::unistd::{Uid, User as SystemUser, chown};

use super::{Blueprint, Cluster, Layout, servers};
use crate::process::write_whole;

/// A user of a cluster, known by a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Short name, as in file names.
    pub short: &'static str,
    /// Name that the API server knows.
    pub name: &'static str,
    /// Groups.
    pub groups: &'static str,
}

impl User {
    /// Everyone who may talk to a cluster. Only `provisioner` and `operator` are bound by rules of access.
    pub const ALL: [Self; 6] = [
        Self { short: "admin", name: "admin", groups: "system:masters" },
        Self {
            short: "controller-manager",
            name: "system:kube-controller-manager",
            groups: "system:masters",
        },
        Self { short: "scheduler", name: "system:kube-scheduler", groups: "system:masters" },
        Self { short: "node-agent", name: "slipway-node-agent", groups: "system:masters" },
        Self {
            short: "provisioner",
            name: "system:serviceaccount:slipway-system:slipway-provisioner",
            groups: "system:serviceaccounts,system:serviceaccounts:slipway-system",
        },
        Self {
            short: "operator",
            name: "system:serviceaccount:slipway-system:slipway-operator",
            groups: "system:serviceaccounts,system:serviceaccounts:slipway-system",
        },
    ];
}

/// Writes every file, and makes the folders they and the servers' data lie in.
pub(super) fn write_files(blueprint: &Blueprint<'_>) -> anyhow::Result<()> {
    let layout = blueprint.layout;
    for folder in layout.folders() {
        make_folder(&folder)?;
    }
    make_folder(&layout.data().join("aws"))?;
    write_whole(&layout.conf().join("kafka.properties"), &servers::kafka_properties(blueprint))?;
    for cluster in &blueprint.options.clusters {
        write_cluster(blueprint, cluster)
            .with_context(|| format!("writing the files of cluster {}", cluster.name))?;
    }
    Ok(())
}

fn write_cluster(blueprint: &Blueprint<'_>, cluster: &Cluster) -> anyhow::Result<()> {
    let (layout, identity) = (blueprint.layout, blueprint.identity);
    make_folder(&layout.certificates(&cluster.name))?;
    make_folder(&layout.nodes(&cluster.name))?;
    let mut tokens = String::new();
    for User { short, name, groups } in User::ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(tokens, "{},{name},{short},\"{groups}\"", identity.token(&cluster.name, short));
    }
    write_secret(&layout.conf().join(format!("{}.tokens", cluster.name)), &tokens)?;
    for user in User::ALL {
        let text = kubeconfig(blueprint, cluster, user);
        write_secret(&layout.kubeconfig(&cluster.name, user.short), &text)?;
    }
    let provisioner = fs::read_to_string(layout.kubeconfig(&cluster.name, "provisioner"))?;
    write_secret(&layout.credentials().join(format!("{}.kubeconfig", cluster.name)), &provisioner)
}

/// A kubeconfig. The API server makes its certificate on its first start, so the authority is named by its path.
fn kubeconfig(blueprint: &Blueprint<'_>, cluster: &Cluster, user: User) -> String {
    let Cluster { name, .. } = cluster;
    // Files that kubectl reads together share one list of users: the first of a name hides the others.
    let login = format!("{name}-{}", user.short);
    let authority = blueprint.layout.certificates(name).join("apiserver.crt");
    serde_json::to_string_pretty(&serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server(blueprint, cluster), "certificate-authority": authority}}],
        "users": [{"name": login, "user": {"token": blueprint.identity.token(name, user.short)}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": login}}],
    }))
    .unwrap_or_default()
}

/// Address of a cluster's API server.
pub(super) fn server(blueprint: &Blueprint<'_>, cluster: &Cluster) -> String {
    format!("https://127.0.0.1:{}", blueprint.identity.ports.of(&format!("{}-apiserver", cluster.name)))
}

/// Where Postgres keeps its data: in the state directory, unless its user cannot reach that (a checkout in `/root`).
pub(crate) fn postgres_data(layout: &Layout, stack: &str) -> PathBuf {
    let usual = layout.data().join("postgres");
    let reachable = !Uid::effective().is_root() || layout.state().ancestors().all(others_may_enter);
    if reachable { usual } else { PathBuf::from(format!("/var/tmp/slipway-{stack}/postgres")) }
}

fn others_may_enter(folder: &Path) -> bool {
    // A folder that does not exist yet will be made with the usual permissions.
    fs::metadata(folder).map_or(true, |metadata| metadata.permissions().mode() & 0o001 != 0)
}

/// Makes a file or folder belong to the user Postgres runs as, with these permissions.
pub(super) fn give_to_postgres(path: &Path, mode: u32) -> anyhow::Result<()> {
    if Uid::effective().is_root() {
        let user = SystemUser::from_name("postgres")?.context("there is no user 'postgres'")?;
        chown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("giving {} away", path.display()))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(())
}

/// Takes the file away from everyone but its owner.
pub(super) fn only_owner(path: &Path) -> anyhow::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("closing {}", path.display()))
}

fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    write_whole(path, text).with_context(|| format!("writing {}", path.display()))?;
    only_owner(path)
}

fn make_folder(path: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    #[test]
    fn a_kubeconfig_trusts_only_the_servers_own_certificate() {
        with_blueprint(&Options::for_people(), |blueprint| {
            let text = kubeconfig(blueprint, &Cluster::full("eu-west-1"), User::ALL[0]);
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON is YAML");
            let cluster = &value["clusters"][0]["cluster"];
            let authority = "/checkout/.slipway/data/eu-west-1/certificates/apiserver.crt";
            assert_eq!(cluster["certificate-authority"], authority);
            assert_eq!(cluster.get("insecure-skip-tls-verify"), None);
            assert_eq!(value["users"][0]["user"]["token"], "token-eu-west-1-admin");
            assert_eq!(value["users"][0]["name"], "eu-west-1-admin", "of its own among several files");
        });
    }

    #[test]
    fn users_differ_in_name_and_token() {
        let mut names: Vec<&str> = User::ALL.iter().map(|user| user.name).collect();
        names.dedup();
        assert_eq!(names.len(), User::ALL.len());
        for user in User::ALL {
            let bound = matches!(user.short, "provisioner" | "operator");
            assert_eq!(user.groups.contains("system:masters"), !bound, "{}", user.short);
        }
    }
}
