//! A state that the cluster refuses: its error stays, the last good state comes back, and it is in the way of nothing.

use ::backend::deadlines::Round;
use ::store::OutcomeKind;
use domain::recovery::DEADLINE;
use serde_json::json;

use super::{App, id_of, observation, outcome, path_of, text};

/// A running database and a change of it that was refused.
async fn refused(app: &App, wish: serde_json::Value) -> (serde_json::Value, serde_json::Value) {
    let made = app.running("trades").await;
    let changed = app.patch(text(&made["database"]["id"]), "\"1-1\"", &wish).await;
    assert_eq!(changed.status, 202, "{changed:?}");
    app.hear(Vec::new(), vec![outcome(id_of(&made), 2, OutcomeKind::Refused)]).await;
    (made, changed.body)
}

#[tokio::test]
async fn a_refused_change_goes_back_and_keeps_its_error() {
    let app = App::new().await;
    let (made, changed) =
        refused(&app, json!({"storage": {"size_gib": 9_000}, "config": {"a.b": "1"}})).await;
    let failed = app.operation(&path_of(&changed)).await;
    assert_eq!((text(&failed["state"]), text(&failed["error"]["code"])), ("failed", "invalid"));
    assert_eq!(text(&failed["error"]["message"]), "spec.config: no such key");
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!((&shown["config"], &shown["storage"]["size_gib"]), (&json!({}), &json!(50)));
    assert_eq!(app.newest(&made).await["reverts"], failed["id"]);
    app.hear(vec![observation(id_of(&made), 3, 3)], vec![outcome(id_of(&made), 2, OutcomeKind::Refused)])
        .await;
    assert_eq!(text(&app.newest(&made).await["state"]), "succeeded");
    assert_eq!(app.operation(&path_of(&changed)).await, failed);
}

#[tokio::test]
async fn a_refused_state_is_in_the_way_of_nothing() {
    for settled in [false, true] {
        let app = App::new().await;
        let bad = json!({
            "storage": {"size_gib": 9_000},
            "config": {"bad.key": "1"},
            "deletion_protection": true,
            "on_failure": "keep",
        });
        let (made, _) = refused(&app, bad).await;
        if settled {
            assert_eq!(app.judged().await.reverted, 0, "it was to be kept");
        }
        let id = text(&made["database"]["id"]);
        let shown = app.database(&made).await;
        assert_eq!(shown["config"], json!({"bad.key": "1"}), "what was asked for last is shown");
        let corrected = app.patch(id, "\"1-2\"", &json!({"storage": {"size_gib": 100}})).await;
        assert_eq!(corrected.status, 202, "smaller than what was refused: {corrected:?}");
        let database = &corrected.body["database"];
        assert_eq!((&database["config"], &database["storage"]["size_gib"]), (&json!({}), &json!(100)));
        assert_eq!(database["deletion_protection"], true, "what keeps data safe stays");
        app.hear(vec![observation(id_of(&made), 3, 3)], Vec::new()).await;
        assert_eq!(text(&app.operation(&path_of(&corrected.body)).await["state"]), "succeeded");
    }
}

#[tokio::test]
async fn a_refused_state_does_not_stop_a_deletion() {
    let app = App::new().await;
    let (made, _) = refused(&app, json!({"config": {"bad.key": "1"}})).await;
    let deleted = app.delete(text(&made["database"]["id"])).await;
    assert_eq!(deleted.status, 202);
    let database = &deleted.body["database"];
    assert_eq!((text(&database["run_state"]), &database["config"]), ("deleted", &json!({})));
    assert_eq!(app.judged().await.reverted, 0, "somebody asked for something newer");
    assert_eq!(app.database(&made).await["seq"], 3);
}

#[tokio::test]
async fn a_refused_deletion_can_be_asked_for_again() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.delete(id).await;
    app.hear(Vec::new(), vec![outcome(id_of(&made), 2, OutcomeKind::Refused)]).await;
    assert_eq!(app.judged().await.stuck, 1);
    let again = app.delete(id).await;
    assert_eq!((again.status.as_u16(), &again.body["database"]["seq"]), (202, &json!(3)));
    assert_eq!(text(&again.body["operation"]["state"]), "pending");
    let same = app.delete(id).await;
    assert_eq!(same.body["operation"]["id"], again.body["operation"]["id"]);
}

