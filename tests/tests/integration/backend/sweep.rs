//! The sweep over a real Postgres: what is sent again, minted again, reported or left alone, and what the API shows of it.

use std::time::Duration;

use ::backend::sweep::decide::Rules;
use ::backend::sweep::{PAGE, Place, Settings, Sweep, Tally};
use ::store::{Advance, Batch, Observation, Term};
use domain::{DatabaseId, Position};
use serde_json::{Value, json};

use super::{App, text};

const LONG: Duration = Duration::from_mins(5);
const NOW: Duration = Duration::ZERO;
const RULES: Rules = Rules { grace: NOW, again: LONG, listing: LONG, retention: Some(LONG) };

/// A sweep whose turn it always is.
fn sweep(app: &App, cap: u32, rules: Rules) -> Sweep {
    Sweep {
        store: app.store.clone(),
        gossip: "gossip".to_owned(),
        doorbell: app.doorbell.clone(),
        metrics: app.metrics.clone(),
        settings: Settings { period: NOW, cap, page: PAGE, rules },
    }
}

async fn turn(app: &App, cap: u32) -> Tally {
    sweep(app, cap, RULES).step(&mut Place::default()).await.unwrap().expect("it is its turn")
}

/// The observer of the cluster has listed everything under its term, and told of it.
async fn listed(app: &App) -> Term {
    let cluster = "eu".parse().unwrap();
    let term = app.store.observe_cluster(&cluster, "observer", LONG).await.unwrap().unwrap();
    assert!(app.store.note_listed(&cluster, "observer", term, (0, NOW)).await.unwrap());
    term
}

/// Kafka took everything.
async fn published(app: &App) {
    let waiting = app.store.unpublished(100).await.unwrap().instructions;
    let sent: Vec<_> = waiting.iter().map(|one| (one.database, one.position)).collect();
    app.store.mark(&sent).await.unwrap();
}

fn id(made: &Value) -> DatabaseId {
    text(&made["database"]["id"]).parse().unwrap()
}

fn observation(database: DatabaseId, position: Position, version: i64) -> Observation {
    Observation {
        database,
        cluster: "eu".parse().unwrap(),
        position,
        term: 1,
        resource_version: version,
        present: true,
        content_hash: String::new(),
        phase: "Ready".to_owned(),
        carried_out: Some(position),
        volume: true,
        steps: Vec::new(),
        body: json!({}).into(),
        body_schema: 1,
        said_at: jiff::Timestamp::now(),
    }
}

async fn say(app: &App, offset: i64, said: Observation) {
    let batch = Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        advance: Advance { partition: 0, from: (offset > 0).then_some(offset), to: offset + 1 },
        observations: vec![said],
        ..Batch::default()
    };
    app.store.absorb(&batch).await.unwrap();
}

async fn shown(app: &App, made: &Value) -> Value {
    app.get(&app.acme, &format!("/v1/databases/{}", id(made))).await.body
}

#[tokio::test]
async fn what_its_cluster_does_not_show_is_sent_again_under_the_cap_and_said_so() {
    let app = App::new().await;
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(app.created(name).await);
    }
    published(&app).await;
    listed(&app).await;
    let first = turn(&app, 2).await;
    assert_eq!((first.seen, first.changed, first.resent), (3, 3, 2));
    let again = app.store.unpublished(10).await.unwrap().instructions;
    assert!(again.len() == 2 && again.iter().all(|one| one.said_again && one.position == Position::FIRST));
    let body = shown(&app, &made[0]).await;
    assert_eq!(text(&body["diverged"]), "missing");
    assert!(body["diverged_since"].is_string());
    let second = turn(&app, 2).await;
    assert_eq!((second.changed, second.resent), (0, 1), "the rest, and nobody twice");
    published(&app).await;
    assert_eq!(turn(&app, 9).await.resent, 0, "they were sent again lately");
    for (offset, one) in (0..).zip(&made) {
        say(&app, offset, observation(id(one), Position::FIRST, 1)).await;
    }
    let healed = turn(&app, 9).await;
    assert_eq!((healed.changed, healed.resent), (3, 0));
    let body = shown(&app, &made[0]).await;
    assert!(body["diverged"].is_null() && body["diverged_since"].is_null(), "{body}");
    assert!(body["observed"]["as_of"].is_string());
}

