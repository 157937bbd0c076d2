//! What a cluster cannot take now: the newest of each database, gone when exactly that was carried out.

use std::time::Duration;

use ::store::{Origin, Parked};
use domain::DatabaseId;
use testkit::eventually;
use testkit::postgres::Session;

use super::absorb::fresh;
use super::{Try, at, observation};
use crate::support::damage;

fn parked(database: DatabaseId, seq: i64) -> Parked {
    Parked {
        database,
        cluster: "eu-west-1".parse().unwrap(),
        position: at(seq),
        payload: vec![0, 1, 2],
        origin: Some(origin(seq)),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        code: "unreachable".to_owned(),
        message: "no answer".to_owned(),
        attempts: 0,
        parked_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn origin(offset: i64) -> Origin {
    let headers = vec![("slipway-seq".to_owned(), offset.to_string())];
    Origin { topic: "instructions".to_owned(), partition: 3, offset, headers }
}

/// What is due for a cluster; the next who asks gets the same.
async fn claim(scene: &Try, cluster: &str) -> Vec<Parked> {
    let claimed = scene.store.claim_parked(&cluster.parse().unwrap(), 10, Duration::ZERO).await.unwrap();
    assert!(claimed.unreadable.is_empty(), "{claimed:?}");
    claimed.parked
}

#[tokio::test]
async fn a_parked_row_that_cannot_be_read_holds_up_nobody_else() {
    let scene = Try::new().await;
    let (broken, good) = (DatabaseId::mint(), DatabaseId::mint());
    for id in [broken, good] {
        scene.store.park(&parked(id, 2), Duration::ZERO).await.unwrap();
    }
    let damage = "update parked_instructions set headers = '{\"a\": 1}' where database_id = ";
    scene.ask(&format!("{damage}'{broken}'")).await;
    for _ in 0..2 {
        let cluster = "eu-west-1".parse().unwrap();
        let claimed = scene.store.claim_parked(&cluster, 10, Duration::ZERO).await.unwrap();
        assert_eq!(claimed.parked.iter().map(|one| one.database).collect::<Vec<_>>(), [good]);
        let told: Vec<String> = claimed.unreadable.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains(&broken.to_string()), "{told:?}");
    }
}

#[tokio::test]
async fn a_parked_row_that_postgres_fails_at_rests_and_holds_up_nobody_else() {
    const LEASE: Duration = Duration::from_mins(5);
    let scene = Try::new().await;
    let ids: Vec<DatabaseId> = (0..5).map(|_| DatabaseId::mint()).collect();
    for id in &ids {
        scene.store.park(&parked(*id, 2), Duration::ZERO).await.unwrap();
    }
    let broken = [ids[0], ids[3]];
    scene.ask(&damage("parked_instructions", ("database_id", "payload"), &broken)).await;
    let cluster = "eu-west-1".parse().unwrap();
    let claimed = scene.store.claim_parked(&cluster, 10, LEASE).await.unwrap();
    let taken: Vec<DatabaseId> = claimed.parked.iter().map(|one| one.database).collect();
    assert_eq!(taken, [ids[1], ids[2], ids[4]], "the longest waiting first");
    let told: Vec<String> = claimed.unreadable.iter().map(ToString::to_string).collect();
    let is_told =
        |id: &DatabaseId| told.iter().any(|one| one.contains(&id.to_string()) && one.contains("chunk"));
    assert!(told.len() == 2 && broken.iter().all(is_told), "{told:?}");
    let claimed = scene.store.claim_parked(&cluster, 10, LEASE).await.unwrap();
    assert!(claimed.parked.is_empty() && claimed.unreadable.is_empty(), "all have a lease: {claimed:?}");
    scene.ask("update sound_parked_instructions set retry_at = now()").await;
    let claimed = scene.store.claim_parked(&cluster, 10, LEASE).await.unwrap();
    assert_eq!((claimed.parked.len(), claimed.unreadable.len()), (3, 2), "after it they come again");
}

#[tokio::test]
async fn only_a_newer_instruction_takes_the_place() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let results = [(2, true), (2, false), (1, false), (3, true)];
    for (seq, stored) in results {
        assert_eq!(scene.store.park(&parked(id, seq), Duration::ZERO).await.unwrap(), stored, "{seq}");
    }
    let due = claim(&scene, "eu-west-1").await;
    assert_eq!(due.len(), 1);
    let expected = Parked { parked_at: due[0].parked_at, ..parked(id, 3) };
    assert_eq!(due[0], expected);
    assert!(due[0].parked_at > jiff::Timestamp::UNIX_EPOCH);
    assert!(claim(&scene, "us-east-1").await.is_empty());
    assert_eq!(scene.store.parked_count().await.unwrap(), [("eu-west-1".to_owned(), 1)]);
}

