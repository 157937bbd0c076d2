//! Who is first at the row's lock wins: an undelete and a purge, an undelete and another database of the name.

use domain::lifecycle::{Next, Present, Refusal, Verb, follow};
use domain::{DatabaseId, OperationKind, Position, RunState};
use futures::future::join;
use testkit::Random;

use super::{Created, Try, at, mint};

/// What came of asking under the lock.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// It was minted here.
    Minted(Position),
    /// The other was first.
    Late,
}

impl Try {
    /// Asks Postgres for nothing, some times: who comes to a lock first is left to chance.
    async fn dawdle(&self, times: u64) {
        for _ in 0..times {
            self.store.database(None, DatabaseId::mint()).await.unwrap();
        }
    }

    /// An undelete as the API does it, that takes its time before the lock and under it.
    async fn undelete(&self, id: DatabaseId, [before, under]: [u64; 2]) -> Came {
        self.dawdle(before).await;
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, id).await.unwrap().unwrap();
        self.dawdle(under).await;
        let base = transaction.base(&locked).await.unwrap().unwrap();
        let present = Present { wanted: &locked.desired, base: &base, failed: false };
        let next = match follow(Verb::Undelete, present, "nonce") {
            Ok(Next::Mint(next)) => next,
            Err(Refusal::Purged) => return Came::Late,
            other => panic!("{other:?}"),
        };
        let minted = transaction.change(&locked, mint(OperationKind::Undelete, &next)).await.unwrap();
        transaction.commit().await.unwrap();
        Came::Minted(minted.position)
    }

    /// The destruction of a deleted database's volume, asked for in so many words.
    async fn purge(&self, id: DatabaseId, [before, under]: [u64; 2]) -> Came {
        self.dawdle(before).await;
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, id).await.unwrap().unwrap();
        self.dawdle(under).await;
        if locked.desired.run_state != RunState::Deleted {
            return Came::Late;
        }
        let next = domain::Desired { run_state: RunState::Purged, ..locked.desired.clone() };
        let minted = transaction.change(&locked, mint(OperationKind::Delete, &next)).await.unwrap();
        transaction.commit().await.unwrap();
        Came::Minted(minted.position)
    }

    async fn deleted(&self, name: &str) -> Created {
        let created = self.create(name).await;
        self.change(created.id, |desired| desired.run_state = RunState::Deleted).await;
        created
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_undelete_and_a_purge_the_first_wins_and_the_other_is_told() {
    let scene = Try::crowded().await;
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let (mut back, mut gone) = (0, 0);
    // Chance has a say in the order: at most as many rounds more as make it no accident that one did not occur.
    for round in 0..600 {
        if round >= 60 && back > 5 && gone > 5 {
            break;
        }
        let created = scene.deleted(&format!("trades-{round}")).await;
        let mut times = || [random.below(4), random.below(3)];
        let (first, second) = (times(), times());
        let came = join(scene.undelete(created.id, first), scene.purge(created.id, second)).await;
        let view = scene.store.database(None, created.id).await.unwrap().unwrap();
        let run_state = view.database.desired.run_state;
        assert_eq!(view.database.position, at(3), "seed {seed}, round {round}: {came:?}");
        match came {
            (Came::Minted(_), Came::Late) => {
                back += 1;
                assert_eq!((run_state, view.database.deleted_at), (RunState::Running, None), "seed {seed}");
            }
            (Came::Late, Came::Minted(_)) => {
                gone += 1;
                assert_eq!(
                    (run_state, view.database.deleted_at.is_some()),
                    (RunState::Purged, true),
                    "seed {seed}"
                );
            }
            both => panic!("seed {seed}, round {round}: {both:?}"),
        }
    }
    assert!(back > 5 && gone > 5, "seed {seed}: one order hardly occurred: {back} back, {gone} gone");
    println!("seed {seed}: {back} came back, {gone} were purged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_undelete_and_a_namesake_one_lives() {
    let scene = Try::crowded().await;
    let (mut back, mut other) = (0, 0);
    // Chance has a say in the order: at most as many rounds more as make it no accident that one did not occur.
    for round in 0..600 {
        if round >= 30 && back > 0 && other > 0 {
            break;
        }
        let name = format!("trades-{round}");
        let deleted = scene.deleted(&name).await;
        let undelete = async {
            let mut transaction = scene.store.begin().await?;
            let locked = transaction.lock_database(None, deleted.id).await?.unwrap();
            transaction.change(&locked, mint(OperationKind::Undelete, &deleted.desired)).await?;
            transaction.commit().await
        };
        let create = async {
            scene.dawdle(round % 3).await;
            scene.try_create(&name).await
        };
        let (came_back, created) = join(undelete, create).await;
        match (&came_back, &created) {
            (Ok(()), Err(::store::Error::Conflict(::store::Conflict::NameTaken))) => back += 1,
            (Err(::store::Error::Conflict(::store::Conflict::NameTaken)), Ok(_)) => other += 1,
            both => panic!("round {round}: {both:?}"),
        }
        let living = format!("select count(*) from databases where name = '{name}' and deleted_at is null");
        assert_eq!(scene.ask(&living).await, "1");
    }
    assert!(back > 0 && other > 0, "one order never occurred: {back} came back, {other} were new");
}

#[tokio::test]
async fn an_undelete_knows_of_a_volume_that_was_seen_after_its_deletion() {
    let scene = Try::new().await;
    let deleted = scene.deleted("trades").await;
    let seen = ::store::Observation { volume: true, ..super::observation(deleted.id, at(2)) };
    let batch = ::store::Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        advance: ::store::Advance { partition: 0, from: None, to: 1 },
        observations: vec![seen],
        ..::store::Batch::default()
    };
    scene.store.absorb(&batch).await.unwrap();
    assert_eq!(scene.undelete(deleted.id, [0, 0]).await, Came::Minted(at(3)));
    let view = scene.store.database(None, deleted.id).await.unwrap().unwrap();
    assert!(view.database.desired.storage.provisioned, "an empty volume must never take its place");
    let record = scene.store.operation(None, view.operation.unwrap()).await.unwrap().unwrap();
    assert_eq!(record.operation.kind, OperationKind::Undelete);
}
