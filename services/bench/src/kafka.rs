//! Records through Kafka and back, with nothing done about them: what the brokers and the library take.
//!
//! Producer and consumer are those of `bus`, with the settings of the product (acks=all, idempotent, no linger).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bus::consumer::{self, Class, Handler, OffsetReset, Place, Placed, Settings, State, Turn};
use bus::{Admin, Connection, Disposition, Error, Message, Producer, Record, TopicSettings};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::pace;
use crate::samples::Samples;

/// A topic that the product does not know.
const TOPIC: &str = "bench.round-trips";
/// As many partitions as the topics of the sandbox.
const PARTITIONS: i32 = 8;
/// Of nobody's interest for longer.
const RETENTION: Duration = Duration::from_hours(1);
const GROUP: &str = "bench";
/// About the size of an instruction or an observation.
const PAYLOAD: usize = 600;
/// How long one record may take, the joining of the group before the first included.
const PATIENCE: Duration = Duration::from_secs(30);
const WAITING: usize = 4_096;

/// Sends records one at a time and takes the time until each is read.
pub(crate) async fn round_trips(bootstrap: &str, rounds: u32) -> anyhow::Result<Samples> {
    let connection = Connection::new(bootstrap, "bench");
    let topic = TopicSettings { retention: RETENTION, ..TopicSettings::new(TOPIC, PARTITIONS, 1) };
    Admin::new(&connection)?.ensure_topics(&[topic], PATIENCE).await?;
    let mut road = Road::open(connection)?;
    let measured = road.measure(rounds).await;
    road.close().await?;
    measured
}

struct Road {
    producer: Producer,
    arrivals: mpsc::Receiver<(Vec<u8>, Instant)>,
    consumer: JoinHandle<Result<(), Error>>,
    stop: CancellationToken,
}

impl Road {
    fn open(connection: Connection) -> anyhow::Result<Self> {
        let producer = Producer::new(&connection)?;
        let (tell, arrivals) = mpsc::channel(WAITING);
        let settings =
            Settings { offset_reset: OffsetReset::Earliest, ..Settings::new(connection, TOPIC, GROUP) };
        let stop = CancellationToken::new();
        let running =
            consumer::run(settings, Arc::new(Clerk(tell)), Arc::new(State::default()), stop.clone());
        Ok(Self { producer, arrivals, consumer: tokio::spawn(running), stop })
    }

    async fn measure(&mut self, rounds: u32) -> anyhow::Result<Samples> {
        for _ in 0..pace::WARM_UP {
            self.once().await?;
        }
        let mut samples = Samples::default();
        let mut beat = pace::stage();
        for _ in 0..rounds {
            beat.tick().await;
            samples.push(self.once().await?);
        }
        Ok(samples)
    }

    /// One record there and back.
    async fn once(&mut self) -> anyhow::Result<Duration> {
        let key = uuid::Uuid::now_v7().to_string();
        let message = Message {
            topic: TOPIC.to_owned(),
            key: key.clone(),
            payload: vec![7; PAYLOAD],
            headers: Vec::new(),
        };
        let start = Instant::now();
        let pending = self.producer.enqueue(&message)?;
        let at =
            tokio::time::timeout(PATIENCE, self.arrival(&key)).await.context("a record did not arrive")??;
        pending.wait().await?;
        Ok(at.duration_since(start))
    }

    /// When the record of this key was read.
    async fn arrival(&mut self, key: &str) -> anyhow::Result<Instant> {
        loop {
            // Records of an earlier slice that ended early may come first.
            let (found, at) = self.arrivals.recv().await.context("the consumer ended")?;
            if found == key.as_bytes() {
                return Ok(at);
            }
        }
    }

    /// Leaves the group, so that the next slice need not wait for its session to end.
    async fn close(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.consumer.await??)
    }
}

/// Notes when a record is read.
struct Clerk(mpsc::Sender<(Vec<u8>, Instant)>);

impl Handler for Clerk {
    type Work = ();

    fn place(&self, record: Record) -> Placed<()> {
        let key = record.key_text().unwrap_or_default();
        let place = Place {
            key: key.into(),
            order: (0, record.offset),
            tenant: GROUP.into(),
            group: GROUP.into(),
            class: Class::Interactive,
        };
        // Nobody waits for what does not fit: it is of a slice that has ended.
        let _ = self.0.try_send((record.key.unwrap_or_default(), Instant::now()));
        Placed { place, work: () }
    }

    async fn handle(&self, _: Arc<()>, _: u32, _: &Turn) -> Disposition {
        Disposition::Done
    }

    async fn panicked(&self, _: Arc<()>, _: u32) -> Disposition {
        Disposition::Done
    }

    fn superseded(&self, (): &()) {}
}
