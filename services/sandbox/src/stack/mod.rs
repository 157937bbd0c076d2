//! What a stack is, as data: its programs, ports, network, secrets and files.
//!
//! Definitions are derived purely from installed paths, ports and options, so they can be compared: an unchanged
//! definition means that a running program may stay. Starting and watching is the supervisor's.

mod aws;
mod cluster;
mod facts;
mod files;
mod identity;
mod layout;
mod network;
mod ports;
mod prepare;
mod program;
mod servers;
mod services;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

pub use aws::RegionFacts;
pub(crate) use aws::{bootstrap_command, dns_suffix, sources as aws_sources};
pub(crate) use cluster::kubectl;
pub use facts::{ClusterFacts, DEMO_TENANT, StackFacts};
pub use files::User;
pub(crate) use files::postgres_data;
pub use identity::{Identity, Secrets};
pub use layout::Layout;
pub use network::Network;
pub use ports::Ports;
pub use prepare::prepare;
pub use program::{Check, Program, Stop, StopSignal};
pub(crate) use servers::url_of;
pub use servers::{DATABASE, DATABASE_USER, database_url};
pub(crate) use services::backend_environment;

use crate::process::write_whole;

/// Where the installed servers and the built programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// The `java` program.
    pub java: PathBuf,
    /// Folder of Kafka's jars.
    pub kafka_lib: PathBuf,
    /// Folder of Postgres's programs.
    pub postgres_bin: PathBuf,
    /// Folder of kube-apiserver and its kin.
    pub kubernetes_bin: PathBuf,
    /// Folder of etcd.
    pub etcd_bin: PathBuf,
    /// Folder of the QuestDB jar.
    pub questdb_lib: PathBuf,
    /// The interpreter of the AWS endpoint's environment.
    pub aws_python: PathBuf,
    /// Folder of the programs built from this workspace.
    pub programs: PathBuf,
}

/// One Kubernetes cluster of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// The AWS region it lies in.
    pub region: String,
    /// Only etcd and the API server: nothing but a test moves state in it.
    pub bare: bool,
}

/// What kind of stack is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Its clusters.
    pub clusters: Vec<Cluster>,
    /// Whether the programs of Slipway run in it, or only the servers.
    pub slipway: bool,
    /// Use Moto as it is, without the strict layer.
    pub plain_aws: bool,
    /// Keep Postgres's and etcd's promises through a power cut; tests do without.
    pub durable: bool,
}

impl Options {
    /// What `up` runs.
    pub fn for_people() -> Self {
        let clusters = vec![Cluster::full("eu-west-1"), Cluster::full("us-east-1")];
        Self { clusters, slipway: true, plain_aws: false, durable: true }
    }

    /// What integration tests need: servers, and an API server in which nothing else happens.
    pub fn for_integration() -> Self {
        Self { clusters: vec![Cluster::bare()], slipway: false, plain_aws: false, durable: false }
    }

    /// What system tests need: everything.
    pub fn for_system() -> Self {
        let clusters = vec![Cluster::bare(), Cluster::full("eu-west-1"), Cluster::full("us-east-1")];
        Self { clusters, slipway: true, plain_aws: false, durable: false }
    }

    /// Whether many tests at once share its servers, none of which ends one of them.
    pub(crate) fn is_for_many_tests(&self) -> bool {
        !self.slipway && !self.durable
    }

    /// The clusters that have controllers and nodes.
    pub fn full_clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.iter().filter(|cluster| !cluster.bare)
    }
}

impl Cluster {
    /// A whole cluster, named after its region.
    pub fn full(region: &str) -> Self {
        Self { name: region.to_owned(), region: region.to_owned(), bare: false }
    }

    /// The API server that tests have to themselves; its region is nobody else's.
    pub fn bare() -> Self {
        Self { name: "bare".to_owned(), region: "eu-central-1".to_owned(), bare: true }
    }
}

/// Everything that definitions are derived from.
#[derive(Debug, Clone, Copy)]
pub struct Blueprint<'a> {
    /// Paths of the stack.
    pub layout: &'a Layout,
    /// Paths of installed things.
    pub tools: &'a Tools,
    /// Ports, network, secrets.
    pub identity: &'a Identity,
    /// What is wanted.
    pub options: &'a Options,
}

