//! Pause, resume, restart, undelete: what each is answered with, and what becomes of those that do not succeed.

use ::store::OutcomeKind;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::Random;

use super::super::Answer;
use super::{App, id_of, observation, outcome, path_of, text};

const VERBS: [&str; 4] = ["pause", "resume", "restart", "undelete"];

impl App {
    /// Asks something of a database in one word, with a new key.
    pub(super) async fn act(&self, id: &str, verb: &str) -> Answer {
        self.act_with(id, verb, &testkit::unique("key")).await
    }

    async fn act_with(&self, id: &str, verb: &str, key: &str) -> Answer {
        let request = self.request(&self.acme, Method::POST, &format!("/v1/databases/{id}:{verb}"));
        self.send(request.header("Idempotency-Key", key)).await
    }

    /// Asks for the change at a seq, after the one before is carried out in full.
    async fn next(&self, made: &Value, verb: &str, seq: i64) -> Value {
        if seq > 2 {
            self.done(made, seq - 1).await;
        }
        let id = text(&made["database"]["id"]);
        if verb == "delete" { self.delete(id).await.body } else { self.act(id, verb).await.body }
    }

    /// The newest position is carried out in full.
    pub(super) async fn done(&self, made: &Value, seq: i64) {
        self.hear(vec![observation(id_of(made), seq, seq)], Vec::new()).await;
        assert_eq!(text(&self.newest(made).await["state"]), "succeeded");
    }
}

pub(super) fn state_of(answer: &Answer) -> (u16, &str, i64, &str) {
    let database = &answer.body["database"];
    let kind = text(&answer.body["operation"]["kind"]);
    (answer.status.as_u16(), text(&database["run_state"]), database["seq"].as_i64().unwrap_or_default(), kind)
}

#[tokio::test]
async fn each_verb_is_an_operation_of_its_own_word() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]).to_owned();
    let table = [
        ("pause", "paused", "pause"),
        ("resume", "running", "resume"),
        ("restart", "running", "restart"),
        ("delete", "deleted", "delete"),
        ("undelete", "running", "undelete"),
    ];
    for ((verb, run_state, kind), seq) in table.into_iter().zip(2..) {
        let answer = if verb == "delete" { app.delete(&id).await } else { app.act(&id, verb).await };
        assert_eq!(state_of(&answer), (202, run_state, seq, kind), "{answer:?}");
        let tag = format!("\"1-{seq}\"");
        assert_eq!((answer.header("location"), answer.header("etag")), (&*path_of(&answer.body), &*tag));
        assert_eq!(text(&app.operation(&path_of(&answer.body)).await["kind"]), kind);
        let audit = format!("select operation_id from audit where action = 'databases.{verb}'");
        assert_eq!(app.ask(&audit).await, text(&answer.body["operation"]["id"]));
        app.done(&made, seq).await;
    }
    let rows = "select kind || ' ' || coalesce(verb, '-') || ' ' || extract(epoch from deadline_at - created_at)::int / 60 \
                from operations order by seq";
    let expected = [
        "create - 30",
        "update pause 30",
        "update resume 30",
        "update restart 30",
        "delete - 60",
        "update undelete 30",
    ];
    assert_eq!(
        app.ask(rows).await.lines().collect::<Vec<_>>(),
        expected,
        "programs of before know three kinds"
    );
    let kinds = "select distinct operation_kind from instructions order by 1";
    assert_eq!(app.ask(kinds).await, "create\ndelete\nupdate");
    let restarts = "select count(distinct desired ->> 'restart_nonce') from instructions where seq > 3";
    assert_eq!(app.ask(restarts).await, "1", "one restart, and what follows it is none");
    assert_eq!(
        app.ask(
            "select bool_and((desired #>> '{storage,provisioned}')::bool) from instructions where seq > 1"
        )
        .await,
        "t"
    );
}

