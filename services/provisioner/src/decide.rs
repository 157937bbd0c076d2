//! What a record of the instructions topic is: an instruction to carry out, or a dead letter and why. Pure.

use domain::{ClusterId, DatabaseId, Position};
use wire::{Instruction, headers};

/// A record, decided upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// To be carried out.
    Carry(Box<Job>),
    /// To be kept among the dead letters.
    Bury(Box<Dead>),
}

/// An instruction with the record it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The instruction.
    pub instruction: Instruction,
    /// Trace of the request.
    pub traceparent: Option<String>,
    /// The record.
    pub record: bus::Record,
}

/// A record that cannot be carried out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// The record.
    pub record: bus::Record,
    /// Why.
    pub reason: Reason,
}

/// Why a record cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl Reason {
    /// A reason.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Codes of dead letters.
pub mod code {
    /// The record has no key, so its order is unknown.
    pub const NULL_KEY: &str = "null_key";
    /// The key is not the database that the content is about.
    pub const KEY_MISMATCH: &str = "key_mismatch";
    /// The record has no content.
    pub const EMPTY: &str = "empty";
    /// The instruction is for a cluster that is not registered.
    pub const UNKNOWN_CLUSTER: &str = "unknown_cluster";
    /// The resource holds other content at the same position.
    pub const CONFLICT: &str = "conflict";
    /// The API server says that the resource is invalid.
    pub const INVALID: &str = "invalid";
    /// The handling of the record panicked, more than once.
    pub const PANICKED: &str = "panicked";
}

/// Decides what a record is.
pub fn decide(record: bus::Record) -> Work {
    match read(&record) {
        Ok(instruction) => {
            let traceparent = record.header_text(headers::TRACEPARENT).map(ToOwned::to_owned);
            Work::Carry(Box::new(Job { instruction, traceparent, record }))
        }
        Err(reason) => Work::Bury(Box::new(Dead { record, reason })),
    }
}

fn read(record: &bus::Record) -> Result<Instruction, Reason> {
    let key = record.key.as_deref().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        Reason::new(code::NULL_KEY, "the record has no key: its order among others is unknown")
    })?;
    let payload = record.payload.as_deref();
    let payload = payload.ok_or_else(|| Reason::new(code::EMPTY, "the record has no content"))?;
    let instruction =
        Instruction::decode(payload).map_err(|error| Reason::new(error.code(), error.to_string()))?;
    let expected = instruction.key();
    if key != expected.as_bytes() {
        let found = String::from_utf8_lossy(key);
        let message = format!("the key is {found:?}, the content is about database {expected}");
        return Err(Reason::new(code::KEY_MISMATCH, message));
    }
    Ok(instruction)
}

/// Where the work belongs: a database's instructions follow each other, a dead letter waits for nobody.
pub fn place(work: &Work) -> bus::consumer::Place {
    match work {
        Work::Carry(job) => {
            let Position { epoch, seq } = job.instruction.position;
            bus::consumer::Place {
                key: job.instruction.key().into(),
                order: (epoch, seq),
                group: job.instruction.cluster.as_str().into(),
            }
        }
        Work::Bury(dead) => bus::consumer::Place {
            key: format!("dead/{}/{}", dead.record.partition, dead.record.offset).into(),
            order: (0, 0),
            group: "dead letters".into(),
        },
    }
}

