//! Values for tests, the same everywhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use uuid::Uuid;
use wire::http::aside::{About, DeadLetter, Header, LetterInstruction, Parked, Prospect, Settled, Unclaimed};
use wire::http::database::{Condition, Endpoints, Node, Observed, Storage};
use wire::http::operation::{OperationError, Step};
use wire::http::{Cluster, Database, Operation, OperationEvent, RegisterCluster, WholeLetter};

/// The moment of the tests.
pub(crate) fn now() -> Timestamp {
    at("2026-11-21T06:30:00Z")
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn database() -> Database {
    Database {
        id: Uuid::parse_str("0192f3a4-5b6c-7d8e-9f00-112233445566").unwrap(),
        name: "trades".to_owned(),
        tenant: "acme".to_owned(),
        region: "eu-west-1".to_owned(),
        cluster: "eu-west-1".to_owned(),
        run_state: "running".to_owned(),
        version: "9.3.4".to_owned(),
        instance_type: "m7i.large".to_owned(),
        storage: Storage {
            size_gib: 50,
            volume_type: "gp3".to_owned(),
            iops: 3_000,
            throughput: 125,
            deletion_policy: "retain".to_owned(),
        },
        config: BTreeMap::from([("shared.worker.count".to_owned(), "2".to_owned())]),
        hostname: "trades-33445566.eu-west-1.example.com".to_owned(),
        allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
        exposure: "internal".to_owned(),
        deletion_protection: false,
        epoch: 1,
        seq: 2,
        created_at: at("2026-11-21T06:00:00Z"),
        updated_at: at("2026-11-21T06:20:00Z"),
        deleted_at: None,
        diverged: None,
        diverged_since: None,
        purged_at: None,
        published_at: Some(at("2026-11-21T06:20:01Z")),
        resent_at: None,
        observed: Some(observed()),
        operation_id: Some(operation("running").id),
    }
}

fn observed() -> Observed {
    Observed {
        phase: "Ready".to_owned(),
        epoch: 1,
        seq: 1,
        conditions: vec![
            Condition {
                kind: "Ready".to_owned(),
                status: "True".to_owned(),
                reason: "Serving".to_owned(),
                message: String::new(),
                changed_at: Some(at("2026-11-21T06:02:00Z")),
            },
            Condition {
                kind: "DNSReady".to_owned(),
                status: "False".to_owned(),
                reason: "Pending".to_owned(),
                message: "the change is not everywhere yet".to_owned(),
                changed_at: None,
            },
        ],
        steps: operation("running").steps,
        endpoints: Some(Endpoints {
            http: "http://trades-33445566.eu-west-1.example.com:9000".to_owned(),
            postgres: "trades-33445566.eu-west-1.example.com:8812".to_owned(),
            ilp: "trades-33445566.eu-west-1.example.com:9000".to_owned(),
            health: "http://trades-33445566.eu-west-1.example.com:9003/status".to_owned(),
        }),
        node: Some(Node {
            name: "qdb-33445566-g1".to_owned(),
            address: "10.250.0.7".to_owned(),
            instance_id: "i-0abc".to_owned(),
            ready: true,
        }),
        volume_id: Some("vol-0abc".to_owned()),
        volume_size_gib: None,
        asked_size_gib: None,
        carried_hash: None,
        dns_state: Some("INSYNC".to_owned()),
        namespace: "qdb-acme".to_owned(),
        resource_name: "trades-33445566".to_owned(),
        credentials_secret: "trades-33445566-credentials".to_owned(),
        as_of: Some(at("2026-11-21T06:29:55Z")),
    }
}

pub(crate) fn operation(state: &str) -> Operation {
    let failed = state == "failed";
    let step = |name: &str, state: &str, message: &str, ended: Option<&str>| Step {
        name: name.to_owned(),
        state: state.to_owned(),
        message: message.to_owned(),
        started_at: Some(at("2026-11-21T06:00:01Z")),
        ended_at: ended.map(at),
    };
    let instance = if failed {
        step("instance", "failed", "InsufficientInstanceCapacity in eu-west-1a", None)
    } else {
        step("instance", "running", "waiting for running", None)
    };
    Operation {
        id: Uuid::parse_str("0192f3a4-5b6c-7d8e-9f00-aabbccddeeff").unwrap(),
        kind: "create".to_owned(),
        database_id: Uuid::parse_str("0192f3a4-5b6c-7d8e-9f00-112233445566").unwrap(),
        database_name: "trades".to_owned(),
        tenant: "acme".to_owned(),
        state: state.to_owned(),
        steps: vec![step("volume", "succeeded", "", Some("2026-11-21T06:00:03.100Z")), instance],
        error: failed.then(|| OperationError {
            code: "capacity".to_owned(),
            message: "no zone has capacity for m7i.large; try another type".to_owned(),
        }),
        on_failure: "revert".to_owned(),
        deadline_at: None,
        overdue_since: None,
        reverts: None,
        superseded_by: (state == "superseded")
            .then(|| "0192f3a4-5b6c-7d8e-9f00-ffffffffffff".parse().unwrap()),
        epoch: 1,
        seq: 2,
        created_by: "token:ci".to_owned(),
        created_at: at("2026-11-21T06:00:00Z"),
        updated_at: at("2026-11-21T06:01:00Z"),
        ended_at: crate::follow::is_terminal(state).then(|| at("2026-11-21T06:01:04Z")),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
    }
}

pub(crate) fn events() -> Vec<OperationEvent> {
    let event = |number, kind: &str, state: &str, step| OperationEvent {
        number,
        kind: kind.to_owned(),
        state: state.to_owned(),
        step,
        error: None,
        at: at("2026-11-21T06:00:01Z"),
    };
    let steps = operation("running").steps;
    vec![
        event(1, "state", "pending", None),
        event(2, "state", "running", None),
        event(3, "step", "running", Some(steps[0].clone())),
        event(4, "step", "running", Some(steps[1].clone())),
    ]
}

pub(crate) fn cluster() -> Cluster {
    Cluster {
        id: "eu-west-1".to_owned(),
        registration: RegisterCluster {
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
            zones: BTreeMap::from([
                ("eu-west-1a".to_owned(), "subnet-1".to_owned()),
                ("eu-west-1b".to_owned(), "subnet-2".to_owned()),
            ]),
            hosted_zone_id: "Z0123".to_owned(),
            dns_suffix: "eu-west-1.example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: Some("active".to_owned()),
            credentials: "file:eu-west-1.kubeconfig".to_owned(),
        },
        databases: 3,
        created_at: at("2026-11-20T06:00:00Z"),
    }
}

fn about() -> About {
    About { name: "trades".to_owned(), tenant: "acme".to_owned(), epoch: 1, seq: 2 }
}

pub(crate) fn letter() -> DeadLetter {
    DeadLetter {
        id: 12,
        topic: "provisioning.instructions".to_owned(),
        partition: 3,
        offset: 4_711,
        database_id: Some(database().id),
        database: Some(about()),
        epoch: Some(1),
        seq: Some(2),
        cluster: Some("eu-west-1".to_owned()),
        code: "invalid".to_owned(),
        message: "spec.version: Too long: may not be more than 32 bytes".to_owned(),
        size: 412,
        consumer: "slipway-provisioner".to_owned(),
        received_at: at("2026-11-21T06:25:00Z"),
        superseded_at: None,
        settled: None,
        advice: "change the database, or mend the cluster and redrive".to_owned(),
    }
}

pub(crate) fn settled() -> Settled {
    Settled {
        how: "redriven".to_owned(),
        at: at("2026-11-21T06:28:00Z"),
        by: Some("sre:ann".to_owned()),
        reason: Some("INC-42: the definition was mended".to_owned()),
    }
}

pub(crate) fn whole_letter() -> WholeLetter {
    let header = |name: &str, value: &str| Header { name: name.to_owned(), value: value.to_owned() };
    WholeLetter {
        letter: letter(),
        redrive: Prospect {
            possible: true,
            outcome: "redriven".to_owned(),
            message: "the state at 1/2 is published again".to_owned(),
        },
        key: Some(database().id.to_string()),
        headers: vec![header("slipway-cluster", "eu-west-1"), header("slipway-seq", "2")],
        instruction: Some(LetterInstruction {
            database_id: database().id,
            name: "trades".to_owned(),
            tenant: "acme".to_owned(),
            cluster: "eu-west-1".to_owned(),
            operation_id: operation("running").id,
            run_state: "running".to_owned(),
            epoch: 1,
            seq: 2,
            actor: "tenant:console".to_owned(),
            issued_at: at("2026-11-21T06:20:00Z"),
        }),
        payload_hex: Some("0a0b".to_owned()),
    }
}

pub(crate) fn parked() -> Parked {
    Parked {
        database_id: database().id,
        database: Some(about()),
        cluster: "eu-west-1".to_owned(),
        epoch: 1,
        seq: 2,
        code: "unreachable".to_owned(),
        message: "no answer within 5s".to_owned(),
        attempts: 7,
        parked_at: at("2026-11-21T06:20:00Z"),
        retry_at: at("2026-11-21T06:30:20Z"),
        advice: "bring the cluster's API server back".to_owned(),
    }
}

pub(crate) fn unclaimed() -> Unclaimed {
    Unclaimed {
        database_id: database().id,
        database: None,
        cluster: "eu-west-1".to_owned(),
        code: "unknown_database".to_owned(),
        epoch: 1,
        seq: 9,
        namespace: "qdb-acme".to_owned(),
        resource_name: "trades-33445566".to_owned(),
        seen: 41,
        first_seen: at("2026-11-21T05:00:00Z"),
        last_seen: at("2026-11-21T06:29:00Z"),
        resolved_at: None,
        advice: "restore its rows, or remove the resource by hand".to_owned(),
    }
}
