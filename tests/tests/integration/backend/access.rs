//! Who may see and do what; what is not theirs is not there.

use reqwest::Method;
use serde_json::{Value, json};

use super::{App, text};

#[tokio::test]
async fn absent_and_foreign_answer_alike() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let (id, operation) = (text(&made["database"]["id"]), text(&made["operation"]["id"]));
    let nobody = uuid::Uuid::now_v7().to_string();
    let table = [
        (Method::GET, "/v1/databases/{}", id),
        (Method::PATCH, "/v1/databases/{}", id),
        (Method::DELETE, "/v1/databases/{}", id),
        (Method::GET, "/v1/operations/{}", operation),
        (Method::GET, "/v1/operations/{}/events", operation),
    ];
    for (method, path, theirs) in table {
        let ask = async |id: &str| {
            let request = app.request(&app.umbrella, method.clone(), &path.replace("{}", id));
            let mut answer = app.send(request.header("If-Match", "\"1-1\"").json(&json!({}))).await;
            answer.body["request_id"] = Value::Null;
            (answer.status, answer.body)
        };
        let (foreign, absent, nonsense) = (ask(theirs).await, ask(&nobody).await, ask("nonsense").await);
        assert_eq!(foreign.0, 404, "{method} {path}");
        assert_eq!(foreign, absent, "{method} {path}");
        assert_eq!(foreign, nonsense, "{method} {path}");
    }
    assert_eq!(app.ask("select max(seq) from databases").await, "1");
}

#[tokio::test]
async fn without_a_valid_token_nobody_gets_in() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let path = format!("/v1/databases/{}", text(&made["database"]["id"]));
    for token in ["", "slipway_0000", "nonsense"] {
        let answer = app.get(token, &path).await;
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer"), "{token}");
    }
    let bare = app.send(app.client.get(format!("{}{path}", app.base))).await;
    assert_eq!(bare.status, 401);
    app.ask("update tokens set revoked_at = now() where tenant_id = 'acme'").await;
    assert_eq!(app.get(&app.acme, &path).await.status, 401);
}

#[tokio::test]
async fn the_console_acts_for_the_tenant_it_names() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let unnamed = app.create(&app.console, &wish).await;
    assert_eq!(
        (unnamed.status.as_u16(), unnamed.errors()),
        (400, vec![("header:Slipway-Tenant", "required")])
    );
    let request = app.request(&app.console, Method::POST, "/v1/databases").header("Idempotency-Key", "k");
    let named = app.send(request.header("Slipway-Tenant", "newcomer").json(&wish)).await;
    assert_eq!((named.status.as_u16(), text(&named.body["database"]["tenant"])), (202, "newcomer"));
    assert_eq!(text(&named.body["operation"]["created_by"]), "console:test");
    let list = app.request(&app.console, Method::GET, "/v1/databases");
    let list = app.send(list.header("Slipway-Tenant", "newcomer")).await;
    assert_eq!(list.body["databases"].as_array().unwrap().len(), 1);
    let wrong = app.request(&app.acme, Method::GET, "/v1/databases").header("Slipway-Tenant", "newcomer");
    assert_eq!(app.send(wrong).await.status, 403);
}

#[tokio::test]
async fn an_sre_sees_all_tenants_and_alone_runs_the_fleet() {
    let app = App::new().await;
    app.created("trades").await;
    app.create(&app.umbrella, &json!({"name": "trades", "region": "eu-west-1"})).await;
    let all = app.get(&app.sre, "/v1/databases").await;
    assert_eq!(all.body["databases"].as_array().unwrap().len(), 2);
    let clusters = app.get(&app.sre, "/v1/clusters").await;
    assert_eq!(clusters.body["clusters"][0]["databases"], 2);
    assert_eq!(app.get(&app.sre, "/v1/clusters/eu").await.body, clusters.body["clusters"][0]);
    assert_eq!(app.get(&app.sre, "/v1/clusters/none").await.status, 404);
    for token in [&app.acme, &app.console] {
        assert_eq!(app.get(token, "/v1/clusters").await.status, 403);
        assert_eq!(app.get(token, "/v1/clusters/eu").await.status, 403);
        let put = app.request(token, Method::PUT, "/v1/clusters/eu").json(&super::cluster());
        assert_eq!(app.send(put).await.status, 403);
    }
}

#[tokio::test]
async fn a_registration_is_checked_and_bears_repetition() {
    let app = App::new().await;
    let put =
        async |body: Value| app.send(app.request(&app.sre, Method::PUT, "/v1/clusters/eu").json(&body)).await;
    let again = put(super::cluster()).await;
    assert_eq!((again.status.as_u16(), text(&again.body["state"])), (200, "active"));
    let mut other = super::cluster();
    other["region"] = json!("us-east-1");
    let moved = put(other).await;
    assert_eq!((moved.status.as_u16(), moved.errors()), (422, vec![("/region", "immutable")]));
    let mut elsewhere = super::cluster();
    elsewhere["namespace_template"] = json!("{tenant}-databases");
    elsewhere["dns_suffix"] = json!("elsewhere.example.com");
    let moved = put(elsewhere).await;
    assert_eq!((moved.status.as_u16(), moved.errors()), (422, vec![("/namespace_template", "immutable")]));
    let shown = app.get(&app.sre, "/v1/clusters/eu").await.body;
    assert_eq!(text(&shown["namespace_template"]), "qdb-{tenant}");
    assert_eq!(text(&shown["dns_suffix"]), "eu-west-1.example.com", "nothing was changed");
    let mut narrow = super::cluster();
    narrow["namespace_template"] = json!(format!("{}{{tenant}}", "x".repeat(24)));
    let refused = app.send(app.request(&app.sre, Method::PUT, "/v1/clusters/narrow").json(&narrow)).await;
    assert_eq!((refused.status.as_u16(), refused.errors()), (422, vec![("/namespace_template", "range")]));
    assert_eq!(app.get(&app.sre, "/v1/clusters/narrow").await.status, 404, "nothing was registered");
    let mut leak = super::cluster();
    leak["credentials"] = json!("file:../secret");
    assert_eq!(put(leak).await.errors(), [("/credentials", "format")]);
    let mut unknown = super::cluster();
    unknown["colour"] = json!("red");
    assert_eq!(put(unknown).await.errors(), [("/colour", "unknown_field")]);
}

#[tokio::test]
async fn health_is_shown_to_anyone_and_metrics_to_those_who_run_the_fleet() {
    let app = App::new().await;
    for path in ["/healthz", "/readyz"] {
        let answer = app.send(app.client.get(format!("{}{path}", app.base))).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    assert_eq!(app.send(app.client.get(format!("{}/metrics", app.base))).await.status, 401);
    assert_eq!(app.get(&app.acme, "/metrics").await.status, 403);
    assert_eq!(app.get(&app.console, "/metrics").await.status, 403);
    assert_eq!(app.get(&app.sre, "/metrics").await.status, 200);
}
