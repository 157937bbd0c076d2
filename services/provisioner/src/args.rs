//! What the program is told: the one page of its configuration.

use std::path::PathBuf;
use std::time::Duration;

use bus::consumer::OffsetReset;
use secrecy::SecretString;

/// Turns instructions from Kafka into QuestDB custom resources in the clusters they are for
#[derive(Debug, clap::Parser)]
#[command(name = "slipway-provisioner", version)]
pub struct Args {
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: runtime::TelemetryArgs,
    /// Operations server.
    #[command(flatten)]
    pub ops: runtime::OpsArgs,
    /// URL of the Postgres database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: SecretString,
    /// Kafka brokers, host:port separated by commas
    #[arg(long, env = "KAFKA_BOOTSTRAP", value_name = "BROKERS")]
    pub kafka_bootstrap: String,
    /// Further librdkafka properties, NAME=VALUE separated by commas, such as those of TLS and SASL
    #[arg(long, env = "SLIPWAY_KAFKA_PROPERTIES", hide_env_values = true, value_delimiter = ',', value_parser = bus::connection::property, value_name = "NAME=VALUE")]
    pub kafka_properties: Vec<(String, String)>,
    /// File of such properties, one NAME=VALUE a line, which win; read again by each new client, so that a changed password
    /// needs no restart
    #[arg(long, env = "SLIPWAY_KAFKA_PROPERTIES_FILE", value_name = "PATH")]
    pub kafka_properties_file: Option<PathBuf>,
    /// Topic that instructions come from
    #[arg(
        long,
        env = "SLIPWAY_INSTRUCTIONS_TOPIC",
        default_value = "provisioning.instructions",
        value_name = "TOPIC"
    )]
    pub instructions_topic: String,
    /// Topic that outcomes and observations go to
    #[arg(long, env = "SLIPWAY_GOSSIP_TOPIC", default_value = "provisioning.gossip", value_name = "TOPIC")]
    pub gossip_topic: String,
    /// Number of partitions that both topics must have: a key must never change its partition
    #[arg(long, env = "SLIPWAY_TOPIC_PARTITIONS", default_value_t = 64, value_parser = clap::value_parser!(i32).range(1..), value_name = "NUMBER")]
    pub topic_partitions: i32,
    /// Consumer group; its members share the partitions
    #[arg(long, env = "SLIPWAY_CONSUMER_GROUP", default_value = "slipway-provisioner", value_name = "GROUP")]
    pub consumer_group: String,
    /// Where to begin without a valid offset: `error` ends the program, `earliest` reads all there is (first start)
    #[arg(long, env = "SLIPWAY_OFFSET_RESET", default_value = "error", value_enum, value_name = "WHERE")]
    pub offset_reset: Reset,
    /// Directory with the kubeconfigs that the clusters' credentials references name
    #[arg(long, env = "SLIPWAY_CREDENTIALS_DIR", value_name = "DIRECTORY")]
    pub credentials_dir: PathBuf,
    /// Instructions carried out at once, over all clusters
    #[arg(long, env = "SLIPWAY_CONCURRENCY", default_value_t = 256, value_parser = positive, value_name = "NUMBER")]
    pub concurrency: usize,
    /// Instructions carried out at once in one cluster, those that were parked included
    #[arg(long, env = "SLIPWAY_CLUSTER_CONCURRENCY", default_value_t = 16, value_parser = positive, value_name = "NUMBER")]
    pub cluster_concurrency: usize,
    /// Largest record that is taken for an instruction, in bytes; a larger one becomes a dead letter
    #[arg(long, env = "SLIPWAY_LARGEST_RECORD", default_value_t = 1_048_576, value_name = "BYTES")]
    pub largest_record: usize,
    /// How long one call to a cluster may take, in seconds
    #[arg(long, env = "SLIPWAY_CALL_TIMEOUT", default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    pub call_timeout: Duration,
    /// How often everything seen is said again although nothing changed, in seconds
    #[arg(long, env = "SLIPWAY_GOSSIP_PERIOD", default_value = "600", value_parser = seconds, value_name = "SECONDS")]
    pub gossip_period: Duration,
    /// How often a cluster is asked whether it can still be listed, was not restored from a backup and told its watch of everything,
    /// in seconds; a minute less than the time for which the backend believes what is said of a cluster
    #[arg(long, env = "SLIPWAY_LIST_CHECK_PERIOD", default_value = "120", value_parser = seconds, value_name = "SECONDS")]
    pub list_check_period: Duration,
    /// How long a watch of a cluster lasts before it is begun anew, in whole seconds; one that stays silent for five more
    /// counts as dead
    #[arg(long, env = "SLIPWAY_WATCH_TIMEOUT", default_value_t = 290, value_parser = clap::value_parser!(u32).range(1..=290), value_name = "SECONDS")]
    pub watch_timeout: u32,
    /// How long work under way may take at a stop, in seconds
    #[arg(long, env = "SLIPWAY_GRACE", default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    pub grace: Duration,
}

/// Where to begin without a valid offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Reset {
    /// Nowhere: the program ends and says so.
    Error,
    /// At the oldest record there is.
    Earliest,
}

impl From<Reset> for OffsetReset {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Error => Self::Error,
            Reset::Earliest => Self::Earliest,
        }
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=100_000).contains(number))
        .ok_or_else(|| "must be 1 to 100000".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    if !(0.1..=86_400.0).contains(&number) {
        return Err("must be 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(number))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    const LEAST: [&str; 7] = [
        "slipway-provisioner",
        "--database-url",
        "postgres://localhost/slipway",
        "--kafka-bootstrap",
        "localhost:9092",
        "--credentials-dir",
        "/tmp",
    ];

    #[test]
    fn the_command_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_production() {
        let args = Args::try_parse_from(LEAST).unwrap();
        assert_eq!(args.topic_partitions, 64);
        assert_eq!(args.offset_reset, Reset::Error);
        assert_eq!(args.gossip_period, Duration::from_mins(10));
        assert!(!format!("{args:?}").contains("postgres://"), "the URL holds a password");
    }

    #[test]
    fn a_missing_offset_names_the_flag_that_helps() {
        let error = bus::Error::NoOffset { group: "g".to_owned(), topic: "t".to_owned() }.to_string();
        let command = Args::command();
        let argument = command.get_arguments().find(|argument| argument.get_id() == "offset_reset").unwrap();
        let (flag, variable) = (argument.get_long().unwrap(), argument.get_env().unwrap().to_str().unwrap());
        let value = clap::ValueEnum::to_possible_value(&Reset::Earliest).unwrap();
        let value = value.get_name();
        assert!(error.contains(&format!("--{flag} {value}")), "{error}");
        assert!(error.contains(&format!("{variable}={value}")), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for (flag, value) in [
            ("--topic-partitions", "0"),
            ("--concurrency", "0"),
            ("--call-timeout", "0"),
            ("--offset-reset", "latest"),
            ("--kafka-properties", "novalue"),
        ] {
            let arguments = LEAST.into_iter().chain([flag, value]);
            assert!(Args::try_parse_from(arguments).is_err(), "{flag} {value}");
        }
    }
}
