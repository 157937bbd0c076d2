//! When another client is made, against the library's own mock brokers.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::RDKafkaRespErr as Refusal;

use super::*;
use crate::liar::Liar;

const TOPIC: &str = "t";
/// How long a question may take that nobody may answer.
const LIMIT: Duration = Duration::from_secs(1);
/// How long a test waits for something before it fails.
const LONG: Duration = Duration::from_secs(30);

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 2, 1).unwrap();
    cluster
}

/// One that tries another client after the first question that nobody answers.
fn impatient(address: &str) -> Admin {
    Admin::with_patience(&Connection::new(address, "test"), Duration::ZERO).unwrap()
}

#[test]
fn only_what_brokers_say_is_an_answer() {
    let table = [
        (Code::TopicAuthorizationFailed, true),
        (Code::ClusterAuthorizationFailed, true),
        (Code::NotController, true),
        (Code::RequestTimedOut, true),
        (Code::Unknown, true),
        (Code::UnknownTopic, true),
        (Code::UnknownPartition, true),
        (Code::BrokerTransportFailure, false),
        (Code::OperationTimedOut, false),
        (Code::AllBrokersDown, false),
        (Code::Resolve, false),
        (Code::Authentication, false),
    ];
    for (code, expected) in table {
        for error in [KafkaError::MetadataFetch(code), KafkaError::AdminOp(code)] {
            assert_eq!(is_answer(&error), expected, "{error}");
        }
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_client() {
    let cluster = cluster();
    let admin = impatient(&cluster.bootstrap_servers());
    assert_eq!(admin.partitions(TOPIC, LONG).await.unwrap(), 2);
    let client = admin.client();
    cluster.topic_error(TOPIC, Refusal::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    for _ in 0..3 {
        let refused = admin.partitions(TOPIC, LONG).await.unwrap_err();
        assert!(matches!(refused, Error::Ask { .. }), "{refused:?}");
    }
    assert!(Arc::ptr_eq(&client, &admin.client()), "another client would be refused too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_told_that_there_are_no_brokers_is_made_anew() {
    let cluster = cluster();
    let liar = Liar::before(&cluster.bootstrap_servers());
    let admin = impatient(&liar.address);
    assert_eq!(admin.partitions(TOPIC, LONG).await.unwrap(), 2);
    let first = admin.client();
    liar.lie(true);
    let lost = admin.partitions(TOPIC, LONG).await.unwrap_err();
    assert_ne!(liar.lies(), 0, "{lost:?}");
    liar.lie(false);
    let started = Instant::now();
    while admin.partitions(TOPIC, LIMIT).await.is_err() {
        assert!(started.elapsed() < LONG, "brokers are found again");
    }
    assert!(!Arc::ptr_eq(&first, &admin.client()), "the first client never finds any again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_silence_keeps_the_client() {
    let cluster = cluster();
    let admin = Admin::with_patience(&Connection::new(cluster.bootstrap_servers(), "test"), LONG).unwrap();
    admin.partitions(TOPIC, LONG).await.unwrap();
    let client = admin.client();
    cluster.broker_down(1).unwrap();
    admin.partitions(TOPIC, LIMIT).await.unwrap_err();
    assert!(lock(&admin.0.held).silent_since.is_some(), "the silence is noted");
    cluster.broker_up(1).unwrap();
    let started = Instant::now();
    while admin.partitions(TOPIC, LIMIT).await.is_err() {
        assert!(started.elapsed() < LONG, "the broker is back");
    }
    assert!(lock(&admin.0.held).silent_since.is_none(), "an answer ends it");
    assert!(Arc::ptr_eq(&client, &admin.client()));
}

#[test]
fn records_go_with_the_file_that_they_are_in() {
    let hours = |count: u64| (count * 3_600_000).to_string();
    let found = super::kept("delete", &hours(168), &hours(12));
    assert_eq!(found, Some(Duration::from_hours(180)));
    assert_eq!(super::kept("compact, delete", &hours(1), &hours(1)), Some(Duration::from_hours(2)));
    assert_eq!(super::kept("compact", &hours(1), &hours(1)), None);
    assert_eq!(super::kept("delete", "-1", &hours(1)), None);
}
