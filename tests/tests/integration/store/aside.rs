//! What a cluster cannot take now: the newest of each database, gone when exactly that was carried out.

use std::time::Duration;

use ::store::Parked;
use domain::DatabaseId;

use super::{Try, at};

fn parked(database: DatabaseId, seq: i64) -> Parked {
    Parked {
        database,
        cluster: "eu-west-1".parse().unwrap(),
        position: at(seq),
        payload: vec![0, 1, 2],
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        code: "unreachable".to_owned(),
        message: "no answer".to_owned(),
        attempts: 0,
        parked_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

#[tokio::test]
async fn only_a_newer_instruction_takes_the_place() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let results = [(2, true), (2, false), (1, false), (3, true)];
    for (seq, stored) in results {
        assert_eq!(scene.store.park(&parked(id, seq), Duration::ZERO).await.unwrap(), stored, "{seq}");
    }
    let due = scene.store.parked_due(&"eu-west-1".parse().unwrap(), 10).await.unwrap();
    assert_eq!(due.len(), 1);
    let expected = Parked { parked_at: due[0].parked_at, ..parked(id, 3) };
    assert_eq!(due[0], expected);
    assert!(due[0].parked_at > jiff::Timestamp::UNIX_EPOCH);
    assert!(scene.store.parked_due(&"us-east-1".parse().unwrap(), 10).await.unwrap().is_empty());
    assert_eq!(scene.store.parked_count().await.unwrap(), [("eu-west-1".to_owned(), 1)]);
}

#[tokio::test]
async fn what_was_parked_meanwhile_stays() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    scene.store.park(&parked(id, 2), Duration::ZERO).await.unwrap();
    let taken = scene.store.parked_due(&"eu-west-1".parse().unwrap(), 10).await.unwrap();
    scene.store.park(&parked(id, 3), Duration::ZERO).await.unwrap();
    assert_eq!(scene.store.unpark(&[(id, taken[0].position)]).await.unwrap(), 0);
    assert_eq!(scene.store.unpark(&[(id, at(3))]).await.unwrap(), 1);
    scene.store.park(&parked(id, 4), Duration::ZERO).await.unwrap();
    assert!(!scene.store.unpark_through(id, at(3)).await.unwrap());
    assert!(scene.store.unpark_through(id, at(4)).await.unwrap());
}

#[tokio::test]
async fn a_try_that_failed_waits_and_is_counted() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let due = async || scene.store.parked_due(&"eu-west-1".parse().unwrap(), 10).await.unwrap();
    scene.store.park(&parked(id, 2), Duration::from_mins(5)).await.unwrap();
    assert!(due().await.is_empty(), "its time has not come");
    let again = ("forbidden", "401");
    assert!(scene.store.park_longer(id, at(2), Duration::ZERO, again).await.unwrap());
    assert_eq!((due().await[0].attempts, due().await[0].code.as_str()), (1, "forbidden"));
    assert!(
        !scene.store.park_longer(id, at(1), Duration::ZERO, again).await.unwrap(),
        "another one is parked"
    );
}
