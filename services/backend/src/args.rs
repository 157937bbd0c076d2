//! The command line and the environment, read once.

mod api;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::recovery::Deadlines;
use runtime::{OpsArgs, TelemetryArgs};
use secrecy::SecretString;

use crate::api::Share;
use crate::prune::Retention;
use crate::sweep::decide::Rules;
use crate::sweep::{PAGE, Settings};

pub use api::ApiArgs;

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
    /// URL of the database; several servers as host:port,host:port, of which the one that takes writes is used
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
    /// Most connections to it; where the API is served, those of its requests
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
    /// Further librdkafka properties, NAME=VALUE separated by commas, such as those of TLS and SASL
    #[arg(long, env = "SLIPWAY_KAFKA_PROPERTIES", hide_env_values = true, value_delimiter = ',', value_parser = bus::connection::property, value_name = "NAME=VALUE")]
    pub kafka_properties: Vec<(String, String)>,
    /// File of such properties, one NAME=VALUE a line, which win; read again by each new client, so that a changed password
    /// needs no restart
    #[arg(long, env = "SLIPWAY_KAFKA_PROPERTIES_FILE", value_name = "PATH")]
    pub kafka_properties_file: Option<PathBuf>,
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
    /// What the API is told.
    #[command(flatten)]
    pub api: ApiArgs,
    /// How long operations may take.
    #[command(flatten)]
    pub deadlines: DeadlineArgs,
    /// Which parts run in this process
    #[arg(
        long,
        env = "SLIPWAY_ROLES",
        value_delimiter = ',',
        value_parser = runtime::Trimmed(clap::builder::EnumValueParser::<Role>::new()),
        value_name = "ROLES",
        default_value = "api,relay,sink"
    )]
    pub roles: Vec<Role>,
    /// How much may wait.
    #[command(flatten)]
    pub bounds: Bounds,
    /// How what clusters show is compared with what was minted.
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// Consumer group of the sink, and the name under which its offsets are kept
    #[arg(long, env = "SLIPWAY_SINK_GROUP", value_name = "NAME", default_value = "slipway-backend")]
    pub sink_group: String,
}

/// How long operations may take.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Deadlines", about = None, long_about = None)]
pub struct DeadlineArgs {
    /// How long a create may take before it fails and is taken back
    #[arg(long, env = "SLIPWAY_CREATE_DEADLINE", value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub create_deadline: Duration,
    /// How long an update may take before it fails and its database returns to its last good state
    #[arg(long, env = "SLIPWAY_UPDATE_DEADLINE", value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub update_deadline: Duration,
    /// How long a delete may take before it is overdue; it is never given up
    #[arg(long, env = "SLIPWAY_DELETE_DEADLINE", value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub delete_deadline: Duration,
    /// How long what a provisioner says may take to arrive: a deadline is judged only once all was heard that was said by
    /// then, and this much later
    #[arg(long, env = "SLIPWAY_GOSSIP_DELAY", value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub gossip_delay: Duration,
    /// After how long without having heard gossip to its end it is told as trouble that deadlines are not judged
    #[arg(long, env = "SLIPWAY_GOSSIP_SILENCE", value_name = "DURATION", default_value = "20m", value_parser = duration)]
    pub gossip_silence: Duration,
}

impl DeadlineArgs {
    /// The deadlines of what is minted.
    pub const fn deadlines(&self) -> Deadlines {
        Deadlines { create: self.create_deadline, update: self.update_deadline, delete: self.delete_deadline }
    }
}

