//! Clusters: list, look at, register, open and close. Credentials are named, never given.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use wire::http::{Cluster, RegisterCluster, UpdateCluster};

use crate::cli::{Format, pair};
use crate::client::calls::cluster_id;
use crate::error::Error;
use crate::render;
use crate::session::{REQUEST, Session};

/// The longest registration that is read.
const LENGTH: u64 = 1024 * 1024;

/// What can be done with clusters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List clusters
    #[command(visible_alias = "ls")]
    List,
    /// Show clusters
    Get(Get),
    /// Register a cluster, or change its registration
    Register(Box<Register>),
    /// Open or close a cluster for new databases
    Update(Update),
}

/// `clusters get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Ids
    #[arg(required = true, value_name = "ID")]
    clusters: Vec<String>,
}

/// `clusters register`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway clusters register eu-west-1 --region eu-west-1 --account 123456789012 \\
      --zone eu-west-1a=subnet-1 --zone eu-west-1b=subnet-2 --hosted-zone-id Z0123 \\
      --dns-suffix eu-west-1.example.com --credentials file:eu-west-1.kubeconfig
  slipway clusters register eu-west-1 -f cluster.yaml
  slipway clusters get eu-west-1 -o json | jq 'del(.id,.databases,.created_at) | .account=\"123456789012\"' \\
      | slipway clusters register eu-west-1 -f -")]
pub struct Register {
    /// Id: lower-case letters, digits and '-', at most 40
    #[arg(value_name = "ID")]
    cluster: String,
    /// YAML or JSON of the whole registration; `-` is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["region", "account", "zone", "hosted_zone_id",
        "dns_suffix", "credentials", "namespace_template", "state"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// `clusters update`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  slipway clusters update eu-west-1 --state draining
  slipway clusters update eu-west-1 --state active

A cluster that is draining or disabled keeps its databases; new ones go to other clusters of its
region, or are refused where there is none.")]
pub struct Update {
    /// Id
    #[arg(value_name = "ID")]
    cluster: String,
    /// active, draining or disabled
    #[arg(long)]
    state: String,
}

/// A registration as flags.
#[derive(Debug, Clone, Args)]
struct Flags {
    /// AWS region
    #[arg(long, required_unless_present = "file", default_value = "", hide_default_value = true)]
    region: String,
    /// AWS account number
    #[arg(long, required_unless_present = "file", default_value = "", hide_default_value = true)]
    account: String,
    /// A zone and its subnet; may be repeated
    #[arg(long, value_name = "ZONE=SUBNET", required_unless_present = "file", value_parser = pair)]
    zone: Vec<(String, String)>,
    /// Route 53 hosted zone of the databases' names
    #[arg(
        long,
        value_name = "ID",
        required_unless_present = "file",
        default_value = "",
        hide_default_value = true
    )]
    hosted_zone_id: String,
    /// Suffix of the databases' names
    #[arg(
        long,
        value_name = "DOMAIN",
        required_unless_present = "file",
        default_value = "",
        hide_default_value = true
    )]
    dns_suffix: String,
    /// Where the credentials are, such as `file:eu-west-1.kubeconfig`
    #[arg(
        long,
        value_name = "REFERENCE",
        required_unless_present = "file",
        default_value = "",
        hide_default_value = true
    )]
    credentials: String,
    /// Namespace of a tenant, {tenant} standing for it
    #[arg(long, value_name = "TEMPLATE", default_value = "qdb-{tenant}")]
    namespace_template: String,
    /// active, draining or disabled. Unless given, it stays as it is; a new cluster is active
    #[arg(long)]
    state: Option<String>,
}

impl From<Flags> for RegisterCluster {
    fn from(flags: Flags) -> Self {
        let Flags {
            region,
            account,
            zone,
            hosted_zone_id,
            dns_suffix,
            credentials,
            namespace_template,
            state,
        } = flags;
        Self {
            region,
            account,
            zones: zone.into_iter().collect(),
            hosted_zone_id,
            dns_suffix,
            namespace_template,
            state,
            credentials,
        }
    }
}

