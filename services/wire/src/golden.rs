//! Bytes that lie on topics for a week, and bytes that a newer program will write: committed, and read for ever.
//!
//! The files under `golden/` are hexadecimal and are never changed, only added to. They were put together by hand from
//! the contract, not by this crate's encoder. Those of programs to come have a schema that none has yet.

use domain::Position;
use domain::operation::StepState;
use proptest::prelude::*;

use crate::gossip::{Condition, Step};
// What `instruction/golden.hex` says.
use crate::instruction::tests::example as instruction;
use crate::{Gossip, Instruction, Observation, Outcome, OutcomeKind, SCHEMA, Said, proto};

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text.trim()).unwrap()
}

fn at(milliseconds: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(milliseconds).ok()
}

fn gossip(said: Said) -> Gossip {
    Gossip {
        database: "01920000-0000-7000-8000-00000000abcd".parse().unwrap(),
        cluster: "eu-west-1".parse().unwrap(),
        said_at: at(1_763_700_000_001).unwrap(),
        said,
    }
}

fn outcome() -> Outcome {
    Outcome {
        position: Position { epoch: 1, seq: 7 },
        instruction: "01920000-0000-7000-8000-000000000001".parse().unwrap(),
        operation: "01920000-0000-7000-8000-000000000002".parse().unwrap(),
        kind: OutcomeKind::Refused,
        code: "invalid".to_owned(),
        message: "spec.storage.sizeGib can only grow".to_owned(),
    }
}

fn steps() -> Vec<Step> {
    let (volume, pod) = ("volume".to_owned(), "pod".to_owned());
    vec![
        Step {
            name: volume,
            state: StepState::Succeeded,
            message: "attached".to_owned(),
            started_at: at(1_763_700_000_000),
            ended_at: at(1_763_700_000_500),
        },
        Step {
            name: pod,
            state: StepState::Running,
            message: String::new(),
            started_at: at(1_763_700_000_500),
            ended_at: None,
        },
    ]
}

/// With every field set that the first programs knew.
fn observation() -> Observation {
    let text = str::to_owned;
    Observation {
        position: Position { epoch: 2, seq: 9 },
        term: 4,
        resource_version: u64::MAX,
        present: true,
        content_hash: text("ab12"),
        phase: text("Provisioning"),
        carried_out: Some(Position { epoch: 2, seq: 8 }),
        conditions: vec![Condition {
            kind: text("Ready"),
            status: text("False"),
            reason: text("Waiting"),
            message: text("the pod is not ready"),
            changed_at: at(1_763_700_000_000),
        }],
        steps: steps(),
        endpoints: Some(proto::Endpoints {
            http: text("http://trades:9000"),
            postgres: text("trades:8812"),
            ilp: text("trades:9009"),
            health: text("http://trades:9003"),
        }),
        node: Some(proto::Node {
            name: text("ip-10-0-0-1"),
            address: text("10.0.0.1"),
            instance_id: text("i-0abc"),
            instance_type: text("m7i.large"),
            ready: true,
        }),
        volume: Some(proto::Volume { id: text("vol-0abc"), size_gib: 50, state: text("in-use") }),
        dns: Some(proto::Dns { name: text("trades-0000abcd.eu-west-1.example.com"), state: text("in_sync") }),
        namespace: text("qdb-acme"),
        resource_name: text("trades-0000abcd"),
        credentials_secret: text("trades-0000abcd-credentials"),
        traceparent: text("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        asked_size_gib: 0,
        carried_hash: String::new(),
    }
}

/// With nothing set that may be absent.
fn bare() -> Observation {
    let text = String::new;
    Observation {
        position: Position::FIRST,
        term: 1,
        resource_version: 1,
        present: false,
        content_hash: text(),
        phase: text(),
        carried_out: None,
        conditions: Vec::new(),
        steps: Vec::new(),
        endpoints: None,
        node: None,
        volume: None,
        dns: None,
        namespace: text(),
        resource_name: text(),
        credentials_secret: text(),
        traceparent: text(),
        asked_size_gib: 0,
        carried_hash: text(),
    }
}

#[test]
fn gossip_of_schema_1_is_written_and_read_as_ever() {
    let cases = [
        (include_str!("golden/outcome.hex"), Said::Outcome(outcome())),
        (include_str!("golden/observation.hex"), Said::Observation(Box::new(observation()))),
        (include_str!("golden/absent.hex"), Said::Observation(Box::new(bare()))),
        (
            include_str!("golden/growing.hex"),
            Said::Observation(Box::new(Observation { asked_size_gib: 300, ..observation() })),
        ),
        (
            include_str!("golden/carried.hex"),
            Said::Observation(Box::new(Observation { carried_hash: "cd34".to_owned(), ..observation() })),
        ),
    ];
    for (golden, said) in cases {
        let said = gossip(said);
        assert_eq!(Gossip::decode(&bytes(golden)).unwrap(), said);
        assert_eq!(hex::encode(said.encode()), golden.trim(), "the bytes written have changed");
    }
}

/// A later schema, fields of every wire type that nobody here knows, at the top and inside, and another hash over all of them.
#[test]
fn what_a_newer_program_adds_is_no_obstacle() {
    let future = bytes(include_str!("golden/future_instruction.hex"));
    assert_eq!(Instruction::decode(&future).unwrap(), instruction());
    let future = bytes(include_str!("golden/future_observation.hex"));
    assert_eq!(Gossip::decode(&future).unwrap(), gossip(Said::Observation(Box::new(observation()))));
}

/// What cannot be left out without changing the meaning is refused, each by its own field or code.
#[test]
fn what_a_newer_program_means_otherwise_is_not_guessed() {
    let gossip = |text| Gossip::decode(&bytes(text)).unwrap_err();
    let instruction = |text| Instruction::decode(&bytes(text)).unwrap_err();
    let cases = [
        (gossip(include_str!("golden/future_outcome.hex")), "bad_field", "disposition"),
        (gossip(include_str!("golden/future_said.hex")), "bad_field", "said"),
        (instruction(include_str!("golden/future_run_state.hex")), "bad_field", "desired.run_state"),
        (instruction(include_str!("golden/future_reader.hex")), "reader_too_old", "schema 900"),
    ];
    for (error, code, about) in cases {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(about), "{error} does not name {about}");
    }
}

