//! Where the brokers are and how to speak to them. Knows no topic.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::{Broker, Statistics};
use rdkafka::{ClientConfig, ClientContext};

use crate::{Error, lock};

/// How to reach Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Comma-separated `host:port`.
    pub bootstrap: String,
    /// Name of this client in the brokers' logs and metrics.
    pub client_id: String,
    /// Further librdkafka properties, such as those of TLS and SASL. They win over ours.
    pub properties: Vec<(String, String)>,
    /// A file of such properties, which win over all others: `NAME=VALUE` on each line, and lines that begin with `#`. Each new
    /// client reads it again, so a password that is changed in it is used without a restart.
    pub file: Option<PathBuf>,
}

impl Connection {
    /// A connection without further properties.
    pub fn new(bootstrap: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self { bootstrap: bootstrap.into(), client_id: client_id.into(), properties: Vec::new(), file: None }
    }

    /// The settings that all clients share, ours, and the given properties on top.
    pub(crate) fn config(&self, ours: &[(&str, String)]) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("client.id", &self.client_id)
            .set("socket.keepalive.enable", "true")
            .set("socket.connection.setup.timeout.ms", "10000")
            // A broker that comes back is found within two seconds instead of ten.
            .set("reconnect.backoff.ms", "100")
            .set("reconnect.backoff.max.ms", "2000")
            // Idle connections are closed by brokers; that is no error worth a line.
            .set("log.connection.close", "false");
        for (name, value) in ours {
            config.set(*name, value);
        }
        let read = self.file.as_deref().map(read).transpose()?.unwrap_or_default();
        for (name, value) in self.properties.iter().chain(&read) {
            config.set(name, value);
        }
        Ok(config)
    }
}

/// Properties of a file. An error names lines, never what they hold.
fn read(path: &Path) -> Result<Vec<(String, String)>, Error> {
    let wrong = |reason: String| Error::Properties { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lines = text.lines().zip(1..).filter(|(line, _)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let properties = lines.map(|(line, number)| match property(line) {
        Ok((name, value)) => Ok((name, value.trim_start().to_owned())),
        Err(what) => Err(wrong(format!("line {number} {what}"))),
    });
    properties.collect()
}

/// A further property as a command line gives it: `NAME=VALUE`.
pub fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// What brokers have against us: a login that they refuse, or a certificate that one side does not believe. The library goes
/// on trying with what it was made with, and counts such a broker as one that is away.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<String>>);

impl Refusal {
    /// An error of a client as a whole. Such errors come again and again while a broker is away; who needs the broker says so
    /// once. A refusal is said here: nothing else names it.
    pub(crate) fn hear(&self, error: &KafkaError, reason: &str) {
        if !is_refusal(error) {
            tracing::debug!("Kafka is disturbed: {error}: {reason}");
            return;
        }
        if lock(&self.0).replace(reason.to_owned()).is_none() {
            tracing::warn!("Kafka refuses the connection; see SLIPWAY_KAFKA_PROPERTIES and _FILE: {reason}");
        }
    }

    /// A broker answers.
    pub(crate) fn clear(&self) {
        lock(&self.0).take();
    }

    /// In the library's words.
    pub(crate) fn reason(&self) -> Option<String> {
        lock(&self.0).clone()
    }
}

fn is_refusal(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::Authentication
                | Code::SSL
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
        )
    )
}

/// How often clients that are polled tell their [`Brokers`]. Nobody else may ask for it: what is not polled for piles up.
pub(crate) const STATISTICS: (&str, &str) = ("statistics.interval.ms", "5000");

/// What a client knows of brokers, by its own statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brokers {
    /// At least one answers.
    Reachable,
    /// None answers; the library goes on trying.
    Away,
    /// There is none left that could be tried. A broker that has just started, or was fenced for a while, says for a moment
    /// that the cluster has no brokers; librdkafka 2.10 to 2.15 believe it and forget all of them, those they were
    /// configured with included (confluentinc/librdkafka#5301). Only a new client finds the way back.
    Forgotten,
}

impl Brokers {
    pub(crate) fn of(statistics: &Statistics) -> Self {
        let is_up = |broker: &Broker| broker.nodeid >= 0 && broker.state == "UP";
        // The connection to a group's coordinator is one more to the same broker, and can outlive all that is known of it.
        let is_real = |broker: &&Broker| matches!(broker.source.as_str(), "learned" | "configured");
        if !statistics.brokers.values().any(|broker| is_real(&broker)) {
            Self::Forgotten
        } else if statistics.brokers.values().any(is_up) {
            Self::Reachable
        } else {
            Self::Away
        }
    }
}

/// The context of clients without callbacks of their own.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) refusal: Refusal,
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.refusal.hear(&error, reason);
    }
}

/// The library's log lines become ours. A broker that cannot be reached is no line each time somebody tries.
pub(crate) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        _ if facility == "FAIL" => tracing::debug!("librdkafka: {facility} {message}"),
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning => tracing::warn!("librdkafka: {facility} {message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!("librdkafka: {facility} {message}"),
        RDKafkaLogLevel::Debug => tracing::debug!("librdkafka: {facility} {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_a_name_and_a_value() {
        let text = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(property("sasl.mechanism=PLAIN"), text("sasl.mechanism", "PLAIN"));
        assert_eq!(property(" sasl.password=a=b "), text("sasl.password", "a=b "));
        assert!(property("novalue").is_err());
    }

    #[test]
    fn given_properties_win() {
        let mut connection = Connection::new("localhost:9092", "test");
        connection.properties.push(("linger.ms".to_owned(), "7".to_owned()));
        let ours = [("linger.ms", "0".to_owned()), ("acks", "all".to_owned())];
        let config = connection.config(&ours).unwrap();
        assert_eq!(config.get("linger.ms"), Some("7"));
        assert_eq!(config.get("acks"), Some("all"));
        assert_eq!(config.get("bootstrap.servers"), Some("localhost:9092"));
    }

    #[test]
    fn a_file_is_read_for_each_client_and_wins() {
        let path = std::env::temp_dir().join(format!("bus-properties-{}", std::process::id()));
        let mut connection = Connection::new("localhost:9092", "test");
        connection.properties.push(("sasl.password".to_owned(), "old".to_owned()));
        connection.file = Some(path.clone());
        let text = |connection: &Connection| connection.config(&[]).unwrap_err().to_string();
        assert!(text(&connection).contains("bus-properties"), "{}", text(&connection));
        for password in ["one", "two=2"] {
            std::fs::write(
                &path,
                format!("# by hand\n\n sasl.password={password}\nsasl.mechanism = PLAIN\n"),
            )
            .unwrap();
            let config = connection.config(&[]).unwrap();
            assert_eq!(config.get("sasl.password"), Some(password));
            assert_eq!(config.get("sasl.mechanism"), Some("PLAIN"));
        }
        std::fs::write(&path, "sasl.mechanism=PLAIN\nswordfish\n").unwrap();
        let error = text(&connection);
        assert!(error.contains("line 2 must be NAME=VALUE") && !error.contains("swordfish"), "{error}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_what_brokers_have_against_us_is_a_refusal() {
        let refusal = Refusal::default();
        refusal.hear(&KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(refusal.reason(), None);
        for code in [Code::Authentication, Code::SSL] {
            refusal.hear(&KafkaError::Global(code), "why");
            assert_eq!(refusal.reason().as_deref(), Some("why"), "{code:?}");
            refusal.clear();
            assert_eq!(refusal.reason(), None);
        }
    }
}
