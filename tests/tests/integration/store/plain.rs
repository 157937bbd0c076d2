//! Most of what clusters say takes a short way into Postgres. It ends as the whole way does, and is left for it where
//! anything else moves.

use std::time::Duration;

use ::store::{Advance, Batch, Error, Observation, Report};
use domain::OperationState;
use testkit::eventually;

use super::{Created, Try, at, observation};

/// A consumer of one partition that goes on where it stands.
struct Reader {
    consumer: String,
    next: Option<i64>,
}

impl Reader {
    fn new(name: &str) -> Self {
        Self { consumer: name.to_owned(), next: None }
    }

    fn batch(&self, observations: Vec<Observation>) -> Batch {
        let to = self.next.unwrap_or_default() + 1;
        Batch {
            consumer: self.consumer.clone(),
            topic: "gossip".to_owned(),
            advance: Advance { partition: 0, from: self.next, to },
            observations,
            ..Batch::default()
        }
    }

    async fn absorb(&mut self, scene: &Try, observations: Vec<Observation>) -> Report {
        let batch = self.batch(observations);
        let report = scene.store.absorb(&batch).await.unwrap();
        self.next = Some(batch.advance.to);
        report
    }
}

/// A database whose creation has ended.
async fn settled(scene: &Try, reader: &mut Reader, name: &str) -> Created {
    let created = scene.create(name).await;
    let done = Observation { carried_out: Some(at(1)), ..observation(created.id, at(1)) };
    let report = reader.absorb(scene, vec![done]).await;
    assert_eq!((report.plain, report.ended.len()), (false, 1));
    created
}

fn said(of: &Created, (term, version, second): (i64, i64, i64)) -> Observation {
    Observation {
        term,
        resource_version: version,
        said_at: jiff::Timestamp::from_second(4_000_000_000 + second).unwrap(),
        phase: format!("{term}/{version}/{second}"),
        carried_out: Some(at(1)),
        body: serde_json::json!({"second": second}).into(),
        ..observation(of.id, at(1))
    }
}

#[tokio::test]
async fn both_ways_end_alike() {
    let scene = Try::new().await;
    let mut short = Reader::new("short");
    let one = settled(&scene, &mut short, "one").await;
    let other = settled(&scene, &mut Reader::new("first"), "other").await;
    let versions = [(1, 5, 1), (1, 4, 2), (1, 5, 1), (1, 5, 3), (2, 1, 0), (1, 9, 9), (2, 1, 1)];
    for (at, version) in versions.into_iter().enumerate() {
        let report = short.absorb(&scene, vec![said(&one, version)]).await;
        assert!(report.plain);
        // Whoever never read before takes the whole way.
        let whole = Reader::new(&format!("whole-{at}")).absorb(&scene, vec![said(&other, version)]).await;
        assert!(!whole.plain);
        assert_eq!((report.news, report.stale), (whole.news, whole.stale), "{version:?}");
        let view = async |id| scene.store.database(None, id).await.unwrap().unwrap().observed;
        assert_eq!(view(one.id).await, view(other.id).await, "{version:?}");
    }
    let offsets = scene.store.offsets("short", "gossip", &[0]).await.unwrap();
    assert_eq!(offsets.into_iter().collect::<Vec<_>>(), [(0, 8)]);
}

#[tokio::test]
async fn where_anything_else_moves_the_whole_way_is_taken() {
    let scene = Try::new().await;
    let mut reader = Reader::new("reader");
    let created = settled(&scene, &mut reader, "trades").await;
    let now = |version| said(&created, (1, version, version));
    // A volume that was never seen before, then the same again.
    let volume = |version| Observation { volume: true, ..now(version) };
    assert!(!reader.absorb(&scene, vec![volume(10)]).await.plain);
    assert!(scene.store.database(None, created.id).await.unwrap().unwrap().database.provisioned);
    assert!(reader.absorb(&scene, vec![volume(11)]).await.plain);
    // One of two that nobody knows.
    let nobody = observation(domain::DatabaseId::mint(), at(1));
    let report = reader.absorb(&scene, vec![now(12), nobody]).await;
    assert_eq!((report.plain, report.news, report.unclaimed.len()), (false, 1, 1));
    // Of another cluster, ahead, of other content.
    let foreign = Observation { cluster: "us-east-1".parse().unwrap(), ..now(13) };
    let ahead = Observation { position: at(9), ..now(14) };
    let other = Observation { content_hash: "other".to_owned(), ..now(15) };
    for lie in [foreign, ahead, other] {
        let report = reader.absorb(&scene, vec![lie]).await;
        assert_eq!((report.plain, report.unclaimed.len()), (false, 1));
    }
    // An open operation.
    let minted = scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    let done = Observation { position: minted.position, carried_out: Some(minted.position), ..now(16) };
    let report = reader.absorb(&scene, vec![done]).await;
    assert_eq!((report.plain, report.ended.len()), (false, 1));
    let ended = scene.store.operation(None, minted.operation).await.unwrap().unwrap();
    assert_eq!(ended.operation.state, OperationState::Succeeded);
}

#[tokio::test]
async fn a_wrong_offset_leaves_no_trace() {
    let scene = Try::new().await;
    let mut reader = Reader::new("reader");
    let created = settled(&scene, &mut reader, "trades").await;
    reader.absorb(&scene, vec![said(&created, (1, 2, 2))]).await;
    for from in [Some(0), Some(1), Some(3)] {
        let late = Batch {
            advance: Advance { partition: 0, from, to: 9 },
            ..reader.batch(vec![said(&created, (1, 99, 99))])
        };
        let error = scene.store.absorb(&late).await.unwrap_err();
        assert!(matches!(error, Error::OffsetsMoved), "{from:?}: {error:?}");
    }
    let observed = scene.store.database(None, created.id).await.unwrap().unwrap().observed.unwrap();
    assert_eq!(observed.phase, "1/2/2");
}

#[tokio::test]
async fn what_is_minted_between_the_glance_and_the_statement_is_noticed() {
    let scene = Try::crowded().await;
    let mut reader = Reader::new("reader");
    let created = settled(&scene, &mut reader, "trades").await;
    let mut transaction = scene.store.begin().await.unwrap();
    let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
    let mut desired = locked.desired.clone();
    desired.storage.size_gib = 100;
    let mint = super::mint(domain::OperationKind::Update, &desired);
    transaction.change(&locked, mint).await.unwrap();
    let (store, batch) = (scene.waiting(), reader.batch(vec![said(&created, (1, 2, 2))]));
    let absorbing = tokio::spawn(async move { store.absorb(&batch).await.unwrap() });
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                   and datname = current_database() and query like 'with known%'";
    let waits = async || (scene.ask(waiting).await == "1").then_some(());
    eventually(Duration::from_mins(2), "the statement waits for the row", waits).await;
    transaction.commit().await.unwrap();
    let report = absorbing.await.unwrap();
    assert_eq!((report.plain, report.news), (false, 1));
}
