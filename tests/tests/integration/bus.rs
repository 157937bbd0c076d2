//! Producing and consuming against a real broker; each test has topics and groups of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod blocked;
mod bounds;
mod consuming;
mod logins;
mod producing;
mod rebalancing;
mod recalling;
mod sinking;
mod stage;

use std::time::Duration;

use bus::{Admin, Connection, Message, Producer, TopicSettings};
use testkit::unique;

pub(crate) use consuming::grow;

/// How long anything may take, on processors that are busy with other tests. Whoever waits goes on as soon as it is so.
const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) fn connection() -> Connection {
    Connection::new(&testkit::stack().kafka_bootstrap, "test")
}

/// A topic of the test's own.
pub(crate) async fn topic(partitions: i32) -> String {
    let name = unique("topic");
    let settings = TopicSettings::new(&name, partitions, 1);
    let admin = Admin::new(&connection()).unwrap();
    let created = admin.ensure_topics(&[settings], PATIENCE).await.unwrap();
    assert_eq!(created, [name.as_str()]);
    // A broker learns of a topic a moment after the controller has made it.
    testkit::eventually(PATIENCE, "the topic", async || {
        admin.check_partitions(&name, partitions, PATIENCE).await.ok()
    })
    .await;
    name
}

/// Whether the brokers know that all that stands on a topic is finished by a group.
pub(crate) async fn is_committed(group: &str, topic: &str, partitions: i32) -> bool {
    let known = bus::groups::committed(&connection(), group, topic, partitions, PATIENCE).await;
    let Ok(known) = known else { return false };
    let admin = Admin::new(&connection()).unwrap();
    for partition in 0..partitions {
        let end = admin.end_offset(topic, partition, PATIENCE).await.unwrap();
        if known.get(&partition).copied().unwrap_or_default() < end {
            return false;
        }
    }
    true
}

pub(crate) fn producer() -> Producer {
    Producer::new(&connection()).unwrap()
}

pub(crate) fn message(topic: &str, key: &str, number: i64) -> Message {
    let headers = vec![("number".to_owned(), number.to_string().into_bytes())];
    Message {
        topic: topic.to_owned(),
        key: key.to_owned(),
        payload: number.to_string().into_bytes(),
        headers,
    }
}
