//! What a commit says of records that are finished behind an open one.

use std::collections::BTreeSet;

use testkit::unique;

use super::stage::{Consumer, Notes, send, settings, until};
use super::{producer, topic};

/// So many records are finished behind the one that is held.
const BEHIND: i64 = 300;
const HELD: i64 = 7;

/// A consumer that has finished everything but one record, the first, and has said so in its commits; stopped.
async fn with_one_held(topic: &str, group: &str) {
    let (producer, notes) = (producer(), Notes::new(true));
    notes.hold(HELD, u32::MAX);
    let consumer = Consumer::start(settings(topic, group), &notes);
    send(&producer, topic, [("sick".to_owned(), HELD)]).await;
    send(&producer, topic, (0..BEHIND).map(|number| (format!("key-{number}"), 100 + number))).await;
    until("the others", || notes.handled().len() == 300).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_only_what_was_open_is_done_again() {
    let (topic, group) = (topic(1).await, unique("group"));
    with_one_held(&topic, &group).await;
    for _ in 0..2 {
        // A second restart before anything moved knows as much.
        let again = Notes::new(true);
        again.hold(HELD, u32::MAX);
        let consumer = Consumer::start(settings(&topic, &group), &again);
        until("everything to be read", || consumer.state.snapshot().read == 301).await;
        until("the held record", || !again.begun().is_empty()).await;
        assert_eq!(consumer.state.snapshot().passed_over, 300);
        consumer.stop().await;
        let begun: BTreeSet<_> = again.begun().into_iter().collect();
        assert_eq!(begun, BTreeSet::from([("sick".to_owned(), HELD)]));
    }
    let last = Notes::new(true);
    let consumer = Consumer::start(settings(&topic, &group), &last);
    send(&producer(), &topic, [("new".to_owned(), 1)]).await;
    until("the held record and the new one", || last.handled().len() == 2).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_over_a_partition_knows_what_was_finished() {
    let (topic, group, producer) = (topic(2).await, unique("group"), producer());
    let (first, second) = (Notes::new(true), Notes::new(true));
    // One record of each partition is held for ever.
    let sick: Vec<String> = (0..2)
        .map(|partition| {
            (0..1_000)
                .map(|n| format!("sick-{n}"))
                .find(|key| bus::partition_of(key.as_bytes(), 2) == partition)
                .unwrap()
        })
        .collect();
    for notes in [&first, &second] {
        notes.hold(0, u32::MAX);
        notes.hold(1, u32::MAX);
    }
    let leaving = Consumer::start(settings(&topic, &group), &first);
    send(&producer, &topic, sick.iter().cloned().zip(0..)).await;
    send(&producer, &topic, (0..BEHIND).map(|number| (format!("key-{number}"), 100 + number))).await;
    until("the others", || first.handled().len() == 300).await;
    let staying = Consumer::start(settings(&topic, &group), &second);
    until("a partition to move", || staying.state.snapshot().partitions.len() == 1).await;
    leaving.stop().await;
    until("all to be read by the second", || staying.state.snapshot().read == 302).await;
    until("what is open to be tried", || {
        let begun: BTreeSet<String> = second.begun().into_iter().map(|(key, _)| key).collect();
        begun == sick.iter().cloned().collect()
    })
    .await;
    assert_eq!(staying.state.snapshot().passed_over, 300);
    staying.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_beginning_is_not_taken_for_what_was_finished() {
    let (topic, group) = (topic(1).await, unique("group"));
    let (producer, notes) = (producer(), Notes::new(true));
    with_one_held(&topic, &group).await;
    // Whoever reads under another name knows nothing of it.
    let consumer = Consumer::start(settings(&topic, &unique("group")), &notes);
    until("everything", || notes.handled().len() == 301).await;
    assert_eq!(consumer.state.snapshot().passed_over, 0);
    send(&producer, &topic, [("new".to_owned(), 1)]).await;
    until("the next", || notes.handled().len() == 302).await;
    consumer.stop().await;
}
