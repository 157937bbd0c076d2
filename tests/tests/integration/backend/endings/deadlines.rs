//! Deadlines: what runs out of time fails, says where it stood, and is taken back by an operation of its own.

use ::store::{Observation, OutcomeKind, Step};
use domain::operation::StepState;
use futures::future::join_all;
use serde_json::json;
use testkit::postgres::Session;

use super::{App, id_of, observation, outcome, path_of, text};

fn step(name: &str, state: StepState, message: &str) -> Step {
    Step {
        name: name.to_owned(),
        state,
        message: message.to_owned(),
        started_at: Some("2026-11-21T06:00:00Z".parse().unwrap()),
        ended_at: None,
    }
}

#[tokio::test]
async fn a_create_that_runs_out_of_time_is_taken_back_and_says_where_it_stood() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let waits = step("instance", StepState::Running, "InsufficientInstanceCapacity in eu-west-1a");
    app.hear(vec![Observation { steps: vec![waits], ..observation(id_of(&made), 1, 0) }], Vec::new()).await;
    assert_eq!(app.judged().await, ::backend::deadlines::Round::default(), "it has time");
    app.watched(&made, 0).await;
    app.run_out(&made).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.reverted), (1, 1));
    let failed = app.operation(&path_of(&made)).await;
    assert_eq!((text(&failed["state"]), text(&failed["error"]["code"])), ("failed", "deadline"));
    let message = text(&failed["error"]["message"]);
    assert!(
        message.contains("step instance is under way since 2026-11-21T06:00:00Z")
            && message.contains("InsufficientInstanceCapacity"),
        "{message}"
    );
    let revert = app.newest(&made).await;
    assert_eq!(
        (text(&revert["kind"]), text(&revert["created_by"]), text(&revert["state"])),
        ("delete", "system", "pending")
    );
    assert_eq!(revert["reverts"], failed["id"]);
    assert_eq!(text(&app.database(&made).await["run_state"]), "purged", "no volume was ever there");
    assert_eq!(app.judged().await, ::backend::deadlines::Round::default(), "once is enough");
    let audit = "select principal, count(*) from audit where action = 'operations.revert' group by 1";
    assert_eq!(app.ask(audit).await, "system|1");
    app.hear(vec![observation(id_of(&made), 2, 2)], Vec::new()).await;
    assert_eq!(text(&app.newest(&made).await["state"]), "succeeded");
    let kept = app.operation(&path_of(&made)).await;
    assert_eq!(kept, failed, "the error is the user's for good");
    let states: Vec<String> = app.events(&made).await.into_iter().map(|event| event.1).collect();
    assert_eq!(states.last().unwrap(), "failed");
    app.created("trades").await;
}

#[tokio::test]
async fn a_volume_that_was_seen_or_may_be_there_is_kept() {
    let app = App::new().await;
    for (name, seen) in [("seen", true), ("silent", false)] {
        let made = app.created(name).await;
        if seen {
            let volume = Observation { volume: true, ..observation(id_of(&made), 1, 0) };
            app.hear(vec![volume], Vec::new()).await;
        } else {
            app.hear(Vec::new(), vec![outcome(id_of(&made), 1, OutcomeKind::Applied)]).await;
        }
        app.run_out(&made).await;
        assert_eq!(app.judged().await.reverted, 1, "{name}");
        assert_eq!(text(&app.database(&made).await["run_state"]), "deleted", "{name}");
    }
}

#[tokio::test]
async fn a_change_that_runs_out_of_time_goes_back_to_the_last_good_state() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    let wish = json!({"storage": {"size_gib": 100}, "config": {"a.b": "1"}});
    let changed = app.patch(id, "\"1-1\"", &wish).await.body;
    app.hear(vec![observation(id_of(&made), 2, 1)], Vec::new()).await;
    app.run_out(&changed).await;
    assert_eq!(app.judged().await.reverted, 1);
    let failed = app.operation(&path_of(&changed)).await;
    assert_eq!((text(&failed["state"]), text(&failed["error"]["code"])), ("failed", "deadline"));
    let shown = app.database(&made).await;
    assert_eq!((&shown["config"], &shown["seq"]), (&json!({}), &json!(3)));
    assert_eq!(shown["storage"]["size_gib"], 100, "a volume that may have grown does not shrink");
    assert_eq!(text(&shown["run_state"]), "running");
    let revert = app.newest(&made).await;
    assert_eq!((text(&revert["kind"]), &revert["reverts"]), ("update", &failed["id"]));
    assert_eq!(app.store.unpublished(10).await.unwrap().instructions[0].position, super::at(3));
}

