//! What a custom resource says, in the words of gossip. Pure.
//!
//! *Invariant:* whatever stands in a resource, which may hold more than a megabyte, it is told in half of that at most: what Kafka does
//! not take of one database would keep all others of its cluster from being known.

use domain::operation::StepState;
use domain::{DatabaseId, Position};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use resources::{QuestDB, QuestDBStatus, names};
use wire::gossip::{Condition, Step};
use wire::{Observation, proto};

/// The most bytes of a text for people.
const MESSAGE: usize = 2_000;
/// The most bytes of any other text; names have 253 at most.
const WORD: usize = 300;
/// The most conditions, and the most steps. An operator reports fewer.
const MOST: usize = 64;

/// A resource as it is told. `None` for one that no instruction made: it is somebody's own, and has no position.
pub fn observation(object: &QuestDB, term: i64, present: bool) -> Option<(DatabaseId, Observation)> {
    let instruction = object.spec.instruction.as_ref()?;
    let database = instruction.database_id.parse().ok()?;
    let position = Position { epoch: instruction.epoch, seq: instruction.seq };
    let none = QuestDBStatus::default();
    let status = object.status.as_ref().unwrap_or(&none);
    let carried = status.instruction.as_ref();
    let observation = Observation {
        position,
        term,
        resource_version: version(object),
        present,
        content_hash: word(&instruction.hash),
        phase: status.phase.map_or("", resources::Phase::as_str).to_owned(),
        carried_out: carried.map(|done| Position { epoch: done.epoch, seq: done.seq }),
        conditions: status.conditions.iter().take(MOST).map(condition).collect(),
        steps: status.steps.iter().take(MOST).map(step).collect(),
        endpoints: status.endpoints.as_ref().map(endpoints),
        node: status.node.as_ref().map(node),
        volume: status.volume.as_ref().map(volume),
        dns: status.dns.as_ref().map(dns),
        namespace: object.namespace().unwrap_or_default(),
        resource_name: object.name_any(),
        credentials_secret: status.credentials_secret.as_deref().map(word).unwrap_or_default(),
        traceparent: object.annotations().get(names::TRACEPARENT).map(|text| word(text)).unwrap_or_default(),
        asked_size_gib: object.spec.storage.size_gib,
        carried_hash: carried.map(|done| word(&done.hash)).unwrap_or_default(),
    };
    position.is_valid().then_some((database, observation))
}

/// The database that the provisioner's label names. A resource that shows no instruction, because an older definition drops it,
/// still has that.
pub fn labelled(object: &QuestDB) -> Option<DatabaseId> {
    object.labels().get(names::LABEL_DATABASE)?.parse().ok()
}

/// The resource's version as a number; 0 if it has none.
pub fn version(object: &QuestDB) -> u64 {
    object.metadata.resource_version.as_deref().map_or(0, number)
}

/// A version as a number, which API servers promise since they began to compare them; 0, which is before all of them, if it is none.
pub(super) fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