/// Its own record was passed over by that of what was asked for next, which has its bad field too.
#[tokio::test]
async fn a_bad_change_that_was_passed_over_is_not_in_the_way_for_ever() {
    for (verb, stuck_at, expected) in [("pause", 4, "paused"), ("delete", 3, "deleted")] {
        let app = App::new().await;
        let made = app.running("trades").await;
        let id = text(&made["database"]["id"]);
        let ask = async || if verb == "delete" { app.delete(id).await } else { app.act(id, verb).await };
        app.patch(id, "\"1-1\"", &json!({"config": {"bad.key": "1"}})).await;
        assert_eq!(ask().await.body["database"]["config"], json!({"bad.key": "1"}), "{verb}");
        for seq in 3..=stuck_at {
            app.hear(Vec::new(), vec![outcome(id_of(&made), seq, OutcomeKind::Refused)]).await;
            let (round, is_stuck) = (app.judged().await, seq == stuck_at);
            assert_eq!((round.reverted == 1, round.stuck == 1), (!is_stuck, is_stuck), "{verb}: {round:?}");
        }
        let again = ask().await;
        assert_eq!(again.status, 202, "{verb}: {again:?}");
        let database = &again.body["database"];
        assert_eq!((text(&database["run_state"]), &database["config"]), (expected, &json!({})), "{verb}");
        app.hear(vec![observation(id_of(&made), stuck_at + 1, stuck_at + 1)], Vec::new()).await;
        assert_eq!(text(&app.newest(&made).await["state"]), "succeeded", "{verb}");
    }
}

/// Its own record was passed over by that of its deletion. A volume is not destroyed: silence is no proof that there is none.
#[tokio::test]
async fn a_bad_create_that_was_passed_over_is_not_in_the_way_of_its_deletion_for_ever() {
    for is_taken in [false, true] {
        let app = App::new().await;
        let wish = json!({"name": "trades", "region": "eu-west-1", "config": {"bad.key": "1"}});
        let made = app.create(&app.acme, &wish).await.body;
        let id = text(&made["database"]["id"]);
        if is_taken {
            app.hear(vec![observation(id_of(&made), 1, 0)], Vec::new()).await;
        }
        app.delete(id).await;
        app.hear(Vec::new(), vec![outcome(id_of(&made), 2, OutcomeKind::Refused)]).await;
        assert_eq!(app.judged().await.stuck, 1);
        let again = app.delete(id).await;
        assert_eq!(again.status, 202, "{again:?}");
        let database = &again.body["database"];
        let expected = if is_taken { json!({"bad.key": "1"}) } else { json!({}) };
        assert_eq!((text(&database["run_state"]), &database["config"]), ("deleted", &expected));
    }
}

#[tokio::test]
async fn a_refused_create_goes_without_what_was_refused() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1", "config": {"bad.key": "1"}});
    let made = app.create(&app.acme, &wish).await.body;
    app.hear(Vec::new(), vec![outcome(id_of(&made), 1, OutcomeKind::Refused)]).await;
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!((text(&shown["run_state"]), &shown["config"]), ("purged", &json!({})));
    assert_eq!(text(&app.operation(&path_of(&made)).await["error"]["code"]), "invalid");
    let deleted = app.delete(text(&made["database"]["id"])).await;
    assert_eq!(deleted.body["operation"]["reverts"], made["operation"]["id"], "it is being deleted already");
}

#[tokio::test]
async fn the_way_back_from_a_refusal_is_what_the_cluster_holds() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.patch(id, "\"1-1\"", &json!({"storage": {"size_gib": 100}})).await;
    app.hear(vec![observation(id_of(&made), 2, 1)], Vec::new()).await;
    app.patch(id, "\"1-2\"", &json!({"config": {"bad.key": "1"}})).await;
    app.hear(Vec::new(), vec![outcome(id_of(&made), 3, OutcomeKind::Refused)]).await;
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!(
        (&shown["config"], &shown["storage"]["size_gib"]),
        (&json!({}), &json!(100)),
        "a change that is still carried out is not lost with the next one"
    );
}