/// A field with a number that no message uses, in one of the four ways a value can be written.
fn unknown_field() -> impl Strategy<Value = Vec<u8>> {
    let key = |number: u64, way: u64| {
        let mut key = Vec::new();
        prost::encoding::encode_varint(number << 3 | way, &mut key);
        key
    };
    let text = prop::collection::vec(any::<u8>(), 0..100);
    (100_u64..50_000, any::<u64>(), text, 0..4_usize).prop_map(move |(number, value, text, way)| {
        let (way, value) = match way {
            0 => (0, {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(value, &mut bytes);
                bytes
            }),
            1 => (1, value.to_le_bytes().to_vec()),
            2 => (2, [&[u8::try_from(text.len()).unwrap_or_default()], &text[..]].concat()),
            _ => (5, value.to_le_bytes()[..4].to_vec()),
        };
        [key(number, way), value].concat()
    })
}

proptest! {
    #[test]
    fn unknown_fields_change_nothing(more in prop::collection::vec(unknown_field(), 0..5)) {
        let more = more.concat();
        for said in [Said::Outcome(outcome()), Said::Observation(Box::new(observation()))] {
            let said = gossip(said);
            // Before as well as after what is known.
            for bytes in [[more.clone(), said.encode()].concat(), [said.encode(), more.clone()].concat()] {
                prop_assert_eq!(Gossip::decode(&bytes).unwrap(), said.clone());
            }
        }
        let bytes = [more, instruction().encode()].concat();
        prop_assert_eq!(Instruction::decode(&bytes).unwrap(), instruction());
    }

    #[test]
    fn whoever_is_too_old_is_told_so_whatever_else_the_record_holds(
        newer in SCHEMA + 1..SCHEMA + 900,
        more in prop::collection::vec(unknown_field(), 0..5),
    ) {
        let mut bytes = vec![0x10]; // field 2, the oldest reader
        prost::encoding::encode_varint(newer.into(), &mut bytes);
        bytes.extend(more.concat());
        prop_assert_eq!(Gossip::decode(&bytes).unwrap_err().code(), "reader_too_old");
        prop_assert_eq!(Instruction::decode(&bytes).unwrap_err().code(), "reader_too_old");
    }

    #[test]
    fn spoilt_records_never_panic(at in any::<prop::sample::Index>(), bits in 1_u8.., cut in any::<prop::sample::Index>()) {
        let records =
            [include_str!("golden/outcome.hex"), include_str!("golden/observation.hex"), include_str!("instruction/golden.hex")];
        for record in records {
            let mut bytes = bytes(record);
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                let _ = (Gossip::decode(bytes), Instruction::decode(bytes));
            }
        }
    }

    #[test]
    fn positions_terms_and_versions_survive_the_journey(
        (epoch, seq) in (1..=domain::position::MAXIMUM, 1..=domain::position::MAXIMUM),
        (term, resource_version, present) in (any::<i64>(), any::<u64>(), any::<bool>()),
        phase in ".{0,40}",
    ) {
        let position = Position { epoch, seq };
        let seen = Observation { position, term, resource_version, present, phase, carried_out: Some(position), ..bare() };
        let said = gossip(Said::Observation(Box::new(seen)));
        prop_assert_eq!(Gossip::decode(&said.encode()).unwrap(), said);
    }
}
