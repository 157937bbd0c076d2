//! What a record of the instructions topic is: an instruction to carry out, one to keep for a newer program, or a dead
//! letter and why. Pure.

use bus::consumer::Class;
use domain::{ClusterId, DatabaseId, InstructionId, OperationId, Position};
use store::storable;
use wire::{Instruction, headers};

/// A record, decided upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// To be carried out.
    Carry(Box<Job>),
    /// To be parked unread, until a newer program can read it.
    Wait(Box<Early>),
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

/// An instruction that is written for newer readers: what key and headers say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Early {
    /// Of which database.
    pub database: DatabaseId,
    /// For which cluster.
    pub cluster: ClusterId,
    /// Its position.
    pub position: Position,
    /// Which instruction and operation, where that much could be read.
    pub identity: Option<(InstructionId, OperationId)>,
    /// Trace of the request.
    pub traceparent: Option<String>,
    /// Why it waits.
    pub reason: Reason,
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
    /// The record stands in a partition where its key does not belong: whoever wrote it computes partitions otherwise, so
    /// its order among others is unknown.
    pub const WRONG_PARTITION: &str = "wrong_partition";
    /// The record has no content.
    pub const EMPTY: &str = "empty";
    /// The record is larger than any instruction can be.
    pub const TOO_LARGE: &str = "too_large";
    /// The record belongs to a later generation of the schema.
    pub const NEWER_MAJOR: &str = "newer_major";
    /// The instruction is for a cluster that is not registered.
    pub const UNKNOWN_CLUSTER: &str = "unknown_cluster";
    /// The resource holds other content at the same position.
    pub const CONFLICT: &str = "conflict";
    /// The API server says that the resource is invalid.
    pub const INVALID: &str = "invalid";
    /// The handling of the record panicked, more than once.
    pub const PANICKED: &str = "panicked";
}

/// What holds for every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The most bytes of key, content and headers.
    pub largest: usize,
    /// The number of partitions of the topic that it stands in; `None` for a record that no longer stands in one.
    pub partitions: Option<i32>,
}

/// Decides what a record is.
pub fn decide(record: bus::Record, rules: &Rules) -> Work {
    match read(&record, rules) {
        Ok(instruction) => {
            let traceparent = traceparent(&record);
            Work::Carry(Box::new(Job { instruction, traceparent, record }))
        }
        Err(Unread::Early(reason)) => match early(&record, &reason) {
            Some(early) => Work::Wait(Box::new(early)),
            None => Work::Bury(Box::new(Dead { record, reason })),
        },
        Err(Unread::Dead(reason)) => Work::Bury(Box::new(Dead { record, reason })),
    }
}

/// Why a record gives no instruction.
enum Unread {
    /// A newer program may read it.
    Early(Reason),
    /// Nobody will.
    Dead(Reason),
}

impl Unread {
    fn dead(code: &'static str, message: impl Into<String>) -> Self {
        Self::Dead(Reason::new(code, message))
    }
}

fn read(record: &bus::Record, rules: &Rules) -> Result<Instruction, Unread> {
    let size = record.bytes();
    if size > rules.largest {
        let message = format!("the record has {size} bytes, {} are the most", rules.largest);
        return Err(Unread::dead(code::TOO_LARGE, message));
    }
    let key = record.key.as_deref().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        Unread::dead(code::NULL_KEY, "the record has no key: its order among others is unknown")
    })?;
    let payload = record.payload.as_deref();
    let payload = payload.ok_or_else(|| Unread::dead(code::EMPTY, "the record has no content"))?;
    let instruction = Instruction::decode(payload).map_err(|error| unread(record, &error))?;
    let expected = instruction.key();
    if key != expected.as_bytes() {
        let found = String::from_utf8_lossy(key);
        let message = format!("the key is {found:?}, the content is about database {expected}");
        return Err(Unread::dead(code::KEY_MISMATCH, message));
    }
    in_its_partition(record, key, rules)?;
    Ok(instruction)
}

