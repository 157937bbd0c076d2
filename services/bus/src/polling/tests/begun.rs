//! Clients that begin: with a group that has no offsets yet, or anew because the one before found no broker any more.

use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::*;
use crate::liar::Liar;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_without_a_record_have_an_offset_after_the_first_start() {
    let cluster = cluster();
    let settings = settings(&cluster);
    // In one of the partitions.
    send(&settings, ["a"]).await;
    let consumer = Consumer::start(settings.clone());
    consumer.handled(1).await;
    let reader: BaseConsumer = settings.connection.config(&[("group.id", "g".to_owned())]).create().unwrap();
    let all: Vec<i32> = (0..PARTITIONS).collect();
    until("an offset of each", || {
        let committed = reader.committed_offsets(list(TOPIC, &all), Duration::from_secs(5)).unwrap();
        let offsets: Vec<Offset> = committed
            .elements()
            .iter()
            .map(rdkafka::topic_partition_list::TopicPartitionListElem::offset)
            .collect();
        offsets.iter().all(|offset| matches!(offset, Offset::Offset(0 | 1)))
            && offsets.contains(&Offset::Offset(1))
    })
    .await;
    consumer.stop().await.0.unwrap();
    let strict = Settings { offset_reset: OffsetReset::Error, ..settings.clone() };
    let next = Consumer::start(strict);
    send(&settings, ["b", "c", "d", "e", "f", "g"]).await;
    next.handled(6).await;
    next.stop().await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_no_broker_answers_gives_up_and_the_next_one_goes_on() {
    let cluster = cluster();
    let mut settings = settings(&cluster);
    settings.patience = Patience { alone: Duration::from_secs(8), ..Patience::default() };
    send(&settings, ["a"]).await;
    let consumer = Consumer::start(settings.clone());
    consumer.handled(1).await;
    cluster.broker_down(1).unwrap();
    let ended = in_time("the consumer to give up", consumer.task).await.unwrap();
    assert!(matches!(ended, Err(Error::Alone { seconds: 8.., .. })), "{ended:?}");
    cluster.broker_up(1).unwrap();
    settings.group = "another".to_owned();
    send(&settings, ["b"]).await;
    let next = Consumer::start(settings);
    next.handled(2).await;
    next.stop().await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_was_told_that_there_are_no_brokers_gives_up() {
    let cluster = cluster();
    let liar = Liar::before(&cluster.bootstrap_servers());
    let mut settings = settings(&cluster);
    settings.connection.bootstrap.clone_from(&liar.address);
    settings.connection.properties.push(("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned()));
    send(&settings, ["a"]).await;
    let consumer = Consumer::start(settings.clone());
    consumer.handled(1).await;
    liar.lie(true);
    let ended = in_time("the consumer to give up", consumer.task).await.unwrap();
    assert!(matches!(ended, Err(Error::NoBrokers { .. })), "{ended:?}");
    assert_ne!(liar.lies(), 0);

    liar.lie(false);
    // Without a word it counts as a member for another while; a group of its own need not wait for that.
    settings.group = "h".to_owned();
    send(&settings, ["b"]).await;
    let next = Consumer::start(settings);
    next.handled(2).await;
    next.stop().await.0.unwrap();
}
