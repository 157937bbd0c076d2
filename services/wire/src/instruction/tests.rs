//! Instructions there and back: what is written is read again, and what cannot be meant is refused.

use std::collections::BTreeMap;

use domain::{Compute, DeletionPolicy, Exposure, Network, RunState, Storage, VolumeType};
use proptest::prelude::*;

use super::*;

pub(crate) fn example() -> Instruction {
    Instruction {
        id: "01920000-0000-7000-8000-000000000001".parse().unwrap(),
        database: "01920000-0000-7000-8000-00000000abcd".parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        cluster: "eu-west-1".parse().unwrap(),
        operation: "01920000-0000-7000-8000-000000000002".parse().unwrap(),
        operation_kind: OperationKind::Create,
        position: Position { epoch: 1, seq: 7 },
        desired: Desired {
            name: "trades".parse().unwrap(),
            run_state: RunState::Running,
            version: "9.3.4".to_owned(),
            compute: Compute { instance_type: "m7i.large".to_owned(), node_image: None },
            storage: Storage {
                size_gib: 50,
                volume_type: VolumeType::Gp3,
                iops: 3_000,
                throughput: 125,
                provisioned: false,
                deletion_policy: DeletionPolicy::Retain,
            },
            config: BTreeMap::from([("shared.worker.count".to_owned(), "2".to_owned())]),
            network: Network {
                hostname: "trades-0000abcd.eu-west-1.example.com".to_owned(),
                allowed_cidrs: vec!["10.0.0.0/8".to_owned()],
                exposure: Exposure::Internal,
            },
            restart_nonce: None,
            deletion_protection: false,
        },
        issued_at: jiff::Timestamp::from_millisecond(1_763_700_000_000).unwrap(),
        actor: "console:anna".to_owned(),
    }
}

#[test]
fn an_instruction_survives_the_journey() {
    assert_eq!(Instruction::decode(&example().encode()).unwrap(), example());
}

/// Bytes that an earlier build wrote. If this fails, records on the topic can no longer be read: add, never change.
#[test]
fn golden_bytes_still_mean_the_same() {
    let golden = include_str!("golden.hex").trim();
    assert_eq!(hex::encode(example().encode()), golden, "the bytes written have changed");
    assert_eq!(Instruction::decode(&hex::decode(golden).unwrap()).unwrap(), example());
}

/// With every field set, and what only the second schema can say.
fn whole() -> Instruction {
    let first = example();
    let desired = Desired {
        run_state: RunState::Paused,
        compute: Compute { node_image: Some("ami-0123456789abcdef0".to_owned()), ..first.desired.compute },
        storage: Storage {
            size_gib: 50,
            volume_type: VolumeType::Io2,
            iops: 6_000,
            throughput: 0,
            provisioned: true,
            deletion_policy: DeletionPolicy::Snapshot,
        },
        config: BTreeMap::from([
            ("cairo.max.uncommitted.rows".to_owned(), "1000".to_owned()),
            ("shared.worker.count".to_owned(), "2".to_owned()),
        ]),
        network: Network {
            allowed_cidrs: vec!["10.0.0.0/8".to_owned(), "192.0.2.0/24".to_owned()],
            exposure: Exposure::Public,
            ..first.desired.network
        },
        restart_nonce: Some("monday".to_owned()),
        deletion_protection: true,
        ..first.desired
    };
    let position = Position { epoch: 2, seq: 9 };
    Instruction { operation_kind: OperationKind::Update, position, desired, ..first }
}

/// The same of the second schema; put together by hand from the contract, not by this crate's encoder.
#[test]
fn golden_bytes_of_the_second_schema_still_mean_the_same() {
    let golden = include_str!("second.hex").trim();
    assert_eq!(hex::encode(whole().encode()), golden, "the bytes written have changed");
    assert_eq!(Instruction::decode(&hex::decode(golden).unwrap()).unwrap(), whole());
}

#[test]
fn unknown_fields_of_a_newer_writer_are_no_obstacle() {
    let mut message = proto::Instruction::decode(example().encode().as_slice()).unwrap();
    message.schema = SCHEMA + 1;
    message.content_hash = "of a state with more fields".to_owned();
    let mut bytes = message.encode_to_vec();
    bytes.extend_from_slice(&[0xfa, 0x06, 0x03, b'n', b'e', b'w']); // field 111, three bytes
    assert_eq!(Instruction::decode(&bytes).unwrap(), example());
}

#[test]
fn what_must_not_be_ignored_is_refused() {
    let mut message = proto::Instruction::decode(example().encode().as_slice()).unwrap();
    message.min_reader = SCHEMA + 1;
    assert_eq!(Instruction::decode(&message.encode_to_vec()).unwrap_err().code(), "reader_too_old");
}