#[tokio::test]
async fn an_unknown_wish_for_failures_is_named() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1", "on_failure": "pray"});
    let answer = app.create(&app.acme, &wish).await;
    assert_eq!((answer.status.as_u16(), answer.errors()), (422, vec![("/on_failure", "unknown")]));
}

impl App {
    /// A dead letter of a database's second position, found so many seconds ago; a negative number is yet to come.
    async fn letter(&self, made: &serde_json::Value, code: &str, seconds: i32) {
        self.ask(&format!(
            "insert into dead_letters (topic, kafka_partition, kafka_offset, database_id, epoch, seq, code, message, \
             consumer, received_at) select 'i', 0, count(*), '{}', 1, 2, '{code}', 'why', 'test', \
             now() - interval '{seconds} seconds' from dead_letters",
            id_of(made)
        ))
        .await;
    }

    /// A running database and a change of it that no cluster has taken yet.
    async fn changing(&self, name: &str) -> (serde_json::Value, serde_json::Value) {
        let made = self.running(name).await;
        let wish = json!({"config": {"a.b": "1"}});
        let changed = self.patch(text(&made["database"]["id"]), "\"1-1\"", &wish).await;
        assert_eq!(changed.status, 202, "{changed:?}");
        (made, changed.body)
    }
}

#[tokio::test]
async fn a_state_that_lies_aside_for_good_fails_at_once_and_is_taken_back() {
    let app = App::new().await;
    let (dead, changed) = app.changing("dead").await;
    app.letter(&dead, "undecodable", 3).await;
    let (large, grown) = app.changing("large").await;
    let aside = format!(
        "insert into unpublishable (database_id, epoch, seq, code, message) \
         values ('{}', 1, 2, 'too_large', 'why')",
        id_of(&large)
    );
    app.ask(&aside).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.reverted), (2, 2), "{round:?}");
    for (made, accepted, code) in [(&dead, &changed, "undecodable"), (&large, &grown, "too_large")] {
        let failed = app.operation(&path_of(accepted)).await;
        assert_eq!((text(&failed["state"]), text(&failed["error"]["code"])), ("failed", code));
        assert_eq!(text(&failed["error"]["message"]), "why");
        let shown = app.database(made).await;
        assert_eq!((&shown["seq"], &shown["config"]), (&json!(3), &json!({})), "the last good state");
        assert_eq!(app.newest(made).await["reverts"], failed["id"]);
        app.hear(vec![observation(id_of(made), 3, 3)], Vec::new()).await;
        assert_eq!(app.operation(&path_of(accepted)).await, failed, "the first error stays");
    }
    assert_eq!(app.judged().await, Round::default(), "once");
}

#[tokio::test]
async fn what_lies_aside_for_a_reason_that_may_pass_goes_on_until_its_deadline() {
    let app = App::new().await;
    let (made, changed) = app.changing("trades").await;
    for code in ["unknown_cluster", "newer_major", "wrong_partition", "key_mismatch", "of a later version"] {
        app.letter(&made, code, 3).await;
    }
    assert_eq!(app.judged().await, Round::default());
    assert_eq!(text(&app.operation(&path_of(&changed)).await["state"]), "pending");
    app.run_out(&changed).await;
    assert_eq!(app.judged().await.failed, 1);
    assert_eq!(text(&app.operation(&path_of(&changed)).await["error"]["code"]), DEADLINE);
}

#[tokio::test]
async fn a_letter_says_nothing_of_what_was_taken_or_came_anew() {
    let app = App::new().await;
    let (taken, _) = app.changing("taken").await;
    app.hear(Vec::new(), vec![outcome(id_of(&taken), 2, OutcomeKind::Applied)]).await;
    app.letter(&taken, "undecodable", 3).await;
    let (anew, _) = app.changing("anew").await;
    app.letter(&anew, "undecodable", 3).await;
    app.ask(&format!("update dead_letters set superseded_at = now() where database_id = '{}'", id_of(&anew)))
        .await;
    let (young, _) = app.changing("young").await;
    // However long the others take, it is not old enough.
    app.letter(&young, "undecodable", -3_600).await;
    let (other, _) = app.changing("other").await;
    app.letter(&other, "undecodable", 3).await;
    app.ask(&format!("update dead_letters set seq = 1 where database_id = '{}'", id_of(&other))).await;
    assert_eq!(app.judged().await, Round::default());
}
