//! How small a disk is minted, by what its cluster tells of it.

use ::store::Observation;
use domain::{DatabaseId, Disk, OperationKind, Position};
use resources::names::condition::{READY, VOLUME_RESIZING};
use serde_json::{Value, json};

use super::absorb::fresh;
use super::{Try, at, mint, observation};

impl Try {
    async fn disk(&self, id: DatabaseId) -> Disk {
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, id).await.unwrap().unwrap();
        transaction.disk(&locked).await.unwrap()
    }

    /// Its cluster tells of a database.
    async fn tell(&self, id: DatabaseId, (held, version): (Position, i64), body: &Value) {
        let body = body.clone().into();
        let told = Observation { resource_version: version, body, ..observation(id, held) };
        self.store.absorb(&fresh(vec![told])).await.unwrap();
    }

    async fn size(&self, id: DatabaseId) -> u32 {
        self.store.database(None, id).await.unwrap().unwrap().database.desired.storage.size_gib
    }
}

fn sizes(has: u32, asked: u32) -> Value {
    json!({"volume_size_gib": has, "asked_size_gib": asked})
}

#[tokio::test]
async fn what_its_cluster_tells_of_a_disk_is_known() {
    let scene = Try::new().await;
    let id = scene.create("trades").await.id;
    assert_eq!(scene.disk(id).await, Disk::default(), "nobody told");
    let with = |kind: &str, status: &str| {
        let mut body = sizes(50, 80);
        body["conditions"] = json!([{"type": "Other", "status": "True"}, {"type": kind, "status": status}]);
        body
    };
    let told = Disk { has: Some(50), asked: Some(80), changing: false };
    for (version, (body, expected)) in (1..).zip([
        (json!({}), Disk::default()),
        (json!({"asked_size_gib": 80, "conditions": []}), Disk { has: None, ..told }),
        (sizes(50, 80), told),
        (with(VOLUME_RESIZING, "True"), Disk { changing: true, ..told }),
        (with(VOLUME_RESIZING, "False"), told),
        (with(READY, "True"), told),
    ]) {
        scene.tell(id, (at(1), version), &body).await;
        assert_eq!(scene.disk(id).await, expected, "{body}");
    }
    let gone = Observation {
        present: false,
        resource_version: 99,
        body: sizes(50, 80).into(),
        ..observation(id, at(1))
    };
    scene.store.absorb(&fresh(vec![gone])).await.unwrap();
    assert_eq!(scene.disk(id).await, Disk::default(), "of what is gone nothing is known");
}

#[tokio::test]
async fn no_size_is_minted_that_would_be_refused_or_is_less_than_one_that_was_lost() {
    let scene = Try::new().await;
    for (number, (body, held, expected)) in (1..).zip([
        (json!({}), at(2), 60),
        (json!({"asked_size_gib": 100}), at(2), 100),
        (sizes(50, 100), at(2), 60),
        (sizes(80, 100), at(2), 80),
        (sizes(100, 100), at(2), 100),
        // It was never minted.
        (sizes(50, 100), at(9), 100),
    ]) {
        let id = scene.create(&format!("trades-{number}")).await.id;
        scene.change(id, |desired| desired.storage.size_gib = 100).await;
        scene.tell(id, (held, 1), &body).await;
        scene.change(id, |desired| desired.storage.size_gib = 60).await;
        assert_eq!(scene.size(id).await, expected, "{body} at {held}");
    }
}

#[tokio::test]
async fn what_is_minted_again_asks_for_the_largest_size_that_is_shown() {
    let scene = Try::new().await;
    for (name, held, expected) in
        [("behind", at(1), at(3)), ("equal", at(2), at(3)), ("ahead", at(9), Position { epoch: 2, seq: 3 })]
    {
        let created = scene.create(name).await;
        scene.change(created.id, |desired| desired.storage.size_gib = 60).await;
        scene.tell(created.id, (held, 1), &sizes(50, 100)).await;
        let mut transaction = scene.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, created.id).await.unwrap().unwrap();
        let again = mint(OperationKind::Update, &locked.desired);
        let minted = transaction.repair(&locked, held, again).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!((minted.position, scene.size(created.id).await), (expected, 100), "{name}");
    }
}
