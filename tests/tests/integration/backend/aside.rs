//! What people do about what was set aside: a letter is never sent again, the newest state is, and once; what is gone stays
//! gone.

mod shown;

use domain::DatabaseId;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, App, text};

const WHY: &str = "INC-1: the definition was mended";

impl App {
    /// A dead letter of a database at a seq, if one is given; its identity.
    async fn lay_aside(&self, database: &str, seq: Option<i64>, code: &str) -> i64 {
        let position = seq.map_or_else(|| "null, null".to_owned(), |seq| format!("1, {seq}"));
        let id = self
            .ask(&format!(
                "with n as (select coalesce(max(kafka_offset), 0) + 1 as next from dead_letters) insert into dead_letters \
                 (topic, kafka_partition, kafka_offset, key, payload, headers, database_id, cluster_id, code, message, \
                 consumer, epoch, seq) select 'instructions', 3, next, '{database}', 'abc', '[[\"a\", \"b\"]]', \
                 '{database}', 'eu', '{code}', 'why', 'provisioner', {position} from n returning id"
            ))
            .await;
        id.parse().unwrap()
    }

    async fn lay_hand(&self, token: &str, path: &str, key: &str, body: &Value) -> Answer {
        self.send(self.request(token, Method::POST, path).header("Idempotency-Key", key).json(body)).await
    }

    async fn redrive(&self, letter: i64) -> Answer {
        let key = testkit::unique("key");
        self.lay_hand(&self.sre, &format!("/v1/dead-letters/{letter}:redrive"), &key, &json!({"reason": WHY}))
            .await
    }

    async fn discard(&self, letter: i64) -> Answer {
        let key = testkit::unique("key");
        self.lay_hand(&self.sre, &format!("/v1/dead-letters/{letter}:discard"), &key, &json!({"reason": WHY}))
            .await
    }

    async fn whole_letter(&self, letter: i64) -> Value {
        self.get(&self.sre, &format!("/v1/dead-letters/{letter}")).await.body
    }

    /// Kafka took everything.
    async fn all_published(&self) {
        let waiting = self.store.unpublished(100).await.unwrap().instructions;
        let sent: Vec<_> = waiting.iter().map(|one| (one.database, one.position)).collect();
        self.store.mark(&sent).await.unwrap();
        assert!(self.to_be_sent().await.is_empty());
    }

    /// The states that the relay is to publish, as database and seq.
    async fn to_be_sent(&self) -> Vec<(DatabaseId, i64)> {
        let waiting = self.store.unpublished(100).await.unwrap().instructions;
        waiting.iter().map(|one| (one.database, one.position.seq)).collect()
    }

    /// A database at 1/2 that Kafka has.
    async fn at_two(&self) -> String {
        let made = self.created("trades").await;
        let id = text(&made["database"]["id"]).to_owned();
        let answer = self.patch(&id, "\"1-1\"", &json!({"storage": {"size_gib": 100}})).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        self.all_published().await;
        id
    }

    /// All that must stay as it is where nothing is done.
    async fn untouched(&self) -> String {
        self.ask(
            "select (select count(*) from audit), (select count(*) from idempotency_keys), \
             (select coalesce(sum(resends), 0) from databases), \
             (select count(*) from databases where unpublished), \
             (select count(*) from dead_letters where superseded_at is not null)",
        )
        .await
    }
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), text(&answer.body["code"]))
}

#[tokio::test]
async fn a_letter_for_the_newest_state_has_that_published_again_once() {
    let app = App::new().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, Some(2), "invalid").await;
    let answer = app.redrive(letter).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["outcome"])), (202, "redriven"), "{answer:?}");
    assert!(text(&answer.body["message"]).contains("refused it once"), "{answer:?}");
    let settled = &answer.body["dead_letter"]["settled"];
    assert_eq!([&settled["as"], &settled["by"], &settled["reason"]], ["redriven", "sre:test", WHY]);
    assert!(answer.body["dead_letter"]["superseded_at"].is_null(), "no later record took its place");
    assert_eq!(app.to_be_sent().await, [(id.parse().unwrap(), 2)]);
    let again = app.store.unpublished(1).await.unwrap().instructions.remove(0);
    assert!(!again.said_again, "somebody waits for it");
    let audited = "select action, principal, role, subject, tenant_id, request_id is not null, detail ->> 'reason', \
                   detail ->> 'outcome', detail ->> 'letter', detail ->> 'minted', detail ->> 'database' from audit \
                   where action like 'dead_letters%'";
    let expected =
        format!("dead_letters.redrive|test|sre|dead-letters/{letter}|acme|t|{WHY}|redriven|1/2|1/2|{id}");
    assert_eq!(app.ask(audited).await, expected);
    let second = app.redrive(letter).await;
    assert_eq!(code(&second), (409, "settled"));
    assert!(text(&second.body["detail"]).contains("by sre:test (INC-1"), "{second:?}");
}