#[tokio::test]
async fn asking_twice_is_asking_once_but_for_a_restart() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]).to_owned();
    let stands = app.act(&id, "resume").await;
    assert_eq!(state_of(&stands), (202, "running", 1, "create"), "{stands:?}");
    let paused = app.act_with(&id, "pause", "k").await;
    let counts = app.counts().await;
    let replayed = app.act_with(&id, "pause", "k").await;
    assert_eq!((replayed.header("idempotent-replayed"), &replayed.body), ("true", &paused.body));
    assert_eq!(app.counts().await, counts);
    for verb in ["pause", "undelete"] {
        let again = app.act(&id, verb).await;
        assert_eq!(state_of(&again), (202, "paused", 2, "pause"), "{verb}");
        assert_eq!(again.body["operation"]["id"], paused.body["operation"]["id"]);
    }
    app.act(&id, "resume").await;
    let first = app.act_with(&id, "restart", "r").await;
    assert_eq!(app.act_with(&id, "restart", "r").await.body, first.body);
    let second = app.act(&id, "restart").await;
    assert_eq!((state_of(&first).2, state_of(&second).2), (4, 5));
    let nonces = "select count(distinct desired ->> 'restart_nonce') from instructions";
    assert_eq!(app.ask(nonces).await, "2");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_reason() {
    let app = App::new().await;
    let wish = |name: &str, policy: &str| json!({"name": name, "region": "eu-west-1", "storage": {"deletion_policy": policy}});
    for (policy, code, open) in [("retain", "deleted", Some("undelete")), ("delete", "purged", None)] {
        let made = app.create(&app.acme, &wish(policy, policy)).await.body;
        let id = text(&made["database"]["id"]);
        app.delete(id).await;
        for verb in VERBS.into_iter().filter(|verb| Some(*verb) != open) {
            let refused = app.act(id, verb).await;
            assert_eq!((refused.status.as_u16(), text(&refused.body["code"])), (409, code), "{verb}");
            assert!(text(&refused.body["detail"]).contains(code), "{refused:?}");
        }
        assert_eq!(app.database(&made).await["seq"], 2);
    }
    let made = app.running("paused").await;
    let id = text(&made["database"]["id"]);
    app.act(id, "pause").await;
    let refused = app.act(id, "restart").await;
    assert_eq!((refused.status.as_u16(), text(&refused.body["code"])), (409, "paused"));
}

#[tokio::test]
async fn what_is_missing_or_not_the_callers_is_told_apart() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let path = format!("/v1/databases/{}", text(&made["database"]["id"]));
    let other = app.running("quotes").await;
    let others = format!("/v1/databases/{}", text(&other["database"]["id"]));
    app.act_with(text(&made["database"]["id"]), "pause", "used").await;
    let counts = app.counts().await;
    let strange = "/v1/databases/0192f3a4-5b6c-7d8e-9f00-112233445566";
    let (none, key, used) = (&[][..], &[("Idempotency-Key", "new")][..], &[("Idempotency-Key", "used")][..]);
    let stale = &[("Idempotency-Key", "new"), ("If-Match", "\"1-1\"")][..];
    let table = [
        (&app.acme, format!("{path}:pause"), none, 400, "idempotency_key_required"),
        (&app.umbrella, format!("{path}:pause"), key, 404, "not_found"),
        (&app.console, format!("{path}:pause"), key, 400, "tenant_required"),
        (&app.acme, format!("{strange}:undelete"), key, 404, "not_found"),
        (&app.acme, "/v1/databases/x:undelete".to_owned(), key, 404, "not_found"),
        (&app.acme, format!("{path}:explode"), key, 404, "no_such_path"),
        (&app.acme, path.clone(), key, 405, "method_not_allowed"),
        (&app.acme, format!("{path}:resume"), stale, 412, "precondition_failed"),
        (&app.acme, format!("{others}:pause"), used, 422, "idempotency_key_reused"),
    ];
    for (token, path, headers, status, code) in table {
        let request = app.request(token, Method::POST, &path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = app.send(request).await;
        assert_eq!(
            (answer.status.as_u16(), text(&answer.body["code"])),
            (status, code),
            "{path}: {answer:?}"
        );
    }
    assert_eq!(app.counts().await, counts);
    let fresh = [("Idempotency-Key", "new"), ("If-Match", "\"1-2\"")];
    let request = app.request(&app.acme, Method::POST, &format!("{path}:resume"));
    let answer = app.send(request.header(fresh[0].0, fresh[0].1).header(fresh[1].0, fresh[1].1)).await;
    assert_eq!(state_of(&answer), (202, "running", 3, "resume"));
}

