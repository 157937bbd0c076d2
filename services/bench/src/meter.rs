//! The consumer engine of the product given work that takes time and does nothing: how much of it is done.
//!
//! Every record is handled here: keeping only the newest of a key, which the product does, would make less of the work,
//! and the number would say more of the topic than of the engine.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use bus::consumer::{self, Class, Handler, Keep, Limits, OffsetReset, Place, Placed, Settings, State, Turn};
use bus::{Disposition, Error, Record};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::pace::until;
use crate::pretence::{Pretence, nanos};
use crate::topic;

/// How long the joining of a group may take.
const JOIN: Duration = Duration::from_secs(30);

/// How long a record is worked on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Each as long.
    Fixed(Duration),
    /// Anything below five milliseconds, by the record's offset.
    Varied,
}

impl Work {
    /// The time for a record; the Java program has the same function.
    pub(crate) fn time(self, offset: i64) -> Duration {
        match self {
            Self::Fixed(time) => time,
            Self::Varied => {
                let mixed = offset.unsigned_abs().wrapping_mul(2_654_435_761) & 0xffff_ffff;
                Duration::from_micros(mixed % 5_001)
            }
        }
    }
}

/// Works, counts and takes the time.
#[derive(Debug)]
struct Meter {
    pretence: Pretence,
    work: Work,
    handled: AtomicUsize,
    /// Nanoseconds that were pretended, over all records.
    worked: AtomicU64,
    times: Mutex<Option<(Instant, Instant)>>,
}

/// A consumer at work; it ends when dropped, without a goodbye to its group.
pub(crate) struct Running {
    meter: Arc<Meter>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Begins to consume a topic from its start, in a group of its own, with these properties of the Kafka library.
    pub(crate) fn start(topic: &str, in_flight: usize, work: Work, properties: &[(&str, &str)]) -> Self {
        let meter = Arc::new(Meter {
            pretence: Pretence::default(),
            work,
            handled: AtomicUsize::new(0),
            worked: AtomicU64::new(0),
            times: Mutex::new(None),
        });
        let mut connection = topic::connection();
        let owned = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        connection.properties.extend(owned);
        let settings = Settings {
            offset_reset: OffsetReset::Earliest,
            limits: Limits { total: in_flight, group: in_flight },
            ..Settings::new(connection, topic, testkit::unique("bench"))
        };
        let stop = CancellationToken::new();
        let running = consumer::run(settings, Arc::clone(&meter), Arc::new(State::default()), stop.clone());
        Self { meter, stop, task: tokio::spawn(running) }
    }

    /// Records handled so far.
    pub(crate) fn handled(&self) -> usize {
        self.meter.handled.load(Ordering::Relaxed)
    }

    /// Waits until this many were handled.
    pub(crate) async fn handles(&self, count: usize, limit: Duration) -> anyhow::Result<()> {
        until(limit, "records to be handled", async || {
            ensure!(!self.task.is_finished(), "the consumer ended");
            Ok((self.handled() >= count).then_some(()))
        })
        .await
    }

    /// Records handled a second, after a second that does not count.
    pub(crate) async fn rate(&self, time: Duration) -> anyhow::Result<f64> {
        self.handles(1, JOIN).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, start) = (self.handled(), Instant::now());
        tokio::time::sleep(time).await;
        let (after, elapsed) = (self.handled(), start.elapsed());
        Ok(real(after - before) / elapsed.as_secs_f64())
    }

    /// From the beginning of the first record to the end of the last one so far.
    pub(crate) fn span(&self) -> Duration {
        let times = self.meter.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.map(|(first, last)| last.duration_since(first)).unwrap_or_default()
    }

    /// For how long a record was worked on, on average over all so far, in milliseconds.
    pub(crate) fn work(&self) -> f64 {
        let worked = Duration::from_nanos(self.meter.worked.load(Ordering::Relaxed));
        worked.as_secs_f64() * 1_000.0 / real(self.handled())
    }

    /// Leaves the group.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

/// A count as a number that can be divided.
pub(crate) fn real(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

impl Handler for Meter {
    type Work = i64;

    fn place(&self, record: Record) -> Placed<i64> {
        let key = record.key_text().unwrap_or_default();
        let place = Place {
            key: key.into(),
            order: (0, record.offset),
            tenant: "bench".into(),
            group: "bench".into(),
            class: Class::Interactive,
        };
        Placed { place, work: record.offset }
    }

    fn keep(&self) -> Keep {
        Keep::All
    }

    async fn handle(&self, offset: Arc<i64>, _: u32, _: &Turn) -> Disposition {
        let start = Instant::now();
        self.pretence.work(self.work.time(*offset)).await;
        let end = Instant::now();
        self.worked.fetch_add(nanos(end.duration_since(start)), Ordering::Relaxed);
        self.handled.fetch_add(1, Ordering::Relaxed);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = times.unwrap_or((start, end));
        *times = Some((first.min(start), last.max(end)));
        Disposition::Done
    }

    async fn panicked(&self, _: Arc<i64>, _: u32) -> Disposition {
        Disposition::Done
    }

    fn superseded(&self, _: &i64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_what_it_should() {
        assert_eq!(Work::Fixed(Duration::from_millis(10)).time(7), Duration::from_millis(10));
        let times: Vec<u128> = (0..10_000).map(|offset| Work::Varied.time(offset).as_micros()).collect();
        assert!(times.iter().all(|micros| *micros <= 5_000));
        let mean = times.iter().sum::<u128>() / 10_000;
        assert!((2_400..2_600).contains(&mean), "{mean}");
    }
}
