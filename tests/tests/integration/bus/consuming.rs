//! The consumer by key: order, newest only, offsets, back-pressure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::Error;
use bus::consumer::OffsetReset;
use testkit::unique;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::stage::{Consumer, Notes, all_committed, send, settings, until};
use super::{PATIENCE, connection, producer, topic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_newest_of_a_key_is_handled_and_offsets_go_on() {
    let (topic, group, producer, notes) = (topic(1).await, unique("group"), producer(), Notes::new(false));
    let consumer = Consumer::start(settings(&topic, &group), &notes);
    send(&producer, &topic, [("a".to_owned(), 0)]).await;
    until("the first record to run", || consumer.state.snapshot().running == 1).await;
    send(&producer, &topic, (1..=200).map(|number| ("a".to_owned(), number))).await;
    until("all records to be read", || consumer.state.snapshot().read == 201).await;
    until("the one that runs and the newest to be left", || consumer.state.snapshot().in_memory == 2).await;
    notes.open.send_replace(true);
    until("the newest to be handled", || notes.handled().len() == 2).await;
    all_committed(&group, &topic, 1).await;
    consumer.stop().await;
    assert_eq!(notes.handled(), [("a".to_owned(), 0), ("a".to_owned(), 200)]);
    assert_eq!(notes.superseded.lock().unwrap().len(), 199);
    let again = Notes::new(true);
    let mut strict = settings(&topic, &group);
    strict.offset_reset = OffsetReset::Error;
    let consumer = Consumer::start(strict, &again);
    send(&producer, &topic, [("b".to_owned(), 1)]).await;
    until("the next record", || !again.handled().is_empty()).await;
    consumer.stop().await;
    assert_eq!(again.handled(), [("b".to_owned(), 1)], "everything before was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_record_holds_its_offset_and_nobody_elses_work() {
    let (topic, group, producer, notes) = (topic(1).await, unique("group"), producer(), Notes::new(true));
    notes.hold(7, u32::MAX);
    let consumer = Consumer::start(settings(&topic, &group), &notes);
    send(&producer, &topic, [("sick".to_owned(), 7)]).await;
    send(&producer, &topic, (0..50).map(|number| (format!("key-{number}"), 100 + number))).await;
    until("the others", || notes.handled().len() == 50).await;
    consumer.stop().await;
    let again = Notes::new(true);
    again.hold(7, 3);
    let consumer = Consumer::start(settings(&topic, &group), &again);
    until("the held record", || !again.handled().is_empty()).await;
    consumer.stop().await;
    assert_eq!(again.handled(), [("sick".to_owned(), 7)], "and nothing that was finished behind it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_in_memory_pauses_and_polling_goes_on() {
    let (topic, group, producer, notes) = (topic(2).await, unique("group"), producer(), Notes::new(false));
    send(&producer, &topic, (0..2_000).map(|number| (format!("key-{number}"), number))).await;
    let mut settings = settings(&topic, &group);
    settings.in_memory = 100;
    let consumer = Consumer::start(settings, &notes);
    until("the pause", || consumer.state.snapshot().paused).await;
    let rounds = consumer.state.snapshot().rounds;
    until("the loop to turn on", || consumer.state.snapshot().rounds > rounds + 5).await;
    assert!(consumer.state.snapshot().in_memory <= 100, "{:?}", consumer.state.snapshot());
    notes.open.send_replace(true);
    until("everything", || notes.handled().len() == 2_000).await;
    until("the end of the pause", || !consumer.state.snapshot().paused).await;
    until("nothing to run", || consumer.state.snapshot().running == 0).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_and_nothing_is_lost() {
    let (topic, group, producer) = (topic(8).await, unique("group"), producer());
    let notes: Vec<_> = (0..3).map(|_| Notes::new(true)).collect();
    let mut first = Some(Consumer::start(settings(&topic, &group), &notes[0]));
    let mut others = Vec::new();
    for part in 0..6_i64 {
        send(&producer, &topic, (0..200).map(|key| (format!("key-{key}"), part))).await;
        match part {
            1 => others.push(Consumer::start(settings(&topic, &group), &notes[1])),
            2 => others.push(Consumer::start(settings(&topic, &group), &notes[2])),
            4 => first.take().unwrap().stop().await,
            _ => {}
        }
    }
    let newest = || {
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for (key, number) in notes.iter().flat_map(|notes| notes.handled()) {
            let seen = newest.entry(key).or_default();
            *seen = number.max(*seen);
        }
        newest
    };
    until("the newest of every key", || {
        let newest = newest();
        newest.len() == 200 && newest.values().all(|number| *number == 5)
    })
    .await;
    until("all partitions to have an owner", || {
        let owned: BTreeSet<i32> = others.iter().flat_map(|one| one.state.snapshot().partitions).collect();
        owned.len() == 8
    })
    .await;
    // Whoever was given a partition last may still have to read what was finished before.
    all_committed(&group, &topic, 8).await;
    for consumer in others {
        consumer.stop().await;
    }
    let rest = Notes::new(true);
    let last = Consumer::start(settings(&topic, &group), &rest);
    send(&producer, &topic, (0..200).map(|key| (format!("key-{key}"), 6))).await;
    until("the last round", || rest.handled().len() >= 200).await;
    last.stop().await;
    assert!(rest.handled().iter().all(|(_, number)| *number == 6), "everything before was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_an_offset_is_told_so() {
    let (topic, notes) = (topic(1).await, Notes::new(true));
    let mut settings = settings(&topic, &unique("group"));
    settings.offset_reset = OffsetReset::Error;
    let consumer = Consumer::start(settings, &notes);
    let ended = tokio::time::timeout(PATIENCE, consumer.task).await.unwrap().unwrap();
    assert!(
        matches!(&ended, Err(error @ Error::NoOffset { .. }) if error.to_string().contains("--offset-reset earliest")),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_gets_more_partitions_is_not_read_on() {
    let (topic, group, producer, notes) = (topic(2).await, unique("group"), producer(), Notes::new(true));
    let mut settings = settings(&topic, &group);
    settings.partitions = Some(2);
    settings.count_every = Duration::from_millis(200);
    let consumer = Consumer::start(settings, &notes);
    send(&producer, &topic, [("a".to_owned(), 1)]).await;
    until("the record", || notes.handled().len() == 1).await;
    grow(&topic, 3).await;
    let ended = tokio::time::timeout(PATIENCE, consumer.task).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::PartitionCount { expected: 2, found: 3, .. })), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_records_are_gone_is_told_so_and_skips_nothing_that_is_left() {
    let (topic, group, producer, notes) = (topic(1).await, unique("group"), producer(), Notes::new(true));
    let records = |numbers: std::ops::Range<i64>| numbers.map(|number| (format!("key-{number}"), number));
    let consumer = Consumer::start(settings(&topic, &group), &notes);
    send(&producer, &topic, records(0..5)).await;
    until("the first records", || notes.handled().len() == 5).await;
    consumer.stop().await;
    // Nobody reads for longer than records are kept: what the group would read next is gone, and what comes later is there.
    send(&producer, &topic, records(5..10)).await;
    forget(&topic, 7).await;
    let mut strict = settings(&topic, &group);
    strict.offset_reset = OffsetReset::Error;
    for _ in 0..2 {
        let consumer = Consumer::start(strict.clone(), &notes);
        let ended = tokio::time::timeout(PATIENCE, consumer.task).await.unwrap().unwrap();
        assert!(
            matches!(&ended, Err(error @ Error::NoOffset { .. }) if error.to_string().contains("--offset-reset earliest")),
            "{ended:?}"
        );
    }
    assert_eq!(notes.handled().len(), 5, "nothing is guessed");
    let rest = Notes::new(true);
    let consumer = Consumer::start(settings(&topic, &group), &rest);
    until("everything that is left", || rest.handled().len() == 3).await;
    consumer.stop().await;
    let mut handled = rest.handled();
    handled.sort_unstable();
    assert_eq!(handled, records(7..10).collect::<Vec<_>>());
}

/// Adds partitions to a topic, as nobody should.
pub(crate) async fn grow(topic: &str, partitions: i32) {
    // CreatePartitions, version 1: one topic, placed by the broker.
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(text(topic));
    body.extend(partitions.to_be_bytes());
    body.extend((-1_i32).to_be_bytes());
    body.extend(30_000_i32.to_be_bytes());
    body.push(0);
    let answer = ask_broker((37, 1), &body).await;
    // Request, throttling, one topic, its name, then the error.
    let error = &answer[12 + 2 + topic.len()..][..2];
    assert_eq!(error, [0, 0], "{answer:?}");
}

/// Takes away all records of a topic of one partition before an offset, as retention does.
async fn forget(topic: &str, before: i64) {
    // DeleteRecords, version 1: one topic, one partition of it.
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend(text(topic));
    body.extend(1_i32.to_be_bytes());
    body.extend(0_i32.to_be_bytes());
    body.extend(before.to_be_bytes());
    body.extend(30_000_i32.to_be_bytes());
    let answer = ask_broker((21, 1), &body).await;
    // Request, throttling, one topic, its name, one partition, its number, its oldest offset, then the error.
    let left = &answer[12 + 2 + topic.len() + 8..][..10];
    assert_eq!(left, [&before.to_be_bytes()[..], &[0, 0]].concat(), "{answer:?}");
}

/// A text as brokers read it.
fn text(text: &str) -> Vec<u8> {
    let length = i16::try_from(text.len()).unwrap();
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// Asks the broker in its own protocol, because `bus` has no such thing; its answer, the number of the request first.
async fn ask_broker((api, version): (i16, i16), body: &[u8]) -> Vec<u8> {
    let mut request = [api.to_be_bytes(), version.to_be_bytes()].concat();
    // The first request, of a client without a name.
    request.extend(1_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(body);
    let mut broker = TcpStream::connect(&connection().bootstrap).await.unwrap();
    broker.write_u32(u32::try_from(request.len()).unwrap()).await.unwrap();
    broker.write_all(&request).await.unwrap();
    let length = usize::try_from(broker.read_u32().await.unwrap()).unwrap();
    let mut answer = vec![0; length];
    broker.read_exact(&mut answer).await.unwrap();
    answer
}
