//! A batch that was refused for something in it, taken apart until it is known what: that is kept as a dead letter, and all
//! the rest is taken in, in its order.
//!
//! Nobody knows today of a record that needs it: what Postgres is known to refuse is refused, or mended, before. But one that
//! was not thought of would keep its partition from going on for ever.

use bus::BoxError;
use bus::sink::{Batch, Stored};
use store::Advance;

use super::{GossipSink, Refused, translate};

/// Code of a record that could be read and not be taken in.
const CODE: &str = "unstorable";

/// Takes a batch in part by part, each with its offset: a failure in between leaves what was done before.
pub(super) async fn store(sink: &GossipSink, batch: &Batch) -> Result<Stored, BoxError> {
    let mut parts = vec![part(batch, (batch.start, batch.end), 0, batch.records.len())];
    while let Some(part) = parts.pop() {
        match sink.take(sink.understand(&part), part.records.len()).await {
            Ok(Stored::Done) => {}
            Ok(Stored::OutOfStep) => return Ok(Stored::OutOfStep),
            Err(Refused::Content(reason)) if part.records.len() < 2 => {
                if set_aside(sink, &part, &reason).await? == Stored::OutOfStep {
                    return Ok(Stored::OutOfStep);
                }
            }
            Err(Refused::Content(_)) => parts.extend(halves(&part)),
            Err(error) => return Err(error.into()),
        }
    }
    sink.doubt(batch.partition, false);
    Ok(Stored::Done)
}

/// The second half first: the last one is taken next.
fn halves(batch: &Batch) -> [Batch; 2] {
    let (middle, count) = (batch.records.len() / 2, batch.records.len());
    let between = batch.records[middle].offset;
    [part(batch, (Some(between), batch.end), middle, count), part(batch, (batch.start, between), 0, middle)]
}

fn part(batch: &Batch, (start, end): (Option<i64>, i64), from: usize, to: usize) -> Batch {
    let records = batch.records[from..to].to_vec();
    Batch { topic: batch.topic.clone(), partition: batch.partition, start, end, records }
}

/// Keeps the one record of a batch as a dead letter, and goes on behind it.
async fn set_aside(sink: &GossipSink, batch: &Batch, reason: &str) -> Result<Stored, BoxError> {
    let letters =
        batch.records.iter().map(|record| translate::letter(record, &sink.consumer, (CODE, reason)));
    let taken = store::Batch {
        consumer: sink.consumer.clone(),
        topic: sink.topic.clone(),
        advance: Advance { partition: batch.partition, from: batch.start, to: batch.end },
        dead_letters: letters.collect(),
        ..store::Batch::default()
    };
    tracing::error!(
        kafka.topic = sink.topic,
        kafka.partition = batch.partition,
        kafka.offset = batch.records.first().map(|record| record.offset),
        reason,
        "gossip that cannot be taken in is kept as a dead letter"
    );
    Ok(sink.take(Ok(taken), batch.records.len()).await?)
}

#[cfg(test)]
mod tests {
    use bus::Record;

    use super::*;

    fn batch(offsets: &[i64]) -> Batch {
        let records = offsets.iter().map(|offset| Record {
            topic: "gossip".into(),
            partition: 3,
            offset: *offset,
            timestamp_ms: None,
            key: None,
            payload: None,
            headers: Vec::new(),
        });
        Batch { topic: "gossip".into(), partition: 3, start: None, end: 20, records: records.collect() }
    }

    #[test]
    fn halves_follow_each_other_without_gap_whatever_gaps_offsets_have() {
        let whole = batch(&[3, 7, 8, 15, 19]);
        let mut parts = vec![whole.clone()];
        let mut single = Vec::new();
        while let Some(part) = parts.pop() {
            if part.records.len() < 2 { single.push(part) } else { parts.extend(halves(&part)) }
        }
        let records: Vec<Record> = single.iter().flat_map(|part| part.records.clone()).collect();
        assert_eq!(records, whole.records);
        assert_eq!((single[0].start, single[4].end), (None, 20));
        assert!(single.windows(2).all(|pair| pair[1].start == Some(pair[0].end)), "{single:?}");
    }
}