#[tokio::test]
async fn a_change_that_is_taken_back_leaves_data_as_safe_as_it_asked_for() {
    let app = App::new().await;
    let careless = json!({"name": "trades", "region": "eu-west-1", "storage": {"deletion_policy": "delete"}});
    let made = app.create(&app.acme, &careless).await.body;
    app.hear(vec![observation(id_of(&made), 1, 1)], Vec::new()).await;
    let wish = json!({
        "storage": {"deletion_policy": "retain"},
        "deletion_protection": true,
        "config": {"a.b": "1"},
    });
    let changed = app.patch(text(&made["database"]["id"]), "\"1-1\"", &wish).await.body;
    app.run_out(&changed).await;
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!((&shown["config"], &shown["seq"]), (&json!({}), &json!(3)));
    assert_eq!(
        (text(&shown["storage"]["deletion_policy"]), &shown["deletion_protection"]),
        ("retain", &json!(true))
    );
}

#[tokio::test]
async fn what_is_to_be_kept_is_late_and_goes_on() {
    let app = App::new().await;
    let wish = json!({"name": "trades", "region": "eu-west-1", "on_failure": "keep"});
    let made = app.create(&app.acme, &wish).await.body;
    assert_eq!(text(&made["operation"]["on_failure"]), "keep");
    app.run_out(&made).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.overdue, round.reverted), (0, 1, 0));
    assert_eq!(app.metrics.operations.overdue.get(), 1);
    let late = app.operation(&path_of(&made)).await;
    assert_eq!(text(&late["state"]), "pending");
    assert!(late["overdue_since"].is_string() && late["error"].is_null(), "{late}");
    // Whoever is called for it finds it among however many have time.
    app.created("quotes").await;
    let overdue = async || app.get(&app.acme, "/v1/operations?overdue=true").await.body["operations"].clone();
    assert_eq!(overdue().await, json!([late]));
    let told = app.events(&made).await;
    assert_eq!(
        told,
        [(1, "pending".to_owned(), String::new()), (2, "pending".to_owned(), "deadline".to_owned())]
    );
    assert_eq!(app.judged().await, ::backend::deadlines::Round::default(), "said once");
    app.hear(vec![observation(id_of(&made), 1, 1)], Vec::new()).await;
    assert_eq!(text(&app.operation(&path_of(&made)).await["state"]), "succeeded");
    app.judged().await;
    assert_eq!(app.metrics.operations.overdue.get(), 0);
    assert_eq!(overdue().await, json!([]));
}

#[tokio::test]
async fn a_delete_is_never_given_up() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let deleted = app.delete(text(&made["database"]["id"])).await.body;
    app.run_out(&deleted).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.overdue, round.reverted), (0, 1, 0));
    assert_eq!(text(&app.operation(&path_of(&deleted)).await["state"]), "pending");
    assert_eq!(text(&app.database(&made).await["run_state"]), "deleted");
}

#[tokio::test]
async fn what_takes_back_does_not_go_in_a_circle() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let changed =
        app.patch(text(&made["database"]["id"]), "\"1-1\"", &json!({"config": {"a.b": "1"}})).await.body;
    app.run_out(&changed).await;
    assert_eq!(app.judged().await.reverted, 1);
    let revert = json!({"operation": app.newest(&made).await});
    app.run_out(&revert).await;
    let late = app.judged().await;
    assert_eq!((late.overdue, late.failed, late.reverted), (1, 0, 0));
    app.hear(Vec::new(), vec![outcome(id_of(&made), 3, OutcomeKind::Refused)]).await;
    let stuck = app.judged().await;
    assert_eq!((stuck.stuck, stuck.reverted), (1, 0));
    assert_eq!(app.metrics.operations.stuck.get(), 1);
    assert_eq!(app.judged().await, ::backend::deadlines::Round::default());
    assert_eq!(app.database(&made).await["seq"], 3);
}

#[tokio::test]
async fn a_newer_wish_is_not_taken_back_with_an_older_failure() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    let first = app.patch(id, "\"1-1\"", &json!({"config": {"a.b": "1"}})).await.body;
    app.patch(id, "\"1-2\"", &json!({"storage": {"size_gib": 100}})).await;
    app.run_out(&first).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.reverted), (1, 0));
    assert_eq!(app.database(&made).await["seq"], 3);
    assert_eq!(app.judged().await, ::backend::deadlines::Round::default());
}

#[tokio::test]
async fn of_many_judges_one_speaks() {
    let app = App::new().await;
    let mut made = Vec::new();
    for number in 0..8 {
        made.push(app.created(&format!("trades-{number}")).await);
    }
    app.ask("update operations set deadline_at = now() - interval '1 second'").await;
    app.heard_until(0).await;
    let judges: Vec<_> = (0..4).map(|_| app.judge()).collect();
    let rounds = join_all(judges.iter().map(|judge| judge.round(&app.stop))).await;
    let rounds: Vec<_> = rounds.into_iter().map(Result::unwrap).chain([app.judged().await]).collect();
    assert_eq!(rounds.iter().map(|round| round.failed).sum::<usize>(), 8);
    assert_eq!(rounds.iter().map(|round| round.reverted).sum::<usize>(), 8);
    let counts =
        "select count(*), count(distinct reverts), max(seq) from operations where reverts is not null";
    assert_eq!(app.ask(counts).await, "8|8|2");
}