/// How much may wait to be published, how large it may be, and how long what happened is kept.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Bounds", about = None, long_about = None)]
pub struct Bounds {
    /// Changes that may wait to be published; beyond that the API refuses further ones for a while
    #[arg(long, env = "SLIPWAY_BACKLOG_DATABASES", value_name = "NUMBER", default_value_t = 10_000)]
    pub backlog_databases: u32,
    /// Seconds that a change may wait to be published; beyond that the API refuses further ones of the databases of its partition
    /// for a while
    #[arg(long, env = "SLIPWAY_BACKLOG_SECONDS", value_name = "SECONDS", default_value_t = 300)]
    pub backlog_seconds: u64,
    /// Bytes of the record of one desired state; less than the brokers' message.max.bytes
    #[arg(long, env = "SLIPWAY_RECORD_BYTES", value_name = "BYTES", default_value_t = 262_144)]
    pub record_bytes: usize,
    /// Most connections to Postgres of all but the requests to the API, whose number they come on top of
    #[arg(long, env = "SLIPWAY_WORK_CONNECTIONS", value_name = "NUMBER", default_value_t = 8, value_parser = from_one(), help_heading = "Postgres")]
    pub work_connections: u32,
    /// What each tenant may take.
    #[command(flatten)]
    pub share: ShareArgs,
    /// How long what happened is kept.
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Connections to the API.
    #[command(flatten)]
    pub connections: ConnectionArgs,
}

/// Connections to the API; health and metrics have their own at the operations address.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Connections", about = None, long_about = None)]
pub struct ConnectionArgs {
    /// Most connections that are open at once, event streams included; further ones are closed at once. Never more than half of
    /// the files that the process may open
    #[arg(long, env = "SLIPWAY_API_CONNECTIONS", value_name = "NUMBER", default_value_t = 4_096, value_parser = from_one())]
    pub api_connections: u32,
    /// How long a connection may send no whole head of a request, between two requests too, or take nothing of an answer, before
    /// it is closed; longer than a load balancer before it keeps connections that nobody uses
    #[arg(long, env = "SLIPWAY_API_SILENCE", value_name = "DURATION", default_value = "75s", value_parser = duration)]
    pub api_silence: Duration,
}

impl From<ConnectionArgs> for runtime::connections::Bounds {
    fn from(args: ConnectionArgs) -> Self {
        let ConnectionArgs { api_connections, api_silence } = args;
        Self { most: api_connections, silence: api_silence }
    }
}

/// What each tenant may take of the API, in each process; tokens of role sre are not counted.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Tenants", about = None, long_about = None)]
pub struct ShareArgs {
    /// Requests of a tenant in a second, in the long run; what goes beyond is answered 429
    #[arg(long, env = "SLIPWAY_TENANT_REQUESTS", value_name = "NUMBER", default_value_t = 200, value_parser = from_one())]
    pub tenant_requests: u32,
    /// Requests of a tenant that may come at once after a rest
    #[arg(long, env = "SLIPWAY_TENANT_BURST", value_name = "NUMBER", default_value_t = 1_000, value_parser = from_one())]
    pub tenant_burst: u32,
    /// Requests of a tenant that are carried out at once, each with a connection to Postgres: less than there are
    #[arg(long, env = "SLIPWAY_TENANT_AT_ONCE", value_name = "NUMBER", default_value_t = 5, value_parser = from_one())]
    pub tenant_at_once: u32,
    /// Requests of a tenant that wait for that
    #[arg(long, env = "SLIPWAY_TENANT_WAITING", value_name = "NUMBER", default_value_t = 200)]
    pub tenant_waiting: u32,
    /// Event streams of a tenant
    #[arg(long, env = "SLIPWAY_TENANT_STREAMS", value_name = "NUMBER", default_value_t = 500, value_parser = from_one())]
    pub tenant_streams: u32,
}

impl From<ShareArgs> for Share {
    fn from(args: ShareArgs) -> Self {
        let ShareArgs { tenant_requests, tenant_burst, tenant_at_once, tenant_waiting, tenant_streams } =
            args;
        Self {
            requests: tenant_requests,
            burst: tenant_burst,
            at_once: tenant_at_once,
            waiting: tenant_waiting,
            streams: tenant_streams,
        }
    }
}

