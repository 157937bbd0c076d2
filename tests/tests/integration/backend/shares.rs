//! A tenant that asks for very much gets its share, and nobody else notices.

use std::time::{Duration, Instant};

use ::backend::api::{Share, Shares};
use reqwest::Method;
use serde_json::json;
use testkit::eventually;
use testkit::postgres::Session;
use tokio::task::JoinSet;

use super::replicas::{commit_event, start_api};
use super::streams::Stream;
use super::{Answer, App, PATIENCE, serve_as, text};

/// More than any of these tests asks for.
const AMPLE: Share = Share { requests: 10_000, burst: 10_000, at_once: 5, waiting: 1_000, streams: 1_000 };

/// The API with bounds for each tenant, on an address of its own.
async fn shared(share: Share) -> App {
    let mut app = App::new().await;
    let shares = Shares::of(share, app.metrics.clone());
    app.base = serve_as(app.parts(), |api| api.with_shares(shares)).await;
    app
}

/// Those who run the fleet ask for this in the tenant's name.
fn by_sre(app: &App, path: &str) -> reqwest::RequestBuilder {
    app.request(&app.sre, Method::GET, path).header("Slipway-Tenant", "acme")
}

fn is_refused(answer: &Answer) -> bool {
    if answer.status != 429 {
        return false;
    }
    assert_eq!(text(&answer.body["code"]), "too_many_requests", "{answer:?}");
    assert_eq!(answer.header("retry-after"), "1", "{answer:?}");
    true
}

#[tokio::test]
async fn a_tenant_that_asks_too_often_is_told_when_to_come_again_and_others_are_served() {
    let app = shared(Share { requests: 1, burst: 20, ..AMPLE }).await;
    let wish = |number: usize| json!({"name": format!("db-{number}"), "region": "eu-west-1"});
    let mut accepted = 0;
    while app.create(&app.acme, &wish(accepted)).await.status == 202 {
        accepted += 1;
        assert!(accepted < 1_000, "nothing is refused");
    }
    assert!(accepted >= 20, "a burst is taken: {accepted}");
    let mut refused = 0;
    for number in 0..50 {
        refused += usize::from(is_refused(&app.create(&app.acme, &wish(1_000 + number)).await));
        let answer = app.get(&app.umbrella, "/v1/databases").await;
        if number < 20 {
            assert_eq!(answer.status, 200, "another tenant notices: {answer:?}");
        }
        let answer = app.send(by_sre(&app, "/v1/databases")).await;
        assert_eq!(answer.status, 200, "those who run the fleet are served: {answer:?}");
    }
    assert!(refused > 0, "the fault did not fire");
    let minted = app.ask("select count(*) from operations where tenant_id = 'acme'").await;
    assert_eq!(minted.parse::<usize>().unwrap(), accepted + 50 - refused, "what is refused leaves nothing");
    let last = eventually(PATIENCE, "acme's next turn", async || {
        let answer = app.create(&app.acme, &wish(5_000)).await;
        (!is_refused(&answer)).then_some(answer)
    });
    assert_eq!(last.await.status, 202);
}

/// How long a lock is waited for, and how long a place: then who waits is refused, whoever else asks for how much.
const LOCK: Duration = Duration::from_secs(5);
const LINE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_tenant_whose_requests_all_wait_takes_no_more_than_its_places() {
    let app = shared(Share { at_once: 2, waiting: 8, ..AMPLE }).await;
    // A busy machine may take longer than anybody waits: as a rule not each time.
    for number in 1..=5 {
        if takes_no_more_than_its_places(&app, &format!("trades-{number}")).await {
            return;
        }
    }
    panic!("each time those who wait were refused before others had passed");
}