impl Blueprint<'_> {
    /// The servers: Kafka, Postgres, AWS endpoint, clusters.
    pub fn servers(&self) -> Vec<Program> {
        let mut programs = vec![servers::kafka(self), servers::postgres(self), aws::endpoint(self)];
        for cluster in &self.options.clusters {
            programs.extend(cluster::programs(self, cluster));
        }
        programs
    }

    /// The programs of Slipway, which need to know what the AWS endpoint holds.
    pub fn services(&self, regions: &[RegionFacts]) -> Vec<Program> {
        if self.options.slipway { services::programs(self, regions) } else { Vec::new() }
    }
}

/// The definition that a supervisor works from, as it lies on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// Id of the stack.
    pub stack: String,
    /// Its programs, each after those it depends on.
    pub programs: Vec<Program>,
}

impl Programs {
    /// Reads the definition of a stack.
    pub fn read(layout: &Layout) -> anyhow::Result<Self> {
        let path = layout.programs_file();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understanding {}", path.display()))
    }

    /// Writes it; it holds passwords, so only the owner may read it.
    pub fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        let path = layout.programs_file();
        write_whole(&path, &serde_json::to_string_pretty(self)?)
            .with_context(|| format!("writing {}", path.display()))?;
        files::only_owner(&path)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Fixed inputs, so that definitions can be compared with what is expected.
    pub(crate) fn with_blueprint(options: &Options, check: impl FnOnce(&Blueprint<'_>)) {
        let layout = Layout::new("/checkout", "/checkout/.slipway");
        let tools = Tools {
            java: "/usr/bin/java".into(),
            kafka_lib: "/cache/kafka/lib".into(),
            postgres_bin: "/pg/bin".into(),
            kubernetes_bin: "/cache/kubernetes/bin".into(),
            etcd_bin: "/cache/etcd/bin".into(),
            questdb_lib: "/cache/questdb/lib".into(),
            aws_python: "/cache/aws/venv/bin/python".into(),
            programs: "/target/debug".into(),
        };
        let numbered = Ports::names(options).into_iter().zip(20_001..);
        let ports = Ports(numbered.collect::<BTreeMap<String, u16>>());
        let identity = Identity::fixed("ab12c", ports);
        check(&Blueprint { layout: &layout, tools: &tools, identity: &identity, options });
    }

    fn programs(options: &Options) -> Vec<Program> {
        let facts: Vec<RegionFacts> =
            options.clusters.iter().map(|cluster| RegionFacts::sample(&cluster.region)).collect();
        let mut programs = Vec::new();
        with_blueprint(options, |blueprint| {
            programs = [blueprint.servers(), blueprint.services(&facts)].concat();
        });
        programs
    }

    #[test]
    fn every_kind_of_stack_has_the_programs_it_needs() {
        let cases: [(Options, usize, &[&str]); 3] = [
            (Options::for_integration(), 5, &["kafka", "postgres", "aws", "bare-etcd", "bare-apiserver"]),
            (
                Options::for_people(),
                17,
                &["eu-west-1-scheduler", "backend", "us-east-1-operator", "us-east-1-nodes"],
            ),
            (Options::for_system(), 19, &["bare-apiserver", "provisioner", "eu-west-1-operator"]),
        ];
        for (options, count, names) in cases {
            let programs = programs(&options);
            let found: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
            assert_eq!(found.len(), count, "{found:?}");
            assert!(names.iter().all(|name| found.contains(name)), "{names:?} are not all in {found:?}");
        }
    }

    #[test]
    fn programs_come_after_what_they_depend_on_and_have_names_and_ports_of_their_own() {
        let options = Options::for_system();
        let mut seen = BTreeSet::new();
        for program in programs(&options) {
            let early = program.depends_on.iter().find(|name| !seen.contains(*name));
            assert_eq!(early, None, "{} depends on what comes later", program.name);
            assert!(!program.command.is_empty(), "{}", program.name);
            assert!(seen.insert(program.name.clone()), "{} is there twice", program.name);
        }
        with_blueprint(&options, |blueprint| {
            let ports: BTreeSet<u16> = blueprint.identity.ports.0.values().copied().collect();
            assert_eq!(ports.len(), blueprint.identity.ports.0.len());
        });
    }

    #[test]
    fn the_same_inputs_give_the_same_definition() {
        let options = Options::for_people();
        assert_eq!(programs(&options), programs(&options));
    }
}
