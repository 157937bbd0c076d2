//! `POST /v1/operations/{id}:cancel`: once, by whoever may, and only while there is a way back.

use ::store::OutcomeKind;
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use super::{App, id_of, observation, outcome, path_of, text};

#[tokio::test]
async fn a_cancelled_change_goes_back_to_the_last_good_state() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let changed =
        app.patch(text(&made["database"]["id"]), "\"1-1\"", &json!({"config": {"a.b": "1"}})).await.body;
    let answer = app.cancel(&app.acme, &path_of(&changed), "k").await;
    assert_eq!((answer.status.as_u16(), answer.header("etag")), (202, "\"1-3\""), "{answer:?}");
    let (database, revert) = (&answer.body["database"], &answer.body["operation"]);
    assert_eq!((&database["config"], text(&database["run_state"])), (&json!({}), "running"));
    assert_eq!(answer.header("location"), path_of(&answer.body));
    assert_eq!((text(&revert["kind"]), text(&revert["created_by"])), ("update", "tenant:test"));
    assert_eq!(revert["reverts"], changed["operation"]["id"]);
    let cancelled = app.operation(&path_of(&changed)).await;
    assert_eq!((text(&cancelled["state"]), &cancelled["superseded_by"]), ("superseded", &revert["id"]));
    assert_eq!(app.events(&changed).await.last().unwrap().1, "superseded");
    let audit = "select operation_id from audit where action = 'operations.cancel'";
    assert_eq!(app.ask(audit).await, text(&revert["id"]));
    app.hear(vec![observation(id_of(&made), 3, 3)], vec![outcome(id_of(&made), 2, OutcomeKind::Applied)])
        .await;
    assert_eq!(text(&app.newest(&made).await["state"]), "succeeded");
    assert_eq!(app.operation(&path_of(&changed)).await, cancelled);
}

#[tokio::test]
async fn a_cancelled_create_is_taken_back() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let answer = app.cancel(&app.acme, &path_of(&made), "k").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(
        text(&answer.body["database"]["run_state"]),
        "deleted",
        "silence does not prove that no volume is there"
    );
    assert_eq!(text(&answer.body["operation"]["kind"]), "delete");
    app.created("trades").await;
}

#[tokio::test]
async fn cancelling_a_change_does_not_lose_the_one_before_it() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.patch(id, "\"1-1\"", &json!({"config": {"a.b": "1"}})).await;
    let second = app.patch(id, "\"1-2\"", &json!({"config": {"a.b": "2"}})).await.body;
    let answer = app.cancel(&app.acme, &path_of(&second), "k").await;
    assert_eq!(answer.body["database"]["config"], json!({"a.b": "1"}), "it is still under way");
}

#[tokio::test]
async fn the_same_key_is_answered_the_same() {
    let app = App::new().await;
    let (first, second) = (app.created("a").await, app.created("b").await);
    let answer = app.cancel(&app.acme, &path_of(&first), "k").await;
    let again = app.cancel(&app.acme, &path_of(&first), "k").await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (202, "true"));
    assert_eq!(
        (&again.body, again.header("location"), again.header("etag")),
        (&answer.body, answer.header("location"), answer.header("etag"))
    );
    let other = app.cancel(&app.acme, &path_of(&second), "k").await;
    assert_eq!((other.status.as_u16(), text(&other.body["code"])), (422, "idempotency_key_reused"));
    let request = app.request(&app.acme, Method::POST, &format!("{}:cancel", path_of(&second)));
    let keyless = app.send(request).await;
    assert_eq!(keyless.errors(), [("header:Idempotency-Key", "required")]);
    assert_eq!(app.ask("select count(*) from operations where reverts is not null").await, "1");
}

#[tokio::test]
async fn what_has_no_way_back_says_why() {
    let app = App::new().await;
    let refused = async |path: &str| {
        let answer = app.cancel(&app.acme, path, &testkit::unique("key")).await;
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(!text(&answer.body["detail"]).is_empty());
        text(&answer.body["code"]).to_owned()
    };
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    assert_eq!(refused(&path_of(&made)).await, "operation_ended");
    let first = app.patch(id, "\"1-1\"", &json!({"config": {"a.b": "1"}})).await.body;
    let second = app.patch(id, "\"1-2\"", &json!({"config": {"a.b": "2"}})).await.body;
    assert_eq!(refused(&path_of(&first)).await, "not_newest");
    let revert = app.cancel(&app.acme, &path_of(&second), "k").await.body;
    assert_eq!(refused(&path_of(&second)).await, "operation_ended");
    assert_eq!(refused(&path_of(&revert)).await, "no_way_back");
    let deleted = app.delete(id).await.body;
    assert_eq!(refused(&path_of(&deleted)).await, "no_way_back");
    assert_eq!(app.database(&made).await["seq"], 5);
}

#[tokio::test]
async fn of_many_cancellations_one_is_accepted() {
    let app = App::crowded().await;
    let made = app.created("trades").await;
    let path = path_of(&made);
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let answers = join_all(keys.iter().map(|key| app.cancel(&app.acme, &path, key))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(app.ask("select max(seq) from databases").await, "2");
}

#[tokio::test]
async fn only_who_may_see_it_may_cancel_it() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let path = path_of(&made);
    let nobody = format!("/v1/operations/{}", uuid::Uuid::now_v7());
    for (token, path) in [(&app.umbrella, &path), (&app.acme, &nobody)] {
        assert_eq!(app.cancel(token, path, "k").await.status, 404, "{path}");
    }
    let verb = app.request(&app.acme, Method::POST, &format!("{path}:explode"));
    assert_eq!(app.send(verb.header("Idempotency-Key", "k")).await.status, 404);
    let none = app.request(&app.acme, Method::POST, &path);
    assert_eq!(app.send(none.header("Idempotency-Key", "k")).await.status, 405);
    assert_eq!(app.cancel(&app.sre, &path, "k").await.status, 202, "an SRE may without naming the tenant");
}
