//! What a piece of work says of itself: its record, its cluster, its span, its row where it is parked.

use store::{Origin, Parked};

use crate::classify::Trouble;
use crate::decide::{self, Job, Work};
use crate::work::Ended;

/// The parked row of an instruction.
pub(super) fn parked(job: &Job, trouble: &Trouble) -> Parked {
    Parked {
        database: job.instruction.database,
        cluster: job.instruction.cluster.clone(),
        position: job.instruction.position,
        payload: job.record.payload.clone().unwrap_or_default(),
        origin: Some(origin(&job.record)),
        traceparent: job.traceparent.clone(),
        code: trouble.code.to_owned(),
        message: store::storable(&trouble.message),
        attempts: 0,
        parked_at: jiff::Timestamp::now(),
    }
}

/// Where a record stood, and what came with it.
pub(super) fn origin(record: &bus::Record) -> Origin {
    Origin {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        headers: decide::texts(&record.headers),
    }
}

pub(super) fn record(work: &Work) -> &bus::Record {
    match work {
        Work::Carry(job) => &job.record,
        Work::Wait(early) => &early.record,
        Work::Bury(dead) => &dead.record,
    }
}

pub(super) fn cluster(work: &Work) -> Option<&domain::ClusterId> {
    match work {
        Work::Carry(job) => Some(&job.instruction.cluster),
        Work::Wait(early) => Some(&early.cluster),
        Work::Bury(_) => None,
    }
}

pub(super) fn span(work: &Work) -> tracing::Span {
    let record = record(work);
    let span = tracing::info_span!(
        "instruction",
        db.id = tracing::field::Empty,
        cluster.name = tracing::field::Empty,
        seq = tracing::field::Empty,
        kafka.partition = record.partition,
        kafka.offset = record.offset,
    );
    let (traceparent, database, cluster, position) = match work {
        Work::Carry(job) => {
            let about = &job.instruction;
            (&job.traceparent, about.database, &about.cluster, about.position)
        }
        Work::Wait(early) => (&early.traceparent, early.database, &early.cluster, early.position),
        Work::Bury(_) => return span,
    };
    runtime::trace::set_parent(&span, traceparent.as_deref());
    span.record("db.id", tracing::field::display(database));
    span.record("cluster.name", tracing::field::display(cluster));
    span.record("seq", tracing::field::display(position));
    span
}

/// Writes down what became of an instruction.
pub(super) fn log(ended: &Ended) {
    match ended {
        Ended::Applied => tracing::info!("instruction applied"),
        Ended::Superseded(_) => tracing::info!("instruction superseded"),
        Ended::Park(trouble) => {
            tracing::warn!(code = trouble.code, "instruction parked: {}", trouble.message);
        }
        Ended::Refused(reason) => {
            tracing::error!(code = reason.code, "instruction refused: {}", reason.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::headers;

    use super::*;
    use crate::decide::tests::{RULES, instruction, record};
    use crate::decide::{Rules, code, decide};

    #[test]
    fn nothing_that_a_cluster_says_stops_an_instruction_from_being_parked() {
        let record = bus::Record {
            topic: "instructions".into(),
            partition: 0,
            offset: 1,
            timestamp_ms: None,
            key: Some(instruction().key().into_bytes()),
            payload: Some(instruction().encode()),
            headers: vec![("od\0d".to_owned(), b"a\0b".to_vec())],
        };
        let rules = Rules { partitions: None, ..RULES };
        let Work::Carry(job) = decide(record, &rules) else { panic!("not taken") };
        let row = parked(&job, &Trouble::of_cluster("unreachable", "n\0o"));
        assert_eq!(row.message, "n\u{fffd}o");
        let expected = ("od\u{fffd}d".to_owned(), "a\u{fffd}b".to_owned());
        assert_eq!(row.origin.unwrap().headers, [expected]);
    }

    #[test]
    fn no_trace_stops_a_record_from_being_parked() {
        let mut record = record();
        record.headers[1].1 = b"00-4bf9\0".to_vec();
        let Work::Carry(job) = decide(record.clone(), &RULES) else { panic!("not taken") };
        assert_eq!(job.traceparent, None);
        record.payload = Some(vec![0x08, 99, 0x10, 99]);
        for (name, value) in [(headers::EPOCH, "2"), (headers::SEQ, "9")] {
            record.headers.push((name.to_owned(), value.as_bytes().to_vec()));
        }
        let Work::Wait(early) = decide(record, &RULES) else { panic!("not waiting") };
        assert_eq!(early.traceparent, None);
    }

    #[test]
    fn a_record_is_too_large_by_one_byte_of_key_content_or_headers() {
        let bytes = record().bytes();
        let decided = |largest| decide(record(), &Rules { largest, ..RULES });
        assert!(matches!(decided(bytes), Work::Carry(_)));
        let Work::Bury(dead) = decided(bytes - 1) else { panic!("it was taken") };
        assert_eq!(dead.reason.code, code::TOO_LARGE);
        assert!(dead.reason.message.contains(&bytes.to_string()), "{}", dead.reason.message);
        // Nothing of it is read: whatever else is wrong with it, this is said.
        let junk = bus::Record { payload: Some(vec![0xff; 100]), key: None, ..record() };
        let Work::Bury(dead) = decide(junk, &Rules { largest: 50, ..RULES }) else { panic!("it was taken") };
        assert_eq!(dead.reason.code, code::TOO_LARGE);
    }
}