#[tokio::test]
async fn an_undelete_takes_its_name_again_unless_it_has_gone_to_another() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.delete(id).await;
    let other = app.running("trades").await;
    let refused = app.act_with(id, "undelete", "k").await;
    assert_eq!((refused.status.as_u16(), text(&refused.body["code"])), (409, "name_taken"));
    assert_eq!(refused.errors(), [("/name", "conflict")]);
    let holder = text(&other["database"]["id"]);
    assert!(text(&refused.body["detail"]).contains(holder), "{refused:?}");
    assert_eq!(app.database(&made).await["seq"], 2);
    app.delete(holder).await;
    let back = app.act_with(id, "undelete", "k").await;
    assert_eq!(state_of(&back), (202, "running", 3, "undelete"), "a refusal is no answer to keep: {back:?}");
    let taken = app.create(&app.acme, &json!({"name": "trades", "region": "eu-west-1"})).await;
    assert_eq!((taken.status.as_u16(), text(&taken.body["code"])), (409, "name_taken"));
}

#[tokio::test]
async fn what_runs_out_of_time_goes_back_and_keeps_its_error() {
    // The verbs that lead there, and the run state that a failure of the last one returns to.
    let table: [(&[&str], &str); 4] = [
        (&["pause"], "running"),
        (&["pause", "resume"], "paused"),
        (&["delete", "undelete"], "deleted"),
        (&["restart"], "running"),
    ];
    for (verbs, returns_to) in table {
        let app = App::new().await;
        let made = app.running("trades").await;
        let id = text(&made["database"]["id"]).to_owned();
        let mut last = Value::Null;
        for (verb, seq) in verbs.iter().zip(2..) {
            last = app.next(&made, verb, seq).await;
        }
        let seq = last["database"]["seq"].as_i64().unwrap();
        app.hear(vec![observation(id_of(&made), seq, seq - 1)], Vec::new()).await;
        app.run_out(&last).await;
        let round = app.judged().await;
        assert_eq!((round.failed, round.reverted), (1, 1), "{verbs:?}: {round:?}");
        let failed = app.operation(&path_of(&last)).await;
        assert_eq!(
            (text(&failed["state"]), text(&failed["error"]["code"])),
            ("failed", "deadline"),
            "{verbs:?}"
        );
        let shown = app.database(&made).await;
        assert_eq!(
            (text(&shown["run_state"]), shown["seq"].as_i64()),
            (returns_to, Some(seq + 1)),
            "{verbs:?}"
        );
        assert_eq!(app.newest(&made).await["reverts"], failed["id"]);
        app.done(&made, seq + 1).await;
        let restarts = "select count(distinct desired ->> 'restart_nonce') from instructions";
        let expected = if verbs == ["restart"] { "1" } else { "0" };
        assert_eq!(app.ask(restarts).await, expected, "going back restarts nothing");
        let again = app.act(&id, verbs.last().unwrap()).await;
        assert_eq!(
            (again.status.as_u16(), state_of(&again).2),
            (202, seq + 2),
            "{verbs:?} can be asked for again"
        );
    }
}

