//! Up to when all that clusters said was heard, by a real broker's word of how much there is.

use std::time::Duration;

use ::backend::heard::{Hearing, Listener};
use ::bus::{Admin, partition_of};
use runtime::CancellationToken;
use testkit::{eventually, query};

use crate::bus::{connection, message, producer, topic};
use crate::support::database;

const PATIENCE: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_millis(200);
const PARTITIONS: i32 = 3;

fn listener(store: &::store::Store, topic: &str, delay: Duration) -> Listener {
    Listener {
        store: store.clone(),
        admin: Admin::new(&connection()).unwrap(),
        consumer: "sink".to_owned(),
        hearing: Hearing { topic: topic.to_owned(), partitions: PARTITIONS, delay },
        every: EVERY,
    }
}

/// A key of a partition.
fn key_of(partition: i32) -> String {
    let mut keys = (0..).map(|number: u32| number.to_string());
    keys.find(|key| partition_of(key.as_bytes(), PARTITIONS) == partition).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_heard_once_what_the_brokers_have_was_taken_in_and_not_before() {
    let ((store, url), topic, stop) = (database().await, topic(PARTITIONS).await, CancellationToken::new());
    let ask = async |statement: &str| query(&url, statement).await.unwrap();
    // All of the first was taken in, one record of the second waits, and of the third nothing was ever said.
    let producer = producer();
    for (partition, number) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        producer.send(message(&topic, &key_of(partition), number)).await.unwrap();
    }
    let stand = async |partition: i32, offset: i64| {
        ask(&format!(
            "insert into consumer_offsets (consumer, topic, kafka_partition, next_offset) \
             values ('sink', '{topic}', {partition}, {offset}) \
             on conflict (consumer, topic, kafka_partition) do update set next_offset = excluded.next_offset"
        ))
        .await;
    };
    stand(0, 2).await;
    stand(1, 1).await;
    let since = ask("select now()").await;
    let heard = async |since: &str| {
        ask(&format!(
            "select coalesce(string_agg(kafka_partition::text, ',' order by kafka_partition), '') \
             from heard where topic = '{topic}' and up_to > '{since}'"
        ))
        .await
    };
    let running = tokio::spawn(listener(&store, &topic, Duration::ZERO).run(stop.clone()));
    let both = async |since: &str| {
        let told = heard(since).await;
        (told.contains('0') && told.contains('2')).then_some(())
    };
    // Of what was asked after this moment, twice over.
    let only = async |since: &str, expected: &str| {
        for _ in 0..2 {
            let now = ask("select now()").await;
            eventually(PATIENCE, expected, async || both(&now).await).await;
        }
        assert_eq!(heard(since).await, expected);
    };
    only(&since, "0,2").await;
    stand(1, 2).await;
    eventually(PATIENCE, "the second", async || (heard(&since).await == "0,1,2").then_some(())).await;
    // An offset of a topic that was made anew, which has less: nothing is known.
    stand(1, 9).await;
    // A question that was under way is over by then.
    only(&since, "0,1,2").await;
    let since = ask("select now()").await;
    only(&since, "0,2").await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_has_its_time_to_arrive() {
    let ((store, url), topic, stop) = (database().await, topic(PARTITIONS).await, CancellationToken::new());
    let began = query(&url, "select now()").await.unwrap();
    let delay = Duration::from_secs(2);
    let running = tokio::spawn(listener(&store, &topic, delay).run(stop.clone()));
    let first = eventually(PATIENCE, "the first note", async || {
        let found = query(&url, "select min(up_to) from heard").await.unwrap();
        (!found.is_empty()).then_some(found)
    })
    .await;
    // The brokers had answered for so long by then, and what is known is as old as that.
    let sound =
        format!("select '{first}'::timestamptz >= '{began}' and now() - '{first}' >= interval '2 seconds'");
    assert_eq!(query(&url, &sound).await.unwrap(), "t", "{began}, {first}");
    stop.cancel();
    running.await.unwrap();
}
