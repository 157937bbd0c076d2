//! Topics that are filled once and read by every slice, each time by another group, so that no slice waits for records to
//! be written and none measures their writing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bus::{Admin, Connection, Message, Pending, Producer, TopicSettings};
use testkit::stack;

use crate::pace::until;

/// How long the brokers may take to answer.
const ASK: Duration = Duration::from_secs(30);
/// Records of a batch in the log: as few as in a log that grew by and by.
const BATCH: u32 = 128;
/// Records on their way at once.
const IN_FLIGHT: usize = 20_000;

/// The brokers of the stack.
pub(crate) fn connection() -> Connection {
    Connection::new(&stack().kafka_bootstrap, "bench")
}

/// Makes a topic that stays empty for now.
pub(crate) async fn empty(name: &str, partitions: i32) -> anyhow::Result<()> {
    Admin::new(&connection())?.ensure_topics(&[TopicSettings::new(name, partitions, 1)], ASK).await?;
    // Brokers that have made a topic need a moment until they answer for all of it.
    until(ASK, "all of a topic", async || Ok(end(name, partitions).await.ok())).await?;
    Ok(())
}

/// Sees to it that a topic holds `count` records: key and payload of each by its number.
pub(crate) async fn filled(
    name: &str,
    partitions: i32,
    count: usize,
    record: impl Fn(usize) -> anyhow::Result<(String, Vec<u8>)>,
) -> anyhow::Result<()> {
    empty(name, partitions).await?;
    let there = end(name, partitions).await?;
    if there == 0 {
        let mut small = connection();
        small.properties.push(("batch.num.messages".to_owned(), BATCH.to_string()));
        write(&small, name, (0..count).map(record)).await?;
    }
    let there = end(name, partitions).await?;
    ensure!(
        usize::try_from(there) == Ok(count),
        "topic {name} holds {there} of {count} records: an earlier bench was cut short; delete the stack's data"
    );
    Ok(())
}

/// Records of all partitions together.
pub(crate) async fn end(name: &str, partitions: i32) -> anyhow::Result<i64> {
    let admin = Admin::new(&connection())?;
    let mut sum = 0;
    for partition in 0..partitions {
        sum += admin.end_offset(name, partition, ASK).await?;
    }
    Ok(sum)
}

/// Writes records as fast as the brokers take them; says how long that took.
pub(crate) async fn write(
    connection: &Connection,
    name: &str,
    records: impl Iterator<Item = anyhow::Result<(String, Vec<u8>)>>,
) -> anyhow::Result<Duration> {
    let producer = Producer::new(connection)?;
    let start = Instant::now();
    let mut pending: VecDeque<Pending> = VecDeque::new();
    for record in records {
        let (key, payload) = record?;
        if pending.len() >= IN_FLIGHT
            && let Some(first) = pending.pop_front()
        {
            first.wait().await?;
        }
        let message = Message { topic: name.to_owned(), key, payload, headers: Vec::new() };
        pending.push_back(producer.enqueue(&message)?);
    }
    for one in pending {
        one.wait().await?;
    }
    Ok(start.elapsed())
}