#[tokio::test]
async fn a_database_waits_since_its_first_state_was_parked() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let park = async |seq| assert!(scene.store.park(&parked(id, seq), Duration::ZERO).await.unwrap());
    let waits = async || claim(&scene, "eu-west-1").await[0].clone();
    park(2).await;
    let first = waits().await;
    assert!(scene.store.park_longer(id, at(2), Duration::ZERO, ("forbidden", "401")).await.unwrap());
    park(3).await;
    let newer = waits().await;
    assert_eq!((newer.position, newer.parked_at, newer.attempts), (at(3), first.parked_at, 0));
    // What is parked once nothing waits any more begins anew.
    scene.store.unpark(&[(id, at(3))]).await.unwrap();
    park(4).await;
    assert!(waits().await.parked_at > first.parked_at);
}

#[tokio::test]
async fn what_was_parked_meanwhile_stays() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    scene.store.park(&parked(id, 2), Duration::ZERO).await.unwrap();
    let taken = claim(&scene, "eu-west-1").await;
    scene.store.park(&parked(id, 3), Duration::ZERO).await.unwrap();
    assert_eq!(scene.store.unpark(&[(id, taken[0].position)]).await.unwrap(), 0);
    assert_eq!(scene.store.unpark(&[(id, at(3))]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_try_that_failed_waits_and_is_counted() {
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let due = async || claim(&scene, "eu-west-1").await;
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

#[tokio::test]
async fn two_that_drain_do_not_take_the_same() {
    const LEASE: Duration = Duration::from_mins(1);
    let scene = Try::new().await;
    let cluster = "eu-west-1".parse().unwrap();
    let ids: Vec<_> = (0..20).map(|_| DatabaseId::mint()).collect();
    for id in &ids {
        scene.store.park(&parked(*id, 2), Duration::ZERO).await.unwrap();
    }
    let claim = async || scene.store.claim_parked(&cluster, 10, LEASE).await.unwrap().parked;
    let (one, other, third) = tokio::join!(claim(), claim(), claim());
    let mut taken: Vec<_> = [one, other, third].into_iter().flatten().map(|parked| parked.database).collect();
    // Those who met a lock passed over it: whatever is left is there for the next.
    taken.extend(claim().await.into_iter().map(|parked| parked.database));
    taken.extend(claim().await.into_iter().map(|parked| parked.database));
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!((taken.len(), count), (20, 20), "each was taken once");
    // A newer one is there at once, whoever holds the older.
    scene.store.park(&parked(ids[0], 3), Duration::ZERO).await.unwrap();
    assert_eq!(claim().await[0].position, at(3));
}

#[tokio::test]
async fn how_a_database_stands_is_read_under_its_lock() {
    let scene = Try::crowded().await;
    let id = scene.create("trades").await.id;
    let mut holder = scene.store.begin().await.unwrap();
    holder.lock_database(None, id).await.unwrap().unwrap();
    let store = scene.waiting();
    let asking = tokio::spawn(async move {
        let mut transaction = store.begin().await.unwrap();
        transaction.lock_standing(id).await.unwrap().unwrap()
    });
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                   and datname = current_database()";
    let waits = async || (scene.ask(waiting).await == "1").then_some(());
    eventually(Duration::from_mins(2), "whoever asks waits for the row", waits).await;
    scene.store.park(&parked(id, 1), Duration::ZERO).await.unwrap();
    holder.commit().await.unwrap();
    assert_eq!(asking.await.unwrap().parked, Some(at(1)), "it was parked before the lock was had");
}

fn letter(database: DatabaseId, offset: i64, position: Option<i64>, code: &str) -> ::store::DeadLetter {
    ::store::DeadLetter {
        topic: "instructions".to_owned(),
        partition: 3,
        offset,
        database: Some(database),
        position: position.map(at),
        code: code.to_owned(),
        ..::store::DeadLetter::default()
    }
}

#[tokio::test]
async fn a_later_record_settles_a_dead_letter() {
    let scene = Try::new().await;
    // Position and offset of the letter, position and offset of what was taken, whether that settles it.
    let table = [
        (Some(5), 10, "invalid", 6, 11, true),
        (Some(5), 10, "invalid", 5, 11, true),
        (Some(5), 10, "invalid", 4, 11, false),
        (Some(5), 10, "conflict", 5, 11, false),
        (Some(5), 10, "conflict", 6, 11, true),
        (Some(5), 10, "invalid", 6, 9, true),
        (None, 10, "undecodable", 1, 11, true),
        (None, 10, "undecodable", 9, 9, false),
    ];
    for (number, (position, offset, code, seq, taken_at, settled)) in (0_i64..).zip(table) {
        let (id, other) = (DatabaseId::mint(), DatabaseId::mint());
        let base = number * 100;
        scene.store.dead_letter(&letter(id, base + offset, position, code)).await.unwrap();
        scene.store.dead_letter(&letter(other, base + offset + 50, position, code)).await.unwrap();
        let taken = ::store::Taken {
            position: at(seq),
            topic: "instructions",
            partition: 3,
            offset: base + taken_at,
        };
        let count = scene.store.supersede_dead_letters(id, &taken).await.unwrap();
        assert_eq!(count, u64::from(settled), "row {number}");
        let open = scene.store.open_dead_letters(100).await.unwrap();
        assert_eq!(open.contains(&id), !settled, "row {number}");
        assert!(open.contains(&other), "another database's letter stays");
    }
}

#[tokio::test]
async fn what_is_parked_settles_older_dead_letters() {
    let scene = Try::new().await;
    let (behind, level) = (DatabaseId::mint(), DatabaseId::mint());
    scene.store.dead_letter(&letter(behind, 1, Some(4), "invalid")).await.unwrap();
    scene.store.dead_letter(&letter(level, 2, Some(5), "invalid")).await.unwrap();
    for id in [behind, level] {
        scene.store.park(&parked(id, 5), Duration::ZERO).await.unwrap();
    }
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), 1);
    assert_eq!(scene.store.open_dead_letters(10).await.unwrap(), [level]);
}

/// Two who settle the letters of a database at once would else hold what the other one waits for.
#[tokio::test]
async fn letters_are_locked_in_the_order_of_their_identity() {
    const PATIENCE: Duration = Duration::from_mins(2);
    let scene = Try::new().await;
    let patient = scene.waiting();
    let id = DatabaseId::mint();
    for offset in [1, 2] {
        scene.store.dead_letter(&letter(id, offset, Some(4), "invalid")).await.unwrap();
    }
    // The first one lies behind the second in the table, and in its indexes.
    for whose in [DatabaseId::mint(), id] {
        scene.ask(&format!("update dead_letters set database_id = '{whose}' where kafka_offset = 1")).await;
    }
    let mut holder = Session::open(&scene.url).await.unwrap();
    holder.run("begin; select 1 from dead_letters where kafka_offset = 2 for no key update").await.unwrap();
    let taken = ::store::Taken { position: at(5), topic: "instructions", partition: 3, offset: 9 };
    let first =
        "select count(*) from (select from dead_letters where kafka_offset = 1 for update skip locked) free";
    let (settled, ()) = tokio::join!(patient.supersede_dead_letters(id, &taken), async {
        let locked = async || (scene.ask(first).await == "0").then_some(());
        eventually(PATIENCE, "a lock on the first letter, while the second one is waited for", locked).await;
        holder.run("commit").await.unwrap();
    });
    assert_eq!(settled.unwrap(), 2);
}

#[tokio::test]
async fn a_letter_that_somebody_holds_is_settled_another_time() {
    let scene = Try::new().await;
    let (held, free) = (DatabaseId::mint(), DatabaseId::mint());
    for (id, offset) in [(held, 1), (free, 2)] {
        scene.store.dead_letter(&letter(id, offset, Some(4), "invalid")).await.unwrap();
        scene.store.park(&parked(id, 5), Duration::ZERO).await.unwrap();
    }
    let mut holder = Session::open(&scene.url).await.unwrap();
    holder.run("begin; select 1 from dead_letters where kafka_offset = 1 for no key update").await.unwrap();
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), 1);
    assert_eq!(scene.store.open_dead_letters(10).await.unwrap(), [held]);
    holder.run("commit").await.unwrap();
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), 1);
}

