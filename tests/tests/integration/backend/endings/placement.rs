//! Clusters that take no new databases, and who may close them.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use super::{Answer, App, text};

impl App {
    async fn set_state(&self, token: &str, cluster: &str, state: &str) -> Answer {
        let request = self.request(token, Method::PATCH, &format!("/v1/clusters/{cluster}"));
        self.send(request.json(&json!({"state": state}))).await
    }
}

#[tokio::test]
async fn a_closed_cluster_refuses_new_databases_and_says_why() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    for state in ["draining", "disabled"] {
        let closed = app.set_state(&app.sre, "eu", state).await;
        assert_eq!((closed.status.as_u16(), text(&closed.body["state"])), (200, state));
        let answer = app.create(&app.acme, &wish).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (409, "region_closed"));
        assert_eq!(answer.errors(), [("/region", "conflict")]);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let detail = text(&answer.body["detail"]);
        assert!(detail.contains(&format!("cluster eu is {state}")), "{detail}");
    }
    assert_eq!(app.counts().await, "0|0|0|0|0|2", "two changes of the cluster and no database");
    app.set_state(&app.sre, "eu", "active").await;
    app.created("trades").await;
    let audit = "select string_agg(detail->>'before' || '>' || (detail->>'state'), ' ' order by id) \
                 from audit where action = 'clusters.update'";
    assert_eq!(app.ask(audit).await, "active>draining draining>disabled disabled>active");
}

#[tokio::test]
async fn a_closed_cluster_keeps_and_changes_its_databases() {
    let app = App::new().await;
    let made = app.running("trades").await;
    app.set_state(&app.sre, "eu", "draining").await;
    let id = text(&made["database"]["id"]);
    assert_eq!(app.patch(id, "\"1-1\"", &json!({"storage": {"size_gib": 100}})).await.status, 202);
    assert_eq!(app.delete(id).await.status, 202);
}

#[tokio::test]
async fn a_registration_that_names_no_state_opens_no_closed_cluster() {
    let app = App::new().await;
    let register = async |credentials: &str, state: Option<&str>| {
        let mut body = super::super::cluster();
        body["credentials"] = json!(credentials);
        if let Some(state) = state {
            body["state"] = json!(state);
        }
        let answer = app.send(app.request(&app.sre, Method::PUT, "/v1/clusters/eu").json(&body)).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["credentials"])), (200, credentials));
        text(&answer.body["state"]).to_owned()
    };
    for state in ["draining", "disabled"] {
        app.set_state(&app.sre, "eu", state).await;
        let changed = format!("file:{state}.kubeconfig");
        assert_eq!(register(&changed, None).await, state, "with something else changed");
        let before = app.ask("select updated_at from clusters").await;
        assert_eq!(register(&changed, None).await, state, "and with nothing");
        assert_eq!(app.ask("select updated_at from clusters").await, before, "a repetition moves nothing");
    }
    assert_eq!(register("file:eu.kubeconfig", Some("active")).await, "active", "it is opened by who says so");
    assert_eq!(register("file:eu.kubeconfig", None).await, "active");
    let audit =
        "select string_agg(detail->>'state', ' ' order by id) from audit where action = 'clusters.register'";
    assert_eq!(app.ask(audit).await, "active draining draining disabled disabled active active");
}

#[tokio::test]
async fn only_an_sre_closes_a_cluster() {
    let app = App::new().await;
    for token in [&app.acme, &app.console] {
        assert_eq!(app.set_state(token, "eu", "disabled").await.status, 403);
    }
    assert_eq!(app.set_state(&app.sre, "none", "disabled").await.status, 404);
    let odd = app.set_state(&app.sre, "eu", "asleep").await;
    assert_eq!((odd.status.as_u16(), odd.errors()), (422, vec![("/state", "unknown")]));
    let request = app.request(&app.sre, Method::PATCH, "/v1/clusters/eu");
    let more = app.send(request.json(&json!({"state": "active", "region": "x"}))).await;
    assert_eq!(more.errors(), [("/region", "unknown_field")]);
    assert_eq!(app.ask("select state, count(*) over () from clusters").await, "active|1");
}

#[tokio::test]
async fn nothing_is_placed_once_a_cluster_is_closed() {
    let app = App::crowded().await;
    let creates = (0..12).map(|number| {
        let wish = json!({"name": format!("trades-{number}"), "region": "eu-west-1"});
        let app = &app;
        async move { app.create(&app.acme, &wish).await.status.as_u16() }
    });
    let close = async {
        let answer = app.set_state(&app.sre, "eu", "draining").await;
        assert_eq!(answer.status, 200);
        app.ask("select count(*) from databases").await
    };
    let (statuses, placed) = tokio::join!(join_all(creates), close);
    assert!(statuses.iter().all(|status| [202, 409].contains(status)), "{statuses:?}");
    assert_eq!(app.ask("select count(*) from databases").await, placed, "none came after the answer");
}
