//! What others may know of a running stack: `stack.json` for programs, `env` for shells.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{Blueprint, Layout, RegionFacts, aws, files, servers};
use crate::process::write_whole;

/// The tenant whose databases `up` makes.
pub const DEMO_TENANT: &str = "demo";

/// A running stack, as tests and people reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFacts {
    /// Id of the stack.
    pub id: String,
    /// Its state directory.
    pub state_dir: PathBuf,
    /// Address of the API; absent while the programs of Slipway do not run.
    pub api_url: Option<String>,
    /// A token of role `sre`; absent like the address.
    pub token: Option<String>,
    /// Where the database is.
    pub database_url: String,
    /// Where Kafka is.
    pub kafka_bootstrap: String,
    /// Where EC2 and Route 53 are.
    pub aws_endpoint_url: String,
    /// Where faults of the AWS endpoint are ordered; absent with plain Moto.
    pub aws_control_url: Option<String>,
    /// Folder of Postgres's programs.
    pub postgres_bin: PathBuf,
    /// The kubectl program.
    pub kubectl: PathBuf,
    /// Folder of the programs built from the workspace.
    pub programs: PathBuf,
    /// Addresses of the stack's machines.
    pub network: String,
    /// Its clusters.
    pub clusters: Vec<ClusterFacts>,
}

/// One cluster of a running stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    /// Kubeconfig of the provisioner.
    pub provisioner_kubeconfig: PathBuf,
    /// Kubeconfig of the operator.
    pub operator_kubeconfig: PathBuf,
    /// Address of its API server.
    pub server: String,
    /// Hosted zone of its databases' records.
    pub hosted_zone_id: String,
    /// Under which name its databases are found.
    pub dns_suffix: String,
    /// Network of its region.
    pub vpc_id: String,
    /// Image of its nodes.
    pub node_image: String,
    /// Subnet of each zone.
    pub zones: BTreeMap<String, String>,
    /// Nothing but etcd and the API server runs in it.
    pub bare: bool,
}

impl StackFacts {
    /// Puts together what is known. `token` is given once the programs of Slipway run.
    pub fn of(blueprint: &Blueprint<'_>, regions: &[RegionFacts], token: Option<String>) -> Self {
        let Blueprint { layout, tools, identity, options } = *blueprint;
        let clusters = options.clusters.iter().filter_map(|cluster| {
            let facts = regions.iter().find(|facts| facts.region == cluster.region)?;
            Some(ClusterFacts {
                name: cluster.name.clone(),
                region: cluster.region.clone(),
                kubeconfig: layout.kubeconfig(&cluster.name, "admin"),
                provisioner_kubeconfig: layout.kubeconfig(&cluster.name, "provisioner"),
                operator_kubeconfig: layout.kubeconfig(&cluster.name, "operator"),
                server: files::server(blueprint, cluster),
                hosted_zone_id: facts.hosted_zone_id.clone(),
                dns_suffix: aws::dns_suffix(&cluster.region),
                vpc_id: facts.vpc_id.clone(),
                node_image: facts.node_image.clone(),
                zones: facts.zones.clone(),
                bare: cluster.bare,
            })
        });
        let api = format!("http://127.0.0.1:{}", identity.ports.of("api"));
        Self {
            id: identity.id.clone(),
            state_dir: layout.state().to_path_buf(),
            api_url: token.as_ref().map(|_| api),
            token,
            database_url: servers::database_url(identity),
            kafka_bootstrap: format!("127.0.0.1:{}", identity.ports.of("kafka")),
            aws_endpoint_url: aws::url(blueprint),
            aws_control_url: (!options.plain_aws).then(|| aws::control_url(blueprint)),
            postgres_bin: tools.postgres_bin.clone(),
            kubectl: tools.kubernetes_bin.join("kubectl"),
            programs: tools.programs.clone(),
            network: identity.network.cidr(),
            clusters: clusters.collect(),
        }
    }

    /// Where its data lies. The checkout is not known from here.
    pub fn layout(&self) -> Layout {
        Layout::new(&self.state_dir, &self.state_dir)
    }

