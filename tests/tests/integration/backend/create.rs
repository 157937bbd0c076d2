//! `POST /v1/databases`: one transaction, answered the same when it comes again, and nothing stored when it is wrong.

use domain::catalogue::Offer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{App, serve_as, text};

#[tokio::test]
async fn an_accepted_database_is_there_with_its_operation() {
    let app = App::new().await;
    let body = json!({"name": "trades", "region": "eu-west-1", "storage": {"size_gib": 100}, "config": {"a.b": "1"}});
    let answer = app.create(&app.acme, &body).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let (database, operation) = (&answer.body["database"], &answer.body["operation"]);
    assert_eq!(answer.header("location"), format!("/v1/operations/{}", text(&operation["id"])));
    assert_eq!(answer.header("etag"), "\"1-1\"");
    assert_eq!((&database["storage"]["size_gib"], &database["config"]["a.b"]), (&json!(100), &json!("1")));
    assert_eq!((text(&database["tenant"]), text(&database["cluster"])), ("acme", "eu"));
    assert_eq!((text(&operation["state"]), text(&operation["kind"])), ("pending", "create"));
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
    let shown = app.get(&app.acme, &format!("/v1/databases/{}", text(&database["id"]))).await;
    assert_eq!((&shown.body, shown.header("etag")), (database, "\"1-1\""));
    let followed = app.get(&app.acme, answer.header("location")).await;
    assert_eq!(&followed.body, operation);
}

#[tokio::test]
async fn machine_and_version_are_among_those_that_the_api_is_told_to_offer() {
    let mut app = App::new().await;
    let types = "m7i.xlarge,r8i.2xlarge:65536:8".parse().unwrap();
    let offer = Offer::new("9.3.5,9.4.0".parse().unwrap(), "9.3.5", types).unwrap();
    app.base = serve_as(app.parts(), |api| api.offering(offer)).await;
    let wish =
        |kind: Value| json!({"name": "trades", "region": "eu-west-1", "compute": {"instance_type": kind}});
    // Without a name it is the usual one.
    for kind in [Value::Null, json!("m7i.large"), json!("m7i.2xlarge")] {
        let refused = app.create(&app.acme, &wish(kind)).await;
        let said = (refused.status.as_u16(), refused.errors());
        assert_eq!(said, (422, vec![("/compute/instance_type", "unknown")]), "{refused:?}");
        assert!(refused.body.to_string().contains("must be one of: m7i.xlarge, r8i.2xlarge"), "{refused:?}");
    }
    let accepted = app.create(&app.acme, &wish(json!("r8i.2xlarge"))).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(text(&accepted.body["database"]["version"]), "9.3.5", "it named none");
    let mut other = wish(json!("m7i.xlarge"));
    (other["name"], other["version"]) = (json!("quotes"), json!("9.3.4"));
    let refused = app.create(&app.acme, &other).await;
    let said = (refused.status.as_u16(), refused.errors());
    assert_eq!(said, (422, vec![("/version", "unknown")]), "{refused:?}");
    assert!(refused.body.to_string().contains("must be one of: 9.3.5, 9.4.0"), "{refused:?}");
    other["version"] = json!("9.4.0");
    let accepted = app.create(&app.acme, &other).await;
    assert_eq!(text(&accepted.body["database"]["version"]), "9.4.0", "{accepted:?}");
    // What a database has may stay where it is on offer no more.
    app.base = serve_as(app.parts(), |api| api.offering(Offer::default())).await;
    let id = text(&accepted.body["database"]["id"]);
    let change = json!({"version": "9.4.0", "storage": {"size_gib": 100}});
    let kept = app.patch(id, "\"1-1\"", &change).await;
    assert_eq!(kept.status, 202, "{kept:?}");
    let refused = app.patch(id, "\"1-2\"", &json!({"version": "9.4.1"})).await;
    let said = (refused.status.as_u16(), refused.errors());
    assert_eq!(said, (422, vec![("/version", "unknown")]), "{refused:?}");
}

#[tokio::test]
async fn the_same_key_is_answered_the_same() {
    let app = App::new().await;
    let send = async |key: &str, body: Value| {
        let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", key);
        app.send(request.json(&body)).await
    };
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let first = send("k", wish.clone()).await;
    assert_eq!((first.status.as_u16(), first.header("idempotent-replayed")), (202, ""));
    let again = send("k", wish.clone()).await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (202, "true"));
    assert_eq!(
        (&again.body, again.header("location"), again.header("etag")),
        (&first.body, first.header("location"), "\"1-1\"")
    );
    let other = send("k", json!({"name": "quotes", "region": "eu-west-1"})).await;
    assert_eq!((other.status.as_u16(), text(&other.body["code"])), (422, "idempotency_key_reused"));
    assert_eq!(other.errors(), [("header:Idempotency-Key", "conflict")]);
    let taken = send("k2", wish).await;
    assert_eq!((taken.status.as_u16(), taken.errors()), (409, vec![("/name", "conflict")]));
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
}

#[tokio::test]
async fn the_same_request_at_once_makes_one_database() {
    let app = App::crowded().await;
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let sends = (0..100).map(|_| {
        let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", "same");
        app.send(request.json(&wish))
    });
    let answers = join_all(sends).await;
    let accepted: Vec<_> = answers.iter().filter(|answer| answer.status == 202).collect();
    for answer in &answers {
        let expected = match answer.status.as_u16() {
            202 => answer.body == accepted[0].body && answer.header("etag") == accepted[0].header("etag"),
            409 => {
                text(&answer.body["code"]) == "idempotency_key_in_flight"
                    && answer.header("retry-after") == "2"
            }
            _ => false,
        };
        assert!(expected, "{answer:?}");
    }
    assert!(!accepted.is_empty(), "{answers:?}");
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
    let other = json!({"name": "quotes", "region": "eu-west-1"});
    let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", "same");
    assert_eq!(app.send(request.json(&other)).await.status, 422, "the key stands for the first request");
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
}