/// What they had in common is over for all of them: more than are settled in one statement.
#[tokio::test]
async fn however_many_letters_are_passed_at_once_all_are_settled() {
    const MANY: u64 = 10_001;
    let scene = Try::new().await;
    let id = DatabaseId::mint();
    let letters = format!(
        "insert into dead_letters (topic, kafka_partition, kafka_offset, database_id, epoch, seq, code, message, consumer) \
         select 'instructions', 3, n, '{id}', 1, 4, 'invalid', 'why', 'provisioner' from generate_series(1, {MANY}) n"
    );
    scene.ask(&letters).await;
    scene.store.park(&parked(id, 5), Duration::ZERO).await.unwrap();
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), MANY);
}

#[tokio::test]
async fn what_is_passed_goes_and_nobody_waits_for_a_row_that_somebody_holds() {
    let scene = Try::new().await;
    let (held, free, level) =
        (scene.create("held").await, scene.create("free").await, scene.create("level").await);
    for created in [&held, &free, &level] {
        scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
        let seq = if created.id == level.id { 2 } else { 1 };
        scene.store.park(&parked(created.id, seq), Duration::ZERO).await.unwrap();
        scene.store.absorb(&fresh(vec![observation(created.id, at(2))])).await.unwrap();
    }
    let mut holder = Session::open(&scene.url).await.unwrap();
    let lock = format!("select 1 from parked_instructions where database_id = '{}' for update", held.id);
    holder.run(&format!("begin; {lock}")).await.unwrap();
    assert_eq!(scene.store.unpark_passed().await.unwrap(), 1);
    assert_eq!(scene.ask("select count(*) from parked_instructions").await, "2");
    holder.run("commit").await.unwrap();
    assert_eq!(scene.store.unpark_passed().await.unwrap(), 1);
    let left = claim(&scene, "eu-west-1").await;
    assert_eq!(
        left.iter().map(|one| one.database).collect::<Vec<_>>(),
        [level.id],
        "it may be another content"
    );
}

/// Whoever took the later record need not have known of the letter, or Postgres was away.
#[tokio::test]
async fn a_letter_without_a_position_is_settled_by_what_was_minted_after_it() {
    let scene = Try::new().await;
    let (before, after) = (scene.create("before").await, scene.create("after").await);
    for (created, offset) in [(&before, 1), (&after, 2)] {
        scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
        scene.store.dead_letter(&letter(created.id, offset, None, "undecodable")).await.unwrap();
        scene.store.park(&parked(created.id, 2), Duration::ZERO).await.unwrap();
    }
    scene.change(after.id, |desired| desired.storage.size_gib = 200).await;
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), 0, "it may stand behind what was taken");
    scene.store.park(&parked(after.id, 3), Duration::ZERO).await.unwrap();
    assert_eq!(scene.store.settle_dead_letters().await.unwrap(), 1);
    assert_eq!(scene.store.open_dead_letters(10).await.unwrap(), [before.id]);
}
