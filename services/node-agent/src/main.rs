//! `slipway-node-agent`: reads flags and environment, and runs the agent or cleans up after one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use node_agent::settings::{Mode, Network, Settings};
use node_agent::{agent, api, leftovers};

/// Stands in for kubelet, CSI attacher and machines of one cluster of the sandbox.
#[derive(Parser)]
#[command(name = "slipway-node-agent", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent; what happens without a command.
    Run(Box<RunArgs>),
    /// Remove every process, network and pod directory of a stack. Volumes stay.
    Cleanup(CleanupArgs),
}

#[derive(Args)]
struct CleanupArgs {
    /// Short id of the stack.
    #[arg(long, env = "SLIPWAY_STACK")]
    stack: String,
    /// The agent's data directory.
    #[arg(long, env = "SLIPWAY_AGENT_DATA_DIR")]
    data_dir: PathBuf,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    telemetry: runtime::TelemetryArgs,
    #[command(flatten)]
    ops: runtime::OpsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Args)]
struct ClusterArgs {
    /// How to reach the cluster's API server.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The cluster, as in the tag `questdb.io/cluster`.
    #[arg(long, env = "SLIPWAY_CLUSTER")]
    cluster: String,
    /// Region of the cluster.
    #[arg(long, env = "AWS_REGION")]
    region: String,
    /// Another endpoint than AWS's own.
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    endpoint_url: Option<String>,
    /// Control API of the sandbox's AWS endpoint.
    #[arg(long, env = "SLIPWAY_AWS_CONTROL_URL")]
    control_url: Option<String>,
    /// Milliseconds between two looks at EC2.
    #[arg(long, env = "SLIPWAY_AGENT_POLL_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..))]
    poll_ms: u64,
    /// Seconds between two renewals of a node's lease.
    #[arg(long, env = "SLIPWAY_AGENT_LEASE_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    lease_seconds: u64,
    /// Version the nodes report.
    #[arg(long, env = "SLIPWAY_AGENT_KUBELET_VERSION", default_value = "v1.34.4")]
    kubelet_version: String,
}

#[derive(Args)]
struct MachineArgs {
    /// Short id of the stack, unique on this computer; in the names of networks.
    #[arg(long, env = "SLIPWAY_STACK", value_parser = stack_id)]
    stack: String,
    /// Whether pods become processes.
    #[arg(long, env = "SLIPWAY_AGENT_MODE", value_enum, default_value_t = ModeArg::Process)]
    mode: ModeArg,
    /// How nodes get addresses; by default a namespace each for root, else loopback.
    #[arg(long, env = "SLIPWAY_AGENT_NETWORK", value_enum)]
    network: Option<NetworkArg>,
    /// Where volumes and pods lie.
    #[arg(long, env = "SLIPWAY_AGENT_DATA_DIR")]
    data_dir: PathBuf,
    /// Where the AWS endpoint keeps what snapshots hold; without it disks made from one are empty.
    #[arg(long, env = "SLIPWAY_AGENT_SNAPSHOTS_DIR")]
    snapshots_dir: Option<PathBuf>,
    /// Directory with the QuestDB jar.
    #[arg(long, env = "SLIPWAY_QUESTDB_LIB")]
    questdb_lib: Option<PathBuf>,
    /// The `java` program.
    #[arg(long, env = "SLIPWAY_JAVA", default_value = "/usr/bin/java")]
    java: PathBuf,
    /// Heap of each QuestDB.
    #[arg(long, env = "SLIPWAY_AGENT_HEAP", default_value = "256m")]
    heap: String,
    /// Addresses that nodes may reach.
    #[arg(long, env = "SLIPWAY_AGENT_NODE_NETWORK", default_value = "10.250.0.0/16")]
    node_network: String,
    /// Milliseconds before a container that crashed twice is started again; doubles with each crash.
    #[arg(long, env = "SLIPWAY_AGENT_CRASH_BACKOFF_MS", default_value_t = 1_000)]
    crash_backoff_ms: u64,
    /// Longest such pause, in seconds.
    #[arg(long, env = "SLIPWAY_AGENT_CRASH_BACKOFF_MAX_SECONDS", default_value_t = 300)]
    crash_backoff_max_seconds: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeArg {
    /// A real QuestDB for each pod that has one.
    Process,
    /// No processes; pods are ready at once.
    None,
}

#[derive(Clone, Copy, ValueEnum)]
enum NetworkArg {
    /// A network namespace for each node.
    Namespace,
    /// Addresses of 127.0.0.0/8.
    Loopback,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command } = Cli::parse_from(with_command(std::env::args_os().collect()));
    let result = match command {
        Command::Run(args) => serve(*args).await,
        Command::Cleanup(args) => cleanup(args).await,
    };
    runtime::program::exit(result)
}