#[tokio::test]
async fn what_is_gone_or_older_or_not_told_under_the_newest_term_is_sent_again() {
    let app = App::new().await;
    let made = [app.created("gone").await, app.created("older").await, app.created("untold").await];
    let body = json!({"storage": {"size_gib": 100}});
    assert_eq!(app.patch(&id(&made[1]).to_string(), "\"1-1\"", &body).await.status, 202);
    published(&app).await;
    let term = listed(&app).await;
    let told = |database, position, version| Observation {
        term: term.0 + 1,
        ..observation(database, position, version)
    };
    say(&app, 0, told(id(&made[0]), Position::FIRST, 1)).await;
    say(&app, 1, Observation { present: false, ..told(id(&made[0]), Position::FIRST, 2) }).await;
    say(&app, 2, told(id(&made[1]), Position::FIRST, 1)).await;
    say(&app, 3, observation(id(&made[2]), Position::FIRST, 1)).await;
    let cluster = "eu".parse().unwrap();
    let term = app.store.next_term(&cluster, "observer", term).await.unwrap().unwrap();
    assert_eq!(turn(&app, 9).await.resent, 2, "under the new term nothing was listed yet");
    assert!(app.store.note_listed(&cluster, "observer", term, (3, NOW)).await.unwrap());
    assert_eq!(turn(&app, 9).await.resent, 1);
    let kinds =
        [&made[0], &made[1], &made[2]].map(async |one| text(&shown(&app, one).await["diverged"]).to_owned());
    assert_eq!(futures::future::join_all(kinds).await, ["missing", "lagging", "missing"]);
}

/// A cluster that was restored from a backup does not show it; one that is restored from another backup may show it again.
#[tokio::test]
async fn only_what_was_seen_to_go_is_noted_as_purged_and_what_comes_back_is_purged_again() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let body = json!({"storage": {"size_gib": 100}});
    assert_eq!(app.patch(&id(&made).to_string(), "\"1-1\"", &body).await.status, 202);
    let purge = Position { epoch: 1, seq: 2 };
    app.ask("update databases set desired = jsonb_set(desired, '{run_state}', '\"purged\"')").await;
    // So long ago that nothing of it can come any more.
    let sent = async || {
        published(&app).await;
        app.ask("update databases set published_at = now() - interval '1 hour', resent_at = null").await;
    };
    let told = |term: Term, position, version| Observation {
        term: term.0,
        ..observation(id(&made), position, version)
    };
    let is_purged = async || app.ask("select purged_at is not null from databases").await;
    sent().await;
    let first = listed(&app).await;
    say(&app, 0, told(first, purge, 1)).await;
    assert_eq!(turn(&app, 9).await.buried, 1);
    let second = listed(&app).await;
    let lost = turn(&app, 9).await;
    assert_eq!((lost.purged, lost.resent), (0, 1), "nobody saw it go");
    assert_eq!(app.ask("select count(*) from tombstones").await, "0", "what it makes has still to stay");
    sent().await;
    say(&app, 1, told(second, purge, 7)).await;
    assert_eq!(turn(&app, 9).await.buried, 1);
    say(&app, 2, Observation { present: false, ..told(second, purge, 8) }).await;
    let gone = turn(&app, 9).await;
    assert_eq!((gone.purged, gone.resent), (1, 0));
    assert_eq!(is_purged().await, "t");
    let third = listed(&app).await;
    say(&app, 3, told(third, Position::FIRST, 3)).await;
    assert_eq!(turn(&app, 9).await.resent, 0);
    assert_eq!(is_purged().await, "f", "it came back");
    assert_eq!(turn(&app, 9).await.resent, 1, "and is purged again");
}