    /// Reads what a stack left, if it did.
    pub fn read(layout: &Layout) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(layout.stack_file()).ok()?).ok()
    }

    /// Writes both files.
    pub fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        let path = layout.stack_file();
        write_whole(&path, &serde_json::to_string_pretty(self)?)
            .with_context(|| format!("writing {}", path.display()))?;
        files::only_owner(&path)?;
        write_whole(&layout.env_file(), &self.exports()).context("writing the shell exports")?;
        files::only_owner(&layout.env_file())
    }

    /// The files of all clusters, as kubectl reads several: each holds a context of its cluster's name.
    fn kubeconfigs(&self) -> Option<String> {
        let whole = self.clusters.iter().filter(|cluster| !cluster.bare);
        let files: Vec<String> = whole.map(|cluster| cluster.kubeconfig.display().to_string()).collect();
        (!files.is_empty()).then(|| files.join(":"))
    }

    /// Lines that a shell can read.
    fn exports(&self) -> String {
        let first = self.clusters.iter().find(|cluster| !cluster.bare);
        let pairs = [
            ("SLIPWAY_API", self.api_url.clone()),
            ("SLIPWAY_TOKEN", self.token.clone()),
            ("SLIPWAY_TENANT", self.token.as_ref().map(|_| DEMO_TENANT.to_owned())),
            ("DATABASE_URL", Some(self.database_url.clone())),
            ("KAFKA_BOOTSTRAP", Some(self.kafka_bootstrap.clone())),
            ("AWS_ENDPOINT_URL", Some(self.aws_endpoint_url.clone())),
            ("AWS_REGION", first.map(|cluster| cluster.region.clone())),
            // What version 1 of AWS's command line reads.
            ("AWS_DEFAULT_REGION", first.map(|cluster| cluster.region.clone())),
            ("AWS_ACCESS_KEY_ID", Some("sandbox".to_owned())),
            ("AWS_SECRET_ACCESS_KEY", Some("sandbox".to_owned())),
            ("KUBECONFIG", self.kubeconfigs()),
        ];
        let mut text = String::from("# Read it with: . .slipway/env\n");
        for (name, value) in pairs {
            if let Some(value) = value {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "export {name}='{}'", value.replace('\'', "'\\''"));
            }
        }
        // Tools such as kubectl and psql that came with the stack.
        let kubernetes = self.kubectl.parent().map(PathBuf::from).unwrap_or_default();
        let folders =
            [&self.programs, &self.postgres_bin, &kubernetes].map(|folder| folder.display().to_string());
        let _ = writeln!(text, "export PATH=\"$PATH:{}\"", folders.join(":"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    #[test]
    fn facts_say_how_to_reach_everything() {
        let options = Options::for_system();
        with_blueprint(&options, |blueprint| {
            let regions: Vec<RegionFacts> =
                options.clusters.iter().map(|cluster| RegionFacts::sample(&cluster.region)).collect();
            let facts = StackFacts::of(blueprint, &regions, Some("tok'en".to_owned()));
            assert_eq!(facts.clusters.len(), 3);
            assert_eq!(facts.clusters.iter().filter(|cluster| cluster.bare).count(), 1);
            let exports = facts.exports();
            for line in ["export SLIPWAY_TOKEN='tok'\\''en'", "export AWS_REGION='eu-west-1'"] {
                assert!(exports.lines().any(|found| found == line), "{line} is not in\n{exports}");
            }
            let kubeconfigs = exports.lines().find(|line| line.starts_with("export KUBECONFIG=")).unwrap();
            assert_eq!(kubeconfigs.matches(".kubeconfig").count(), 2, "whole clusters only: {kubeconfigs}");
        });
    }

    #[test]
    fn without_slipway_there_is_no_api() {
        with_blueprint(&Options::for_integration(), |blueprint| {
            let facts = StackFacts::of(blueprint, &[], None);
            assert_eq!((facts.api_url.as_ref(), facts.token.as_ref()), (None, None));
            assert!(!facts.exports().contains("SLIPWAY_API"));
        });
    }
}