/// A supervisor that sets only variables names no command.
fn with_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or("--");
    if first.starts_with('-') && !matches!(first, "-h" | "--help" | "-V" | "--version") {
        words.insert(1.min(words.len()), "run".into());
    }
    words
}

async fn serve(args: RunArgs) -> anyhow::Result<()> {
    let RunArgs { telemetry, ops, cluster, machine } = args;
    let program = runtime::Program::start(runtime::service!("slipway-node-agent"), &telemetry, &ops).await?;
    let client = api::connect(&cluster.kubeconfig).await?;
    let mut aws = cloud_aws::Settings::new(&cluster.region);
    aws.endpoint.clone_from(&cluster.endpoint_url);
    let cloud = Arc::new(cloud_aws::Aws::connect(aws).await);
    agent::spawn(&program, settings(cluster, machine)?, client, cloud)?;
    program.run(Duration::from_secs(10)).await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what was removed is the command's answer")]
async fn cleanup(args: CleanupArgs) -> anyhow::Result<()> {
    let CleanupArgs { stack, data_dir } = args;
    let removed = leftovers::cleanup(&stack, &data_dir).await?;
    println!("removed {} processes and {} networks of stack {stack}", removed.processes, removed.networks);
    Ok(())
}

fn settings(cluster: ClusterArgs, machine: MachineArgs) -> anyhow::Result<Settings> {
    let ClusterArgs { cluster, region, control_url, poll_ms, lease_seconds, kubelet_version, .. } = cluster;
    let MachineArgs { stack, mode, network, data_dir, questdb_lib, java, heap, node_network, .. } = machine;
    let MachineArgs { snapshots_dir, crash_backoff_ms, crash_backoff_max_seconds, .. } = machine;
    std::fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let data_dir = data_dir.canonicalize().context("cannot resolve the data directory")?;
    let root = nix::unistd::geteuid().is_root();
    let network = match network {
        Some(NetworkArg::Namespace) => Network::Namespace,
        None if root => Network::Namespace,
        Some(NetworkArg::Loopback) | None => Network::Loopback,
    };
    Ok(Settings {
        cluster,
        region,
        stack,
        mode: match mode {
            ModeArg::Process => Mode::Process,
            ModeArg::None => Mode::None,
        },
        network,
        data_dir,
        snapshots_dir,
        questdb_lib,
        java,
        heap,
        node_network,
        poll: Duration::from_millis(poll_ms),
        lease_renewal: Duration::from_secs(lease_seconds),
        crash_back_off: (
            Duration::from_millis(crash_backoff_ms),
            Duration::from_secs(crash_backoff_max_seconds),
        ),
        kubelet_version,
        control_url,
    })
}

fn stack_id(text: &str) -> Result<String, String> {
    let fits = (1..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if fits { Ok(text.to_owned()) } else { Err("1 to 12 of a-z and 0-9".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_command_the_agent_runs() {
        let check = |words: &[&str], expected: &[&str]| {
            let words = with_command(words.iter().map(OsString::from).collect());
            assert_eq!(words, expected.iter().map(OsString::from).collect::<Vec<_>>());
        };
        check(&["agent"], &["agent", "run"]);
        check(&["agent", "--cluster", "x"], &["agent", "run", "--cluster", "x"]);
        check(&["agent", "cleanup", "--stack", "x"], &["agent", "cleanup", "--stack", "x"]);
        check(&["agent", "--help"], &["agent", "--help"]);
    }

    #[test]
    fn stack_ids_fit_into_names() {
        for (text, fits) in
            [("a1", true), ("", false), ("a-b", false), ("A", false), ("abcdefghijklm", false)]
        {
            assert_eq!(stack_id(text).is_ok(), fits, "{text}");
        }
    }
}
