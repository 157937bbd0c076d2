//! The way to the API against prepared answers.

use super::scripted::{Scripted, answer, client, header, stream};
use super::*;
use crate::client::aside::{Verb, Which};
use crate::client::calls::{Filter, Operations};
use crate::exit;
use crate::follow::follow;
use crate::render::fixture;
use wire::http::{
    Accepted, CreateDatabase, DatabaseList, Intervention, Operation, OperationList, PurgeDatabase,
    UnclaimedList, UpdateCluster,
};

const LONG: Duration = Duration::from_secs(20);

fn json(value: &impl Serialize) -> String {
    answer("200 OK", &["ETag: \"1-2\""], &serde_json::to_string(value).unwrap())
}

#[test]
fn problems_are_read_and_made() {
    let body = br#"{"type":"/problems/a","title":"A","status":200,"code":"a","request_id":""}"#;
    let read = problem(StatusCode::CONFLICT, "r1", body);
    assert_eq!((read.status, read.code.as_str(), read.request_id.as_str()), (409, "a", "r1"));
    let made = problem(StatusCode::BAD_GATEWAY, "", b"<html>\x1b[31mbad\n</html>");
    assert_eq!((made.status, made.title.as_str()), (502, "Bad Gateway"));
    assert_eq!(made.detail, "<html>[31mbad</html>");
}

