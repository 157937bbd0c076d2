//! The producer and the administration.

use bus::{Admin, Error, TopicSettings};
use testkit::unique;

use super::{PATIENCE, connection, message, producer, topic};

#[tokio::test]
async fn records_of_a_key_are_written_in_order_to_one_partition() {
    let (topic, producer) = (topic(8).await, producer());
    let pending: Vec<_> =
        (0..500).map(|number| producer.enqueue(&message(&topic, "a-key", number)).unwrap()).collect();
    let mut last = None;
    for pending in pending {
        let delivered = pending.wait().await.unwrap();
        if let Some((partition, offset)) = last {
            assert_eq!((delivered.partition, delivered.offset), (partition, offset + 1));
        }
        last = Some((delivered.partition, delivered.offset));
    }
    producer.flush(PATIENCE).await.unwrap();
    assert_eq!((producer.in_flight(), producer.rebuilds()), (0, 0));
}

#[tokio::test]
async fn partitions_are_those_of_other_clients() {
    // As the Java client computes them: murmur2("21") = -973932308, so partition 3 of 8 (and so on).
    let (topic, producer) = (topic(8).await, producer());
    let table =
        [("21", -973_932_308_i64), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)];
    for (key, hash) in table {
        let delivered = producer.send(message(&topic, key, 1)).await.unwrap();
        let expected = (hash & 0x7fff_ffff) % 8;
        assert_eq!(i64::from(delivered.partition), expected, "{key}");
    }
}

#[tokio::test]
async fn partitions_are_those_that_readers_expect() {
    for count in [1, 7, 64] {
        let (topic, producer) = (topic(count).await, producer());
        for at in 0..40_u32 {
            // Of every length, and no text of ours.
            let key: String = (0..at).map(|n| char::from_u32(0x21 + (n * 31 + at) % 0x5d).unwrap()).collect();
            let key = format!("é{key}");
            let delivered = producer.send(message(&topic, &key, 1)).await.unwrap();
            assert_eq!(delivered.partition, bus::partition_of(key.as_bytes(), count), "{key:?} of {count}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_told_apart() {
    let (topic, producer) = (topic(1).await, producer());
    let mut large = message(&topic, "k", 1);
    large.payload = vec![0; 2_000_000];
    assert!(matches!(producer.send(large).await, Err(Error::TooLarge { bytes: 2_000_000, .. })));
    let nowhere = message(&unique("nowhere"), "k", 1);
    let error = producer.send(nowhere).await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. } | Error::Unknown { .. }), "{error}");
    producer.send(message(&topic, "k", 1)).await.unwrap();
}

#[tokio::test]
async fn topics_are_made_once_and_their_partitions_checked() {
    let admin = Admin::new(&connection()).unwrap();
    let (name, missing) = (topic(3).await, unique("missing"));
    let same = [TopicSettings::new(&name, 3, 1)];
    assert!(admin.ensure_topics(&same, PATIENCE).await.unwrap().is_empty());
    admin.check_partitions(&name, 3, PATIENCE).await.unwrap();
    let more = [TopicSettings::new(&name, 4, 1)];
    let error = admin.ensure_topics(&more, PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::PartitionCount { expected: 4, found: 3, .. }), "{error}");
    assert!(error.to_string().contains("a key must never change its partition"), "{error}");
    let error = admin.check_partitions(&missing, 3, PATIENCE).await.unwrap_err();
    assert!(matches!(error, Error::NoTopic { .. }), "{error}");
    assert_eq!(admin.end_offset(&name, 0, PATIENCE).await.unwrap(), 0);
    // A record goes with its file: it may be found for as long as that takes records in, and then for as long as they are kept.
    let kept = admin.kept_for(&name, PATIENCE).await.unwrap();
    assert_eq!(kept, Some(TopicSettings::RETENTION + TopicSettings::SEGMENT));
    assert!(admin.kept_for(&missing, PATIENCE).await.is_err());
}