fn condition(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> Condition {
    Condition {
        kind: word(&condition.type_),
        status: word(&condition.status),
        reason: word(&condition.reason),
        message: message(&condition.message),
        changed_at: Some(condition.last_transition_time.0),
    }
}

fn step(step: &resources::StepStatus) -> Step {
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    Step {
        name: word(&step.name),
        state: match step.state {
            resources::StepState::Pending => StepState::Pending,
            resources::StepState::Running => StepState::Running,
            resources::StepState::Succeeded => StepState::Succeeded,
            resources::StepState::Failed => StepState::Failed,
        },
        message: step.message.as_deref().map(message).unwrap_or_default(),
        started_at: time(&step.started_at),
        ended_at: time(&step.ended_at),
    }
}

fn endpoints(endpoints: &resources::EndpointsStatus) -> proto::Endpoints {
    proto::Endpoints {
        http: word(&endpoints.http),
        postgres: word(&endpoints.pg),
        ilp: word(&endpoints.ilp),
        health: word(&endpoints.min),
    }
}

fn node(node: &resources::NodeStatus) -> proto::Node {
    let text = |text: &Option<String>| text.as_deref().map(word).unwrap_or_default();
    proto::Node {
        name: text(&node.name),
        address: text(&node.ip),
        instance_id: text(&node.instance_id),
        instance_type: text(&node.instance_type),
        ready: node.ready,
    }
}

fn volume(volume: &resources::VolumeStatus) -> proto::Volume {
    proto::Volume { id: word(&volume.id), size_gib: volume.size_gib, state: word(&volume.state) }
}

fn dns(dns: &resources::DnsStatus) -> proto::Dns {
    let state = match dns.state {
        resources::DnsState::Pending => "pending",
        resources::DnsState::InSync if dns.is_reserved() => "reserved",
        resources::DnsState::InSync => "in_sync",
        resources::DnsState::Releasing => "releasing",
        resources::DnsState::Conflict => "conflict",
    };
    proto::Dns { name: word(&dns.name), state: state.to_owned() }
}

fn word(text: &str) -> String {
    text[..text.floor_char_boundary(WORD)].to_owned()
}

fn message(text: &str) -> String {
    match text.floor_char_boundary(MESSAGE) {
        end if end < text.len() => format!("{} …", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use resources::{InstructionStatus, NodeStatus, Phase, StepStatus, VolumeStatus};

    use super::*;
    use crate::decide::tests::instruction;

    pub(crate) fn object() -> QuestDB {
        let instruction = instruction();
        let stamp = resources::render::Instruction {
            id: instruction.id,
            database: instruction.database,
            position: instruction.position,
            hash: "abc".to_owned(),
        };
        let mut object = resources::object(
            &instruction.desired,
            &stamp,
            &instruction.tenant,
            "qdb-acme",
            Some("00-a-b-01"),
        );
        object.metadata.resource_version = Some("1234".to_owned());
        object
    }

    #[test]
    fn everything_of_the_status_is_told() {
        let mut object = object();
        object.status = Some(QuestDBStatus {
            phase: Some(Phase::Ready),
            instruction: Some(InstructionStatus {
                id: String::new(),
                epoch: 1,
                seq: 6,
                render: 1,
                hash: "old".to_owned(),
            }),
            node: Some(NodeStatus { name: Some("n".to_owned()), ready: true, ..NodeStatus::default() }),
            volume: Some(VolumeStatus { id: "vol-1".to_owned(), size_gib: 50, state: "in-use".to_owned() }),
            steps: vec![StepStatus {
                name: "volume".to_owned(),
                state: resources::StepState::Succeeded,
                started_at: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
                ended_at: None,
                message: None,
            }],
            ..QuestDBStatus::default()
        });
        let (database, seen) = observation(&object, 3, true).unwrap();
        assert_eq!(database, instruction().database);
        assert_eq!(
            (seen.position, seen.term, seen.resource_version),
            (Position { epoch: 1, seq: 7 }, 3, 1234)
        );
        assert_eq!(seen.carried_out, Some(Position { epoch: 1, seq: 6 }));
        assert_eq!((seen.phase.as_str(), seen.content_hash.as_str()), ("Ready", "abc"));
        assert_eq!(seen.carried_hash, "old", "of what was carried out, and not of what is asked for");
        assert_eq!(seen.volume.map(|volume| volume.id).as_deref(), Some("vol-1"));
        assert_eq!(seen.asked_size_gib, 50);
        assert!(seen.node.is_some_and(|node| node.ready));
        assert_eq!(seen.steps.len(), 1);
        assert_eq!((seen.namespace.as_str(), seen.traceparent.as_str()), ("qdb-acme", "00-a-b-01"));
        assert!(seen.present);
    }

    #[test]
    fn of_what_cannot_be_read_in_whole_the_rest_is_told_at_its_position() {
        let mut newer = serde_json::to_value(object()).unwrap();
        newer["status"] = serde_json::json!({
            "phase": "Levitating",
            "instruction": { "id": "i", "epoch": 1, "seq": 6, "render": 1, "hash": "old" },
            "steps": [{ "name": "volume", "state": "Succeeded" }],
        });
        let seen: resources::Seen = serde_json::from_value(newer).unwrap();
        assert!(seen.unread.is_some(), "it can be read: {seen:?}");
        let (database, told) = observation(&seen.object, 3, true).unwrap();
        let (same, whole) = observation(&object(), 3, true).unwrap();
        assert_eq!(
            (database, told.position, &told.content_hash),
            (same, whole.position, &whole.content_hash)
        );
        assert_eq!(told.carried_out, Some(Position { epoch: 1, seq: 6 }));
        assert_eq!((told.resource_version, told.asked_size_gib), (1234, 50));
        assert_eq!((told.phase.as_str(), told.steps.len(), told.carried_hash.as_str()), ("", 1, "old"));
    }

    #[test]
    fn what_is_far_too_large_is_told_in_short() {
        let long = "ä".repeat(300_000);
        let mut object = object();
        object
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(names::TRACEPARENT.to_owned(), long.clone());
        let step = StepStatus {
            name: long.clone(),
            state: resources::StepState::Running,
            started_at: None,
            ended_at: None,
            message: Some(long.clone()),
        };
        let condition = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            message: long.clone(),
            observed_generation: None,
            reason: long.clone(),
            status: long.clone(),
            type_: long.clone(),
        };
        object.status = Some(QuestDBStatus {
            phase: Some(Phase::Ready),
            instruction: Some(InstructionStatus {
                id: long.clone(),
                epoch: 1,
                seq: 7,
                render: 1,
                hash: long.clone(),
            }),
            node: Some(NodeStatus { name: Some(long.clone()), ready: true, ..NodeStatus::default() }),
            volume: Some(VolumeStatus { id: long.clone(), size_gib: 50, state: long.clone() }),
            endpoints: Some(resources::EndpointsStatus {
                http: long.clone(),
                pg: long.clone(),
                ilp: long.clone(),
                min: long.clone(),
            }),
            credentials_secret: Some(long),
            steps: vec![step; 100],
            conditions: vec![condition; 100],
            ..QuestDBStatus::default()
        });
        let (database, seen) = observation(&object, 3, true).unwrap();
        assert_eq!((seen.carried_out, seen.phase.as_str()), (Some(Position { epoch: 1, seq: 7 }), "Ready"));
        assert!(seen.steps[0].message.ends_with("ä …"), "whole characters, and it shows");
        let gossip = wire::Gossip {
            database,
            cluster: instruction().cluster,
            said_at: jiff::Timestamp::UNIX_EPOCH,
            said: wire::Said::Observation(Box::new(seen)),
        };
        let bytes = gossip.encode().len();
        assert!(bytes < 500_000, "{bytes} bytes");
    }

    #[test]
    fn a_name_in_sync_without_an_address_is_reserved() {
        use resources::DnsState::{Conflict, InSync, Pending, Releasing};
        let address = Some("10.0.0.1".to_owned());
        for (state, address, word) in [
            (Pending, address.clone(), "pending"),
            (Pending, None, "pending"),
            (InSync, address.clone(), "in_sync"),
            (InSync, None, "reserved"),
            (Releasing, address, "releasing"),
            (Conflict, None, "conflict"),
        ] {
            let name = "a.example.com".to_owned();
            let told = dns(&resources::DnsStatus {
                name,
                state,
                change_id: None,
                address,
                next: None,
                former: None,
            });
            assert_eq!(told.state, word, "{state:?}");
        }
    }

    #[test]
    fn a_resource_without_instruction_is_somebodys_own() {
        let mut object = object();
        object.spec.instruction = None;
        assert_eq!(observation(&object, 1, true), None);
        assert_eq!(
            labelled(&object),
            Some(instruction().database),
            "whose instruction may only not be shown"
        );
    }
}
