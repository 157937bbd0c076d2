//! What is not yet published is seen from the row itself.

use std::time::Duration;

use super::{Try, at};

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
    assert_eq!(scene.store.mark_published(&[(created.id, at(1))]).await.unwrap(), 0, "it was overtaken");
    assert_eq!(scene.store.unpublished(10).await.unwrap().instructions.len(), 1);
    assert_eq!(scene.store.mark_published(&[(created.id, at(2))]).await.unwrap(), 1);
    assert_eq!(
        scene.store.mark_published(&[(created.id, at(2))]).await.unwrap(),
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
        async move { store.mark_published(&sent).await }
    });
    let all = tokio::time::timeout(Duration::from_secs(30), futures::future::join_all(marks)).await.unwrap();
    let marked: u64 = all.into_iter().map(Result::unwrap).sum();
    assert_eq!(marked, 2, "each of the two moved once");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_nobody_else() {
    let scene = Try::new().await;
    let broken = scene.create("trades").await;
    let good = scene.create("quotes").await;
    let damage = format!("update instructions set desired_schema = 99 where database_id = '{}'", broken.id);
    scene.ask(&damage).await;
    let waiting = scene.store.unpublished(10).await.unwrap();
    assert_eq!(waiting.instructions.iter().map(|one| one.database).collect::<Vec<_>>(), [good.id]);
    assert!(waiting.unreadable[0].to_string().contains("schema 99"), "{:?}", waiting.unreadable);
}