/// Does what is asked.
pub async fn run(session: &Session, command: Command) -> Result<(), Error> {
    let client = session.client(REQUEST)?;
    match command {
        Command::List => {
            let list = client.clusters().await?;
            for cluster in &list.unreadable {
                session.output.warn(&format!("cluster {} cannot be shown: {}", cluster.id, cluster.detail));
            }
            if list.clusters.is_empty() && list.unreadable.is_empty() {
                session.output.hint("no clusters: register one with `slipway clusters register`");
            }
            show_all(session, &list)
        }
        Command::Get(Get { clusters }) => {
            let mut found = Vec::new();
            for text in &clusters {
                found.push(client.cluster(&cluster_id(text)?).await?);
            }
            if let [cluster] = found.as_slice() {
                return show(session, cluster);
            }
            show_all(session, &wire::http::ClusterList { clusters: found, unreadable: Vec::new() })
        }
        Command::Register(command) => {
            let Register { cluster, file, flags } = *command;
            let id = cluster_id(&cluster)?;
            let body = file.as_deref().map_or_else(|| Ok(flags.into()), read)?;
            let cluster = client.register_cluster(&id, &body).await?;
            show(session, &cluster)
        }
        Command::Update(Update { cluster, state }) => {
            let cluster = client.update_cluster(&cluster_id(&cluster)?, &UpdateCluster { state }).await?;
            show(session, &cluster)
        }
    }
}

fn show(session: &Session, cluster: &Cluster) -> Result<(), Error> {
    session.output.show(
        cluster,
        |wide| render::clusters::list(std::slice::from_ref(cluster), session.now, wide),
        || vec![render::clusters::name(cluster)],
    )
}

fn show_all(session: &Session, list: &wire::http::ClusterList) -> Result<(), Error> {
    if list.clusters.is_empty()
        && matches!(session.output.format, Format::Table | Format::Wide | Format::Name)
    {
        return Ok(());
    }
    session.output.show(
        list,
        |wide| render::clusters::list(&list.clusters, session.now, wide),
        || list.clusters.iter().map(render::clusters::name).collect(),
    )
}

fn read(path: &Path) -> Result<RegisterCluster, Error> {
    let failed = |source| Error::File { action: "read", path: path.to_owned(), source };
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(LENGTH).read_to_string(&mut text).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(LENGTH).read_to_string(&mut text).map_err(failed)?;
    }
    parse(&text).map_err(|reason| Error::Malformed { path: path.to_owned(), reason })
}

/// A registration as YAML, of which JSON is a part.
fn parse(text: &str) -> Result<RegisterCluster, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::render::fixture;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        register: Register,
    }

    #[test]
    fn a_state_that_is_not_given_is_not_asked_for() {
        let asked = |more: &[&str]| {
            let words = [
                "register",
                "eu-west-1",
                "--region=eu-west-1",
                "--account=123456789012",
                "--zone=eu-west-1a=subnet-1",
                "--hosted-zone-id=Z0123",
                "--dns-suffix=eu-west-1.example.com",
                "--credentials=file:eu-west-1.kubeconfig",
            ];
            let line = Line::try_parse_from([&words[..], more].concat()).unwrap();
            RegisterCluster::from(line.register.flags).state
        };
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&["--state=draining"]).as_deref(), Some("draining"));
    }

    #[test]
    fn a_registration_is_read_from_yaml_and_json() {
        let expected = fixture::cluster().registration;
        assert_eq!(parse(&serde_json::to_string_pretty(&expected).unwrap()).unwrap(), expected);
        assert_eq!(parse(&serde_saphyr::to_string(&expected).unwrap()).unwrap(), expected);
        let yaml = "region: eu-west-1\naccount: \"123456789012\"\nzones:\n  eu-west-1a: subnet-1\n  eu-west-1b: subnet-2\n\
            hosted_zone_id: Z0123\ndns_suffix: eu-west-1.example.com\ncredentials: file:eu-west-1.kubeconfig\n";
        let read = parse(yaml).unwrap();
        assert_eq!(read, RegisterCluster { state: None, ..expected }, "with defaults");
        assert!(
            !serde_json::to_string(&read).unwrap().contains("state"),
            "a state that nobody gave is not sent"
        );
    }

    #[test]
    fn nonsense_says_what_and_where() {
        let error = parse("region: a\ncolour: red\n").unwrap_err();
        assert!(error.contains("colour"), "{error}");
    }
}
