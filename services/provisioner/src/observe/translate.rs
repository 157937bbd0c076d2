//! What a custom resource says, in the words of gossip. Pure.

use domain::operation::StepState;
use domain::{DatabaseId, Position};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use resources::{QuestDB, QuestDBStatus, names};
use wire::gossip::{Condition, Step};
use wire::{Observation, proto};

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
        content_hash: instruction.hash.clone(),
        phase: status.phase.map_or("", resources::Phase::as_str).to_owned(),
        carried_out: carried.map(|done| Position { epoch: done.epoch, seq: done.seq }),
        conditions: status.conditions.iter().map(condition).collect(),
        steps: status.steps.iter().map(step).collect(),
        endpoints: status.endpoints.as_ref().map(endpoints),
        node: status.node.as_ref().map(node),
        volume: status.volume.as_ref().map(volume),
        dns: status.dns.as_ref().map(dns),
        namespace: object.namespace().unwrap_or_default(),
        resource_name: object.name_any(),
        credentials_secret: status.credentials_secret.clone().unwrap_or_default(),
        traceparent: object.annotations().get(names::TRACEPARENT).cloned().unwrap_or_default(),
        asked_size_gib: object.spec.storage.size_gib,
        carried_hash: carried.map(|done| done.hash.clone()).unwrap_or_default(),
    };
    position.is_valid().then_some((database, observation))
}

/// The database that the provisioner's label names. A resource that shows no instruction, because an older definition drops it,
/// still has that.
pub fn labelled(object: &QuestDB) -> Option<DatabaseId> {
    object.labels().get(names::LABEL_DATABASE)?.parse().ok()
}

/// The resource's version as a number, which API servers promise since they began to compare them; 0 if it is none.
pub fn version(object: &QuestDB) -> u64 {
    object.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn condition(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> Condition {
    Condition {
        kind: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        changed_at: Some(condition.last_transition_time.0),
    }
}

fn step(step: &resources::StepStatus) -> Step {
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    Step {
        name: step.name.clone(),
        state: match step.state {
            resources::StepState::Pending => StepState::Pending,
            resources::StepState::Running => StepState::Running,
            resources::StepState::Succeeded => StepState::Succeeded,
            resources::StepState::Failed => StepState::Failed,
        },
        message: step.message.clone().unwrap_or_default(),
        started_at: time(&step.started_at),
        ended_at: time(&step.ended_at),
    }
}

fn endpoints(endpoints: &resources::EndpointsStatus) -> proto::Endpoints {
    proto::Endpoints {
        http: endpoints.http.clone(),
        postgres: endpoints.pg.clone(),
        ilp: endpoints.ilp.clone(),
        health: endpoints.min.clone(),
    }
}

fn node(node: &resources::NodeStatus) -> proto::Node {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    proto::Node {
        name: text(&node.name),
        address: text(&node.ip),
        instance_id: text(&node.instance_id),
        instance_type: text(&node.instance_type),
        ready: node.ready,
    }
}

fn volume(volume: &resources::VolumeStatus) -> proto::Volume {
    proto::Volume { id: volume.id.clone(), size_gib: volume.size_gib, state: volume.state.clone() }
}

fn dns(dns: &resources::DnsStatus) -> proto::Dns {
    let state = match dns.state {
        resources::DnsState::Pending => "pending",
        resources::DnsState::InSync if dns.is_reserved() => "reserved",
        resources::DnsState::InSync => "in_sync",
        resources::DnsState::Releasing => "releasing",
        resources::DnsState::Conflict => "conflict",
    };
    proto::Dns { name: dns.name.clone(), state: state.to_owned() }
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
