//! Postgres goes away and comes back, and changes its place, under a running API.

use std::time::{Duration, Instant};

use ::store::{Settings, Store};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually;
use testkit::postgres::{Server, url_of};

use super::streams::{Stream, absorb, done, outcome};
use super::{App, PATIENCE, serve, text};
use crate::support::{patient, within};

/// How soon changes are taken again after another server took over.
const RESUMED: Duration = Duration::from_secs(15);
/// How soon it is said that Postgres is away.
const SAID: Duration = Duration::from_secs(15);

/// An API that is impatient, so that a test sees many tries; what a test has or writes beside it is made with patience.
async fn app_on(url: String) -> App {
    let store = Store::connect(&url, &patient()).unwrap();
    eventually(PATIENCE, "tables", async || store.migrate().await.ok()).await;
    let mut app = App::over(store, url).await;
    let impatient = Settings { acquire: Duration::from_secs(1), ..Settings::default() };
    let impatient = Store::connect(&app.url, &impatient).unwrap();
    app.base = serve(impatient, app.doorbell.clone(), app.metrics.clone(), app.stop.clone()).await;
    app
}

/// Asks with one key until it is accepted, as a client does that was not answered.
async fn insist(app: &App, name: &str) -> Value {
    eventually(PATIENCE, "an acceptance", async || {
        let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", name);
        let answer = app.send(request.json(&json!({"name": name, "region": "eu-west-1"}))).await;
        assert!([202, 409, 503].contains(&answer.status.as_u16()), "{answer:?}");
        (answer.status == 202).then_some(answer.body)
    })
    .await
}

#[tokio::test]
async fn while_postgres_is_down_the_answer_says_so_and_then_all_goes_on() {
    let server = Server::primary().await.unwrap();
    let app = app_on(server.url()).await;
    let made = insist(&app, "trades").await;
    let mut stream = Stream::open(&app, text(&made["operation"]["id"]), None).await;
    assert_eq!(stream.next().await.unwrap().id, 1);
    server.stop("immediate").await.unwrap();
    let wish = json!({"name": "meanwhile", "region": "eu-west-1"});
    for method in [Method::GET, Method::POST] {
        let refused = async || {
            let request =
                app.request(&app.acme, method.clone(), "/v1/databases").header("Idempotency-Key", "k");
            let started = Instant::now();
            let answer = app.send(request.json(&wish)).await;
            let told = (answer.status.as_u16(), text(&answer.body["code"]));
            assert_eq!(told, (503, "unavailable"), "{answer:?}");
            assert_eq!(answer.header("retry-after"), "2");
            started.elapsed()
        };
        within(SAID, refused).await;
    }
    server.start().await.unwrap();
    insist(&app, "after").await;
    absorb(&app, 0, vec![outcome(&made)], vec![done(&made)]).await;
    let rest: Vec<i64> = stream.rest().await.iter().map(|frame| frame.id).collect();
    assert_eq!(rest, [2, 3], "the open stream goes on by itself");
    assert_eq!(app.ask("select count(*) from databases where name in ('trades', 'after')").await, "2");
}

#[tokio::test]
async fn accepted_requests_survive_a_change_of_the_primary() {
    within(RESUMED, changes_after_a_promotion).await;
}

/// How long it takes until the API takes changes.
async fn changes_after_a_promotion() -> Duration {
    let old = Server::primary().await.unwrap();
    let new = old.standby().await.unwrap();
    old.require_standby().await.unwrap();
    let app = app_on(url_of(&[&old, &new])).await;
    let mut accepted = vec![insist(&app, "first").await];
    // Requests under way while the primary dies: a client that got no answer asks again with its key.
    let names: Vec<String> = (0..10).map(|number| format!("storm-{number}")).collect();
    let storm = futures::future::join_all(names.iter().map(|name| insist(&app, name)));
    let promoted = async {
        old.stop("immediate").await.unwrap();
        new.promote().await.unwrap();
        let started = Instant::now();
        insist(&app, "after").await;
        started.elapsed()
    };
    let (storm, took) = tokio::join!(storm, promoted);
    eprintln!("the API took changes {took:?} after the promotion");
    accepted.extend(storm);
    for answer in &accepted {
        let id = text(&answer["database"]["id"]);
        let found = new.query(&format!("select count(*) from databases where id = '{id}'")).await.unwrap();
        assert_eq!(found, "1", "accepted and gone: {answer}");
    }
    let twice = new.query("select count(*) - count(distinct name) from databases").await.unwrap();
    assert_eq!(twice, "0", "one request made one database");
    took
}
