//! A purge: only of what is deleted, only by its name and with a reason, never taken back and never given up.

use ::store::OutcomeKind;
use domain::lifecycle::Verb;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::Answer;
use super::states::state_of;
use super::{App, id_of, observation, outcome, path_of, text};

impl App {
    /// Asks for the purge of a database by its name, with a new key.
    pub(super) async fn purge(&self, id: &str, name: &str) -> Answer {
        self.purge_with(id, &testkit::unique("key"), &json!({"confirm": name, "reason": "INC-42"})).await
    }

    async fn purge_with(&self, id: &str, key: &str, body: &Value) -> Answer {
        let request = self.request(&self.acme, Method::POST, &format!("/v1/databases/{id}:purge"));
        self.send(request.header("Idempotency-Key", key).json(body)).await
    }

    /// A database whose deletion, at its second position, is carried out and kept its volume.
    async fn kept(&self, name: &str) -> Value {
        let made = self.running(name).await;
        self.delete(text(&made["database"]["id"])).await;
        self.done(&made, 2).await;
        made
    }
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), text(&answer.body["code"]))
}

#[tokio::test]
async fn what_a_deletion_kept_is_purged_once_and_never_comes_back() {
    let app = App::new().await;
    let made = app.kept("trades").await;
    let id = text(&made["database"]["id"]);
    assert_eq!(text(&app.database(&made).await["storage"]["deletion_policy"]), "retain");
    let wish = json!({"confirm": "trades", "reason": "INC-42: they left"});
    let purged = app.purge_with(id, "k", &wish).await;
    assert_eq!(state_of(&purged), (202, "purged", 3, "purge"), "{purged:?}");
    assert!(purged.body["database"]["deleted_at"].is_string(), "{purged:?}");
    assert_eq!((purged.header("location"), purged.header("etag")), (&*path_of(&purged.body), "\"1-3\""));
    let row = "select kind || ' ' || verb || ' ' || extract(epoch from deadline_at - created_at)::int / 60 \
               from operations where seq = 3";
    assert_eq!(app.ask(row).await, "delete purge 60", "programs of before know it as a deletion");
    assert_eq!(app.ask("select operation_kind from instructions where seq = 3").await, "delete");
    let states = "select array_agg(desired ->> 'run_state' order by seq), count(distinct desired - 'run_state') \
                  from instructions where seq > 1";
    assert_eq!(app.ask(states).await, "{deleted,purged}|1", "nothing else of it changes");
    let audit = "select operation_id || ' ' || (detail ->> 'reason') || ' ' || (detail ->> 'name') from audit \
                 where action = 'databases.purge'";
    let operation = text(&purged.body["operation"]["id"]);
    assert_eq!(app.ask(audit).await, format!("{operation} INC-42: they left trades"));

    let rows = "select (select count(*) from operations), (select count(*) from instructions), \
                (select count(*) from audit)";
    let before = app.ask(rows).await;
    let replayed = app.purge_with(id, "k", &wish).await;
    assert_eq!((replayed.header("idempotent-replayed"), &replayed.body), ("true", &purged.body));
    let other = app.purge_with(id, "k", &json!({"confirm": "trades", "reason": "another"})).await;
    assert_eq!(code(&other), (422, "idempotency_key_reused"));
    let again = app.purge(id, "trades").await;
    assert_eq!((state_of(&again), &again.body["operation"]["id"]), (state_of(&purged), &json!(operation)));
    let deleted = app.delete(id).await;
    assert_eq!(&deleted.body["operation"]["id"], &json!(operation), "a deletion has nothing left to do");
    for verb in Verb::ALL.iter().filter(|verb| **verb != Verb::Purge) {
        assert_eq!(code(&app.act(id, verb.as_str()).await), (409, "purged"), "{verb}");
    }
    assert_eq!(code(&app.patch(id, "\"1-3\"", &json!({"config": {}})).await), (409, "deleted"));
    let cancelled = app.cancel(&app.acme, &path_of(&purged.body), "c").await;
    assert_eq!(code(&cancelled), (409, "no_way_back"));
    assert!(text(&cancelled.body["detail"]).contains("a purge is not cancelled"), "{cancelled:?}");
    assert_eq!(app.ask(rows).await, before, "none of these minted anything");
    app.done(&made, 3).await;
}

#[tokio::test]
async fn only_what_is_deleted_is_purged() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    for verb in ["restart", "pause", "delete", "undelete"] {
        if verb == "delete" {
            app.delete(id).await;
        } else {
            assert_eq!(app.act(id, verb).await.status, 202, "{verb}");
        }
        if verb != "delete" {
            let refused = app.purge(id, "trades").await;
            assert_eq!(code(&refused), (409, "living"), "after {verb}");
            assert!(text(&refused.body["detail"]).contains("delete it first"), "{refused:?}");
        }
    }
    assert_eq!(app.ask("select count(*) from operations where verb = 'purge'").await, "0");
}