#[tokio::test]
async fn every_try_of_a_post_is_the_same_request() {
    let accepted = Accepted { database: fixture::database(), operation: fixture::operation("pending") };
    let server = Scripted::start(vec![
        answer("503 Service Unavailable", &["Retry-After: 0"], "{}"),
        String::new(),
        answer("429 Too Many Requests", &[], "{}"),
        json(&accepted),
    ])
    .await;
    let body = CreateDatabase {
        name: "trades".to_owned(),
        region: "eu-west-1".to_owned(),
        ..CreateDatabase::default()
    };
    let seen = server.client(LONG).create_database(&body, "key-1").await.unwrap();
    assert_eq!(seen, accepted);
    let asked = server.asked().await;
    assert_eq!(asked.len(), 4);
    for request in &asked {
        assert!(request.starts_with("POST /v1/databases HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with(r#"{"name":"trades","region":"eu-west-1"}"#), "{request}");
        assert_eq!(header(request, "idempotency-key").as_deref(), Some("key-1"));
        assert_eq!(header(request, "authorization").as_deref(), Some("Bearer swordfish"));
        assert_eq!(header(request, "slipway-tenant").as_deref(), Some("acme"));
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_asked_for_again_as_the_same_request() {
    let accepted = Accepted { database: fixture::database(), operation: fixture::operation("pending") };
    let cut = |whole: String| whole[..whole.len() - 9].to_owned();
    let later = answer("503 Service Unavailable", &["Retry-After: 0"], "{}");
    let server = Scripted::start(vec![cut(json(&accepted)), later, json(&accepted)]).await;
    let id = fixture::operation("running").id;
    assert_eq!(server.client(LONG).cancel_operation(id, "key-1").await.unwrap(), accepted);
    let asked = server.asked().await;
    assert_eq!(asked.len(), 3);
    for request in &asked {
        assert!(request.starts_with(&format!("POST /v1/operations/{id}:cancel HTTP/1.1\r\n")), "{request}");
        assert_eq!(header(request, "idempotency-key").as_deref(), Some("key-1"));
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_when_no_time_is_left_is_in_doubt() {
    let whole = json(&fixture::database());
    let server = Scripted::start(vec![whole[..whole.len() - 9].to_owned()]).await;
    let request = Request::new(Method::POST, "v1/databases")
        .header(calls::IDEMPOTENCY_KEY, HeaderValue::from_static("key-1"));
    let half = server.client(LONG).attempt(&request).await.unwrap();
    let failed = read(half).await.unwrap_err();
    let late = server.client(Duration::ZERO);
    let error = late.weigh(&request, Err(failed), &mut 0).await.unwrap().unwrap_err();
    server.asked().await;
    assert_eq!(exit::code(&error), exit::TIMEOUT, "{}", error.explain());
    assert!(error.explain().contains("--idempotency-key key-1 "), "{}", error.explain());
}

#[tokio::test]
async fn a_verb_goes_to_its_database_with_its_key() {
    let accepted = Accepted { database: fixture::database(), operation: fixture::operation("pending") };
    let id = fixture::database().id;
    for verb in domain::lifecycle::Verb::ALL {
        let server = Scripted::start(vec![String::new(), json(&accepted)]).await;
        assert_eq!(server.client(LONG).ask_state(id, *verb, "key-1").await.unwrap(), accepted);
        for request in server.asked().await {
            assert!(
                request.starts_with(&format!("POST /v1/databases/{id}:{verb} HTTP/1.1\r\n")),
                "{request}"
            );
            assert_eq!(header(&request, "idempotency-key").as_deref(), Some("key-1"));
        }
    }
}

#[tokio::test]
async fn a_purge_names_its_database_and_what_was_read_of_it() {
    let accepted = Accepted { database: fixture::database(), operation: fixture::operation("pending") };
    let id = fixture::database().id;
    let server = Scripted::start(vec![String::new(), json(&accepted)]).await;
    let body = PurgeDatabase { confirm: "trades".to_owned(), reason: "INC-42".to_owned() };
    let asked = ("key-1", HeaderValue::from_static("\"1-2\""));
    assert_eq!(server.client(LONG).purge_database(id, &body, asked).await.unwrap(), accepted);
    let asked = server.asked().await;
    assert_eq!(asked.len(), 2);
    for request in asked {
        assert!(request.starts_with(&format!("POST /v1/databases/{id}:purge HTTP/1.1\r\n")), "{request}");
        assert!(request.ends_with(r#"{"confirm":"trades","reason":"INC-42"}"#), "{request}");
        assert_eq!(header(&request, "idempotency-key").as_deref(), Some("key-1"));
        assert_eq!(header(&request, "if-match").as_deref(), Some("\"1-2\""));
    }
}

#[tokio::test]
async fn a_cancellation_goes_to_its_operation_with_its_key() {
    let accepted = Accepted { database: fixture::database(), operation: fixture::operation("pending") };
    let server = Scripted::start(vec![String::new(), json(&accepted)]).await;
    let id = fixture::operation("running").id;
    assert_eq!(server.client(LONG).cancel_operation(id, "key-1").await.unwrap(), accepted);
    for request in server.asked().await {
        assert!(request.starts_with(&format!("POST /v1/operations/{id}:cancel HTTP/1.1\r\n")), "{request}");
        assert_eq!(header(&request, "idempotency-key").as_deref(), Some("key-1"));
    }
}

#[tokio::test]
async fn what_was_set_aside_is_narrowed_and_followed_by_its_cursor() {
    let page = |next: Option<&str>| UnclaimedList {
        unclaimed: vec![fixture::unclaimed()],
        next_cursor: next.map(str::to_owned),
    };
    let server = Scripted::start(vec![json(&page(Some("a.eu"))), json(&page(None))]).await;
    let which = Which {
        database: Some(fixture::database().id),
        cluster: Some("eu".to_owned()),
        code: Some("ahead".to_owned()),
        over: true,
    };
    assert_eq!(server.client(LONG).unclaimed(&which, 9).await.unwrap().len(), 2);
    let asked = server.asked().await;
    let narrowed = format!("database={}&cluster=eu&code=ahead&resolved=true", fixture::database().id);
    assert!(asked[0].starts_with(&format!("GET /v1/unclaimed?{narrowed}&limit=9 ")), "{}", asked[0]);
    assert!(
        asked[1].starts_with(&format!("GET /v1/unclaimed?{narrowed}&limit=8&cursor=a.eu ")),
        "{}",
        asked[1]
    );
}

#[tokio::test]
async fn a_cluster_is_closed_by_its_state() {
    let server = Scripted::start(vec![json(&fixture::cluster())]).await;
    let body = UpdateCluster { state: "draining".to_owned() };
    server.client(LONG).update_cluster(&"eu-west-1".parse().unwrap(), &body).await.unwrap();
    let asked = server.asked().await;
    assert!(asked[0].starts_with("PATCH /v1/clusters/eu-west-1 HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].ends_with(r#"{"state":"draining"}"#), "{}", asked[0]);
}

#[tokio::test]
async fn a_refusal_is_final_and_tells_the_request() {
    let body =
        r#"{"type":"/problems/deleted","title":"The database is deleted","status":409,"code":"deleted"}"#;
    let server = Scripted::start(vec![answer("409 Conflict", &["X-Request-Id: r-7"], body)]).await;
    let error = server.client(LONG).database(fixture::database().id).await.unwrap_err();
    assert_eq!(exit::code(&error), exit::CONFLICT);
    assert!(error.explain().contains("request id r-7"), "{}", error.explain());
    assert!(!error.explain().contains("swordfish"));
    assert_eq!(server.asked().await.len(), 1);
}

#[tokio::test]
async fn a_wait_that_outlasts_the_command_ends_it_at_once() {
    let server = Scripted::start(vec![answer("503 Service Unavailable", &["Retry-After: 3600"], "{}")]).await;
    let error = server.client(LONG).clusters().await.unwrap_err();
    assert_eq!(exit::code(&error), exit::TIMEOUT, "{}", error.explain());
    server.asked().await;
}

#[tokio::test]
async fn silence_ends_with_the_command() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let client = || client(&address, Duration::from_millis(300));
    let id = fixture::database().id;
    let letter = client().settle_letter(12, Verb::Discard, &Intervention::default(), Some("key-1-12")).await;
    let table = [
        (client().clusters().await.unwrap_err(), "a longer --timeout"),
        // What was sent may have been heard.
        (client().cancel_operation(id, "key-1").await.unwrap_err(), "--idempotency-key key-1 "),
        (letter.unwrap_err(), "look before"),
    ];
    for (error, hint) in table {
        assert_eq!(exit::code(&error), exit::TIMEOUT, "{}", error.explain());
        assert!(error.explain().contains(hint), "{}", error.explain());
    }
}

#[tokio::test]
async fn what_a_person_took_to_agree_is_not_the_commands_time() {
    let server = Scripted::start(vec![json(&fixture::database())]).await;
    let mut client = server.client(Duration::ZERO);
    client.prolong(LONG);
    assert_eq!(client.database(fixture::database().id).await.unwrap().body, fixture::database());
    server.asked().await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = Scripted::start(vec![answer("302 Found", &["Location: http://127.0.0.1:1/"], "")]).await;
    let error = server.client(LONG).clusters().await.unwrap_err();
    assert!(matches!(&error, Error::Refused { problem, .. } if problem.status == 302), "{error}");
    server.asked().await;
}

#[tokio::test]
async fn pages_are_followed_up_to_the_number_asked_for() {
    let page = |next: Option<&str>| DatabaseList {
        databases: vec![fixture::database(), fixture::database()],
        unreadable: Vec::new(),
        next_cursor: next.map(str::to_owned),
    };
    let server = Scripted::start(vec![json(&page(Some("a&b"))), json(&page(Some("c")))]).await;
    let filter = Filter { name: Some("trades".to_owned()), deleted: true };
    let found = server.client(LONG).databases(&filter, 3).await.unwrap();
    assert_eq!(found.databases.len(), 3);
    let asked = server.asked().await;
    assert!(asked[0].starts_with("GET /v1/databases?name=trades&deleted=true&limit=3 "), "{}", asked[0]);
    assert!(
        asked[1].starts_with("GET /v1/databases?name=trades&deleted=true&limit=1&cursor=a%26b "),
        "{}",
        asked[1]
    );
}

#[tokio::test]
async fn operations_are_narrowed_to_those_that_are_late() {
    let page = OperationList {
        operations: vec![fixture::operation("running")],
        unreadable: vec![],
        next_cursor: None,
    };
    let server = Scripted::start(vec![json(&page), json(&page)]).await;
    for overdue in [true, false] {
        let filter = Operations { overdue, ..Operations::default() };
        assert_eq!(server.client(LONG).operations(&filter, 5).await.unwrap(), page);
    }
    let asked = server.asked().await;
    assert!(asked[0].starts_with("GET /v1/operations?overdue=true&limit=5 "), "{}", asked[0]);
    assert!(asked[1].starts_with("GET /v1/operations?limit=5 "), "{}", asked[1]);
}

fn event(number: i64, kind: &str, state: &str) -> String {
    let data =
        format!(r#"{{"number":{number},"kind":"{kind}","state":"{state}","at":"2026-11-21T06:00:00Z"}}"#);
    format!("id: {number}\nevent: {kind}\ndata: {data}\n\n")
}

#[tokio::test]
async fn a_cut_stream_is_resumed_behind_the_last_event() {
    let done: Operation = fixture::operation("succeeded");
    let server = Scripted::start(vec![
        stream(&(event(1, "state", "pending") + &event(2, "step", "running"))),
        String::new(),
        answer("503 Service Unavailable", &["Retry-After: 0"], "{}"),
        stream(&(event(2, "step", "running") + &event(3, "state", "succeeded"))),
        json(&done),
    ])
    .await;
    let mut numbers = Vec::new();
    let seen = follow(&server.client(LONG), done.id, &mut |event| {
        numbers.push(event.number);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(seen, done);
    assert_eq!(numbers, [1, 2, 3], "each once");
    let asked = server.asked().await;
    let resumed: Vec<Option<String>> =
        asked[..4].iter().map(|request| header(request, "last-event-id")).collect();
    assert_eq!(resumed, [None, Some("2".to_owned()), Some("2".to_owned()), Some("2".to_owned())]);
}

#[tokio::test]
async fn an_operation_that_has_ended_needs_no_events() {
    let done = fixture::operation("failed");
    let server = Scripted::start(vec![answer("204 No Content", &[], ""), json(&done)]).await;
    let seen = follow(&server.client(LONG), done.id, &mut |_| Ok(())).await.unwrap();
    assert_eq!(seen.state, "failed");
    server.asked().await;
}

#[tokio::test]
async fn a_load_balancer_that_finds_no_api_ends_no_waiting() {
    let done = fixture::operation("succeeded");
    let server = Scripted::start(vec![
        answer("502 Bad Gateway", &[], "<html>"),
        answer("504 Gateway Timeout", &[], ""),
        stream(&event(1, "state", "succeeded")),
        answer("502 Bad Gateway", &[], "<html>"),
        answer("204 No Content", &[], ""),
        json(&done),
    ])
    .await;
    let seen = follow(&server.client(LONG), done.id, &mut |_| Ok(())).await.unwrap();
    assert_eq!(seen, done);
    server.asked().await;
}

#[tokio::test]
async fn watching_ends_with_the_command_not_with_the_operation() {
    let running = fixture::operation("running");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let error =
        follow(&client(&address, Duration::from_millis(300)), running.id, &mut |_| Ok(())).await.unwrap_err();
    assert_eq!(exit::code(&error), exit::TIMEOUT);
    assert!(
        error.explain().contains(&format!("slipway operations watch {}", running.id)),
        "{}",
        error.explain()
    );
}