#[tokio::test]
async fn of_a_cluster_that_nobody_lists_nothing_is_sent_again() {
    let app = App::new().await;
    let made = app.created("trades").await;
    published(&app).await;
    let first = turn(&app, 9).await;
    assert_eq!((first.changed, first.resent), (1, 0), "never listed: known to be missing, and left alone");
    listed(&app).await;
    app.ask("update cluster_observers set confirmed_at = now() - interval '1 hour'").await;
    assert_eq!(turn(&app, 9).await.resent, 0, "not listed lately");
    listed(&app).await;
    app.ask("update cluster_observers set listed_databases = 5").await;
    assert_eq!(turn(&app, 9).await.resent, 0, "nothing that was told arrives");
    listed(&app).await;
    app.ask("update clusters set state = 'disabled'").await;
    assert_eq!(turn(&app, 9).await.resent, 0, "out of service");
    app.ask("update clusters set state = 'draining'").await;
    assert_eq!(turn(&app, 9).await.resent, 1, "{made}");
}

#[tokio::test]
async fn a_state_that_was_never_minted_is_outranked_by_what_is_left() {
    let app = App::new().await;
    let made = app.created("trades").await;
    published(&app).await;
    let held = Position { epoch: 3, seq: 7 };
    let body = json!({
        "phase": "Ready", "epoch": 3, "seq": 7, "conditions": [], "steps": [], "volume_size_gib": 333,
        "namespace": "", "resource_name": "", "credentials_secret": "",
    });
    let lost = Observation { body: body.into(), ..observation(id(&made), held, 1) };
    say(&app, 0, lost).await;
    let stranger = DatabaseId::mint();
    say(&app, 1, observation(stranger, held, 1)).await;
    let tally = turn(&app, 9).await;
    assert_eq!((tally.repaired, tally.resent), (1, 0), "although nobody lists");
    let database = shown(&app, &made).await;
    assert_eq!((&database["epoch"], &database["seq"]), (&json!(4), &json!(2)));
    assert_eq!(database["storage"]["size_gib"], json!(333), "a volume does not shrink");
    let minted = app.store.unpublished(9).await.unwrap().instructions;
    assert!(minted[0].position > held && minted[0].desired.storage.provisioned);
    let operation = format!("/v1/operations/{}", text(&database["operation_id"]));
    let operation = app.get(&app.acme, &operation).await.body;
    assert_eq!((text(&operation["kind"]), text(&operation["created_by"])), ("update", "slipway:sweep"));
    let audited = "select action, detail ->> 'held', detail ->> 'minted' from audit where role = 'system'";
    assert_eq!(app.ask(audited).await, "databases.repair|3/7|4/2");
    assert_eq!(
        app.ask("select on_failure from operations where epoch = 4").await,
        "keep",
        "healing never gives up"
    );
    assert_eq!(turn(&app, 9).await.repaired, 0, "once");
    let unclaimed = "select database_id, code, resolved_at is null from unclaimed order by code";
    let expected = format!("{}|ahead|f\n{stranger}|unknown_database|t", id(&made));
    assert_eq!(app.ask(unclaimed).await, expected, "the stranger is shown and left alone");
}

/// What an observer tells of a volume that has a size while its resource asks for another.
fn sized(has: u32, asked: u32) -> ::store::Body {
    json!({
        "phase": "Ready", "epoch": 1, "seq": 1, "conditions": [], "steps": [], "volume_size_gib": has,
        "asked_size_gib": asked, "namespace": "", "resource_name": "", "credentials_secret": "",
    })
    .into()
}

/// A state was refused, and whoever tells the operation of it has not done so yet.
async fn refused(app: &App, made: &Value, Position { epoch, seq }: Position) {
    let letter = format!(
        "insert into dead_letters (topic, kafka_partition, kafka_offset, headers, database_id, cluster_id, code, message, \
         consumer, epoch, seq) values ('instructions', 0, 7, '[]', '{}', 'eu', 'invalid', 'can only grow', 'p', {epoch}, {seq})",
        id(made)
    );
    app.ask(&letter).await;
}

