//! What a cluster says of a ready database, as nearly all are, and how that lies in Postgres.

use domain::Position;
use domain::operation::StepState;
use jiff::Timestamp;
use serde_json::{Value, json};
use wire::gossip::{Condition, Step};
use wire::{Gossip, Observation, Said, http, proto};

use crate::populate::{HASH, identity};

/// The cluster that speaks.
pub(crate) const CLUSTER: &str = "bench";
/// What it says first of a ready database.
pub(crate) const PHASE: &str = "Ready";
/// When everything happened, in milliseconds since 1970.
pub(crate) const AT: i64 = 1_763_700_000_000;

/// What was minted, is held and was carried out.
const POSITION: Position = Position { epoch: 1, seq: 1 };
const SIZE_GIB: u32 = 50;
const VOLUME: &str = "vol-0123456789abcdef0";
const NODE: &str = "ip-10-0-12-34.eu-west-1.compute.internal";
const ADDRESS: &str = "10.0.12.34";
const INSTANCE: &str = "i-0123456789abcdef0";
const HOST: &str = "trades-0000abcd.eu-west-1.db.slipway.test";
const IN_SYNC: &str = "in_sync";
const NAMESPACE: &str = "qdb-bench";
const RESOURCE: &str = "trades-0000abcd";
const SECRET: &str = "trades-0000abcd-credentials";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Kind, status, reason and message.
const CONDITIONS: [[&str; 4]; 7] = [
    ["ConfigAccepted", "True", "Valid", "the spec can be carried out"],
    ["Ready", "True", "Serving", "QuestDB answers its probes and its name"],
    ["Progressing", "False", "Settled", "nothing is left to do"],
    ["Degraded", "False", "AsExpected", "nothing needs anybody's attention"],
    ["Paused", "False", "Running", "the database is to run"],
    ["NodeHealthy", "True", "NodeReady", "as asked for"],
    ["DNSReady", "True", "InSync", "as asked for"],
];
const STEPS: [&str; 13] = [
    "resource",
    "credentials",
    "security-group",
    "instance",
    "volume",
    "tuning",
    "node",
    "config",
    "network-policy",
    "attachment",
    "pod",
    "dns",
    "reach",
];

/// What an operation tells that ends with that: each of its steps, of which the first is not the cluster's, and its end.
pub(crate) const TOLD: usize = STEPS.len() + 2;

/// What is said of the database of this number, at a version of its resource.
pub(crate) fn record(database: usize, version: u64) -> anyhow::Result<(String, Vec<u8>)> {
    let gossip = Gossip {
        database: identity(database).parse()?,
        cluster: CLUSTER.parse()?,
        said_at: Timestamp::from_millisecond(AT)?,
        said: Said::Observation(Box::new(observation(version)?)),
    };
    Ok((gossip.key(), gossip.encode()))
}

fn observation(version: u64) -> anyhow::Result<Observation> {
    let at = Some(Timestamp::from_millisecond(AT)?);
    let condition = |[kind, status, reason, message]: [&str; 4]| Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        changed_at: at,
    };
    let step = |name: &str| Step {
        name: name.to_owned(),
        state: StepState::Succeeded,
        message: String::new(),
        started_at: at,
        ended_at: at,
    };
    let [http, postgres, ilp, health] = endpoints();
    Ok(Observation {
        position: POSITION,
        term: 1,
        resource_version: version,
        present: true,
        content_hash: HASH.to_owned(),
        phase: PHASE.to_owned(),
        carried_out: Some(POSITION),
        conditions: CONDITIONS.map(condition).into(),
        steps: STEPS.map(step).into(),
        endpoints: Some(proto::Endpoints { http, postgres, ilp, health }),
        node: Some(proto::Node {
            name: NODE.to_owned(),
            address: ADDRESS.to_owned(),
            instance_id: INSTANCE.to_owned(),
            instance_type: "m7i.large".to_owned(),
            ready: true,
        }),
        volume: Some(proto::Volume { id: VOLUME.to_owned(), size_gib: SIZE_GIB, state: "in-use".to_owned() }),
        dns: Some(proto::Dns { name: HOST.to_owned(), state: IN_SYNC.to_owned() }),
        namespace: NAMESPACE.to_owned(),
        resource_name: RESOURCE.to_owned(),
        credentials_secret: SECRET.to_owned(),
        traceparent: TRACE.to_owned(),
        asked_size_gib: SIZE_GIB,
        carried_hash: HASH.to_owned(),
    })
}

/// The same as it lies in its column.
pub(crate) fn document() -> anyhow::Result<http::database::Observed> {
    let at = Some(Timestamp::from_millisecond(AT)?);
    let condition = |[kind, status, reason, message]: [&str; 4]| http::database::Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        changed_at: at,
    };
    let step = |name: &str| http::operation::Step {
        name: name.to_owned(),
        state: StepState::Succeeded.to_string(),
        message: String::new(),
        started_at: at,
        ended_at: at,
    };
    let [http, postgres, ilp, health] = endpoints();
    Ok(http::database::Observed {
        phase: PHASE.to_owned(),
        epoch: POSITION.epoch,
        seq: POSITION.seq,
        carried_hash: Some(HASH.to_owned()),
        conditions: CONDITIONS.map(condition).into(),
        steps: STEPS.map(step).into(),
        endpoints: Some(http::database::Endpoints { http, postgres, ilp, health }),
        node: Some(http::database::Node {
            name: NODE.to_owned(),
            address: ADDRESS.to_owned(),
            instance_id: INSTANCE.to_owned(),
            ready: true,
        }),
        volume_id: Some(VOLUME.to_owned()),
        volume_size_gib: Some(SIZE_GIB),
        asked_size_gib: Some(SIZE_GIB),
        dns_state: Some(IN_SYNC.to_owned()),
        namespace: NAMESPACE.to_owned(),
        resource_name: RESOURCE.to_owned(),
        credentials_secret: SECRET.to_owned(),
        as_of: None,
    })
}

/// The steps as they lie with the operation that ends with that.
pub(crate) fn steps() -> Vec<Value> {
    let names = ["apply"].into_iter().chain(STEPS);
    names.map(|name| json!({"name": name, "state": "succeeded", "started_at": AT, "ended_at": AT})).collect()
}

/// The second event of that operation as it lies in its column.
pub(crate) fn event() -> Value {
    json!({"state": "pending", "step": steps()[1]})
}

/// For HTTP, Postgres' protocol and line protocol, and for health.
fn endpoints() -> [String; 4] {
    let http = format!("http://{HOST}:9000");
    [http.clone(), format!("postgres://{HOST}:8812/qdb"), http, format!("http://{HOST}:9003")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_gossip() {
        let (key, payload) = record(255, 9).unwrap();
        let read = Gossip::decode(&payload).unwrap();
        assert_eq!((key, read.database.to_string()), (read.key(), identity(255)));
        assert!(payload.len() > 1_500, "as large as those of ready databases are: {}", payload.len());
    }
}
