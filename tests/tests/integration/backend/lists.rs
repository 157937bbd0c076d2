//! Pages: every row once, newest first.

use std::collections::BTreeMap;

use serde_json::json;

use super::{App, text};

#[tokio::test]
async fn pages_join_without_gap_or_repetition() {
    let app = App::new().await;
    let mut made = Vec::new();
    for number in 0..5 {
        made.push(text(&app.created(&format!("db-{number}")).await["database"]["id"]).to_owned());
    }
    made.reverse();
    let (mut seen, mut path) = (Vec::new(), "/v1/databases?limit=2".to_owned());
    let mut pages = 0;
    loop {
        let page = app.get(&app.acme, &path).await.body;
        pages += 1;
        seen.extend(page["databases"].as_array().unwrap().iter().map(|row| text(&row["id"]).to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/databases?limit=2&cursor={cursor}");
    }
    assert_eq!((seen, pages), (made, 3));
}

#[tokio::test]
async fn a_database_that_cannot_be_read_hides_no_other_and_is_told() {
    let app = App::new().await;
    // What is missing, a word that nobody knows, and what only a newer program can read.
    let damages = [
        ("missing", "desired = desired - 'version'", "version"),
        ("asleep", "desired = jsonb_set(desired, '{run_state}', '\"asleep\"')", "asleep"),
        ("newer", "desired_schema = 99", "schema 99"),
    ];
    let mut broken = BTreeMap::new();
    for (name, damage, told) in damages {
        let id = text(&app.created(name).await["database"]["id"]).to_owned();
        app.ask(&format!("update databases set {damage} where id = '{id}'")).await;
        broken.insert(id, (name, told));
    }
    app.created("good").await;
    let (mut good, mut unreadable) = (Vec::new(), Vec::new());
    let mut path = "/v1/databases?limit=2".to_owned();
    loop {
        let page = app.get(&app.acme, &path).await;
        assert_eq!(page.status, 200, "{}", page.body);
        good.extend(
            page.body["databases"].as_array().unwrap().iter().map(|row| text(&row["name"]).to_owned()),
        );
        unreadable.extend(page.body["unreadable"].as_array().cloned().unwrap_or_default());
        let Some(cursor) = page.body["next_cursor"].as_str() else { break };
        path = format!("/v1/databases?limit=2&cursor={cursor}");
    }
    assert_eq!((good, unreadable.len()), (vec!["good".to_owned()], broken.len()));
    for row in unreadable {
        let (name, told) = broken[text(&row["id"])];
        assert_eq!((text(&row["name"]), text(&row["tenant"]), &row["seq"]), (name, "acme", &json!(1)));
        assert!(text(&row["detail"]).contains(told), "{row}");
    }
    for (id, (_, told)) in &broken {
        let answer = app.get(&app.acme, &format!("/v1/databases/{id}")).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (500, "unreadable"));
        let detail = text(&answer.body["detail"]);
        assert!(detail.contains(id) && detail.contains(told) && detail.contains("mend"), "{detail}");
    }
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_hides_no_other_and_is_told() {
    let app = App::new().await;
    let broken = text(&app.created("broken").await["operation"]["id"]).to_owned();
    app.created("good").await;
    app.ask(&format!("update operations set steps = '{{\"a\": 1}}' where id = '{broken}'")).await;
    let list = app.get(&app.acme, "/v1/operations").await.body;
    let names = |rows: &str, name: &str| {
        let rows = list[rows].as_array().unwrap().iter();
        rows.map(|row| text(&row[name]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("operations", "database_name"), ["good"]);
    assert_eq!(
        (names("unreadable", "name"), names("unreadable", "id")),
        (vec!["broken".to_owned()], vec![broken.clone()])
    );
    let answer = app.get(&app.acme, &format!("/v1/operations/{broken}")).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (500, "unreadable"));
}

#[tokio::test]
async fn a_cluster_that_cannot_be_read_hides_no_other_and_takes_no_database() {
    let app = App::new().await;
    for (id, region) in [("eu-two", "eu-west-1"), ("us", "us-east-1")] {
        let mut cluster = super::cluster();
        cluster["region"] = json!(region);
        let put = app.request(&app.sre, reqwest::Method::PUT, &format!("/v1/clusters/{id}")).json(&cluster);
        assert_eq!(app.send(put).await.status, 201);
    }
    app.ask("update clusters set zones = '{\"a\": {\"subnet\": \"s\"}}' where id <> 'eu'").await;
    let list = app.get(&app.sre, "/v1/clusters").await.body;
    let ids = |rows: &str| -> Vec<&str> {
        list[rows].as_array().unwrap().iter().map(|row| text(&row["id"])).collect()
    };
    assert_eq!((ids("clusters"), ids("unreadable")), (vec!["eu"], vec!["eu-two", "us"]));
    let shown = &list["unreadable"][1];
    assert_eq!(text(&shown["region"]), "us-east-1");
    assert!(text(&shown["detail"]).contains("zones"), "{shown}");
    let close = app.request(&app.sre, reqwest::Method::PATCH, "/v1/clusters/us");
    let closed = app.send(close.json(&json!({"state": "draining"}))).await;
    for answer in [app.get(&app.sre, "/v1/clusters/us").await, closed] {
        assert_eq!((answer.status.as_u16(), text(&answer.body["code"])), (500, "unreadable"), "{answer:?}");
    }
    assert_eq!(app.ask("select state from clusters where id = 'us'").await, "active", "nothing was changed");
    for name in ["trades", "quotes"] {
        assert_eq!(
            text(&app.created(name).await["database"]["cluster"]),
            "eu",
            "the other one of its region"
        );
    }
    let elsewhere = app.create(&app.acme, &json!({"name": "orders", "region": "us-east-1"})).await;
    assert_eq!((elsewhere.status.as_u16(), text(&elsewhere.body["code"])), (503, "unavailable"));
    let nowhere = app.create(&app.acme, &json!({"name": "orders", "region": "mars-1"})).await;
    assert_eq!((nowhere.status.as_u16(), nowhere.errors()), (422, vec![("/region", "unknown")]));
    // It is repaired by whoever says all of it again, but for where it is.
    let again = async |region: &str| {
        let mut cluster = super::cluster();
        cluster["region"] = json!(region);
        app.send(app.request(&app.sre, reqwest::Method::PUT, "/v1/clusters/us").json(&cluster)).await
    };
    let moved = again("mars-1").await;
    assert_eq!((moved.status.as_u16(), moved.errors()), (422, vec![("/region", "immutable")]));
    assert_eq!(app.get(&app.sre, "/v1/clusters/us").await.status, 500, "nothing was changed");
    assert_eq!(again("us-east-1").await.status, 200);
    assert_eq!(app.get(&app.sre, "/v1/clusters/us").await.status, 200);
    let repaired = app.create(&app.acme, &json!({"name": "orders", "region": "us-east-1"})).await;
    assert_eq!(repaired.status, 202, "{repaired:?}");
}

#[tokio::test]
async fn lists_are_narrowed_by_what_is_asked_for() {
    let app = App::new().await;
    let first = app.created("trades").await;
    app.created("quotes").await;
    let id = text(&first["database"]["id"]);
    app.delete(id).await;
    let names = async |path: &str| {
        let rows = app.get(&app.acme, path).await.body["databases"].as_array().unwrap().clone();
        rows.iter().map(|row| text(&row["name"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("/v1/databases").await, ["quotes"]);
    assert_eq!(names("/v1/databases?deleted=true").await, ["quotes", "trades"]);
    assert_eq!(names("/v1/databases?deleted=true&name=trades").await, ["trades"]);
    let kinds = async |path: &str| {
        let rows = app.get(&app.acme, path).await.body["operations"].as_array().unwrap().clone();
        rows.iter().map(|row| text(&row["kind"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("/v1/operations").await, ["delete", "create", "create"]);
    assert_eq!(kinds(&format!("/v1/operations?database={id}")).await, ["delete", "create"]);
    assert_eq!(kinds("/v1/operations?state=succeeded").await, Vec::<String>::new());
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let app = App::new().await;
    let table = [
        ("/v1/databases?limit=0", "query:limit", "range"),
        ("/v1/databases?cursor=x", "query:cursor", "format"),
        ("/v1/databases?deleted=perhaps", "query:deleted", "format"),
        ("/v1/databases?colour=red", "query:colour", "unknown_field"),
        ("/v1/databases?name=%00", "query:name", "format"),
        ("/v1/operations?state=asleep", "query:state", "unknown"),
        ("/v1/operations?overdue=perhaps", "query:overdue", "format"),
        ("/v1/operations?database=x", "query:database", "format"),
    ];
    for (path, pointer, rule) in table {
        let answer = app.get(&app.acme, path).await;
        assert_eq!((answer.status.as_u16(), answer.errors()), (400, vec![(pointer, rule)]), "{path}");
    }
}

#[tokio::test]
async fn the_description_is_there_for_everybody_and_other_paths_are_not() {
    let app = App::new().await;
    let document = app.send(app.client.get(format!("{}/openapi.json", app.base))).await;
    assert_eq!(document.status, 200);
    assert!(document.body["paths"]["/v1/databases"]["post"].is_object());
    let nowhere = app.get(&app.acme, "/v1/nothing").await;
    assert_eq!((nowhere.status.as_u16(), text(&nowhere.body["code"])), (404, "no_such_path"));
    let no_text = app.get(&app.acme, "/v1/databases/%ff").await;
    assert_eq!((no_text.status.as_u16(), text(&no_text.body["code"])), (404, "no_such_path"));
    let method =
        app.send(app.request(&app.acme, reqwest::Method::PUT, "/v1/databases").json(&json!({}))).await;
    assert_eq!((method.status.as_u16(), text(&method.body["code"])), (405, "method_not_allowed"));
}

#[tokio::test]
async fn what_was_set_aside_is_listed_for_those_who_run_the_fleet() {
    let app = App::new().await;
    let id = |number: u8| format!("00000000-0000-7000-8000-0000000000{number:02}");
    for number in [1, 2, 3] {
        let letter = "insert into dead_letters (topic, kafka_partition, kafka_offset, payload, code, message, consumer";
        app.ask(&format!(
            "insert into unclaimed (database_id, cluster_id, code, epoch, seq, body) \
             values ('{0}', 'eu', 'ahead', 1, {number}, '{{\"resource_name\": \"r\"}}'); \
             insert into parked_instructions (database_id, cluster_id, epoch, seq, payload, code, message) \
             values ('{0}', 'eu', 1, {number}, 'x', 'unreachable', 'why'); \
             {letter}) values ('t', 0, {number}, 'abc', 'undecodable', 'why', 'c')",
            id(number)
        ))
        .await;
    }
    app.ask("update unclaimed set resolved_at = now() where seq = 2").await;
    app.ask("update dead_letters set superseded_at = now() where kafka_offset = 2").await;
    let column = |rows: &serde_json::Value, name: &str| -> Vec<i64> {
        rows.as_array().unwrap().iter().map(|row| row[name].as_i64().unwrap()).collect()
    };
    for (path, list, name, expected) in [
        ("/v1/unclaimed", "unclaimed", "seq", vec![3, 1]),
        ("/v1/unclaimed?resolved=true", "unclaimed", "seq", vec![3, 2, 1]),
        ("/v1/parked", "parked", "seq", vec![3, 2, 1]),
        ("/v1/dead-letters", "dead_letters", "offset", vec![3, 1]),
        ("/v1/dead-letters?superseded=true", "dead_letters", "offset", vec![3, 2, 1]),
    ] {
        let answer = app.get(&app.sre, path).await;
        assert_eq!(column(&answer.body[list], name), expected, "{path}: {answer:?}");
        let join = if path.contains('?') { '&' } else { '?' };
        let first = app.get(&app.sre, &format!("{path}{join}limit=1")).await.body;
        assert_eq!(column(&first[list], name), expected[..1], "{path}");
        let rest = format!("{path}{join}cursor={}", text(&first["next_cursor"]));
        assert_eq!(column(&app.get(&app.sre, &rest).await.body[list], name), expected[1..], "{path}");
        assert_eq!(app.get(&app.acme, path).await.status, 403, "{path}");
    }
    let letter = &app.get(&app.sre, "/v1/dead-letters").await.body["dead_letters"][0];
    assert_eq!((&letter["size"], text(&letter["code"])), (&json!(3), "undecodable"));
    assert_eq!(text(&app.get(&app.sre, "/v1/unclaimed").await.body["unclaimed"][0]["resource_name"]), "r");
}