/// How long what happened is kept in Postgres; a part of every role.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Retention", about = None, long_about = None)]
pub struct KeepArgs {
    /// How long after the end of an operation its events are kept, and the state that it asked for where nothing can begin with that
    /// any more; its last event stays
    #[arg(long, env = "SLIPWAY_KEEP_HISTORY", value_name = "DURATION", default_value = "720h", value_parser = kept)]
    pub keep_history: Kept,
    /// How long entries of the audit are kept; those of purges stay
    #[arg(long, env = "SLIPWAY_KEEP_AUDIT", value_name = "DURATION", default_value = "9600h", value_parser = kept)]
    pub keep_audit: Kept,
    /// How long operations are kept after their end; those stay whose state a database may return to
    #[arg(long, env = "SLIPWAY_KEEP_OPERATIONS", value_name = "DURATION", default_value = "9600h", value_parser = kept)]
    pub keep_operations: Kept,
    /// How long dead letters are kept after they were settled, and what clusters said and nobody believed after that was resolved;
    /// longer than the topics keep records
    #[arg(long, env = "SLIPWAY_KEEP_SETTLED", value_name = "DURATION", default_value = "2160h", value_parser = kept_settled)]
    pub keep_settled: Kept,
}

/// For how long something is kept; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept(pub Option<Duration>);

impl From<KeepArgs> for Retention {
    fn from(args: KeepArgs) -> Self {
        Self {
            history: args.keep_history.0,
            audit: args.keep_audit.0,
            operations: args.keep_operations.0,
            settled: args.keep_settled.0,
        }
    }
}

/// A number that is not 0.
fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// How what clusters show is compared with what was minted; a part of the role `sink`.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Sweep", about = None, long_about = None)]
pub struct SweepArgs {
    /// How often everything is compared
    #[arg(long, env = "SLIPWAY_SWEEP_PERIOD", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub sweep_period: Duration,
    /// Most databases that are sent again in one period, by all replicas together
    #[arg(long, env = "SLIPWAY_SWEEP_CAP", value_name = "NUMBER", default_value_t = 100)]
    pub sweep_cap: u32,
    /// How long a change may be on its way before its database counts as missing or lagging
    #[arg(long, env = "SLIPWAY_SWEEP_GRACE", value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub sweep_grace: Duration,
    /// How long a database that was sent again is left alone
    #[arg(long, env = "SLIPWAY_SWEEP_AGAIN", value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub sweep_again: Duration,
    /// For how long a list of a cluster counts; longer than the period in which the provisioners check theirs
    #[arg(long, env = "SLIPWAY_SWEEP_LISTING", value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub sweep_listing: Duration,
    /// How long after its last instruction a purged database keeps its tombstone: the topics' retention and a margin; longer
    /// where the brokers say that they keep records longer
    #[arg(long, env = "SLIPWAY_TOMBSTONE_RETENTION", value_name = "DURATION", default_value = "192h", value_parser = duration)]
    pub tombstone_retention: Duration,
}

impl From<SweepArgs> for Settings {
    fn from(args: SweepArgs) -> Self {
        Self {
            period: args.sweep_period,
            cap: args.sweep_cap,
            page: PAGE,
            rules: Rules {
                grace: args.sweep_grace,
                again: args.sweep_again,
                listing: args.sweep_listing,
                retention: Some(args.tombstone_retention),
            },
        }
    }
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

/// A length of time such as `90s`, `30m` or `1h30m`: a second at least, a month at most.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a length of time of 1s to 31 days, such as 90s, 30m or 1h30m");
    within(text, Duration::from_secs(1)..=Duration::from_hours(31 * 24)).ok_or_else(wrong)
}

/// A length of time, if it is one and allowed.
fn within(text: &str, allowed: RangeInclusive<Duration>) -> Option<Duration> {
    let length = Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()?;
    allowed.contains(&length).then_some(length)
}