/// After lost rows gossip is read again from its middle: what is minted on old news is refused when newer news tell of
/// more.
#[tokio::test]
async fn a_repair_that_was_refused_for_its_size_is_minted_again_with_the_size_that_is_there() {
    let app = App::new().await;
    let made = app.created("trades").await;
    published(&app).await;
    listed(&app).await;
    let told = |seq, body| Observation { body, ..observation(id(&made), Position { epoch: 1, seq }, seq) };
    say(&app, 0, told(2, sized(60, 70))).await;
    assert_eq!(turn(&app, 9).await.repaired, 1);
    let size = async || shown(&app, &made).await["storage"]["size_gib"].clone();
    assert_eq!(size().await, json!(70), "what the resource asks for, not only what the volume has by now");
    published(&app).await;
    say(&app, 1, told(3, sized(60, 90))).await;
    assert_eq!(turn(&app, 9).await.repaired, 0, "it is on its way");
    refused(&app, &made, Position { epoch: 2, seq: 2 }).await;
    assert_eq!(turn(&app, 9).await.repaired, 0, "its operation is open: whoever asked is told first");
    app.ask(
        "update operations set state = 'failed', ended_at = now(), failure_code = 'invalid' where epoch = 2",
    )
    .await;
    assert_eq!(turn(&app, 9).await.repaired, 0, "what follows from that comes first");
    app.ask("update operations set settled_at = now() where epoch = 2").await;
    let again = turn(&app, 9).await;
    assert_eq!((again.repaired, again.resent), (1, 0));
    assert_eq!(size().await, json!(90));
    let minted = "select string_agg(detail ->> 'minted', ' ' order by id) from audit where role = 'system'";
    assert_eq!(app.ask(minted).await, "2/2 2/3");
    assert_eq!(turn(&app, 9).await.repaired, 0, "once");
}

/// Whoever asked wants to keep what is asked for: nothing goes back by itself.
#[tokio::test]
async fn a_size_that_was_taken_back_in_vain_is_minted_again_as_it_was() {
    let app = App::new().await;
    let made = app.created("trades").await;
    let at = |seq| Position { epoch: 1, seq };
    let path = id(&made).to_string();
    app.patch(&path, "\"1-1\"", &json!({"storage": {"size_gib": 90}})).await;
    published(&app).await;
    listed(&app).await;
    say(&app, 0, Observation { body: sized(60, 90), ..observation(id(&made), at(2), 1) }).await;
    let back = json!({"storage": {"size_gib": 70}, "on_failure": "keep"});
    assert_eq!(app.patch(&path, "\"1-2\"", &back).await.status, 202);
    published(&app).await;
    assert_eq!(turn(&app, 9).await.repaired, 0, "it is on its way");
    refused(&app, &made, at(3)).await;
    app.ask(
        "update operations set state = 'failed', ended_at = now(), failure_code = 'invalid', settled_at = now() \
         where seq = 3",
    )
    .await;
    assert_eq!(turn(&app, 9).await.repaired, 1);
    let now = shown(&app, &made).await;
    assert_eq!((&now["storage"]["size_gib"], &now["seq"]), (&json!(90), &json!(4)));
    assert_eq!(turn(&app, 9).await.repaired, 0, "once");
    assert_eq!(app.metrics.repaired.get(), 0, "no rows were lost");
}

#[tokio::test]
async fn repairs_are_under_the_cap_too() {
    let app = App::new().await;
    for (offset, name) in (0..).zip(["a", "b", "c"]) {
        let made = app.created(name).await;
        say(&app, offset, observation(id(&made), Position { epoch: 1, seq: 2 }, 1)).await;
    }
    published(&app).await;
    assert_eq!(turn(&app, 2).await.repaired, 2);
    assert_eq!(turn(&app, 2).await.repaired, 1);
}