/// Two programs that compute partitions differently would write one key into two of them, and its order would be lost.
fn in_its_partition(record: &bus::Record, key: &[u8], rules: &Rules) -> Result<(), Unread> {
    let Some(partitions) = rules.partitions else { return Ok(()) };
    let (found, belongs) = (record.partition, bus::partition_of(key, partitions));
    if found == belongs {
        return Ok(());
    }
    let message = format!(
        "the record stands in partition {found}, of {partitions} its key belongs to {belongs}: \
         whoever wrote it must use the partitioner murmur2_random"
    );
    Err(Unread::dead(code::WRONG_PARTITION, message))
}

/// What it means that the content cannot be read. What a newer writer of our generation wrote is never guessed at and
/// never given up, whatever it is that we stumble over.
fn unread(record: &bus::Record, error: &wire::decode::Error) -> Unread {
    use wire::decode::Error;
    let written = record.header_text(headers::SCHEMA).and_then(|text| text.parse().ok());
    let written: u32 = written.unwrap_or(wire::SCHEMA);
    let reason = Reason::new(error.code(), error.to_string());
    match error {
        Error::NewerMajor { .. } => Unread::Dead(reason),
        _ if wire::generation(written) > wire::generation(wire::SCHEMA) => {
            let message =
                format!("its header says schema {written}, of a later generation than ours; {error}");
            Unread::dead(code::NEWER_MAJOR, message)
        }
        Error::ReaderTooOld { .. } => Unread::Early(reason),
        Error::Undecodable { .. } | Error::BadField { .. } if written > wire::SCHEMA => Unread::Early(reason),
        Error::Undecodable { .. } | Error::BadField { .. } => Unread::Dead(reason),
    }
}

/// What key and headers say of an instruction that cannot be read yet; `None` where they do not say enough to keep its
/// order.
fn early(record: &bus::Record, reason: &Reason) -> Option<Early> {
    Some(Early {
        database: record.key_text()?.parse().ok()?,
        cluster: record.header_text(headers::CLUSTER)?.parse().ok()?,
        position: position(record)?,
        identity: record.payload.as_deref().and_then(Instruction::identity),
        traceparent: traceparent(record),
        reason: reason.clone(),
        record: record.clone(),
    })
}

/// The position that the headers say.
fn position(record: &bus::Record) -> Option<Position> {
    let number = |name| record.header_text(name)?.parse().ok();
    let position = Position { epoch: number(headers::EPOCH)?, seq: number(headers::SEQ)? };
    position.is_valid().then_some(position)
}

/// The most bytes of a trace that is passed on with all that is said of an instruction; today's have 55.
const TRACE: usize = 128;

/// The trace of the request; a text that Postgres does not take, or that would make what is said of it too large, is none.
fn traceparent(record: &bus::Record) -> Option<String> {
    let text = record.header_text(headers::TRACEPARENT)?;
    (text.len() <= TRACE && text == storable(text)).then(|| text.to_owned())
}

/// Where the work belongs: a database's instructions follow each other, a dead letter waits for nobody.
pub fn place(work: &Work) -> bus::consumer::Place {
    match work {
        Work::Carry(job) => {
            let Position { epoch, seq } = job.instruction.position;
            bus::consumer::Place {
                key: job.instruction.key().into(),
                order: (epoch, seq),
                tenant: job.instruction.tenant.as_str().into(),
                group: job.instruction.cluster.as_str().into(),
                class: class(job),
            }
        }
        Work::Wait(early) => bus::consumer::Place {
            key: early.database.to_string().into(),
            order: (early.position.epoch, early.position.seq),
            // Whose it is stands in what cannot be read.
            tenant: early.cluster.as_str().into(),
            group: early.cluster.as_str().into(),
            class: Class::Interactive,
        },
        Work::Bury(dead) => bus::consumer::Place {
            key: format!("dead/{}/{}", dead.record.partition, dead.record.offset).into(),
            order: (0, 0),
            // Nobody's in particular, so they take one turn together.
            tenant: "dead letters".into(),
            group: "dead letters".into(),
            class: Class::Interactive,
        },
    }
}

