//! What happened is kept for a while: what is taken away then, what stays, and what is told of what is gone.

use std::time::Duration;

use ::backend::metrics::Metrics;
use ::backend::prune::{Pruner, Retention, Stage};
use ::store::OutcomeKind;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::streams::Stream;
use super::{App, id_of, observation, outcome, path_of, text};

const HOUR: Duration = Duration::from_hours(1);
/// What has ended is old at once.
const NOTHING: Retention = Retention { history: Some(Duration::ZERO), ..FOR_EVER };
const FOR_EVER: Retention = Retention { history: None, audit: None, operations: None, settled: None };
/// Pieces after which a turn has no end.
const ENDLESS: usize = 10_000;

const STATES: &str = "select string_agg(seq::text, ',' order by seq) from instructions";
/// Of each operation how many events there are.
const EVENTS: &str = "select string_agg(seq || case when there = last_event then ':all' else ':' || there end, ' ' order by seq) \
    from (select o.seq, o.last_event, (select count(*) from operation_events e where e.operation_id = o.id) as there \
    from operations o) as told";
/// Operations without their last event.
const UNENDED: &str = "select count(*) from operations o where not exists \
    (select from operation_events e where e.operation_id = o.id and e.number = o.last_event)";
const ROWS: &str = "select (select count(*) from instructions) + (select count(*) from operation_events)";

impl App {
    fn pruner(&self, retention: Retention, rows: u32) -> Pruner {
        Pruner { store: self.store.clone(), metrics: self.metrics.clone(), retention, rows }
    }

    async fn prune(&self, retention: Retention) -> u64 {
        turn(&self.pruner(retention, 500)).await
    }

    /// Changes a database that stands at a position.
    async fn changed(&self, id: &str, seq: i64, wish: &Value) -> Value {
        let answer = self.patch(id, &format!("\"1-{seq}\""), wish).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.body
    }
}

/// A whole turn. Says how many rows went.
async fn turn(pruner: &Pruner) -> u64 {
    let (mut gone, mut next) = (0, Some(Stage::FIRST));
    for _ in 0..ENDLESS {
        let Some(stage) = next else { return gone };
        match pruner.step(stage).await {
            Ok(piece) => (gone, next) = (gone + piece.gone, piece.next),
            // Others were in the way: the same once more.
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
    }
    panic!("the turn has no end: {next:?}")
}

fn config(value: &str) -> Value {
    json!({"config": {"a.b": value}})
}

#[tokio::test]
async fn what_a_database_may_return_to_stays_and_the_rest_of_its_history_goes() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let (id, database) = (text(&made["database"]["id"]), id_of(&made));
    app.changed(id, 1, &config("2")).await;
    app.changed(id, 2, &config("3")).await;
    app.hear(vec![observation(database, 3, 3)], Vec::new()).await;
    app.changed(id, 3, &config("4")).await;
    app.hear(Vec::new(), vec![outcome(database, 4, OutcomeKind::Refused)]).await;
    let fifth = app.changed(id, 4, &config("5")).await;

    let young = Retention { history: Some(HOUR), ..FOR_EVER };
    assert_eq!(app.prune(young).await, 0);
    assert_eq!(app.prune(FOR_EVER).await, 0);
    assert!(app.prune(NOTHING).await > 0);
    assert_eq!(app.ask(STATES).await, "3,4,5", "what follows from a failure is not done yet");
    assert_eq!(app.ask(EVENTS).await, "1:1 2:1 3:1 4:all 5:all");
    app.judged().await;
    assert!(app.prune(NOTHING).await > 0);
    assert_eq!(app.ask(STATES).await, "3,5");
    assert_eq!(app.ask(EVENTS).await, "1:1 2:1 3:1 4:1 5:all");
    assert_eq!(app.prune(NOTHING).await, 0, "all that is left is needed");

    let back = app.cancel(&app.acme, &path_of(&fifth), "k").await;
    assert_eq!(back.status, 202, "{back:?}");
    assert_eq!(back.body["database"]["config"], json!({"a.b": "3"}), "the last that was carried out");
    app.prune(NOTHING).await;
    assert_eq!(app.ask(STATES).await, "3,5,6");
    let published = app.store.unpublished(10).await.unwrap().instructions;
    assert_eq!(published.iter().map(|one| one.position.seq).collect::<Vec<_>>(), [6]);
    app.hear(Vec::new(), vec![outcome(database, 6, OutcomeKind::Refused)]).await;
    let next = app.changed(id, 6, &json!({"storage": {"size_gib": 100}})).await;
    assert_eq!(
        next["database"]["config"],
        json!({"a.b": "3"}),
        "what was taken, as the way back to it was refused"
    );
    assert_eq!(app.ask(UNENDED).await, "0");
}