#[tokio::test]
async fn a_change_that_fails_takes_back_no_verb_that_it_passed_by() {
    for verbs in [["pause", "resume"], ["delete", "undelete"]] {
        let app = App::new().await;
        let made = app.running("trades").await;
        for (verb, seq) in verbs.iter().zip(2..) {
            app.next(&made, verb, seq).await;
        }
        let wish = json!({"config": {"a.b": "1"}});
        let changed = app.patch(text(&made["database"]["id"]), "\"1-3\"", &wish).await.body;
        // The second verb was never carried out by itself.
        app.hear(vec![observation(id_of(&made), 4, 2)], Vec::new()).await;
        app.run_out(&changed).await;
        assert_eq!(app.judged().await.reverted, 1, "{verbs:?}");
        let shown = app.database(&made).await;
        assert_eq!((text(&shown["run_state"]), shown["seq"].as_i64()), ("running", Some(5)), "{verbs:?}");
        assert_eq!(shown["config"], json!({}), "{verbs:?}");
    }
}

#[tokio::test]
async fn a_verb_that_is_taken_back_leaves_the_run_state_in_which_it_was_asked_for() {
    // Neither verb was carried out when the second one is cancelled.
    for (verbs, expected) in
        [(["pause", "resume"], ("paused", "update")), (["delete", "undelete"], ("deleted", "delete"))]
    {
        let app = App::new().await;
        let made = app.running("trades").await;
        app.next(&made, verbs[0], 2).await;
        let last = app.act(text(&made["database"]["id"]), verbs[1]).await.body;
        app.hear(vec![observation(id_of(&made), 3, 1)], Vec::new()).await;
        let back = app.cancel(&app.acme, &path_of(&last), "k").await;
        assert_eq!(state_of(&back), (202, expected.0, 4, expected.1), "{back:?}");
    }
    // It ran all the time: what was refused stays to be asked for, so that the verb changes something.
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    let bad = json!({"config": {"bad.key": "1"}, "on_failure": "keep"});
    assert_eq!(app.patch(id, "\"1-1\"", &bad).await.status, 202);
    app.hear(Vec::new(), vec![outcome(id_of(&made), 2, OutcomeKind::Refused)]).await;
    let resumed = app.act(id, "resume").await.body;
    app.hear(vec![observation(id_of(&made), 3, 1)], Vec::new()).await;
    app.run_out(&resumed).await;
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!((text(&shown["run_state"]), &shown["seq"]), ("running", &json!(4)));
}

#[tokio::test]
async fn a_cancelled_verb_goes_back_but_a_restart_is_not_cancelled() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    let restart = app.act(id, "restart").await.body;
    let refused = app.cancel(&app.acme, &path_of(&restart), "k1").await;
    assert_eq!((refused.status.as_u16(), text(&refused.body["code"])), (409, "no_way_back"));
    assert!(text(&refused.body["detail"]).contains("a restart is not cancelled"), "{refused:?}");
    app.done(&made, 2).await;
    let pause = app.act(id, "pause").await.body;
    let back = app.cancel(&app.acme, &path_of(&pause), "k2").await;
    assert_eq!(state_of(&back), (202, "running", 4, "update"), "{back:?}");
    app.done(&made, 4).await;
    app.delete(id).await;
    app.done(&made, 5).await;
    let undelete = app.act(id, "undelete").await.body;
    let back = app.cancel(&app.acme, &path_of(&undelete), "k3").await;
    assert_eq!(state_of(&back), (202, "deleted", 7, "delete"), "{back:?}");
    app.created("trades").await;
}

#[tokio::test]
async fn a_state_that_is_too_large_for_its_record_is_refused() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let huge = json!({"config": {"a.b": "x".repeat(500)}});
    app.patch(text(&made["database"]["id"]), "\"1-1\"", &huge).await;
    let limits = super::super::Limits { record_bytes: 400, ..super::super::Limits::default() };
    let parts = (app.store.clone(), app.doorbell.clone(), app.metrics.clone(), app.stop.clone());
    let base = super::super::serve_behind(limits, parts).await;
    let url = format!("{base}/v1/databases/{}:pause", text(&made["database"]["id"]));
    let request = app.client.post(url).bearer_auth(&app.acme).header("Idempotency-Key", "k");
    let refused = app.send(request).await;
    assert_eq!((refused.status.as_u16(), text(&refused.body["code"])), (422, "state_too_large"));
}