#[tokio::test]
async fn an_older_letter_is_superseded_by_the_newest_state() {
    let app = App::new().await;
    let id = app.at_two().await;
    for (seq, expected) in [(Some(1), "superseded"), (None, "redriven")] {
        let letter = app.lay_aside(&id, seq, "panicked").await;
        let answer = app.redrive(letter).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["outcome"])), (202, expected), "{answer:?}");
        let superseded = answer.body["dead_letter"]["superseded_at"].is_string();
        assert_eq!(superseded, expected == "superseded");
        assert_eq!(
            app.to_be_sent().await,
            [(id.parse().unwrap(), 2)],
            "the newest, whatever the letter held"
        );
        app.all_published().await;
    }
}

#[tokio::test]
async fn what_is_gone_or_unknown_is_refused_and_nothing_is_sent() {
    let app = App::new().await;
    let id = app.at_two().await;
    let stranger = DatabaseId::mint().to_string();
    let table = [
        (app.lay_aside(&stranger, Some(1), "invalid").await, 404, "unknown_database"),
        (app.lay_aside(&id, Some(3), "invalid").await, 409, "never_minted"),
        (app.lay_aside(&id, Some(2), "key_mismatch").await, 409, "two_databases"),
        (4_711, 404, "not_found"),
    ];
    let before = app.untouched().await;
    for (letter, status, expected) in table {
        assert_eq!(code(&app.redrive(letter).await), (status, expected));
    }
    let gossip = app.lay_aside(&id, Some(2), "undecodable").await;
    app.ask(&format!("update dead_letters set topic = 'provisioning.gossip' where id = {gossip}")).await;
    assert_eq!(code(&app.redrive(gossip).await), (409, "no_instruction"));
    let letter = app.lay_aside(&id, Some(2), "invalid").await;
    app.ask("insert into unpublishable select id, epoch, seq, 'too_large', 'why' from databases").await;
    assert_eq!(code(&app.redrive(letter).await), (409, "unpublishable"));
    app.ask("delete from unpublishable").await;
    app.ask("update databases set purged_at = now()").await;
    let purged = app.redrive(letter).await;
    assert_eq!(code(&purged), (409, "purged"));
    assert!(text(&purged.body["detail"]).contains("nothing is sent"), "{purged:?}");
    let resent =
        app.lay_hand(&app.sre, &format!("/v1/databases/{id}:resend"), "k", &json!({"reason": WHY})).await;
    assert_eq!(code(&resent), (409, "purged"));
    assert_eq!(app.untouched().await, before);
}

#[tokio::test]
async fn a_purge_that_was_carried_out_is_not_said_again_and_one_that_was_not_is() {
    let app = App::new().await;
    let id = app.at_two().await;
    app.ask("update databases set desired = jsonb_set(desired, '{run_state}', '\"purged\"')").await;
    let letter = app.lay_aside(&id, Some(2), "panicked").await;
    let seen = |seq| {
        format!(
            "insert into observations (database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, \
             phase, carried_epoch, carried_seq, body, body_schema, said_at) values ('{id}', 'eu', 1, 2, 1, 1, true, '', \
             'Deleted', 1, {seq}, '{{}}', 1, now()) on conflict (database_id) do update set carried_seq = excluded.carried_seq"
        )
    };
    app.ask(&seen(2)).await;
    assert_eq!(code(&app.redrive(letter).await), (409, "purged"));
    app.ask(&seen(1)).await;
    let answer = app.redrive(letter).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["outcome"])), (202, "redriven"), "{answer:?}");
    assert_eq!(app.to_be_sent().await, [(id.parse().unwrap(), 2)]);
}

#[tokio::test]
async fn the_same_key_does_it_once_and_says_the_same() {
    let app = App::new().await;
    let id = app.at_two().await;
    let (one, other) =
        (app.lay_aside(&id, Some(2), "invalid").await, app.lay_aside(&id, Some(1), "invalid").await);
    let act = async |letter: i64, body: Value| {
        app.lay_hand(&app.sre, &format!("/v1/dead-letters/{letter}:redrive"), "key-1", &body).await
    };
    let first = act(one, json!({"reason": WHY})).await;
    let replayed = act(one, json!({"reason": WHY})).await;
    assert_eq!((replayed.status, &replayed.body), (first.status, &first.body));
    assert_eq!((first.header("idempotent-replayed"), replayed.header("idempotent-replayed")), ("", "true"));
    assert_eq!(code(&act(one, json!({"reason": "another"})).await), (422, "idempotency_key_reused"));
    assert_eq!(code(&act(other, json!({"reason": WHY})).await), (422, "idempotency_key_reused"));
    assert_eq!(app.ask("select resends from databases").await, "1");
    assert_eq!(app.ask("select count(*) from audit where action = 'dead_letters.redrive'").await, "1");
}

