//! What happens while a server is away: told clearly, and over when it is back.

use std::time::Duration;

use ::backend::relay::{Error, Relay, Step};
use ::bus::{Connection, Producer};
use ::store::{Settings, Store};
use reqwest::Method;
use serde_json::json;
use testkit::{eventually, unique};

use super::{App, PATIENCE, serve, text};

#[tokio::test]
async fn without_postgres_the_answer_says_so_and_when_to_come_again() {
    let app = App::new().await;
    let settings = Settings { acquire: Duration::from_millis(300), ..Settings::default() };
    let away = Store::connect("postgres://nobody@127.0.0.1:1/none", &settings).unwrap();
    let base = serve(away, app.doorbell.clone(), app.metrics.clone(), app.stop.clone()).await;
    for path in ["/v1/databases", "/v1/operations", "/v1/clusters"] {
        let answer = app.send(app.client.get(format!("{base}{path}")).bearer_auth(&app.acme)).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (503, "unavailable"), "{path}");
        assert_eq!(answer.header("retry-after"), "2");
        assert!(!answer.body.to_string().contains("127.0.0.1:1"), "inner addresses stay inside");
    }
    let document = app.send(app.client.get(format!("{base}/openapi.json"))).await;
    assert_eq!(document.status, 200, "what needs no Postgres goes on");
}

#[tokio::test]
async fn connections_that_postgres_cuts_are_made_anew() {
    let app = App::new().await;
    app.created("before").await;
    app.ask("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
        .await;
    eventually(PATIENCE, "an answer after the cut", async || {
        (app.get(&app.acme, "/v1/databases").await.status == 200).then_some(())
    })
    .await;
    app.created("after").await;
}

#[tokio::test]
async fn without_kafka_what_was_accepted_waits_and_is_counted() {
    let app = App::new().await;
    app.created("trades").await;
    let mut connection = Connection::new("127.0.0.1:1", "test");
    connection.properties.push(("delivery.timeout.ms".to_owned(), "500".to_owned()));
    connection.properties.push(("request.timeout.ms".to_owned(), "200".to_owned()));
    let relay = |producer, topic: &str| {
        let (store, topic) = (app.store.clone(), topic.to_owned());
        let relay = Relay::new(store, producer, topic, app.doorbell.clone(), app.metrics.clone());
        // However late the producer says what came of it.
        relay.patient(PATIENCE)
    };
    let away = relay(Producer::new(&connection).unwrap(), "instructions");
    let error = away.step().await.unwrap_err();
    assert!(matches!(error, Error::Publish { failed: 1, count: 1, .. }), "{error:?}");
    assert_eq!(app.store.backlog().await.unwrap().databases, 1);
    assert_eq!(app.ask("select published_seq from databases").await, "0");
    eventually(PATIENCE, "a round that leaves alone what failed", async || {
        matches!(away.step().await, Ok(Step::Idle)).then_some(())
    })
    .await;
    let connection = Connection::new(&testkit::stack().kafka_bootstrap, "test");
    let topic = unique("instructions");
    let settings = [::bus::TopicSettings::new(&topic, 1, 1)];
    let admin = ::bus::Admin::new(&connection).unwrap();
    admin.ensure_topics(&settings, PATIENCE).await.unwrap();
    // A broker learns of a topic a moment after the controller has made it.
    eventually(PATIENCE, "the topic", async || admin.check_partitions(&topic, 1, PATIENCE).await.ok()).await;
    let back = relay(Producer::new(&connection).unwrap(), &topic);
    eventually(PATIENCE, "nothing that waits", async || {
        // A busy broker may use up the patience of the producer itself.
        let _ = back.step().await;
        (app.store.backlog().await.unwrap().databases == 0).then_some(())
    })
    .await;
    assert_eq!(app.ask("select published_seq from databases").await, "1");
}

#[tokio::test]
async fn a_body_that_stops_short_stores_nothing() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let app = App::new().await;
    let address = app.base.strip_prefix("http://").unwrap();
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/databases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"name\":",
        app.acme
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = String::new();
    // Whether an answer still comes is the server's choice; that it ends is not.
    let _ = tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await.expect("an end");
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", "k");
    assert_eq!(app.send(request.json(&wish)).await.status, 202, "the key was not used up");
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
}
