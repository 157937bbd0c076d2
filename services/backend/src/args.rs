//! The command line and the environment, read once.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use runtime::{OpsArgs, TelemetryArgs};
use secrecy::SecretString;

/// The backend of Slipway: API, relay and sink.
#[derive(Debug, Parser)]
#[command(name = "slipway-backend", version, about, long_about = None)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API, relay instructions, take in gossip
    Serve(Box<Serve>),
    /// Bring the schema up to date
    Migrate(Database),
    /// Create the topics that are missing and check the others
    Topics(Topics),
    /// Manage tokens
    #[command(subcommand)]
    Tokens(Tokens),
    /// Print the description of the API
    Openapi,
}

/// Where Postgres is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Postgres", about = None, long_about = None)]
pub struct Database {
    /// URL of the database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
    /// Most connections to it
    #[arg(long, env = "SLIPWAY_DATABASE_CONNECTIONS", value_name = "NUMBER", default_value_t = 10)]
    pub database_connections: u32,
}

/// Where Kafka is, and its topics.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kafka", about = None, long_about = None)]
pub struct Kafka {
    /// Brokers, comma-separated host:port
    #[arg(long, env = "KAFKA_BOOTSTRAP", value_name = "ADDRESSES")]
    pub kafka_bootstrap: String,
    /// Topic of instructions
    #[arg(
        long,
        env = "SLIPWAY_INSTRUCTIONS_TOPIC",
        value_name = "TOPIC",
        default_value = "provisioning.instructions"
    )]
    pub instructions_topic: String,
    /// Topic of gossip
    #[arg(long, env = "SLIPWAY_GOSSIP_TOPIC", value_name = "TOPIC", default_value = "provisioning.gossip")]
    pub gossip_topic: String,
    /// Partitions of each topic; never changed once there are records
    #[arg(long, env = "SLIPWAY_TOPIC_PARTITIONS", value_name = "NUMBER", default_value_t = 64)]
    pub topic_partitions: i32,
}

/// What `serve` needs.
#[derive(Debug, Args)]
pub struct Serve {
    /// Postgres.
    #[command(flatten)]
    pub database: Database,
    /// Kafka.
    #[command(flatten)]
    pub kafka: Kafka,
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// Health and metrics.
    #[command(flatten)]
    pub ops: OpsArgs,
    /// Address of the API; port 0 takes a free one and logs it
    #[arg(long, env = "SLIPWAY_API_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub api_listen: SocketAddr,
    /// Which parts run in this process
    #[arg(
        long,
        env = "SLIPWAY_ROLES",
        value_delimiter = ',',
        value_name = "ROLES",
        default_value = "api,relay,sink"
    )]
    pub roles: Vec<Role>,
    /// Consumer group of the sink, and the name under which its offsets are kept
    #[arg(long, env = "SLIPWAY_SINK_GROUP", value_name = "NAME", default_value = "slipway-backend")]
    pub sink_group: String,
}

/// A part of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Answers HTTP requests
    Api,
    /// Publishes what was minted
    Relay,
    /// Takes in what clusters say
    Sink,
}

/// What `topics` needs.
#[derive(Debug, Args)]
pub struct Topics {
    /// Kafka.
    #[command(flatten)]
    pub kafka: Kafka,
    /// Copies of each partition
    #[arg(long, env = "SLIPWAY_TOPIC_REPLICATION", value_name = "NUMBER", default_value_t = 1)]
    pub topic_replication: i32,
}

/// What can be done to tokens.
#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Make a token and print its secret, once
    Create(CreateToken),
}

/// A token to be made.
#[derive(Debug, Args)]
pub struct CreateToken {
    /// Postgres.
    #[command(flatten)]
    pub database: Database,
    /// What it may do
    #[arg(long, value_enum)]
    pub role: TokenRole,
    /// Its tenant; for role tenant only
    #[arg(long, value_name = "TENANT", required_if_eq("role", "tenant"))]
    pub tenant: Option<String>,
    /// Name for people
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Days until it ends by itself; never unless given
    #[arg(long, value_name = "DAYS")]
    pub days: Option<u32>,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenRole {
    /// Everything about the databases of its tenant
    Tenant,
    /// The same for whichever tenant a request names
    Console,
    /// Sees all tenants and runs the fleet
    Sre,
}
