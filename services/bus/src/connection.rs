//! Where the brokers are and how to speak to them. Knows no topic.

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::statistics::{Broker, Statistics};
use rdkafka::{ClientConfig, ClientContext};

/// How to reach Kafka.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Comma-separated `host:port`.
    pub bootstrap: String,
    /// Name of this client in the brokers' logs and metrics.
    pub client_id: String,
    /// Further librdkafka properties, such as those of SASL. They win over ours.
    pub properties: Vec<(String, String)>,
}

impl Connection {
    /// A connection without further properties.
    pub fn new(bootstrap: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self { bootstrap: bootstrap.into(), client_id: client_id.into(), properties: Vec::new() }
    }

    /// The settings that all clients share, ours, and the given properties on top.
    pub(crate) fn config(&self, ours: &[(&str, String)]) -> ClientConfig {
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
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }
}

/// A further property as a command line gives it: `NAME=VALUE`.
pub fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
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
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        note(&error, reason);
    }
}

/// Errors of a client as a whole come again and again while a broker is away. Who needs the broker says so once.
pub(crate) fn note(error: &KafkaError, reason: &str) {
    tracing::debug!("Kafka is disturbed: {error}: {reason}");
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
        let config = connection.config(&[("linger.ms", "0".to_owned()), ("acks", "all".to_owned())]);
        assert_eq!(config.get("linger.ms"), Some("7"));
        assert_eq!(config.get("acks"), Some("all"));
        assert_eq!(config.get("bootstrap.servers"), Some("localhost:9092"));
    }
}
