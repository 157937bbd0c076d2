//! Clients that begin: with a group that has no offsets yet, or anew because the one before found no broker any more.

use rdkafka::Offset;

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
    until("an offset of each", || {
        let offsets = group_offsets(&settings);
        offsets.iter().all(|offset| matches!(offset, Offset::Offset(0 | 1)))
            && offsets.contains(&Offset::Offset(1))
    })
    .await;
    consumer.end().await;
    let strict = Settings { offset_reset: OffsetReset::Error, ..settings.clone() };
    let next = Consumer::start(strict);
    send(&settings, ["b", "c", "d", "e", "f", "g"]).await;
    next.handled(6).await;
    next.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_not_done_is_never_passed_over() {
    let cluster = cluster();
    // What is done is committed later, so that only the beginnings are seen.
    let settings = Settings { commit_every: PATIENCE, ..settings(&cluster) };
    send(&settings, ["slow"]).await;
    let consumer = Consumer::start(settings.clone());
    consumer.handled(1).await;
    let begun = |offsets: &[Offset]| offsets.iter().filter(|offset| **offset == Offset::Offset(0)).count();
    until("an offset of the others", || begun(&group_offsets(&settings)) >= 3).await;
    assert!(!group_offsets(&settings).contains(&Offset::Offset(1)), "a crash now would lose it");
    consumer.end().await;
    let next = Consumer::start(settings.clone());
    next.handled(1).await;
    next.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_to_guess_where_to_begin_commits_nothing() {
    let cluster = cluster();
    let settings = Settings { offset_reset: OffsetReset::Error, ..settings(&cluster) };
    let consumer = Consumer::start(settings.clone());
    let ended = in_time("the consumer to give up", consumer.task).await.unwrap();
    assert!(matches!(ended, Err(Error::NoOffset { .. })), "{ended:?}");
    assert_eq!(group_offsets(&settings), [Offset::Invalid; PARTITIONS as usize]);
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
    next.end().await;
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
    next.end().await;
}
