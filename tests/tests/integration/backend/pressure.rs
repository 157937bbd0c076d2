//! Bounds: how much may wait for Kafka, and how large a desired state may be.

use std::time::Duration;

use ::backend::api::Limits;
use reqwest::{Method, RequestBuilder};
use serde_json::{Map, json};
use testkit::eventually;

use super::road::Road;
use super::{Answer, App, PATIENCE, serve_behind, text};

/// The same API with other limits, on an address of its own.
async fn limited(app: &mut App, limits: Limits) {
    app.base = serve_behind(limits, app.parts()).await;
}

async fn wish(app: &App, name: &str) -> Answer {
    app.create(&app.acme, &json!({"name": name, "region": "eu-west-1"})).await
}

/// Asks for databases until one is refused.
async fn refused(app: &App) -> Answer {
    let mut number = 0;
    eventually(PATIENCE, "a refusal", async || {
        number += 1;
        let answer = wish(app, &format!("db-{number}")).await;
        (answer.status != 202).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn too_much_that_waits_refuses_changes_until_it_is_published() {
    let mut road = Road::new().await;
    let limits = Limits { databases: 3, ..Limits::default() };
    limited(&mut road.app, limits).await;
    let app = &road.app;
    let answer = refused(app).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (503, "backlog"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), "10");
    assert!(text(&answer.body["detail"]).contains("at most 3"), "{answer:?}");
    let before = app.counts().await;
    let list = app.get(&app.acme, "/v1/databases").await;
    assert_eq!(list.status, 200, "reads are served");
    let first = list.body["databases"][0].clone();
    let path = format!("/v1/databases/{}", text(&first["id"]));
    assert_eq!(app.get(&app.acme, &path).await.status, 200);
    let change =
        |method| -> RequestBuilder { app.request(&app.acme, method, &path).header("If-Match", "\"1-1\"") };
    assert_eq!(app.send(change(Method::PATCH).json(&json!({}))).await.status, 503);
    assert_eq!(app.send(change(Method::DELETE)).await.status, 503);
    let cluster = app.request(&app.sre, Method::PUT, "/v1/clusters/eu").json(&super::cluster());
    assert_eq!(app.send(cluster).await.status, 200, "what is published to nobody goes on");
    assert_eq!(app.counts().await, before, "a refusal stores nothing");
    road.relay().step().await.unwrap();
    eventually(PATIENCE, "changes are taken again", async || {
        (wish(app, "again").await.status == 202).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_waits_too_long_refuses_changes_too() {
    let mut app = App::new().await;
    app.created("trades").await;
    limited(&mut app, Limits { age: Duration::from_mins(10), ..Limits::default() }).await;
    assert_eq!(wish(&app, "young").await.status, 202);
    app.ask("update databases set minted_at = now() - interval '11 minutes' where name = 'trades'").await;
    let answer = refused(&app).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (503, "backlog"));
    assert!(text(&answer.body["detail"]).contains("600 s"), "{answer:?}");
}

#[tokio::test]
async fn what_waits_too_long_holds_back_the_databases_of_its_partition_only() {
    const PARTITIONS: i32 = 8;
    let mut app = App::new().await;
    let limits = Limits { age: Duration::from_mins(10), partitions: PARTITIONS, ..Limits::default() };
    limited(&mut app, limits).await;
    let partition = |id: &str| ::bus::partition_of(id.as_bytes(), PARTITIONS);
    let made = async |name: &str| {
        let answer = wish(&app, name).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        text(&answer.body["database"]["id"]).to_owned()
    };
    let late = made("late").await;
    let mut number = 0;
    let other = loop {
        let id = made(&format!("db-{number}")).await;
        number += 1;
        if partition(&id) != partition(&late) {
            break id;
        }
    };
    let long_ago = "minted_at = now() - interval '11 minutes'";
    app.ask(&format!("update databases set {long_ago} where id = '{late}'")).await;
    // A change of what nobody has: it is refused by the gate, or for that.
    let path = format!("/v1/databases/{late}");
    let answer = eventually(PATIENCE, "a refusal", async || {
        let request = app.request(&app.acme, Method::DELETE, &path).header("If-Match", "\"9-9\"");
        let answer = app.send(request).await;
        (answer.status != 412).then_some(answer)
    })
    .await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (503, "backlog"));
    let detail = text(&answer.body["detail"]);
    assert!(detail.contains("600 s") && detail.contains("partition"), "{detail}");
    for way in [
        late.to_uppercase(),
        late.replace('-', ""),
        format!("{{{late}}}"),
        format!("urn:uuid:{late}"),
        late.replacen('-', "%2D", 1),
    ] {
        let request = app.request(&app.acme, Method::DELETE, &format!("/v1/databases/{way}"));
        let answer = app.send(request.header("If-Match", "\"9-9\"")).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (503, "backlog"), "{way}");
    }
    let verb = format!("/v1/databases/{}:pause", late.to_uppercase());
    assert_eq!(app.send(app.request(&app.acme, Method::POST, &verb)).await.status, 503);
    let changed = app.patch(&other, "\"1-1\"", &json!({"config": {"a.b": "1"}})).await;
    assert_eq!(changed.status, 202, "{changed:?}");
    for number in 0..16 {
        let id = made(&format!("new-{number}")).await;
        assert_ne!(partition(&id), partition(&late), "nobody could be told of it");
    }
}

#[tokio::test]
async fn a_state_that_is_too_large_is_refused_with_the_limit() {
    let mut app = App::new().await;
    limited(&mut app, Limits { record_bytes: 4_000, ..Limits::default() }).await;
    let config = |keys: usize| {
        (0..keys).map(|key| (format!("a.b{key}"), json!("x".repeat(1_000)))).collect::<Map<_, _>>()
    };
    let of = |keys| json!({"name": "trades", "region": "eu-west-1", "config": config(keys)});
    let answer = app.create(&app.acme, &of(4)).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (422, "state_too_large"), "{answer:?}");
    assert!(text(&answer.body["detail"]).contains("at most 4000 bytes"), "{answer:?}");
    assert_eq!(answer.errors(), [("", "range")]);
    assert_eq!(app.counts().await, "0|0|0|0|0|0", "nothing is stored");
    let made = app.create(&app.acme, &of(1)).await;
    assert_eq!(made.status, 202, "{made:?}");
    let id = text(&made.body["database"]["id"]);
    let grown = app.patch(id, "\"1-1\"", &json!({"config": config(4)})).await;
    assert_eq!((grown.status.as_u16(), text(&grown.body["code"])), (422, "state_too_large"));
    assert_eq!(app.delete(id).await.status, 202, "a way out is always open");
}