/// The dead letter that is kept of a record.
pub fn letter(record: &bus::Record, reason: &Reason, consumer: &str) -> store::DeadLetter {
    let headers = &record.headers;
    let text =
        |(name, value): &(String, Vec<u8>)| (name.clone(), String::from_utf8_lossy(value).into_owned());
    store::DeadLetter {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        key: record.key.clone(),
        payload: record.payload.clone(),
        headers: headers.iter().map(text).collect(),
        cluster: record.header_text(headers::CLUSTER).and_then(|text| text.parse::<ClusterId>().ok()),
        database: record.key_text().and_then(|text| text.parse::<DatabaseId>().ok()),
        code: reason.code.to_owned(),
        message: reason.message.clone(),
        consumer: consumer.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn instruction() -> Instruction {
        Instruction {
            id: "0192f3a4-5b6c-7d8e-9f00-000000000001".parse().unwrap(),
            database: "0192f3a4-5b6c-7d8e-9f00-112233445566".parse().unwrap(),
            tenant: "acme".parse().unwrap(),
            cluster: "eu-west-1".parse().unwrap(),
            operation: "0192f3a4-5b6c-7d8e-9f00-000000000002".parse().unwrap(),
            operation_kind: domain::OperationKind::Create,
            position: Position { epoch: 1, seq: 7 },
            desired: domain::Desired {
                name: "trades".parse().unwrap(),
                run_state: domain::RunState::Running,
                version: "9.3.4".to_owned(),
                compute: domain::Compute { instance_type: "m7i.large".to_owned(), node_image: None },
                storage: domain::Storage {
                    size_gib: 50,
                    volume_type: domain::VolumeType::Gp3,
                    iops: 3_000,
                    throughput: 125,
                    provisioned: false,
                    deletion_policy: domain::DeletionPolicy::Retain,
                },
                config: BTreeMap::new(),
                network: domain::Network {
                    hostname: "trades-1.eu.example.com".to_owned(),
                    allowed_cidrs: Vec::new(),
                    exposure: domain::Exposure::Internal,
                },
                restart_nonce: None,
            },
            issued_at: jiff::Timestamp::from_millisecond(1_760_000_000_000).unwrap(),
            actor: "tester".to_owned(),
        }
    }

    fn record() -> bus::Record {
        bus::Record {
            topic: "provisioning.instructions".into(),
            partition: 3,
            offset: 42,
            timestamp_ms: None,
            key: Some(instruction().key().into_bytes()),
            payload: Some(instruction().encode()),
            headers: vec![
                (headers::CLUSTER.to_owned(), b"eu-west-1".to_vec()),
                (
                    headers::TRACEPARENT.to_owned(),
                    b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_vec(),
                ),
            ],
        }
    }

    #[test]
    fn a_good_record_is_carried_out_in_its_lane() {
        let work = decide(record());
        let place = place(&work);
        assert_eq!(
            (&*place.key, place.order, &*place.group),
            ("0192f3a4-5b6c-7d8e-9f00-112233445566", (1, 7), "eu-west-1")
        );
        let Work::Carry(job) = work else { panic!("{work:?}") };
        assert_eq!(job.instruction, instruction());
        assert!(job.traceparent.is_some_and(|header| header.starts_with("00-4bf92")));
    }

    type Spoil = fn(&mut bus::Record, &str);

    #[test]
    fn each_bad_record_has_its_code() {
        let other_key = DatabaseId::mint().to_string();
        let bad: [(&str, Spoil); 6] = [
            (code::NULL_KEY, |record, _| record.key = None),
            (code::NULL_KEY, |record, _| record.key = Some(Vec::new())),
            (code::EMPTY, |record, _| record.payload = None),
            ("undecodable", |record, _| record.payload = Some(vec![0xff, 0xff, 0xff])),
            ("bad_field", |record, _| record.payload = Some(Vec::new())),
            (code::KEY_MISMATCH, |record, other| record.key = Some(other.as_bytes().to_vec())),
        ];
        for (code, spoil) in bad {
            let mut record = record();
            spoil(&mut record, &other_key);
            let work = decide(record.clone());
            assert_eq!(&*place(&work).key, "dead/3/42");
            let Work::Bury(dead) = work else { panic!("{code} was taken") };
            assert_eq!(dead.reason.code, code, "{:?}", dead.reason);
            assert_eq!(dead.record, record, "bytes and headers are kept");
        }
    }

    #[test]
    fn a_record_for_newer_readers_is_named_so() {
        let mut record = record();
        // Fields 1 (schema) and 2 (the least reader), both 99.
        record.payload = Some(vec![0x08, 99, 0x10, 99]);
        let Work::Bury(dead) = decide(record) else { panic!("taken") };
        assert_eq!(dead.reason.code, "reader_too_old");
    }

    #[test]
    fn a_dead_letter_keeps_everything() {
        let record = record();
        let letter = letter(&record, &Reason::new(code::EMPTY, "why"), "provisioner");
        assert_eq!((letter.partition, letter.offset), (3, 42));
        assert_eq!((&letter.key, &letter.payload), (&record.key, &record.payload));
        assert_eq!(letter.cluster, "eu-west-1".parse().ok());
        assert_eq!(letter.database, Some(instruction().database));
        assert_eq!(letter.headers.len(), 2);
        assert_eq!((letter.code.as_str(), letter.message.as_str()), ("empty", "why"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), payload in prop::option::of(prop::collection::vec(any::<u8>(), 0..400))) {
            let record = bus::Record { key, payload, ..record() };
            let work = decide(record.clone());
            let _ = place(&work);
            if let Work::Bury(dead) = work {
                let letter = letter(&record, &dead.reason, "provisioner");
                prop_assert_eq!(letter.payload, record.payload);
            }
        }
    }
}
