//! Where the brokers are and how to speak to them. Knows no topic.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::{Broker, Statistics};
use rdkafka::{ClientConfig, ClientContext};

use crate::{Error, lock};

/// How to reach Kafka. Printed without what properties hold, which may be a password.
#[derive(Clone, PartialEq, Eq)]
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

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bootstrap, client_id, properties, file } = self;
        let names: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Connection")
            .field("bootstrap", bootstrap)
            .field("client_id", client_id)
            .field("properties", &names)
            .field("file", file)
            .finish()
    }
}

impl Connection {
    /// A connection without further properties.
    pub fn new(bootstrap: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self { bootstrap: bootstrap.into(), client_id: client_id.into(), properties: Vec::new(), file: None }
    }

    /// The settings that all clients share, ours, and the given properties on top.
    pub(crate) fn config(&self, ours: &[(&str, String)]) -> Result<ClientConfig, Error> {
        Ok(self.prepare(ours)?.0)
    }

    /// The same, and what tells that brokers refuse a client with these settings.
    pub(crate) fn prepare(&self, ours: &[(&str, String)]) -> Result<(ClientConfig, Refusals), Error> {
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
        let read = self.read()?;
        for (name, value) in self.properties.iter().chain(&read) {
            config.set(name, value);
        }
        Ok((config, Refusals { connection: self.clone(), read, heard: Mutex::default() }))
    }

