//! Pages: every row once, newest first.

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
        ("/v1/operations?state=asleep", "query:state", "unknown"),
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
    let method =
        app.send(app.request(&app.acme, reqwest::Method::PUT, "/v1/databases").json(&json!({}))).await;
    assert_eq!((method.status.as_u16(), text(&method.body["code"])), (405, "method_not_allowed"));
}
