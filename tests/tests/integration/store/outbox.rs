//! What is not yet published is seen from the row itself.

use std::time::Duration;

use ::store::SetAside;
use domain::DatabaseId;

use super::{Try, at};
use crate::support::damage;

#[tokio::test]
async fn only_the_newest_state_is_to_be_published() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    let other = scene.create("quotes").await;
    let waiting = scene.store.unpublished(10).await.unwrap().instructions;
    let positions: Vec<_> = waiting.iter().map(|one| (one.database, one.position)).collect();
    assert_eq!(positions, [(created.id, at(2)), (other.id, at(1))]);
    assert_eq!(waiting[0].desired.storage.size_gib, 100);
    assert_eq!(scene.store.backlog().await.unwrap().databases, 2);
    assert_eq!(scene.store.unpublished(1).await.unwrap().instructions.len(), 1);
}

#[tokio::test]
async fn a_position_is_marked_only_while_it_is_what_should_be() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    scene.change(created.id, |desired| desired.storage.size_gib = 100).await;
    assert_eq!(scene.store.mark(&[(created.id, at(1))]).await.unwrap().len(), 0, "it was overtaken");
    assert_eq!(scene.store.unpublished(10).await.unwrap().instructions.len(), 1);
    assert_eq!(scene.store.mark(&[(created.id, at(2))]).await.unwrap().len(), 1);
    assert_eq!(
        scene.store.mark(&[(created.id, at(2))]).await.unwrap().len(),
        0,
        "a repetition changes nothing"
    );
    assert!(scene.store.unpublished(10).await.unwrap().instructions.is_empty());
    let backlog = scene.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.oldest_seconds), (0, 0.0));
    scene.change(created.id, |desired| desired.storage.size_gib = 200).await;
    assert_eq!(scene.store.unpublished(10).await.unwrap().instructions[0].position, at(3));
}

#[tokio::test]
async fn relays_and_the_api_do_not_lock_each_other_out() {
    let scene = Try::new().await;
    let first = scene.create("trades").await;
    let second = scene.create("quotes").await;
    let forwards = [(first.id, at(1)), (second.id, at(1))];
    let backwards = [(second.id, at(1)), (first.id, at(1))];
    let marks = (0..20).map(|number| {
        let sent = if number % 2 == 0 { forwards } else { backwards };
        let store = scene.store.clone();
        async move { store.mark(&sent).await }
    });
    let all = tokio::time::timeout(Duration::from_mins(2), futures::future::join_all(marks)).await.unwrap();
    let marked: usize = all.into_iter().map(|marked| marked.unwrap().len()).sum();
    assert_eq!(marked, 2, "each of the two moved once");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_nobody_else() {
    let scene = Try::new().await;
    let broken = scene.create("trades").await;
    let good = scene.create("quotes").await;
    let damage =
        format!("update instructions set operation_kind = 'odd' where database_id = '{}'", broken.id);
    scene.ask(&damage).await;
    let waiting = scene.store.unpublished(10).await.unwrap();
    assert_eq!(waiting.instructions.iter().map(|one| one.database).collect::<Vec<_>>(), [good.id]);
    let unreadable = &waiting.unreadable[0];
    assert_eq!((unreadable.database, unreadable.position), (broken.id, at(1)));
    assert!(unreadable.error.to_string().contains("odd"), "{unreadable:?}");
}

/// So many databases, the longest waiting first.
async fn made(scene: &Try, count: usize) -> Vec<DatabaseId> {
    let mut made = Vec::new();
    for number in 0..count {
        made.push(scene.create(&format!("trades-{number}")).await.id);
    }
    made
}

/// Which states are read beside these databases, which ones Postgres fails at, and whether there may be more.
async fn read(scene: &Try, these: &[DatabaseId]) -> (Vec<DatabaseId>, Vec<DatabaseId>, bool) {
    let waiting = scene.store.unpublished_beside(100, these).await.unwrap();
    assert!(waiting.unreadable.is_empty(), "{waiting:?}");
    assert!(waiting.damaged.iter().all(|one| one.position == at(1)), "{waiting:?}");
    let read = waiting.instructions.into_iter().map(|one| one.database).collect();
    (read, waiting.damaged.into_iter().map(|one| one.database).collect(), waiting.more)
}

#[tokio::test]
async fn states_that_postgres_fails_at_are_named_and_all_others_are_read() {
    let scene = Try::new().await;
    let mut sound = made(&scene, 12).await;
    let broken = [sound.remove(11), sound.remove(6), sound.remove(5), sound.remove(0)];
    scene.ask(&damage("instructions", ("database_id", "desired"), &broken)).await;
    let (read_first, mut named, more) = read(&scene, &[]).await;
    named.reverse();
    assert_eq!((read_first, named, more), (sound.clone(), broken.to_vec(), false));
    assert_eq!(read(&scene, &broken).await, (sound.clone(), Vec::new(), false), "without them nothing fails");
    for id in broken {
        assert!(scene.store.set_aside(id, at(1), SetAside::Unreadable, "why").await.unwrap());
    }
    assert_eq!(read(&scene, &[]).await, (sound, Vec::new(), false), "nor once they are set aside");
    let backlog = scene.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.set_aside), (8, 4));
}

#[tokio::test]
async fn of_many_states_that_postgres_fails_at_some_are_named_at_a_time() {
    let scene = Try::new().await;
    let made = made(&scene, 12).await;
    scene.ask(&damage("instructions", ("database_id", "desired"), &made[..10])).await;
    assert_eq!(
        read(&scene, &[]).await,
        (Vec::new(), made[..8].to_vec(), true),
        "and the rest may be read later"
    );
    assert_eq!(read(&scene, &made[..8]).await, (made[10..].to_vec(), made[8..10].to_vec(), false));
}

#[tokio::test]
async fn what_was_set_aside_takes_nobodys_place_until_the_next_mint() {
    let scene = Try::new().await;
    let aside = scene.create("trades").await;
    let good = scene.create("quotes").await;
    let set = async |seq| scene.store.set_aside(aside.id, at(seq), SetAside::TooLarge, "why").await.unwrap();
    assert!(!set(2).await, "only what was minted");
    assert!(set(1).await);
    assert!(!set(1).await, "once is enough");
    let waiting = scene.store.unpublished(1).await.unwrap();
    assert_eq!(waiting.instructions.iter().map(|one| one.database).collect::<Vec<_>>(), [good.id]);
    let backlog = scene.store.backlog().await.unwrap();
    assert_eq!((backlog.databases, backlog.set_aside), (1, 1));
    scene.change(aside.id, |desired| desired.storage.size_gib = 100).await;
    assert!(!set(1).await, "another was minted meanwhile");
    assert_eq!(scene.store.unpublished(10).await.unwrap().instructions.len(), 2);
    assert_eq!(scene.store.backlog().await.unwrap().set_aside, 0);
}

#[tokio::test]
async fn what_somebody_holds_is_marked_later_and_the_others_now() {
    let scene = Try::new().await;
    let (held, free) = (scene.create("trades").await, scene.create("quotes").await);
    let mut holder = scene.store.begin().await.unwrap();
    holder.lock_database(None, held.id).await.unwrap().unwrap();
    let sent = [(held.id, at(1)), (free.id, at(1))];
    // Whoever waited for the lock, which is held until then, would be refused it.
    assert_eq!(scene.store.mark(&sent).await.unwrap().len(), 1);
    drop(holder);
    testkit::eventually(Duration::from_mins(2), "the other one", async || {
        (scene.store.mark(&sent).await.unwrap().len() == 1).then_some(())
    })
    .await;
}