/// For how long something is kept, such as `720h` or `forever`: a day at least, so that whoever follows an operation today can still
/// do so tomorrow; a hundred years at most.
fn kept(text: &str) -> Result<Kept, String> {
    kept_from(24, text)
}

/// The same for what must be kept longer than any record is found on its topic: eight days at least.
fn kept_settled(text: &str) -> Result<Kept, String> {
    kept_from(192, text)
}

fn kept_from(hours: u64, text: &str) -> Result<Kept, String> {
    if text == "forever" {
        return Ok(Kept(None));
    }
    let wrong =
        || format!("{text:?} is neither a length of time of {hours}h to 876000h, such as 720h, nor forever");
    let length = within(text, Duration::from_hours(hours)..=Duration::from_hours(876_000));
    length.map(|length| Kept(Some(length))).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use runtime::connections::Bounds as Connections;

    use super::*;

    #[test]
    fn the_command_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn deadlines_are_lengths_of_time() {
        for (text, seconds) in [("90s", 90), ("30m", 1_800), ("1h30m", 5_400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0s", "-5m", "soon", "10", "9999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_happened_is_kept_for_a_day_at_least_or_for_ever() {
        for (text, hours) in
            [("24h", Some(24)), ("720h", Some(720)), ("876000h", Some(876_000)), ("forever", None)]
        {
            assert_eq!(kept(text), Ok(Kept(hours.map(Duration::from_hours))), "{text}");
        }
        for text in ["", "0s", "23h", "-24h", "never", "720", "876001h"] {
            assert!(kept(text).is_err(), "{text}");
        }
        for (text, good) in [("191h", false), ("192h", true), ("forever", true)] {
            assert_eq!(kept_settled(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn history_is_kept_for_a_month_and_the_audit_for_more_than_a_year_unless_said_otherwise() {
        let retention = |more: &[&str]| {
            let least =
                ["slipway-backend", "serve", "--database-url=postgres://x/y", "--kafka-bootstrap=x:1"];
            let given = least.iter().chain(more);
            let Command::Serve(serve) = Cli::try_parse_from(given).unwrap().command else { panic!("serve") };
            Retention::from(serve.bounds.keep)
        };
        let days = |days: u64| Some(Duration::from_hours(days * 24));
        let usual =
            Retention { history: days(30), audit: days(400), operations: days(400), settled: days(90) };
        assert_eq!(retention(&[]), usual);
        let given = retention(&[
            "--keep-history=48h",
            "--keep-audit=forever",
            "--keep-operations=72h",
            "--keep-settled=240h",
        ]);
        assert_eq!(
            given,
            Retention { history: days(2), audit: None, operations: days(3), settled: days(10) }
        );
    }

    #[test]
    fn blanks_around_the_entries_of_a_list_change_nothing() {
        let arguments = "slipway-backend|serve|--database-url=x|--kafka-bootstrap=x:1|--roles=api, sink |--kafka-properties=a=1, b=2";
        let Command::Serve(serve) = Cli::try_parse_from(arguments.split('|')).unwrap().command else {
            panic!("serve")
        };
        let property = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(serve.roles, [Role::Api, Role::Sink]);
        assert_eq!(serve.kafka.kafka_properties, [property("a", "1"), property("b", "2")]);
    }

    #[test]
    fn the_usual_deadlines_are_those_of_the_domain_and_the_usual_connections_those_of_the_runtime() {
        let least = ["slipway-backend", "serve", "--database-url=postgres://x/y", "--kafka-bootstrap=x:1"];
        let Command::Serve(serve) = Cli::try_parse_from(least).unwrap().command else { panic!("serve") };
        assert_eq!(serve.deadlines.deadlines(), Deadlines::default());
        assert_eq!(serve.api.instance_types, None, "all that are known");
        assert_eq!(Connections::from(serve.bounds.connections), Connections::default());
    }
}