/// What somebody did, and what came of it.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    undeleted: usize,
    too_late: usize,
    purged: usize,
    purged_later: usize,
}

impl Tally {
    const fn has_everything(self) -> bool {
        self.undeleted > 0 && self.too_late > 0 && self.purged > 0 && self.purged_later > 0
    }
}

async fn somebody(app: &App, id: &str, mut random: Random) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..12 {
        match random.below(6) {
            0 => {
                let policy = if random.chance(40) { "delete" } else { "retain" };
                app.patch(id, "*", &json!({"storage": {"deletion_policy": policy}})).await;
            }
            1 => {
                let answer = app.delete(id).await;
                tally.purged += usize::from(text(&answer.body["database"]["run_state"]) == "purged");
            }
            2 | 3 if random.chance(70) => {
                let shown = app.get(&app.acme, &format!("/v1/databases/{id}")).await.body;
                let answer = app.purge(id, text(&shown["name"])).await;
                match (answer.status.as_u16(), text(&answer.body["code"])) {
                    (202, _) => {
                        assert_eq!(text(&answer.body["database"]["run_state"]), "purged", "{answer:?}");
                        tally.purged_later += usize::from(text(&answer.body["operation"]["kind"]) == "purge");
                    }
                    (409, "living") => {}
                    other => panic!("{other:?}: {answer:?}"),
                }
            }
            _ => {
                let answer = app.act(id, "undelete").await;
                match (answer.status.as_u16(), text(&answer.body["code"])) {
                    (202, _) => {
                        assert_eq!(text(&answer.body["database"]["run_state"]), "running", "{answer:?}");
                        tally.undeleted += usize::from(text(&answer.body["operation"]["kind"]) == "undelete");
                    }
                    (409, "purged") => tally.too_late += 1,
                    other => panic!("{other:?}: {answer:?}"),
                }
            }
        }
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_comes_back_from_a_purge_whoever_asks_when() {
    let app = App::crowded().await;
    let seed = u64::from(std::process::id());
    let mut sum = Tally::default();
    // Chance has a say in what happens: more rounds, up to where it is no accident that something did not.
    for round in 0..160 {
        if round >= 16 && sum.has_everything() {
            break;
        }
        let made = app.created(&format!("trades-{round}")).await;
        let id = text(&made["database"]["id"]);
        let people = (0..4).map(|one| somebody(&app, id, Random::new(seed + 100 * round + one)));
        for tally in join_all(people).await {
            sum.undeleted += tally.undeleted;
            sum.too_late += tally.too_late;
            sum.purged += tally.purged;
            sum.purged_later += tally.purged_later;
        }
        let after = format!(
            "select count(*) from instructions i where i.database_id = '{id}' and exists (select from instructions p \
             where p.database_id = i.database_id and p.seq < i.seq and p.desired ->> 'run_state' = 'purged')"
        );
        assert_eq!(app.ask(&after).await, "0", "seed {seed}: something was minted after a purge");
        let kept = format!(
            "select count(*) from operations o where o.database_id = '{id}' and o.verb = 'purge' and not exists \
             (select from instructions i where i.database_id = o.database_id and i.seq = o.seq - 1 \
             and i.desired ->> 'run_state' = 'deleted')"
        );
        assert_eq!(app.ask(&kept).await, "0", "seed {seed}: something was purged that was not deleted");
        let newest = format!(
            "select i.desired = d.desired from databases d join instructions i \
             on i.database_id = d.id and i.seq = d.seq where d.id = '{id}'"
        );
        assert_eq!(app.ask(&newest).await, "t");
    }
    assert!(sum.has_everything(), "seed {seed}: hardly anything happened: {sum:?}");
}
