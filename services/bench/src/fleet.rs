//! A provisioner with a database, topics and clusters of its own: the clusters are [`crate::fake`], the instructions are
//! written to its topic as the relay would write them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use domain::{DatabaseId, InstructionId, OperationId, OperationKind, Position};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use wire::Instruction;

use crate::fake::{Applied, Manner, Server};
use crate::ground::TENANT;
use crate::pgbench::Scratch;
use crate::populate::identity;
use crate::process::Process;
use crate::topic;

/// Partitions of its topics, as in the sandbox.
pub(crate) const PARTITIONS: i32 = 8;
/// How long an apply may take to come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The provisioner and its clusters.
pub(crate) struct Fleet {
    /// The program.
    pub(crate) provisioner: Process,
    /// What the clusters answered.
    pub(crate) applied: UnboundedReceiver<Applied>,
    /// The topic of its instructions.
    pub(crate) instructions: String,
    scratch: Scratch,
    _servers: Vec<Server>,
}

impl Fleet {
    /// Starts as many clusters as there are manners, and the provisioner; `instructions` names a topic that is filled
    /// already, where there is one.
    pub(crate) async fn start(manners: &[Manner], instructions: Option<String>) -> anyhow::Result<Self> {
        let names: Vec<String> = (0..manners.len()).map(cluster).collect();
        let scratch = Scratch::with_clusters(&names, Vec::new()).await?;
        let (tell, applied) = mpsc::unbounded_channel();
        let mut servers = Vec::new();
        for (number, manner) in manners.iter().enumerate() {
            let server = Server::start(number, *manner, tell.clone()).await?;
            let file = scratch.folder().join(format!("{}.kubeconfig", cluster(number)));
            std::fs::write(&file, server.kubeconfig())
                .with_context(|| format!("writing {}", file.display()))?;
            servers.push(server);
        }
        let gossip = testkit::unique("bench.gossip");
        topic::empty(&gossip, PARTITIONS).await?;
        let instructions = instructions.unwrap_or_else(|| testkit::unique("bench.instructions"));
        topic::empty(&instructions, PARTITIONS).await?;
        let environment = [
            ("DATABASE_URL", scratch.url().to_owned()),
            ("SLIPWAY_CREDENTIALS_DIR", scratch.folder().display().to_string()),
            ("SLIPWAY_INSTRUCTIONS_TOPIC", instructions.clone()),
            ("SLIPWAY_GOSSIP_TOPIC", gossip),
            ("SLIPWAY_TOPIC_PARTITIONS", PARTITIONS.to_string()),
            ("SLIPWAY_CONSUMER_GROUP", testkit::unique("bench")),
            ("SLIPWAY_OFFSET_RESET", "earliest".to_owned()),
        ];
        let provisioner = Process::start("slipway-provisioner", &[], &environment).await?;
        Ok(Self { provisioner, applied, instructions, scratch, _servers: servers })
    }

    /// The next apply that was answered.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Applied> {
        let next = tokio::time::timeout(PATIENCE, self.applied.recv()).await;
        next.context("no apply came")?.context("the clusters ended")
    }

    /// Ends the program and takes its database away.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.provisioner.kill().await?;
        self.scratch.drop().await
    }
}

/// The name of a cluster.
pub(crate) fn cluster(number: usize) -> String {
    format!("bench-{number}")
}

/// The record of an instruction for a database, both by number: each call is a newer one.
pub(crate) fn record(database: usize, cluster_number: usize) -> anyhow::Result<(String, Vec<u8>)> {
    static SEQ: AtomicUsize = AtomicUsize::new(1);
    let seq = i64::try_from(SEQ.fetch_add(1, Ordering::Relaxed))?;
    let instruction = Instruction {
        id: InstructionId::mint(),
        database: identity(database).parse::<DatabaseId>()?,
        tenant: TENANT.parse()?,
        cluster: cluster(cluster_number).parse()?,
        operation: OperationId::mint(),
        operation_kind: OperationKind::Update,
        position: Position { epoch: 1, seq },
        desired: desired(database)?,
        issued_at: jiff::Timestamp::now(),
        actor: "bench".to_owned(),
    };
    Ok((instruction.key(), instruction.encode()))
}

/// The number of the database that a resource is of.
pub(crate) fn number(resource: &str) -> Option<usize> {
    resource.strip_prefix("b-")?.split('-').next()?.parse().ok()
}

fn desired(database: usize) -> anyhow::Result<domain::Desired> {
    Ok(domain::Desired {
        name: format!("b-{database}").parse()?,
        run_state: domain::RunState::Running,
        version: "9.3.4".to_owned(),
        compute: domain::Compute { instance_type: "m7i.large".to_owned(), node_image: None },
        storage: domain::Storage {
            size_gib: 50,
            volume_type: domain::VolumeType::Gp3,
            iops: 3_000,
            throughput: 125,
            provisioned: false,
            deletion_policy: domain::DeletionPolicy::Retain,
        },
        config: BTreeMap::new(),
        network: domain::Network {
            hostname: format!("b-{database}.bench-1.db.slipway.test"),
            allowed_cidrs: Vec::new(),
            exposure: domain::Exposure::Internal,
        },
        restart_nonce: None,
        deletion_protection: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_instructions() {
        let (key, payload) = record(7, 3).unwrap();
        let read = Instruction::decode(&payload).unwrap();
        assert_eq!((key, read.cluster.as_str()), (read.key(), "bench-3"));
        let (_, again) = record(7, 3).unwrap();
        assert!(Instruction::decode(&again).unwrap().position > read.position, "each is newer");
    }

    #[test]
    fn resources_name_their_database() {
        assert_eq!(number("b-12-0000000c"), Some(12));
        assert_eq!(number("other"), None);
    }
}