#[test]
fn a_later_generation_is_named_so_whatever_its_fields_are() {
    let mut message = proto::Instruction::decode(example().encode().as_slice()).unwrap();
    message.schema = 1_000;
    assert_eq!(Instruction::decode(&message.encode_to_vec()).unwrap_err().code(), "newer_major");
    assert!(Instruction::identity(&message.encode_to_vec()).is_some());
    // Field 3 is a number there, not a text.
    let bytes = [&[0x08, 0xe8, 0x07, 0x10, 0xe8, 0x07][..], &[0x18, 0x05]].concat();
    assert_eq!(Instruction::decode(&bytes).unwrap_err().code(), "newer_major");
    assert!(Instruction::identity(&bytes).is_none());
    let same = [&[0x08, 0x03, 0x10, 0x03][..], &[0x18, 0x05]].concat();
    assert_eq!(Instruction::decode(&same).unwrap_err().code(), "reader_too_old");
    let ours = [&[0x08, 0x01, 0x10, 0x01][..], &[0x18, 0x05]].concat();
    assert_eq!(Instruction::decode(&ours).unwrap_err().code(), "undecodable");
}

#[test]
fn who_does_not_know_the_last_copy_or_the_protection_reads_nothing_of_them() {
    let needed = |change: fn(&mut Desired)| {
        let mut instruction = example();
        change(&mut instruction.desired);
        let bytes = instruction.encode();
        assert_eq!(Instruction::decode(&bytes).unwrap(), instruction);
        let message = proto::Instruction::decode(bytes.as_slice()).unwrap();
        (message.schema, message.min_reader)
    };
    assert_eq!(needed(|_| {}), (1, 1), "everybody reads what everybody knows");
    assert_eq!(needed(|desired| desired.storage.deletion_policy = DeletionPolicy::Delete), (1, 1));
    assert_eq!(needed(|desired| desired.storage.deletion_policy = DeletionPolicy::Snapshot), (2, 2));
    assert_eq!(needed(|desired| desired.deletion_protection = true), (2, 2));
}

#[test]
fn a_record_of_before_is_held_to_its_hash_too() {
    let mut message = proto::Instruction::decode(example().encode().as_slice()).unwrap();
    assert!(message.schema < SCHEMA);
    message.desired.as_mut().unwrap().version = "9.9.9".to_owned();
    let error = Instruction::decode(&message.encode_to_vec()).unwrap_err();
    assert!(error.to_string().contains("content_hash"), "{error}");
}

type Break = fn(&mut proto::Instruction);

#[test]
fn every_broken_field_is_named() {
    let cases: &[(&str, Break)] = &[
        ("database_id", |m| m.database_id = "x".to_owned()),
        ("tenant_id", |m| m.tenant_id = "A B".to_owned()),
        ("cluster_id", |m| m.cluster_id.clear()),
        ("operation_kind", |m| m.operation_kind = 99),
        ("epoch/seq", |m| m.seq = i64::MAX),
        ("epoch/seq", |m| m.epoch = 0),
        ("desired", |m| m.desired = None),
        ("content_hash", |m| m.content_hash = "00".to_owned()),
        ("desired.run_state", |m| m.desired.as_mut().unwrap().run_state = 42),
        ("desired.storage", |m| m.desired.as_mut().unwrap().storage = None),
        ("desired.storage.deletion_policy", |m| {
            let desired = m.desired.as_mut().unwrap();
            desired.storage.as_mut().unwrap().deletion_policy = "archive".to_owned();
        }),
        ("desired.deletion_protection", |m| {
            let desired = m.desired.as_mut().unwrap();
            (desired.deletion_protection, desired.run_state) = (true, proto::RunState::Deleted.into());
        }),
        ("desired.deletion_protection", |m| {
            let desired = m.desired.as_mut().unwrap();
            (desired.deletion_protection, desired.run_state) = (true, proto::RunState::Purged.into());
        }),
    ];
    for (expected, break_it) in cases {
        let mut message = proto::Instruction::decode(example().encode().as_slice()).unwrap();
        break_it(&mut message);
        match Instruction::decode(&message.encode_to_vec()) {
            Err(Error::BadField { field, .. }) => assert_eq!(field, *expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = Instruction::decode(&bytes);
        let _ = crate::Gossip::decode(&bytes);
    }

    #[test]
    fn one_flipped_byte_never_passes_for_another_state(at in 0usize..200, bits in 1u8..=255) {
        let mut bytes = example().encode();
        let at = at % bytes.len();
        bytes[at] ^= bits;
        if let Ok(read) = Instruction::decode(&bytes) {
            // Only what the hash does not cover may differ, unless the schema number itself was hit.
            prop_assert!(read.desired == example().desired || bytes[1] != example().encode()[1]);
        }
    }
}
