//! Gossip there and back: what is written is read again, and what cannot be meant is refused.

use super::*;

fn observation() -> Observation {
    Observation {
        position: Position { epoch: 1, seq: 3 },
        term: 4,
        resource_version: 1_234,
        present: true,
        content_hash: "ab".to_owned(),
        phase: "Ready".to_owned(),
        carried_out: Some(Position { epoch: 1, seq: 2 }),
        conditions: vec![Condition {
            kind: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: "Serving".to_owned(),
            message: String::new(),
            changed_at: jiff::Timestamp::from_millisecond(1_763_700_000_000).ok(),
        }],
        steps: vec![Step {
            name: "volume".to_owned(),
            state: StepState::Succeeded,
            message: "attached".to_owned(),
            started_at: None,
            ended_at: None,
        }],
        endpoints: Some(proto::Endpoints {
            http: "http://10.0.0.1:9000".to_owned(),
            ..proto::Endpoints::default()
        }),
        node: None,
        volume: Some(proto::Volume { id: "vol-1".to_owned(), size_gib: 50, state: "in-use".to_owned() }),
        dns: None,
        namespace: "qdb-acme".to_owned(),
        resource_name: "trades-0000abcd".to_owned(),
        credentials_secret: "trades-0000abcd-credentials".to_owned(),
        traceparent: String::new(),
        asked_size_gib: 100,
        carried_hash: "cd".to_owned(),
    }
}

fn gossip(said: Said) -> Gossip {
    Gossip {
        database: "01920000-0000-7000-8000-00000000abcd".parse().unwrap(),
        cluster: "eu-west-1".parse().unwrap(),
        said_at: jiff::Timestamp::from_millisecond(1_763_700_000_001).unwrap(),
        said,
    }
}

#[test]
fn observations_survive_the_journey() {
    for carried_out in [None, Some(Position::FIRST)] {
        let said = gossip(Said::Observation(Box::new(Observation { carried_out, ..observation() })));
        assert_eq!(Gossip::decode(&said.encode()).unwrap(), said);
    }
}

#[test]
fn outcomes_survive_the_journey() {
    for kind in [OutcomeKind::Applied, OutcomeKind::Superseded, OutcomeKind::Parked, OutcomeKind::Refused] {
        let said = gossip(Said::Outcome(Outcome {
            position: Position::FIRST,
            instruction: "01920000-0000-7000-8000-000000000001".parse().unwrap(),
            operation: "01920000-0000-7000-8000-000000000002".parse().unwrap(),
            kind,
            code: "unreachable".to_owned(),
            message: "the API server does not answer".to_owned(),
        }));
        assert_eq!(Gossip::decode(&said.encode()).unwrap(), said);
    }
}

#[test]
fn silence_is_not_gossip() {
    let mut message =
        proto::Gossip::decode(gossip(Said::Observation(Box::new(observation()))).encode().as_slice())
            .unwrap();
    message.said = None;
    assert_eq!(Gossip::decode(&message.encode_to_vec()).unwrap_err().code(), "bad_field");
}
