//! Brokers that speak TLS and ask for a password, which changes while programs run.

use std::time::Duration;

use bus::consumer::{OffsetReset, Settings};
use bus::{Admin, Connection, Error, Producer, TopicSettings};
use testkit::kafka::Broker;
use testkit::{eventually, unique};

use super::stage::{Consumer, Notes, until};
use super::{PATIENCE, message};

const USER: &str = "slipway";
/// For a question to a broker that may refuse us.
const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_is_read_again_and_a_stranger_is_not_believed() {
    let broker = Broker::locked().await.unwrap();
    broker.password(USER, "first").await.unwrap();
    let file = broker.login(USER, "first").unwrap();
    let connection = Connection { file: Some(file), ..Connection::new(broker.bootstrap(), "test") };
    let topic = unique("locked");
    let admin = Admin::new(&connection).unwrap();
    eventually(PATIENCE, "a topic", async || {
        admin.ensure_topics(&[TopicSettings::new(&topic, 1, 1)], LIMIT).await.ok()
    })
    .await;
    let producer = Producer::new(&connection).unwrap();
    let notes = Notes::new(true);
    let mut settings = Settings::new(connection.clone(), &topic, unique("group"));
    settings.offset_reset = OffsetReset::Earliest;
    let consumer = Consumer::start(settings.clone(), &notes);
    let handled = |number: i64| {
        let notes = &notes;
        move || notes.handled().iter().any(|(_, handled)| *handled == number)
    };
    producer.send(message(&topic, "k", 1)).await.unwrap();
    until("the first record", handled(1)).await;

    // Who is logged in has to say the password again soon, and says the old one.
    broker.password(USER, "second").await.unwrap();
    let refused = consumer.task.await.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Refused { what: "consumer", .. }), "{refused}");
    assert!(!refused.to_string().contains("first"), "{refused}");
    // The producer logged in by itself: its login may hold a moment longer.
    let error = eventually(PATIENCE, "a record that is not sent", async || {
        producer.send(message(&topic, "k", 2)).await.err()
    })
    .await;
    assert!(matches!(error, Error::NotSent { .. } | Error::Unknown { .. }), "{error}");

    broker.login(USER, "second").unwrap();
    eventually(PATIENCE, "a record that is sent with the new password", async || {
        producer.send(message(&topic, "k", 3)).await.ok()
    })
    .await;
    assert!(producer.rebuilds() > 0);
    eventually(PATIENCE, "an answer with the new password", async || {
        admin.check_partitions(&topic, 1, LIMIT).await.ok()
    })
    .await;
    let consumer = Consumer::start(settings, &notes);
    until("the record after it", handled(3)).await;
    consumer.stop().await;

    // Without its certificate nobody vouches for the broker: it is told no password.
    let mut stranger = connection.clone();
    let text = std::fs::read_to_string(stranger.file.take().unwrap()).unwrap();
    let properties = text.lines().filter(|line| !line.starts_with(['#']) && !line.starts_with("ssl.ca"));
    stranger.properties = properties.map(|line| bus::connection::property(line).unwrap()).collect();
    let wary = Consumer::start(Settings::new(stranger, &topic, unique("group")), &notes);
    let refused = wary.task.await.unwrap().unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { .. }) && refused.to_string().contains("certificate"),
        "{refused}"
    );
}