#[tokio::test]
async fn a_stream_that_resumes_behind_what_is_gone_comes_to_the_end() {
    let app = App::new().await;
    let (old, open) = (app.running("trades").await, app.created("quotes").await);
    let operation = text(&old["operation"]["id"]);
    let last = app.ask(&format!("select last_event from operations where id = '{operation}'")).await;
    let last: i64 = last.parse().unwrap();
    assert!(last > 2, "there is something to take away");
    let mut follower = Stream::open(&app, text(&open["operation"]["id"]), None).await;
    assert_eq!(follower.next().await.unwrap().id, 1);
    assert_eq!(app.prune(NOTHING).await, last.unsigned_abs() - 1);

    for seen in [None, Some(1), Some(last - 1)] {
        let frames = Stream::open(&app, operation, seen).await.rest().await;
        let told: Vec<_> = frames.iter().map(|frame| (frame.id, text(&frame.data["state"]))).collect();
        assert_eq!(told, [(last, "succeeded")], "behind {seen:?}");
    }
    let request = app.request(&app.acme, Method::GET, &format!("/v1/operations/{operation}/events"));
    assert_eq!(app.send(request.header("Last-Event-ID", last)).await.status, 204);

    app.hear(vec![observation(id_of(&open), 1, 1)], Vec::new()).await;
    let rest: Vec<i64> = follower.rest().await.iter().map(|frame| frame.id).collect();
    assert_eq!(rest, (2..=last).collect::<Vec<_>>(), "of what was open nothing is missing");
}

