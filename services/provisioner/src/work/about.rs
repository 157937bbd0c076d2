//! What a piece of work says of itself: its record, its cluster, its span, its row where it is parked.

use store::{Origin, Parked};

use crate::classify::Trouble;
use crate::decide::{self, Job, Work};

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
        message: decide::storable(&trouble.message),
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
