//! Kafka and Postgres as programs of a stack, and the files that configure them.

use std::fmt::Write as _;

use super::{Blueprint, Check, Identity, Program, Stop, StopSignal};

/// Name of the database.
pub const DATABASE: &str = "slipway";
/// Its owner, a superuser: tests make databases of their own.
pub const DATABASE_USER: &str = "slipway";

/// Where clients find Slipway's database.
pub fn database_url(identity: &Identity) -> String {
    url_of(identity, DATABASE)
}

/// Where clients find a database of this name.
pub(crate) fn url_of(identity: &Identity, database: &str) -> String {
    let Identity { secrets, ports, .. } = identity;
    format!("postgres://{DATABASE_USER}:{}@127.0.0.1:{}/{database}", secrets.postgres, ports.of("postgres"))
}

/// Kafka, one process as broker and controller.
pub(super) fn kafka(blueprint: &Blueprint<'_>) -> Program {
    let mut command = kafka_java(blueprint, "-Xmx512m");
    command.extend([
        "kafka.Kafka".to_owned(),
        blueprint.layout.conf().join("kafka.properties").display().to_string(),
    ]);
    let mut program = Program::new("kafka", command, blueprint.layout.state())
        .ready(Check::Tcp { port: blueprint.identity.ports.of("kafka") });
    // A broker writes its logs out before it leaves.
    program.stop.grace = 20;
    program
}

/// The beginning of every command of Kafka's.
pub(super) fn kafka_java(blueprint: &Blueprint<'_>, heap: &str) -> Vec<String> {
    let tools = blueprint.tools;
    vec![
        tools.java.display().to_string(),
        heap.to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-Dorg.slf4j.simpleLogger.showDateTime=true".to_owned(),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".to_owned(),
        "-cp".to_owned(),
        format!("{}/*", tools.kafka_lib.display()),
    ]
}

/// Kafka's settings: one node, nothing created by accident, no waiting for members that do not exist.
pub(super) fn kafka_properties(blueprint: &Blueprint<'_>) -> String {
    let ports = &blueprint.identity.ports;
    let (broker, controller) = (ports.of("kafka"), ports.of("kafka-controller"));
    let data = blueprint.layout.data().join("kafka");
    let mut text = String::new();
    for (name, value) in [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", "1".to_owned()),
        ("controller.quorum.voters", format!("1@127.0.0.1:{controller}")),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}")),
        ("advertised.listeners", format!("PLAINTEXT://127.0.0.1:{broker}")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned()),
        ("log.dirs", data.display().to_string()),
        ("auto.create.topics.enable", "false".to_owned()),
        ("default.replication.factor", "1".to_owned()),
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("offsets.topic.num.partitions", "8".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        ("share.coordinator.state.topic.replication.factor", "1".to_owned()),
        ("share.coordinator.state.topic.min.isr", "1".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        // After a hard kill the broker waits until its former self counts as gone.
        ("broker.session.timeout.ms", "4000".to_owned()),
        ("broker.heartbeat.interval.ms", "1000".to_owned()),
        ("log.retention.hours", "168".to_owned()),
        ("num.network.threads", "2".to_owned()),
        ("num.io.threads", "4".to_owned()),
    ] {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// Postgres, reached over TCP with a password only.
pub(super) fn postgres(blueprint: &Blueprint<'_>) -> Program {
    let port = blueprint.identity.ports.of("postgres");
    let bin = &blueprint.tools.postgres_bin;
    let data = super::files::postgres_data(blueprint.layout, &blueprint.identity.id);
    let mut command =
        vec![bin.join("postgres").display().to_string(), "-D".to_owned(), data.display().to_string()];
    let durable = if blueprint.options.durable { "on" } else { "off" };
    for setting in [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        // The path of a socket may be too long in a deep checkout, and everything uses TCP anyway.
        "unix_socket_directories=".to_owned(),
        "max_connections=300".to_owned(),
        // Without it a power cut loses what was acknowledged; a killed Postgres does not, because the system keeps its pages.
        format!("fsync={durable}"),
        // Without this a killed Postgres would, and tests that kill it could not tell whose loss it was.
        "synchronous_commit=on".to_owned(),
        "log_min_duration_statement=500ms".to_owned(),
        "log_line_prefix=%m [%p] ".to_owned(),
    ] {
        command.extend(["-c".to_owned(), setting]);
    }
    let ready = ["-h", "127.0.0.1", "-p", &port.to_string(), "-U", DATABASE_USER, "-d", "postgres"];
    let mut check = vec![bin.join("pg_isready").display().to_string()];
    check.extend(ready.iter().map(ToString::to_string));
    let mut program = Program::new("postgres", command, data).ready(Check::Command { command: check });
    program.user = Some("postgres".to_owned());
    // A fast shutdown: connections are ended, nothing is lost.
    program.stop = Stop { signal: StopSignal::Interrupt, grace: 20 };
    program
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_blueprint;
    use super::*;
    use crate::stack::Options;

    #[test]
    fn kafka_is_one_node_that_creates_nothing_by_itself() {
        with_blueprint(&Options::for_people(), |blueprint| {
            let properties = kafka_properties(blueprint);
            for line in [
                "auto.create.topics.enable=false",
                "offsets.topic.replication.factor=1",
                "log.dirs=/checkout/.slipway/data/kafka",
                "controller.quorum.voters=1@127.0.0.1:20002",
            ] {
                assert!(properties.lines().any(|found| found == line), "{line} is not in\n{properties}");
            }
            let command = kafka(blueprint).command.join(" ");
            assert!(command.starts_with("/usr/bin/java -Xmx512m "), "{command}");
            assert!(
                command
                    .ends_with("-cp /cache/kafka/lib/* kafka.Kafka /checkout/.slipway/conf/kafka.properties"),
                "{command}"
            );
        });
    }

    #[test]
    fn postgres_is_durable_for_people_and_fast_for_tests() {
        for (options, expect) in
            [(Options::for_people(), "fsync=on"), (Options::for_integration(), "fsync=off")]
        {
            with_blueprint(&options, |blueprint| {
                let program = postgres(blueprint);
                assert!(program.command.contains(&expect.to_owned()), "{:?}", program.command);
                let acknowledged = "synchronous_commit=on".to_owned();
                assert!(program.command.contains(&acknowledged), "{:?}", program.command);
                assert_eq!(program.user.as_deref(), Some("postgres"));
                assert_eq!(program.stop.signal, StopSignal::Interrupt);
                let port = blueprint.identity.ports.of("postgres");
                let url = format!("postgres://slipway:secret@127.0.0.1:{port}/slipway");
                assert_eq!(database_url(blueprint.identity), url);
            });
        }
    }
}