#[tokio::test]
async fn nothing_runs_out_of_time_before_all_is_heard_that_was_said_by_then() {
    let app = App::new().await;
    let (late, other) = (app.created("late").await, app.created("other").await);
    app.run_out_unheard(&late).await;
    let round = app.judged().await;
    assert!(round.deaf && (round.failed, round.unheard) == (0, 1), "nobody ever listened: {round:?}");
    app.heard_until(21 * 60).await;
    assert!(app.judged().await.deaf, "for too long");
    app.heard_until(60).await;
    let round = app.judged().await;
    assert!(!round.deaf && (round.failed, round.unheard) == (0, 1), "{round:?}");
    // The first news after a silence says nothing of what waits behind it.
    app.hear(vec![observation(id_of(&other), 1, 0)], Vec::new()).await;
    assert_eq!(app.judged().await.failed, 0);
    assert_eq!(text(&app.operation(&path_of(&late)).await["state"]), "pending");
    app.heard_until(0).await;
    assert_eq!(app.judged().await.failed, 1);
}

#[tokio::test]
async fn what_is_not_heard_yet_is_found_out_without_a_lock() {
    let app = App::new().await;
    for name in ["one", "two", "three"] {
        app.run_out_unheard(&app.created(name).await).await;
    }
    let mut held = Session::open(&app.url).await.unwrap();
    held.run("begin; select 1 from databases for update").await.unwrap();
    let round = app.judged().await;
    assert_eq!((round.unheard, round.busy), (3, 0), "{round:?}");
    app.heard_until(0).await;
    let round = app.judged().await;
    assert_eq!((round.unheard, round.busy), (0, 3), "now they are looked at, and held: {round:?}");
    held.run("rollback").await.unwrap();
    assert_eq!(app.judged().await.failed, 3);
}

#[tokio::test]
async fn what_an_observer_cannot_tell_is_not_unsaid() {
    let app = App::new().await;
    let made = app.created("trades").await;
    app.hear(vec![observation(id_of(&made), 1, 0)], Vec::new()).await;
    // It holds its cluster, and something that it saw before the deadline waits to be told: brokers may answer and take nothing.
    app.watched(&made, 30).await;
    app.run_out(&made).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.unheard, round.deaf), (0, 1, false), "{round:?}");
    app.ask("update cluster_observers set confirmed_at = null").await;
    assert!(app.judged().await.deaf);
    // Whoever holds nothing any more says nothing either.
    app.ask("update cluster_observers set expires_at = now()").await;
    assert_eq!(app.judged().await.failed, 1);
}

#[tokio::test]
async fn of_a_cluster_of_which_nothing_is_known_any_more_nothing_is_destroyed_that_may_have_come_to_be() {
    let long = 20 * 60 + 1;
    for (name, watched, heard, seen) in
        [("known", 0, 0, 0), ("unwatched", 301, 0, 0), ("unheard", 0, 301, 0), ("unseen", 0, 0, long)]
    {
        let app = App::new().await;
        let made = app.created(name).await;
        app.hear(vec![observation(id_of(&made), 1, 0)], Vec::new()).await;
        app.ask(&format!("update observations set received_at = now() - interval '{seen} seconds'")).await;
        app.watched(&made, watched).await;
        app.heard_until(heard).await;
        let id = text(&made["operation"]["id"]);
        app.ask(&format!(
            "update operations set deadline_at = now() - interval '400 seconds' where id = '{id}'"
        ))
        .await;
        assert_eq!(app.judged().await.reverted, 1, "{name}");
        let expected = if name == "known" { "purged" } else { "deleted" };
        assert_eq!(text(&app.database(&made).await["run_state"]), expected, "{name}");
    }
}

#[tokio::test]
async fn an_operation_that_cannot_be_read_holds_up_no_other() {
    let app = App::new().await;
    let (broken, good) = (app.created("a").await, app.created("b").await);
    app.ask(&format!(
        "update operations set steps = '[{{\"name\": \"x\", \"state\": \"odd\"}}]' where id = '{}'",
        text(&broken["operation"]["id"])
    ))
    .await;
    app.run_out(&broken).await;
    app.run_out(&good).await;
    let round = app.judged().await;
    assert_eq!((round.failed, round.unreadable.len()), (1, 1));
    assert_eq!(text(&app.operation(&path_of(&good)).await["state"]), "failed");
}

#[tokio::test]
async fn each_kind_is_given_its_time() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.patch(id, "\"1-1\"", &json!({})).await;
    app.delete(id).await;
    let minutes =
        "select kind, extract(epoch from deadline_at - created_at) / 60 from operations order by seq";
    let rows = app.ask(minutes).await;
    let kinds: Vec<(String, f64)> = rows
        .lines()
        .map(|row| {
            let (kind, minutes) = row.split_once('|').unwrap();
            (kind.to_owned(), minutes.parse::<f64>().unwrap().round())
        })
        .collect();
    let expected = [("create", 30.0), ("update", 30.0), ("delete", 60.0)];
    assert_eq!(kinds, expected.map(|(kind, minutes)| (kind.to_owned(), minutes)));
}