    fn read(&self) -> Result<Vec<(String, String)>, Error> {
        self.file.as_deref().map(read).transpose().map(Option::unwrap_or_default)
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

/// What brokers have against a client: a login that they refuse, or a certificate that one side does not believe. The library
/// goes on trying with what the client was made with, and counts such a broker as one that is away.
#[derive(Debug)]
pub(crate) struct Refusals {
    connection: Connection,
    /// What the file held when the client was made.
    read: Vec<(String, String)>,
    /// In the library's words, by the name of the broker.
    heard: Mutex<BTreeMap<String, String>>,
}

impl Refusals {
    /// An error of a client as a whole. Such errors come again and again while a broker is away; who needs the broker says so
    /// once. A refusal is said here: nothing else names it.
    pub(crate) fn hear(&self, error: &KafkaError, text: &str) {
        let Some((broker, reason)) = text.split_once(": ").filter(|(_, reason)| is_refusal(error, reason))
        else {
            tracing::debug!("Kafka is disturbed: {error}: {text}");
            return;
        };
        if lock(&self.heard).insert(broker.to_owned(), reason.to_owned()).is_none() {
            tracing::warn!("Kafka refuses the connection; see SLIPWAY_KAFKA_PROPERTIES and _FILE: {text}");
        }
    }

    /// What is known of brokers now: one that lets us in refuses us no more, and one that is forgotten has no say.
    pub(crate) fn see(&self, statistics: &Statistics) {
        let lets_in = |name: &str| statistics.brokers.get(name).is_none_or(|broker| broker.state == "UP");
        lock(&self.heard).retain(|name, _| !lets_in(name));
    }

    /// In the library's words, of any broker that refuses us.
    pub(crate) fn reason(&self) -> Option<String> {
        lock(&self.heard).iter().next().map(|(broker, reason)| format!("{broker}: {reason}"))
    }

    /// The same if another client may be let in: the file holds something else by now.
    pub(crate) fn curable(&self) -> Option<String> {
        let reason = self.reason()?;
        self.connection.read().is_ok_and(|now| now != self.read).then_some(reason)
    }

    /// Whether a client made anew could differ from this one at all.
    pub(crate) const fn has_file(&self) -> bool {
        self.connection.file.is_some()
    }
}

fn is_refusal(error: &KafkaError, reason: &str) -> bool {
    // A connection that breaks while somebody logs in has the code of a refusal, too.
    let broken = reason.contains("handshake failed: Local:");
    let code = error.rdkafka_error_code();
    !broken && matches!(code, Some(Code::Authentication | Code::SSL | Code::SaslAuthenticationFailed))
}

/// An error of a client that could not be made, without what its properties hold.
pub(crate) fn not_made(what: &'static str, source: KafkaError) -> Error {
    let source = match source {
        KafkaError::ClientConfig(result, description, name, _) => {
            KafkaError::ClientConfig(result, description, name, "(its value is not shown)".to_owned())
        }
        source => source,
    };
    Error::Create { what, source }
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

/// The context of clients that are not polled for events, and without callbacks of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
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
    use rdkafka::consumer::BaseConsumer;

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
    fn what_properties_hold_is_not_printed() {
        let mut connection = Connection::new("localhost:9092", "test");
        connection.properties.push(("sasl.password".to_owned(), "swordfish".to_owned()));
        let text = format!("{connection:?}");
        assert!(text.contains("sasl.password") && !text.contains("swordfish"), "{text}");
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

    /// Statistics of a client that knows these brokers in these states.
    fn statistics(brokers: &[(&str, &str)]) -> Statistics {
        let broker = |(name, state): &(&str, &str)| {
            ((*name).to_owned(), Broker { state: (*state).to_owned(), ..Broker::default() })
        };
        Statistics { brokers: brokers.iter().map(broker).collect(), ..Statistics::default() }
    }

    #[test]
    fn who_refuses_us_is_known_until_it_lets_us_in() {
        let (_, refusals) = Connection::new("a:1", "test").prepare(&[]).unwrap();
        let hear = |code, text: &str| {
            refusals.hear(&KafkaError::Global(code), text);
            refusals.reason()
        };
        assert_eq!(hear(Code::AllBrokersDown, "1/1 brokers are down"), None);
        let broken = "b:1/1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure";
        assert_eq!(hear(Code::Authentication, broken), None);
        for code in [Code::Authentication, Code::SSL] {
            assert_eq!(hear(code, "b:1/1: why").as_deref(), Some("b:1/1: why"), "{code:?}");
            refusals.see(&statistics(&[("b:1/1", "AUTH_REQ"), ("b:2/2", "UP")]));
            assert_eq!(refusals.reason().as_deref(), Some("b:1/1: why"), "another one lets us in");
            refusals.see(&statistics(&[("b:1/1", "UP")]));
            assert_eq!(refusals.reason(), None);
        }
        hear(Code::SSL, "b:1/bootstrap: why");
        refusals.see(&statistics(&[("b:1/1", "DOWN")]));
        assert_eq!(refusals.reason(), None, "it is not known any more");
        assert_eq!((refusals.curable(), refusals.has_file()), (None, false));
    }

    #[test]
    fn a_refusal_is_curable_once_the_file_holds_something_else() {
        let path = std::env::temp_dir().join(format!("bus-curable-{}", std::process::id()));
        std::fs::write(&path, "sasl.password=one\n").unwrap();
        let connection = Connection { file: Some(path.clone()), ..Connection::new("a:1", "test") };
        let (_, refusals) = connection.prepare(&[]).unwrap();
        std::fs::write(&path, "sasl.password=two\n").unwrap();
        assert_eq!(refusals.curable(), None, "nobody refuses us");
        refusals.hear(&KafkaError::Global(Code::Authentication), "b: why");
        assert_eq!(refusals.curable().as_deref(), Some("b: why"));
        std::fs::write(&path, "# the same\nsasl.password=one\n").unwrap();
        assert_eq!(refusals.curable(), None);
        std::fs::remove_file(path).unwrap();
        assert_eq!(refusals.curable(), None, "what cannot be read cures nothing");
    }

    #[test]
    fn an_error_does_not_show_what_properties_hold() {
        let mut connection = Connection::new("localhost:9092", "test");
        connection.properties.push(("sasl.pasword".to_owned(), "swordfish".to_owned()));
        let client = connection.config(&[]).unwrap().create_with_context::<_, BaseConsumer<Quiet>>(Quiet);
        let error = not_made("producer", client.err().unwrap());
        let text = format!("{error:?} {}", std::error::Error::source(&error).unwrap());
        assert!(text.contains("sasl.pasword") && !text.contains("swordfish"), "{text}");
    }
}