#[tokio::test]
async fn a_database_that_cannot_be_repaired_holds_up_no_other() {
    let app = App::new().await;
    let mut made = [app.created("a").await, app.created("b").await, app.created("c").await];
    made.sort_by_key(id);
    let [last, ahead, missing] = &made;
    published(&app).await;
    listed(&app).await;
    // Nothing can be minted above it any more.
    say(&app, 0, observation(id(last), Position { epoch: 9_007_199_254_740_991, seq: 1 }, 1)).await;
    say(&app, 1, observation(id(ahead), Position { epoch: 3, seq: 7 }, 1)).await;
    let first = turn(&app, 2).await;
    assert_eq!((first.seen, first.repaired, first.resent), (3, 1, 1), "nor does it use up the cap");
    assert!(first.unrepaired[&id(last)].contains("used up"), "{first:?}");
    assert_eq!((first.unrepaired.len(), app.metrics.unrepaired.get()), (1, 1));
    let waiting = app.store.unpublished(9).await.unwrap().instructions;
    assert!(waiting.iter().any(|one| one.database == id(ahead) && one.position.epoch == 4), "{waiting:?}");
    assert!(waiting.iter().any(|one| one.database == id(missing) && one.said_again), "{waiting:?}");
    let second = turn(&app, 9).await;
    assert_eq!((second.unrepaired, second.repaired), (first.unrepaired, 0), "it stays known");
}

#[tokio::test]
async fn what_lies_behind_a_place_that_always_fails_is_reached() {
    let app = App::new().await;
    let mut made = [app.created("a").await, app.created("b").await, app.created("c").await];
    made.sort_by_key(id);
    published(&app).await;
    listed(&app).await;
    let failing = format!(
        "create function fails() returns trigger language plpgsql as $$ begin raise exception 'as the test asks'; end $$; \
         create trigger fails before update of diverged_kind on databases for each row when (new.id = '{}') \
         execute function fails()",
        id(&made[1])
    );
    app.ask(&failing).await;
    let one_by_one = sweep(&app, 9, RULES);
    let one_by_one = Sweep { settings: Settings { page: 1, ..one_by_one.settings }, ..one_by_one };
    let mut place = Place::default();
    let marks = "select string_agg(coalesce(diverged_kind, '-'), ' ' order by id) from databases";
    one_by_one.step(&mut place).await.unwrap_err();
    assert_eq!(app.ask(marks).await, "missing - -", "where it fails a turn ends");
    let again = app.store.unpublished(9).await.unwrap().instructions;
    assert_eq!(again.len(), 2, "and what was found until then is sent again all the same: {again:?}");
    one_by_one.step(&mut place).await.unwrap_err();
    assert_eq!(app.ask(marks).await, "missing - -", "it is tried once more");
    let behind = one_by_one.step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((behind.seen, behind.changed, behind.resent), (1, 1, 1), "and passed over then");
    assert_eq!(app.ask(marks).await, "missing - missing");
    one_by_one.step(&mut place).await.unwrap_err();
    app.ask("drop trigger fails on databases").await;
    let healed = one_by_one.step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((healed.seen, healed.changed), (2, 1), "the next round tries it again");
}

/// From now on Postgres fails at what was asked for of these databases. `sound_databases` is the table as it was.
async fn damage(app: &App, ids: &[DatabaseId]) {
    app.ask(&crate::support::damage("databases", ("id", "desired"), ids)).await;
}

/// Its page on the disk is damaged, or what lies apart of it: Postgres fails at whatever is asked of it, alone or together with others.
#[tokio::test]
async fn a_row_that_postgres_fails_at_is_told_and_every_other_is_swept() {
    let app = App::new().await;
    let mut made = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        made.push(id(&app.created(name).await));
    }
    made.sort();
    published(&app).await;
    listed(&app).await;
    damage(&app, &[made[1], made[4]]).await;
    for resent in [3, 0] {
        let round = turn(&app, 9).await;
        assert_eq!((round.seen, round.resent), (3, resent), "{round:?}");
        assert_eq!(round.unreadable, [made[1], made[4]], "in each round");
    }
    let missing = "select count(*) from sound_databases where diverged_kind = 'missing' and resends = 1";
    assert_eq!(app.ask(missing).await, "3");
}