#[tokio::test]
async fn of_many_databases_of_one_name_one_is_made() {
    let app = App::crowded().await;
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let answers = join_all((0..8).map(|_| app.create(&app.acme, &wish))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(app.counts().await, "1|1|1|1|1|1");
}

/// A request for a database that cannot be had, its status, and the field and rule that it names.
const WRONG: &[(&str, u16, &str, &str)] = &[
    ("{", 400, "", ""),
    ("", 400, "", ""),
    (r#"{"region":"eu-west-1"}"#, 422, "/name", "required"),
    (r#"{"name":"a","region":"eu-west-1","colour":1}"#, 422, "/colour", "unknown_field"),
    (r#"{"name":"a","region":"eu-west-1","storage":{"size":1}}"#, 422, "/storage/size", "unknown_field"),
    (r#"{"name":"Bad","region":"eu-west-1"}"#, 422, "/name", "format"),
    (r#"{"name":"a123456789b123456789c123456789d123456789e","region":"eu-west-1"}"#, 422, "/name", "format"),
    (r#"{"name":"a","region":"mars-1"}"#, 422, "/region", "unknown"),
    (r#"{"name":"a","region":""}"#, 422, "/region", "required"),
    (r#"{"name":"a","region":"eu-west-1","version":"0.1"}"#, 422, "/version", "unknown"),
    (
        r#"{"name":"a","region":"eu-west-1","compute":{"instance_type":"x"}}"#,
        422,
        "/compute/instance_type",
        "unknown",
    ),
    (r#"{"name":"a","region":"eu-west-1","storage":{"size_gib":1}}"#, 422, "/storage/size_gib", "range"),
    (r#"{"name":"a","region":"eu-west-1","storage":{"size_gib":99999}}"#, 422, "/storage/size_gib", "range"),
    (r#"{"name":"a","region":"eu-west-1","storage":{"size_gib":"1"}}"#, 422, "/storage/size_gib", "format"),
    (
        r#"{"name":"a","region":"eu-west-1","config":{"pg.password":"x"}}"#,
        422,
        "/config/pg.password",
        "conflict",
    ),
    (
        r#"{"name":"a","region":"eu-west-1","network":{"allowed_cidrs":["10.0.0.1/8"]}}"#,
        422,
        "/network/allowed_cidrs/0",
        "format",
    ),
    (
        r#"{"name":"a","region":"eu-west-1","network":{"exposure":"public"}}"#,
        422,
        "/network/allowed_cidrs",
        "required",
    ),
];

#[tokio::test]
async fn what_is_wrong_is_named_and_nothing_is_stored() {
    let app = App::new().await;
    for (body, status, pointer, rule) in WRONG {
        let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", "k");
        let answer = app.send(request.header("Content-Type", "application/json").body(*body)).await;
        assert_eq!(answer.status.as_u16(), *status, "{body}: {answer:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let expected = if pointer.is_empty() { vec![] } else { vec![(*pointer, *rule)] };
        assert_eq!(answer.errors(), expected, "{body}");
        assert!(!text(&answer.body["detail"]).is_empty());
        assert_eq!(text(&answer.body["request_id"]), answer.header("x-request-id"));
    }
    assert_eq!(app.counts().await, "0|0|0|0|0|0");
}

#[tokio::test]
async fn a_request_without_what_it_needs_is_told_what() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let post = || app.request(&app.acme, Method::POST, "/v1/databases");
    let keyless = app.send(post().json(&wish)).await;
    assert_eq!(
        (keyless.status.as_u16(), keyless.errors()),
        (400, vec![("header:Idempotency-Key", "required")])
    );
    let typeless = app.send(post().header("Idempotency-Key", "k").body(wish.to_string())).await;
    assert_eq!(
        (typeless.status.as_u16(), typeless.errors()),
        (415, vec![("header:Content-Type", "unknown")])
    );
    let huge = json!({"name": "trades", "region": "eu-west-1", "config": {"a.b": "x".repeat(70_000)}});
    let huge = app.send(post().header("Idempotency-Key", "k").json(&huge)).await;
    assert_eq!((huge.status.as_u16(), text(&huge.body["code"])), (413, "body_too_large"));
    assert_eq!(app.counts().await, "0|0|0|0|0|0");
}

#[tokio::test]
async fn the_emptiest_active_cluster_of_the_region_is_chosen() {
    let app = App::new().await;
    let mut second = super::cluster();
    for state in ["active", "draining"] {
        second["state"] = json!(state);
        app.send(app.request(&app.sre, Method::PUT, "/v1/clusters/eu-two").json(&second)).await;
        let names = [format!("{state}-1"), format!("{state}-2")];
        let mut places = Vec::new();
        for name in &names {
            places.push(text(&app.created(name).await["database"]["cluster"]).to_owned());
        }
        places.sort_unstable();
        let expected = if state == "active" { ["eu", "eu-two"] } else { ["eu", "eu"] };
        assert_eq!(places, expected, "{state}");
    }
}

#[tokio::test]
async fn a_trace_goes_from_the_request_to_its_rows() {
    let app = App::new().await;
    let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = app.request(&app.acme, Method::POST, "/v1/databases").header("Idempotency-Key", "k");
    let wish = json!({"name": "trades", "region": "eu-west-1"});
    let answer =
        app.send(request.header("traceparent", given).header("X-Request-Id", "req-7").json(&wish)).await;
    assert_eq!(answer.header("x-request-id"), "req-7");
    assert_eq!(app.ask("select request_id from audit where action = 'databases.create'").await, "req-7");
}
