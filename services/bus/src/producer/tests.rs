//! What the producer does when brokers refuse, are slow, die, or lose the thread; against the library's own mock brokers.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Refusal};

use super::*;
use crate::liar::Liar;

const TOPIC: &str = "instructions";

/// One broker that does what it is told.
struct Mock {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: Producer,
}

impl Mock {
    fn new(properties: &[(&str, &str)]) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 1, 1).unwrap();
        let mut connection = Connection::new(cluster.bootstrap_servers(), "test");
        connection.properties =
            properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { producer: Producer::new(&connection).unwrap(), cluster }
    }

    async fn send(&self) -> Result<Delivered, Error> {
        self.producer.send(message()).await
    }
}

fn message() -> Message {
    Message {
        topic: TOPIC.to_owned(),
        key: "key".to_owned(),
        payload: b"state".to_vec(),
        headers: Vec::new(),
    }
}

#[test]
fn errors_say_whether_the_record_may_be_there() {
    let report = |code| undelivered("t", 9, KafkaError::MessageProduction(code));
    assert!(matches!(report(Code::MessageTimedOut), Error::Unknown { .. }));
    assert!(matches!(report(Code::Fatal), Error::Unknown { .. }));
    assert!(matches!(report(Code::NotEnoughReplicasAfterAppend), Error::Unknown { .. }));
    assert!(matches!(report(Code::UnknownTopicOrPartition), Error::NotSent { .. }));
    assert!(matches!(report(Code::MessageSizeTooLarge), Error::TooLarge { bytes: 9, .. }));
    let queue_full = refused("t", 9, KafkaError::MessageProduction(Code::QueueFull));
    assert!(matches!(queue_full, Error::NotSent { .. }));
}

#[tokio::test]
async fn a_producer_that_lost_its_sequence_is_made_anew_and_goes_on() {
    let mock = Mock::new(&[]);
    assert_eq!(mock.send().await.unwrap().offset, 0);
    mock.cluster.request_errors(Api::Produce, &[Refusal::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    let error = mock.send().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert_eq!(mock.producer.rebuilds(), 1, "the error was fatal");
    assert!(mock.send().await.is_ok(), "the new client sends");
    assert_eq!(mock.producer.rebuilds(), 1, "once is enough");
}

#[tokio::test]
async fn a_producer_that_was_not_let_in_is_made_anew_and_goes_on() {
    let mock = Mock::new(&[]);
    mock.cluster
        .request_errors(Api::InitProducerId, &[Refusal::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED]);
    let error = mock.send().await.unwrap_err();
    assert!(!matches!(error, Error::TooLarge { .. }), "{error:?}");
    assert_eq!(mock.producer.rebuilds(), 1, "the error was fatal");
    assert!(mock.send().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_was_told_that_there_are_no_brokers_is_made_anew_and_goes_on() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(TOPIC, 1, 1).unwrap();
    let liar = Liar::before(&cluster.bootstrap_servers());
    let mut connection = Connection::new(&liar.address, "test");
    let often = [("statistics.interval.ms", "100"), ("topic.metadata.refresh.interval.ms", "100")];
    connection.properties = often.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let mock = Mock { producer: Producer::new(&connection).unwrap(), cluster };
    mock.send().await.unwrap();
    liar.lie(true);
    let forgotten = || mock.producer.session().client.context().no_brokers();
    let started = std::time::Instant::now();
    while !forgotten() {
        assert!(started.elapsed() < Duration::from_secs(30), "told {} times", liar.lies());
        tokio::task::yield_now().await;
    }
    // What was queued before anybody noticed is told to those who wait, and sent anew by the next client.
    liar.lie(false);
    while mock.send().await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "records go on with another client");
    }
    assert_eq!(mock.producer.rebuilds(), 1);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_leaves_the_outcome_open() {
    let mock = Mock::new(&[("delivery.timeout.ms", "600"), ("request.timeout.ms", "500")]);
    let started = std::time::Instant::now();
    // On a busy machine the first connection may take longer than a record may.
    while mock.send().await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "records go while the broker answers");
    }
    mock.cluster.broker_round_trip_time(1, Duration::from_secs(5)).unwrap();
    let error = mock.send().await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    mock.cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    let started = std::time::Instant::now();
    while mock.send().await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "records go on when the broker answers again");
    }
}

#[tokio::test]
async fn too_few_replicas_and_a_restart_are_waited_out() {
    let mock = Mock::new(&[]);
    let few = Refusal::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    mock.cluster.request_errors(Api::Produce, &[few, few, few]);
    assert_eq!(mock.send().await.unwrap().offset, 0);
    mock.cluster.broker_down(1).unwrap();
    let sent = mock.producer.enqueue(&message());
    mock.cluster.broker_up(1).unwrap();
    assert_eq!(sent.unwrap().wait().await.unwrap().offset, 1, "neither lost nor doubled");
    assert_eq!(mock.producer.rebuilds(), 0);
}

#[tokio::test]
async fn of_what_goes_one_by_one_no_record_is_refused_for_another() {
    let mock = Mock::new(&[("batch.num.messages", "100")]);
    let producer = mock.producer.one_by_one().unwrap();
    mock.cluster.request_errors(Api::Produce, &[Refusal::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    // All are queued before a broker is connected: they could go at once.
    let queued: Vec<Pending> = (0..3).map(|_| producer.enqueue(&message()).unwrap()).collect();
    let words = futures::future::join_all(queued.into_iter().map(Pending::wait)).await;
    let refused = words.iter().filter(|word| matches!(word, Err(Error::TooLarge { .. }))).count();
    assert_eq!((refused, words.iter().filter(|word| word.is_ok()).count()), (1, 2), "{words:?}");
}
