//! What people see of what was set aside: pages, what a letter holds, when a state went.

use domain::DatabaseId;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::road::Road;
use super::{App, WHY, text};

impl App {
    /// Everything unclaimed, read in pages of so many.
    async fn unclaimed_by(&self, limit: usize) -> Vec<(String, String)> {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&self.sre, &format!("/v1/unclaimed?limit={limit}{cursor}")).await.body;
            let place =
                |row: &Value| (text(&row["database_id"]).to_owned(), text(&row["cluster"]).to_owned());
            seen.extend(page["unclaimed"].as_array().unwrap().iter().map(place));
            let Some(next) = page["next_cursor"].as_str() else { return seen };
            cursor = format!("&cursor={next}");
        }
    }
}

#[tokio::test]
async fn a_letter_says_what_the_instruction_in_it_says_and_what_to_do() {
    let app = App::new().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, Some(2), "invalid").await;
    assert!(app.whole_letter(letter).await["instruction"].is_null(), "no instruction can be read");
    app.ask("update databases set published_seq = 0, published_epoch = 0").await;
    let minted = app.store.unpublished(1).await.unwrap().instructions.remove(0);
    let bytes = wire::Instruction {
        id: minted.id,
        database: minted.database,
        tenant: minted.tenant.clone(),
        cluster: minted.cluster.clone(),
        operation: minted.operation,
        operation_kind: minted.operation_kind,
        position: minted.position,
        desired: minted.desired.clone(),
        issued_at: minted.minted_at,
        actor: minted.actor.clone(),
    };
    let digits: Vec<String> = bytes.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    app.ask(&format!("update dead_letters set payload = '\\x{}'", digits.concat())).await;
    let shown = app.whole_letter(letter).await;
    let said = &shown["instruction"];
    assert_eq!([&said["name"], &said["run_state"], &said["tenant"]], ["trades", "running", "acme"]);
    assert_eq!([&said["epoch"], &said["seq"]], [1, 2]);
    let row = &app.get(&app.sre, "/v1/dead-letters").await.body["dead_letters"][0];
    assert_eq!(row["database"], json!({"name": "trades", "tenant": "acme", "epoch": 1, "seq": 2}));
    assert!(text(&row["advice"]).contains("redrive"), "{row}");
}

#[tokio::test]
async fn lists_are_narrowed_to_a_database_a_cluster_and_a_reason() {
    let app = App::new().await;
    let (one, other) = (DatabaseId::mint(), DatabaseId::mint());
    for (id, cluster, parked, unclaimed) in
        [(one, "eu", "unreachable", "ahead"), (other, "us", "forbidden", "unknown_database")]
    {
        app.lay_aside(&id.to_string(), None, parked).await;
        app.ask(&format!(
            "insert into unclaimed (database_id, cluster_id, code, epoch, seq, body) \
             values ('{id}', '{cluster}', '{unclaimed}', 1, 1, '{{}}'); \
             insert into parked_instructions (database_id, cluster_id, epoch, seq, payload, code, message) \
             values ('{id}', '{cluster}', 1, 1, 'x', '{parked}', 'why'); \
             update dead_letters set cluster_id = '{cluster}' where database_id = '{id}'"
        ))
        .await;
    }
    for (list, field, reason) in [
        ("dead-letters", "dead_letters", "unreachable"),
        ("parked", "parked", "unreachable"),
        ("unclaimed", "unclaimed", "ahead"),
    ] {
        for query in [format!("database={one}"), "cluster=eu".to_owned(), format!("code={reason}")] {
            let answer = app.get(&app.sre, &format!("/v1/{list}?{query}")).await;
            let rows = answer.body[field].as_array().unwrap();
            assert!(
                rows.len() == 1 && text(&rows[0]["database_id"]) == one.to_string(),
                "{list} {query}: {answer:?}"
            );
            assert!(rows[0]["database"].is_null() && !text(&rows[0]["advice"]).is_empty(), "{rows:?}");
        }
        let none = app.get(&app.sre, &format!("/v1/{list}?cluster=eu&database={other}")).await;
        assert_eq!(none.body[field], json!([]), "{list}");
        assert_eq!(app.get(&app.sre, &format!("/v1/{list}?database=x")).await.status, 400, "{list}");
    }
}

#[tokio::test]
async fn pages_of_the_unclaimed_cut_no_database_in_two() {
    let app = App::new().await;
    let ids = [DatabaseId::mint(), DatabaseId::mint()];
    let mut expected = Vec::new();
    for id in ids.iter().rev() {
        for cluster in ["ap", "eu", "us"] {
            expected.push((id.to_string(), cluster.to_owned()));
            app.ask(&format!(
                "insert into unclaimed (database_id, cluster_id, code, epoch, seq, body) \
                 values ('{id}', '{cluster}', 'other_cluster', 1, 1, '{{}}')"
            ))
            .await;
        }
    }
    for limit in 1..=6 {
        assert_eq!(app.unclaimed_by(limit).await, expected, "pages of {limit}");
    }
    assert_eq!(app.get(&app.sre, "/v1/unclaimed?cursor=eu").await.status, 400);
}

#[tokio::test]
async fn a_state_is_said_again_at_its_position_and_it_is_seen_when() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    let id = text(&made["database"]["id"]).to_owned();
    let database = async || road.app.get(&road.app.acme, &format!("/v1/databases/{id}")).await.body;
    assert!(database().await["published_at"].is_null(), "it waits");
    let waits = json!({"dry_run": true});
    let path = format!("/v1/databases/{id}:resend");
    let answer = road.app.send(road.app.request(&road.app.sre, Method::POST, &path).json(&waits)).await;
    assert!(text(&answer.body["message"]).contains("waits to be published already"), "{answer:?}");
    road.relay().step().await.unwrap();
    let first = database().await;
    assert!(first["published_at"].is_string() && first["resent_at"].is_null(), "{first}");
    let answer = road.app.lay_hand(&road.app.sre, &path, "key", &json!({"reason": WHY})).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (202, &*format!("/v1/databases/{id}")));
    assert!(
        answer.body["database"]["published_at"].is_null() && answer.body["database"]["resent_at"].is_string()
    );
    road.relay().step().await.unwrap();
    let second = database().await;
    assert!(second["published_at"].as_str() > first["published_at"].as_str(), "{second}");
    assert_eq!((&second["epoch"], &second["seq"]), (&first["epoch"], &first["seq"]), "nothing is minted");
    let records = road.records(2).await;
    assert_eq!((&records[0].payload, &records[0].key), (&records[1].payload, &records[1].key));
    assert!(records[1].header_text(wire::headers::CLASS).is_none(), "somebody waits for it");
    assert_eq!(
        road.app
            .ask("select action, subject, detail ->> 'reason' from audit where action = 'databases.resend'")
            .await,
        format!("databases.resend|{id}|{WHY}")
    );
    let counts = "select (select count(*) from operations), (select count(*) from instructions)";
    assert_eq!(road.app.ask(counts).await, "1|1");
}