/// It can be neither read nor written any more, and was found to be due before that, by a turn that was over then.
#[tokio::test]
async fn a_row_that_postgres_fails_at_keeps_nobody_from_being_sent_again() {
    let app = App::new().await;
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(id(&app.created(name).await));
    }
    made.sort();
    published(&app).await;
    listed(&app).await;
    app.ask(ENDS).await;
    let (sweep, mut place) = (sweep(&app, 9, RULES), Place::default());
    let first = sweep.step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((first.changed, first.resent), (3, 0), "it was over");
    damage(&app, &made[1..2]).await;
    let fails = format!(
        "drop trigger ends on sound_databases; \
         create function fails() returns trigger language plpgsql as $$ begin raise exception 'as the test asks'; end $$; \
         create trigger fails before update of resent_at on sound_databases for each row when (new.id = '{}') \
         execute function fails()",
        made[1]
    );
    app.ask(&fails).await;
    sweep.step(&mut place).await.expect_err("what was due cannot be sent again");
    let resends = "select string_agg(resends::text, ' ' order by id) from sound_databases";
    assert_eq!(app.ask(resends).await, "1 0 1", "the others are, in the same turn");
    let next = sweep.step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((next.seen, next.resent), (2, 0), "and nothing fails any more");
    assert_eq!(next.unreadable, [made[1]]);
}

/// Has each turn be over, because another one begins, as soon as it noted anything.
const ENDS: &str = "create function ends() returns trigger language plpgsql as $$ \
                    begin update turns set number = number + 1; return new; end $$; \
                    create trigger ends before update of diverged_kind on databases for each row execute function ends()";

/// Where looking at all takes longer than the period, another replica begins the next turn meanwhile, and so it goes with that one.
#[tokio::test]
async fn what_a_turn_finds_that_is_over_by_then_is_sent_again_by_the_next_one() {
    let app = App::new().await;
    for name in ["a", "b", "c"] {
        app.created(name).await;
    }
    published(&app).await;
    listed(&app).await;
    app.ask(ENDS).await;
    let mut place = Place::default();
    let first = sweep(&app, 3, RULES).step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((first.changed, first.resent), (3, 0), "it was over");
    app.ask("update databases set diverged_kind = null, diverged_since = null").await;
    let second = sweep(&app, 3, RULES).step(&mut place).await.unwrap().expect("it is its turn");
    assert_eq!((second.changed, second.resent), (3, 2), "so was this one, in the end");
    assert_eq!(app.store.unpublished(9).await.unwrap().instructions.len(), 2);
}

#[tokio::test]
async fn other_content_at_an_equal_position_is_reported_and_left() {
    let app = App::new().await;
    let made = app.created("trades").await;
    published(&app).await;
    listed(&app).await;
    let other =
        Observation { content_hash: "other".to_owned(), ..observation(id(&made), Position::FIRST, 1) };
    say(&app, 0, other).await;
    let tally = turn(&app, 9).await;
    assert_eq!((tally.changed, tally.resent, tally.repaired), (1, 0, 0));
    let differing = shown(&app, &made).await;
    assert_eq!(text(&differing["diverged"]), "content");
    assert!(differing["diverged_since"].is_string(), "{differing}");
    assert_eq!(app.store.diverged_count().await.unwrap(), [("content".to_owned(), 1)], "for the alarm");
    let body = json!({"storage": {"size_gib": 100}});
    assert_eq!(app.patch(&id(&made).to_string(), "\"1-1\"", &body).await.status, 202);
    published(&app).await;
    say(&app, 1, observation(id(&made), Position { epoch: 1, seq: 2 }, 2)).await;
    assert_eq!(turn(&app, 9).await.changed, 1, "the next change outranks both");
    assert_eq!(app.ask("select code, resolved_at is null from unclaimed").await, "content|f");
}

#[tokio::test]
async fn of_two_replicas_one_has_the_turn() {
    let app = App::crowded().await;
    let settings = Settings { period: LONG, cap: 9, page: PAGE, rules: RULES };
    let [one, other] = [(); 2].map(|()| Sweep { settings, ..sweep(&app, 9, RULES) });
    let (mut here, mut there) = (Place::default(), Place::default());
    let (one, other) = tokio::join!(one.step(&mut here), other.step(&mut there));
    assert!(one.unwrap().is_some() != other.unwrap().is_some());
}