#[tokio::test]
async fn two_who_redrive_one_letter_at_once_do_it_once() {
    let app = App::crowded().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, Some(2), "invalid").await;
    let answers = futures::future::join_all((0..6).map(|_| app.redrive(letter))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 409, 409, 409, 409, 409]);
    assert_eq!(app.ask("select resends from databases").await, "1");
    assert_eq!(app.ask("select count(*) from audit where action = 'dead_letters.redrive'").await, "1");
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_does_nothing() {
    let app = App::new().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, Some(1), "invalid").await;
    let before = app.untouched().await;
    let dry = json!({"dry_run": true});
    for (path, outcome) in [
        (format!("/v1/dead-letters/{letter}:redrive"), "superseded"),
        (format!("/v1/dead-letters/{letter}:discard"), "discarded"),
        (format!("/v1/databases/{id}:resend"), ""),
    ] {
        let answer = app.send(app.request(&app.sre, Method::POST, &path).json(&dry)).await;
        assert_eq!((answer.status.as_u16(), text(&answer.body["outcome"])), (200, outcome), "{answer:?}");
        assert!(answer.body["dry_run"] == true && !text(&answer.body["message"]).is_empty(), "{answer:?}");
    }
    assert_eq!(app.untouched().await, before);
    assert_eq!(text(&app.whole_letter(letter).await["redrive"]["outcome"]), "superseded");
}

#[tokio::test]
async fn nothing_is_done_without_a_reason_a_key_or_the_right() {
    let app = App::new().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, Some(2), "invalid").await;
    let before = app.untouched().await;
    let paths = [
        format!("/v1/dead-letters/{letter}:redrive"),
        format!("/v1/dead-letters/{letter}:discard"),
        format!("/v1/databases/{id}:resend"),
    ];
    for path in &paths {
        let reason = |text: &str| json!({"reason": text});
        for (body, rule) in [
            (json!({}), "required"),
            (reason("  "), "required"),
            (reason("a\nb"), "format"),
            (reason("a\0b"), "format"),
            (reason(&"x".repeat(501)), "format"),
        ] {
            let answer = app.lay_hand(&app.sre, path, "key", &body).await;
            assert_eq!((answer.status.as_u16(), answer.errors()), (422, vec![("/reason", rule)]), "{path}");
        }
        let keyless = app.send(app.request(&app.sre, Method::POST, path).json(&reason(WHY))).await;
        assert_eq!(code(&keyless), (400, "idempotency_key_required"), "{path}");
        for token in [&app.acme, &app.console] {
            assert_eq!(
                code(&app.lay_hand(token, path, "key", &reason(WHY)).await),
                (403, "forbidden"),
                "{path}"
            );
        }
    }
    assert_eq!(app.get(&app.acme, &format!("/v1/dead-letters/{letter}")).await.status, 403);
    let nonsense = [(":explode", 404, "no_such_path"), ("", 405, "method_not_allowed")];
    for (verb, status, expected) in nonsense {
        let answer =
            app.lay_hand(&app.sre, &format!("/v1/dead-letters/{letter}{verb}"), "key", &json!({})).await;
        assert_eq!(code(&answer), (status, expected), "{verb}");
    }
    let other = app.request(&app.sre, Method::POST, &paths[2]).header("Slipway-Tenant", "umbrella");
    let other = app.send(other.header("Idempotency-Key", "key").json(&json!({"reason": WHY}))).await;
    assert_eq!(code(&other), (404, "not_found"), "another tenant was named");
    assert_eq!(app.untouched().await, before);
}

#[tokio::test]
async fn a_discarded_letter_is_kept_and_counts_no_more() {
    let app = App::new().await;
    let id = app.at_two().await;
    let letter = app.lay_aside(&id, None, "undecodable").await;
    let answer = app.discard(letter).await;
    assert_eq!((answer.status.as_u16(), text(&answer.body["outcome"])), (202, "discarded"), "{answer:?}");
    assert!(app.to_be_sent().await.is_empty(), "nothing is sent");
    assert!(app.store.open_dead_letters(10).await.unwrap().is_empty());
    let list =
        async |path: &str| app.get(&app.sre, path).await.body["dead_letters"].as_array().unwrap().len();
    assert_eq!((list("/v1/dead-letters").await, list("/v1/dead-letters?settled=true").await), (0, 1));
    let shown = app.whole_letter(letter).await;
    assert_eq!((text(&shown["settled"]["as"]), text(&shown["settled"]["reason"])), ("discarded", WHY));
    assert_eq!((text(&shown["payload_hex"]), text(&shown["redrive"]["outcome"])), ("616263", "settled"));
    assert_eq!(shown["headers"], json!([{"name": "a", "value": "b"}]));
    assert_eq!(code(&app.discard(letter).await), (409, "settled"));
    let stranger = app.lay_aside(&DatabaseId::mint().to_string(), None, "null_key").await;
    assert_eq!(app.discard(stranger).await.status, 202, "also of a database that nobody knows");
}