#[tokio::test]
async fn old_entries_of_the_audit_go_some_at_a_time_and_those_of_purges_stay() {
    const KEPT: Duration = Duration::from_hours(400 * 24);
    let app = App::new().await;
    let entries = |age: &str, actions: &str| {
        format!(
            "insert into audit (at, principal, role, action, subject) \
             select now() - interval '{age}', 'test', 'tenant', action, 'x' from unnest('{{{actions}}}'::text[]) as action"
        )
    };
    app.ask("delete from audit").await;
    app.ask(&entries("401 days", "a,b,databases.purge,c,d,e")).await;
    app.ask(&entries("399 days", "f,databases.purge,g")).await;
    let registry = runtime::Metrics::default();
    let retention = Retention { audit: Some(KEPT), ..FOR_EVER };
    let pruner = Pruner { metrics: Metrics::new(&registry), ..app.pruner(retention, 2) };
    assert_eq!(turn(&pruner).await, 5);
    let left = "select string_agg(action, ',' order by id) from audit";
    assert_eq!(app.ask(left).await, "databases.purge,f,databases.purge,g");
    assert_eq!(turn(&pruner).await, 0);
    let shown = registry.encode().unwrap();
    assert!(shown.contains(r#"rows_pruned_total{table="audit"} 5"#), "{shown}");
}

#[tokio::test]
async fn operations_go_when_their_states_are_gone_and_nobody_names_them() {
    const OPERATIONS: &str = "select string_agg(seq::text, ',' order by seq) from operations";
    let app = App::new().await;
    let made = app.running("trades").await;
    let (id, database) = (text(&made["database"]["id"]), id_of(&made));
    // The second is superseded by the third; the sixth is open.
    app.changed(id, 1, &config("2")).await;
    for seq in 2..5 {
        app.changed(id, seq, &config(&(seq + 1).to_string())).await;
        app.hear(vec![observation(database, seq + 1, seq + 1)], Vec::new()).await;
    }
    let sixth = app.changed(id, 5, &config("6")).await;
    let at_once = Some(Duration::ZERO);
    assert_eq!(
        app.prune(Retention { operations: at_once, ..FOR_EVER }).await,
        0,
        "all their states are there"
    );
    app.prune(Retention { operations: Some(HOUR), ..NOTHING }).await;
    assert_eq!((app.ask(STATES).await.as_str(), app.ask(OPERATIONS).await.as_str()), ("5,6", "1,2,3,4,5,6"));

    let ended = Retention { operations: at_once, ..FOR_EVER };
    let name = async |seq: u8, named: &str| {
        let named = format!("(select o.id from operations o where o.seq::text = '{named}')");
        app.ask(&format!("update operations set reverts = {named} where seq = {seq}")).await
    };
    name(6, "4").await;
    name(4, "1").await;
    assert_eq!(app.prune(ended).await, 2, "the second goes with the third, which took its place");
    assert_eq!(app.ask(OPERATIONS).await, "1,4,5,6", "the sixth stays, and so do those that it leads to");
    name(6, "none").await;
    assert_eq!(turn(&app.pruner(ended, 1)).await, 1);
    assert_eq!(app.ask(OPERATIONS).await, "1,5,6", "the first was looked at before the one that named it");
    assert_eq!(app.prune(ended).await, 1);
    assert_eq!(app.ask(OPERATIONS).await, "5,6");
    assert_eq!((app.prune(ended).await, app.ask(UNENDED).await.as_str()), (0, "0"));
    assert_eq!(app.get(&app.acme, &path_of(&made)).await.status, 404);
    let back = app.cancel(&app.acme, &path_of(&sixth), "k").await;
    assert_eq!(back.body["database"]["config"], json!({"a.b": "5"}), "what a database returns to is there");
}

#[tokio::test]
async fn settled_letters_and_resolved_alarms_go_and_what_is_open_stays_however_old() {
    const KEPT: Duration = Duration::from_hours(90 * 24);
    let app = App::new().await;
    for statement in [
        "insert into dead_letters (topic, kafka_partition, kafka_offset, code, message, consumer, received_at, superseded_at) \
         select 't', 0, n, 'c', 'm', 'test', now() - interval '100 days', settled \
         from unnest(array[now() - interval '91 days', null, now() - interval '89 days', now() - interval '99 days']) \
         with ordinality as s (settled, n)",
        "insert into cluster_observers (cluster_id, holder, term, expires_at, listed_term) values ('eu', 'x', 3, now(), 3)",
        "insert into unclaimed (database_id, cluster_id, code, epoch, seq, body, term, resolved_at) \
         select gen_random_uuid(), cluster, 'other_cluster', 1, n, '{}'::jsonb, term, now() - ago \
         from (values (1, 'eu', 2, interval '91 days'), (2, 'eu', 2, null), (3, 'eu', 2, interval '89 days'), \
         (4, 'eu', 3, interval '91 days'), (5, 'nowhere', 9, interval '91 days')) as s (n, cluster, term, ago)",
    ] {
        app.ask(statement).await;
    }
    let pruner = app.pruner(Retention { settled: Some(KEPT), ..FOR_EVER }, 1);
    assert_eq!(turn(&pruner).await, 4);
    let letters = "select string_agg(kafka_offset::text, ',' order by kafka_offset) from dead_letters";
    assert_eq!(app.ask(letters).await, "2,3");
    let alarms = "select string_agg(seq::text, ',' order by seq) from unclaimed";
    assert_eq!(app.ask(alarms).await, "2,3,4", "by the fourth is known that the cluster was heard");
    assert_eq!(turn(&pruner).await, 0);
}

#[tokio::test]
async fn any_number_of_replicas_take_turns_and_two_at_once_take_nothing_twice() {
    const CHANGES: i64 = 12;
    let app = App::crowded().await;
    let begun = join_all((0..5).map(|_| app.store.begin_pruning(HOUR))).await;
    assert_eq!(begun.into_iter().filter(|begun| *begun.as_ref().unwrap()).count(), 1);
    assert!(!app.store.begin_pruning(HOUR).await.unwrap(), "it is not time");
    app.ask("update turns set next_at = now() - interval '1 second' where name = 'prune'").await;
    assert!(app.store.begin_pruning(HOUR).await.unwrap());

    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    for seq in 1..=CHANGES {
        app.changed(id, seq, &config(&seq.to_string())).await;
    }
    app.hear(vec![observation(id_of(&made), CHANGES + 1, CHANGES + 1)], Vec::new()).await;
    let before: u64 = app.ask(ROWS).await.parse().unwrap();
    let pruners = [app.pruner(NOTHING, 2), app.pruner(NOTHING, 3), app.pruner(NOTHING, 500)];
    let gone: u64 = join_all(pruners.iter().map(turn)).await.into_iter().sum();
    let after: u64 = app.ask(ROWS).await.parse().unwrap();
    assert_eq!(gone, before - after);
    assert_eq!(app.ask(STATES).await, format!("1,{CHANGES},{}", CHANGES + 1));
    assert_eq!((app.ask(UNENDED).await.as_str(), app.prune(NOTHING).await), ("0", 0));
}