/// How urgent an instruction is. Whoever sends many at once, or what nobody asked for, says so in a header: only there is
/// it known. All others have somebody who waits, whatever they ask for.
fn class(job: &Job) -> Class {
    match job.record.header_text(headers::CLASS) {
        Some(headers::CLASS_BULK) => Class::Bulk,
        _ => Class::Interactive,
    }
}

/// The dead letter that is kept of a record.
pub fn letter(record: &bus::Record, reason: &Reason, consumer: &str) -> store::DeadLetter {
    store::DeadLetter {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        key: record.key.clone(),
        payload: record.payload.clone(),
        headers: texts(&record.headers),
        cluster: record.header_text(headers::CLUSTER).and_then(|text| text.parse::<ClusterId>().ok()),
        database: record.key_text().and_then(|text| text.parse::<DatabaseId>().ok()),
        position: position(record),
        code: reason.code.to_owned(),
        message: storable(&reason.message),
        consumer: consumer.to_owned(),
    }
}

/// Headers as text, as far as they are.
pub fn texts(headers: &[(String, Vec<u8>)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (storable(name), storable(String::from_utf8_lossy(value)))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    pub(crate) const RULES: Rules = Rules { largest: 1_048_576, partitions: Some(PARTITIONS) };

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
                deletion_protection: false,
            },
            issued_at: jiff::Timestamp::from_millisecond(1_760_000_000_000).unwrap(),
            actor: "tester".to_owned(),
        }
    }

    /// Of the topic of these tests.
    const PARTITIONS: i32 = 64;

    pub(crate) fn record() -> bus::Record {
        bus::Record {
            topic: "provisioning.instructions".into(),
            partition: bus::partition_of(instruction().key().as_bytes(), PARTITIONS),
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
        let work = decide(record(), &RULES);
        let place = place(&work);
        assert_eq!(
            (&*place.key, place.order, &*place.tenant, &*place.group),
            ("0192f3a4-5b6c-7d8e-9f00-112233445566", (1, 7), "acme", "eu-west-1")
        );
        let Work::Carry(job) = work else { panic!("{work:?}") };
        assert_eq!(job.instruction, instruction());
        assert!(job.traceparent.is_some_and(|header| header.starts_with("00-4bf92")));
    }

    #[test]
    fn what_is_no_trace_is_not_passed_on() {
        for text in ["0".repeat(TRACE + 1), "0\u{0}1".to_owned()] {
            let mut record = record();
            record.headers[1].1 = text.into_bytes();
            let Work::Carry(job) = decide(record, &RULES) else { panic!("it was not taken") };
            assert_eq!(job.traceparent, None);
        }
    }

    type Spoil = fn(&mut bus::Record, &str);

    #[test]
    fn each_bad_record_has_its_code() {
        let other_key = DatabaseId::mint().to_string();
        let bad: [(&str, Spoil); 8] = [
            (code::NULL_KEY, |record, _| record.key = None),
            (code::NULL_KEY, |record, _| record.key = Some(Vec::new())),
            (code::EMPTY, |record, _| record.payload = None),
            ("undecodable", |record, _| record.payload = Some(vec![0xff, 0xff, 0xff])),
            ("bad_field", |record, _| record.payload = Some(Vec::new())),
            (code::KEY_MISMATCH, |record, other| record.key = Some(other.as_bytes().to_vec())),
            (code::WRONG_PARTITION, |record, _| record.partition = (record.partition + 1) % PARTITIONS),
            (code::WRONG_PARTITION, |record, _| record.partition += PARTITIONS),
        ];
        for (code, spoil) in bad {
            let mut record = record();
            spoil(&mut record, &other_key);
            let work = decide(record.clone(), &RULES);
            assert_eq!(&*place(&work).key, format!("dead/{}/42", record.partition));
            let Work::Bury(dead) = work else { panic!("{code} was taken") };
            assert_eq!(dead.reason.code, code, "{:?}", dead.reason);
            assert_eq!(dead.record, record, "bytes and headers are kept");
        }
    }

    #[test]
    fn what_may_pass_fails_no_operation() {
        let table = [
            (code::NULL_KEY, false),
            (code::KEY_MISMATCH, false),
            (code::WRONG_PARTITION, false),
            (code::EMPTY, false),
            (code::NEWER_MAJOR, false),
            (code::UNKNOWN_CLUSTER, false),
            (code::PANICKED, false),
            (code::TOO_LARGE, true),
            (code::CONFLICT, true),
            (code::INVALID, true),
            (wire::decode::Error::Undecodable { reason: String::new() }.code(), true),
            (wire::decode::Error::BadField { field: "desired", reason: String::new() }.code(), true),
        ];
        for (code, expected) in table {
            assert_eq!(domain::operation::is_final(code), expected, "{code}");
        }
    }

    #[test]
    fn one_of_many_lets_others_go_first() {
        let class_of = |value: Option<&str>| {
            let mut record = record();
            let header = value.map(|value| (headers::CLASS.to_owned(), value.as_bytes().to_vec()));
            record.headers.extend(header);
            place(&decide(record, &RULES)).class
        };
        assert_eq!(class_of(None), Class::Interactive);
        assert_eq!(class_of(Some(headers::CLASS_BULK)), Class::Bulk);
        assert_eq!(class_of(Some("of a later version")), Class::Interactive);
    }

    #[test]
    fn a_record_for_newer_readers_waits_for_one_in_its_lane() {
        // For newer readers by its own word; not to be understood, but by a newer writer as its header says.
        let newer = (wire::SCHEMA + 1).to_string();
        let newer = newer.as_str();
        for (payload, schema) in
            [(vec![0x08, 99, 0x10, 99], "1"), (vec![0xff, 0xff], newer), (Vec::new(), newer)]
        {
            let mut record = record();
            record.payload = Some(payload);
            for (name, value) in [(headers::EPOCH, "2"), (headers::SEQ, "9"), (headers::SCHEMA, schema)] {
                record.headers.push((name.to_owned(), value.as_bytes().to_vec()));
            }
            let work = decide(record.clone(), &RULES);
            let place = place(&work);
            assert_eq!(
                (&*place.key, place.order, &*place.group),
                (&*instruction().key(), (2, 9), "eu-west-1")
            );
            let Work::Wait(early) = work else { panic!("{work:?}") };
            assert_eq!((early.position, early.record), (Position { epoch: 2, seq: 9 }, record));
        }
    }

    #[test]
    fn nothing_that_a_record_says_stops_its_letter_from_being_kept() {
        let mut record = record();
        record.headers.push(("na\0me".to_owned(), vec![b'a', 0, b'b', 0xff]));
        let letter = letter(&record, &Reason::new(code::EMPTY, "w\0hy"), "provisioner");
        let text = format!("{:?} {}", letter.headers, letter.message);
        assert!(!text.contains('\0') && !text.contains("\\0"), "{text}");
        assert_eq!(letter.headers[2], ("na\u{fffd}me".to_owned(), "a\u{fffd}b\u{fffd}".to_owned()));
        assert_eq!(letter.message, "w\u{fffd}hy");
    }

    #[test]
    fn a_dead_letter_keeps_everything() {
        let record = record();
        let letter = letter(&record, &Reason::new(code::EMPTY, "why"), "provisioner");
        assert_eq!((letter.partition, letter.offset), (record.partition, 42));
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
            let work = decide(record.clone(), &RULES);
            let _ = place(&work);
            if let Work::Bury(dead) = work {
                let letter = letter(&record, &dead.reason, "provisioner");
                prop_assert_eq!(letter.payload, record.payload);
            }
        }
    }
}