#[tokio::test]
async fn whoever_is_not_sure_destroys_nothing() {
    let app = App::new().await;
    let made = app.kept("trades").await;
    let path = &*format!("/v1/databases/{}:purge", text(&made["database"]["id"]));
    let strange = "/v1/databases/0192f3a4-5b6c-7d8e-9f00-112233445566:purge";
    let good = json!({"confirm": "trades", "reason": "INC-42"});
    let counts = app.counts().await;
    let (none, key) = (&[][..], &[("Idempotency-Key", "k")][..]);
    let stale = &[("Idempotency-Key", "k"), ("If-Match", "\"1-1\"")][..];
    let others = &[("Idempotency-Key", "k"), ("Slipway-Tenant", "umbrella")][..];
    let invalid = (422, "invalid");
    let table = [
        (&app.acme, path, none, good.clone(), (400, "idempotency_key_required")),
        (&app.umbrella, path, key, good.clone(), (404, "not_found")),
        (&app.console, path, key, good.clone(), (400, "tenant_required")),
        (&app.sre, path, key, good.clone(), (400, "tenant_required")),
        (&app.sre, path, others, good.clone(), (404, "not_found")),
        (&app.acme, strange, key, good.clone(), (404, "not_found")),
        (&app.acme, path, stale, good, (412, "precondition_failed")),
        (&app.acme, path, key, json!({"confirm": "quotes", "reason": "INC-42"}), invalid),
        (&app.acme, path, key, json!({"confirm": "", "reason": "INC-42"}), invalid),
        (&app.acme, path, key, json!({"confirm": "trades", "reason": " "}), invalid),
        (&app.acme, path, key, json!({"confirm": "trades", "reason": "a\nb"}), invalid),
        (&app.acme, path, key, json!({"confirm": "trades"}), invalid),
        (&app.acme, path, key, json!({"reason": "INC-42"}), invalid),
        (&app.acme, path, key, json!({"confirm": "trades", "reason": "a", "force": true}), invalid),
    ];
    for (token, path, headers, body, expected) in table {
        let request = app.request(token, Method::POST, path).json(&body);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = app.send(request).await;
        assert_eq!(code(&answer), expected, "{path} {headers:?} {body}: {answer:?}");
    }
    let bare = app.request(&app.acme, Method::POST, path).header("Idempotency-Key", "k");
    assert_eq!(app.send(bare).await.status, 415, "no body at all");
    assert_eq!(app.counts().await, counts);
    let named = app.purge(text(&made["database"]["id"]), "quotes").await;
    assert_eq!(named.errors(), [("/confirm", "conflict")]);
    let sure = [("Idempotency-Key", "k"), ("If-Match", "\"1-2\""), ("Slipway-Tenant", "acme")];
    let request =
        app.request(&app.sre, Method::POST, path).json(&json!({"confirm": "trades", "reason": "a"}));
    let request = sure.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    assert_eq!(state_of(&app.send(request).await), (202, "purged", 3, "purge"));
}

#[tokio::test]
async fn a_late_purge_goes_on_and_a_refused_one_is_asked_for_again() {
    let app = App::new().await;
    let made = app.kept("trades").await;
    let id = text(&made["database"]["id"]);
    let late = app.purge(id, "trades").await.body;
    app.hear(vec![observation(id_of(&made), 3, 2)], Vec::new()).await;
    app.run_out(&late).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.reverted, round.overdue), (0, 0, 1), "{round:?}");
    let shown = app.operation(&path_of(&late)).await;
    assert_eq!(text(&shown["state"]), "running");
    assert!(shown["overdue_since"].is_string(), "{shown}");
    app.done(&made, 3).await;

    let made = app.kept("quotes").await;
    let id = text(&made["database"]["id"]);
    let refused = app.purge(id, "quotes").await.body;
    app.hear(Vec::new(), vec![outcome(id_of(&made), 3, OutcomeKind::Refused)]).await;
    assert_eq!(text(&app.operation(&path_of(&refused)).await["state"]), "failed");
    let round = app.judged().await;
    assert_eq!((round.reverted, round.stuck), (0, 1), "nothing leads back from it: {round:?}");
    assert_eq!(code(&app.act(id, "undelete").await), (409, "purged"), "what was asked for last counts");
    let again = app.purge(id, "quotes").await;
    assert_eq!(state_of(&again), (202, "purged", 4, "purge"), "{again:?}");
    app.done(&made, 4).await;
}

#[tokio::test]
async fn a_word_that_only_a_newer_program_knows_is_read_as_its_class() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let paused = app.act(text(&made["database"]["id"]), "pause").await.body;
    app.ask("alter table operations drop constraint operations_verb_is_known").await;
    app.ask("update operations set verb = 'polish' where seq = 2").await;
    assert_eq!(text(&app.operation(&path_of(&paused)).await["kind"]), "update");
    app.done(&made, 2).await;
}