/// The requests are about a database that is made for them. Nothing is shown by who was refused for the time that it took.
async fn takes_no_more_than_its_places(app: &App, name: &str) -> bool {
    let made = app.created(name).await;
    let path = format!("/v1/databases/{}", text(&made["database"]["id"]));
    let mut held = Session::open(&app.url).await.unwrap();
    held.run(&format!("begin; select 1 from databases where name = '{name}' for update")).await.unwrap();
    let begun = Instant::now();
    // More than there are connections to Postgres.
    let mut asked = JoinSet::new();
    for _ in 0..25 {
        let request = app.request(&app.acme, Method::DELETE, &path);
        asked.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    let mut answers = Vec::new();
    while answers.len() < 15 {
        let answer = tokio::time::timeout(PATIENCE, asked.join_next()).await.expect("refusals do not wait");
        answers.push(answer.unwrap().unwrap());
    }
    let are_refused = answers == [429; 15];
    assert!(
        are_refused || begun.elapsed() >= LOCK,
        "ten are in, the others are refused at once: {answers:?}"
    );
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    // Who is refused its lock makes room for the next two, a moment later; in the end nobody is in line.
    let at_work = async || (begun.elapsed() >= LINE || app.ask(waits).await == "2").then_some(());
    eventually(PATIENCE, "two at work", at_work).await;
    for _ in 0..10 {
        assert_eq!(app.get(&app.umbrella, "/v1/databases").await.status, 200, "another tenant notices");
    }
    eventually(PATIENCE, "two at work still: the fault was not over before others had passed", at_work).await;
    held.run("rollback").await.unwrap();
    while let Some(answer) = asked.join_next().await {
        answers.push(answer.unwrap());
    }
    if !are_refused || begun.elapsed() >= LINE {
        return false;
    }
    assert_eq!(
        answers.iter().filter(|status| **status == 429).count(),
        15,
        "who waits in line is served: {answers:?}"
    );
    assert!(answers.contains(&202), "{answers:?}");
    true
}

/// Postgres gives a request its lock or a refusal after five seconds: until then none of the API's connections is left.
#[tokio::test]
async fn requests_that_take_all_connections_hold_up_no_stream() {
    let mut app = App::new().await;
    let (held, followed) = (app.created("held").await, app.created("followed").await);
    let (_program, base) = start_api(&app, &["--database-connections", "1"]).await;
    let mut stream = Stream::open_at(&app, &base, text(&followed["operation"]["id"]), None).await;
    assert_eq!(stream.next().await.unwrap().id, 1);
    let mut lock = Session::open(&app.url).await.unwrap();
    app.base = base;
    let path = format!("/v1/databases/{}", text(&held["database"]["id"]));
    let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                 and application_name = 'slipway-backend' and wait_event_type = 'Lock'";
    // A busy machine may take longer than five seconds: as a rule not each time.
    for number in 2..7 {
        lock.run("begin; select 1 from databases where name = 'held' for update").await.unwrap();
        let request = app.request(&app.acme, Method::DELETE, &path);
        let asked = tokio::spawn(async move { request.send().await.unwrap().status().as_u16() });
        let at_work = async || (asked.is_finished() || app.ask(waits).await == "1").then_some(());
        eventually(PATIENCE, "the only connection at work", at_work).await;
        commit_event(&app, text(&followed["operation"]["id"])).await;
        assert_eq!(stream.next().await.unwrap().id, number);
        lock.run("rollback").await.unwrap();
        // It was given its lock, so it waited until then.
        if asked.await.unwrap() == 202 {
            return;
        }
    }
    panic!("the fault was over each time before the event was shown");
}

#[tokio::test]
async fn the_streams_of_a_tenant_are_bounded_and_free_again_when_they_close() {
    let app = shared(Share { streams: 2, ..AMPLE }).await;
    let made = app.created("trades").await;
    let path = format!("/v1/operations/{}/events", text(&made["operation"]["id"]));
    let open = async |token: &str| app.request(token, Method::GET, &path).send().await.unwrap();
    let (one, two) = (open(&app.acme).await, open(&app.acme).await);
    assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
    assert_eq!(open(&app.acme).await.status(), 429);
    let third = by_sre(&app, &path).send().await.unwrap();
    assert_eq!(third.status(), 200, "those who run the fleet are served");
    drop(one);
    let again = async || (open(&app.acme).await.status() == 200).then_some(());
    eventually(PATIENCE, "the place of the stream that was closed", again).await;
    drop(two);
}

#[tokio::test]
async fn the_program_gives_each_tenant_the_share_that_it_is_told_of() {
    let mut app = App::new().await;
    let made = app.created("trades").await;
    let path = format!("/v1/operations/{}/events", text(&made["operation"]["id"]));
    let (_program, base) = start_api(&app, &["--tenant-streams", "1"]).await;
    app.base = base;
    // A program that has just started may be late with its first connections.
    let open = async |token: &str| {
        eventually(PATIENCE, "an answer", async || {
            let response = app.request(token, Method::GET, &path).send().await.unwrap();
            (response.status() != 503).then_some(response)
        })
        .await
    };
    let (first, second) = (open(&app.acme).await, open(&app.acme).await);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 429));
}
