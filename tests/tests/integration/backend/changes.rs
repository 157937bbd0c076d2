//! `PATCH` and `DELETE`: nobody overwrites what they have not read, and what is gone is gone once.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use super::{App, text};

#[tokio::test]
async fn a_change_raises_the_position_and_keeps_the_rest() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let id = text(&made["database"]["id"]);
    let answer =
        app.patch(id, "\"1-1\"", &json!({"storage": {"size_gib": 100}, "config": {"a.b": "1"}})).await;
    assert_eq!((answer.status.as_u16(), answer.header("etag")), (202, "\"1-2\""), "{answer:?}");
    let mut expected = made["database"].clone();
    let changed = &answer.body["database"];
    for (field, value) in [("seq", json!(2)), ("config", json!({"a.b": "1"}))] {
        expected[field] = value;
    }
    expected["storage"]["size_gib"] = json!(100);
    expected["updated_at"] = changed["updated_at"].clone();
    expected["operation_id"] = answer.body["operation"]["id"].clone();
    assert_eq!(changed, &expected);
    assert_eq!(text(&answer.body["operation"]["kind"]), "update");
    let shown = app.get(&app.acme, &format!("/v1/databases/{id}")).await;
    assert_eq!((&shown.body, shown.header("etag")), (changed, "\"1-2\""));
    let events = app.ask("select count(*) from audit where action = 'databases.update'").await;
    assert_eq!(events, "1");
}

#[tokio::test]
async fn a_change_that_cannot_be_is_refused_whole() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let id = text(&made["database"]["id"]);
    let path = format!("/v1/databases/{id}");
    let before = app.counts().await;
    let blind = app.send(app.request(&app.acme, Method::PATCH, &path).json(&json!({}))).await;
    assert_eq!((blind.status.as_u16(), blind.errors()), (428, vec![("header:If-Match", "required")]));
    let stale = app.patch(id, "\"1-7\"", &json!({})).await;
    assert_eq!((stale.status.as_u16(), stale.header("etag")), (412, "\"1-1\""));
    let shrink = app.patch(id, "\"1-1\"", &json!({"storage": {"size_gib": 20}})).await;
    assert_eq!((shrink.status.as_u16(), shrink.errors()), (422, vec![("/storage/size_gib", "shrinks")]));
    let rename = app.patch(id, "\"1-1\"", &json!({"name": "other"})).await;
    assert_eq!((rename.status.as_u16(), rename.errors()), (422, vec![("/name", "unknown_field")]));
    let several = app.patch(id, "*", &json!({"version": "0", "storage": {"iops": 1}})).await;
    assert_eq!(several.errors(), [("/version", "unknown"), ("/storage/iops", "range")]);
    assert_eq!(app.counts().await, before);
}

#[tokio::test]
async fn of_many_changes_of_one_reading_one_is_accepted() {
    let app = App::crowded().await;
    let made = app.created("trades").await;
    let id = text(&made["database"]["id"]);
    let changes = (0..8).map(|number| {
        let body = json!({"storage": {"size_gib": 100 + number}});
        app_patch(&app, id, body)
    });
    let mut statuses = join_all(changes).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 412, 412, 412, 412, 412, 412, 412]);
    assert_eq!(app.ask("select seq from databases").await, "2");
}

async fn app_patch(app: &App, id: &str, body: serde_json::Value) -> u16 {
    app.patch(id, "\"1-1\"", &body).await.status.as_u16()
}

#[tokio::test]
async fn deletion_happens_once_and_frees_the_name() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let id = text(&made["database"]["id"]);
    let stale =
        app.request(&app.acme, Method::DELETE, &format!("/v1/databases/{id}")).header("If-Match", "\"1-9\"");
    assert_eq!(app.send(stale).await.status, 412);
    let first = app.delete(id).await;
    assert_eq!((first.status.as_u16(), text(&first.body["database"]["run_state"])), (202, "deleted"));
    let again = app.delete(id).await;
    assert_eq!((again.status.as_u16(), &again.body), (202, &first.body), "the same operation, not another");
    assert_eq!(app.ask("select count(*) from operations where kind = 'delete'").await, "1");
    let late = app.patch(id, "\"1-2\"", &json!({})).await;
    assert_eq!((late.status.as_u16(), text(&late.body["code"])), (409, "deleted"));
    let shown = app.get(&app.acme, &format!("/v1/databases/{id}")).await;
    assert_eq!(text(&shown.body["run_state"]), "deleted");
    app.created("trades").await;
}

#[tokio::test]
async fn only_the_policy_lets_a_volume_go() {
    let app = App::new().await;
    let wish = json!({"name": "scratch", "region": "eu-west-1", "storage": {"deletion_policy": "delete"}});
    let made = app.create(&app.acme, &wish).await.body;
    let purged = app.delete(text(&made["database"]["id"])).await;
    assert_eq!(text(&purged.body["database"]["run_state"]), "purged");
}
