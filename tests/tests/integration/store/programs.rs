//! Programs that run, and migrations that take away what they use.

use std::time::Duration;

use ::store::{Error, Program, Schema, Store};
use testkit::query;
use tokio::process::Command;

use super::database;

/// The next release knows one migration more, and the one after it takes something away.
const TAKES_AWAY: &str = "-- contract: needs schema >= 901\nalter table tenants drop column nickname;";

fn next() -> Schema {
    Schema::shipped().and(901, "nickname", "alter table tenants add column nickname text;")
}

fn after_next() -> Schema {
    next().and(902, "no nickname", TAKES_AWAY)
}

fn program(name: &str, schema: i64) -> Program {
    Program { schema, ..Program::new(name, "1.2.3") }
}

async fn columns(url: &str) -> String {
    query(url, "select count(*) from information_schema.columns where table_name = 'tenants' and column_name = 'nickname'")
        .await
        .unwrap()
}

async fn age(url: &str, seconds: u32) {
    let statement = format!("update programs set seen_at = seen_at - interval '{seconds} s'");
    query(url, &statement).await.unwrap();
}

/// A schema that has grown, and an old program that runs on it.
async fn grown() -> (Store, String, Program) {
    let (store, url) = database().await;
    store.migrate_to(&next()).await.unwrap();
    let old = Program::new("slipway-backend", "0.9.0");
    store.attend(&old).await.unwrap();
    (store, url, old)
}

#[tokio::test]
async fn nothing_is_taken_from_a_program_that_runs() {
    let (store, url, old) = grown().await;
    let new = program("slipway-provisioner", 901);
    store.attend(&new).await.unwrap();
    let error = store.migrate_to(&after_next()).await.unwrap_err();
    let Error::Held { migration: 902, needs: 901, programs } = &error else { panic!("{error:?}") };
    assert!(
        programs.contains("slipway-backend 0.9.0") && programs.contains(&old.instance.to_string()),
        "{programs}"
    );
    assert!(!programs.contains("slipway-provisioner"), "who knows enough is not in the way: {programs}");
    assert_eq!(columns(&url).await, "1", "nothing was taken away");
    store.attend(&old).await.expect("a refused migration leaves no note behind");
    store.leave(&old).await.unwrap();
    store.migrate_to(&after_next()).await.unwrap();
    assert_eq!(columns(&url).await, "0");
    store.migrate_to(&after_next()).await.unwrap();
    store.attend(&new).await.expect("who knows what is needed goes on");
}

#[tokio::test]
async fn a_program_that_was_left_behind_is_told_and_never_let_in() {
    let (store, url, old) = grown().await;
    // Killed without a word, or paused: it counts for a minute.
    age(&url, 30).await;
    assert!(matches!(store.migrate_to(&after_next()).await, Err(Error::Held { .. })));
    age(&url, 40).await;
    store.migrate_to(&after_next()).await.unwrap();
    for program in [&old, &program("slipway-backend", 900)] {
        let error = store.attend(program).await.unwrap_err();
        assert!(matches!(error, Error::Outgrown { needs: 901, .. }), "{error:?}");
        assert!(error.to_string().contains("deploy a newer one") && error.is_transient());
    }
    assert!(
        matches!(store.ping().await, Err(Error::Outgrown { needs: 901, .. })),
        "readiness tells the same"
    );
    store.migrate().await.expect("an older release has nothing to apply and breaks nothing");
}

#[tokio::test]
async fn what_only_adds_waits_for_nobody() {
    let (store, url, old) = grown().await;
    let more = next().and(903, "motto", "-- Adds only.\nalter table tenants add column motto text;");
    store.migrate_to(&more).await.unwrap();
    store.attend(&old).await.expect("an older program bears what was added");
    assert_eq!(query(&url, "select count(*) from schema_contracts").await.unwrap(), "0");
    let newer = program("slipway-backend", 904);
    assert!(
        matches!(store.attend(&newer).await, Err(Error::Outdated)),
        "a newer program waits for its migrations"
    );
}

#[tokio::test]
async fn a_migration_that_fails_leaves_no_note() {
    let (store, _, old) = grown().await;
    store.leave(&old).await.unwrap();
    let broken =
        next().and(902, "broken", "-- contract: needs schema >= 901\nalter table nowhere drop column x;");
    assert!(matches!(store.migrate_to(&broken).await, Err(Error::Migrate(_))));
    store.attend(&old).await.unwrap();
}

#[tokio::test]
async fn rows_of_the_dead_are_renewed_by_none_and_forgotten() {
    let (store, url, old) = grown().await;
    let seen = async || query(&url, "select xmin from programs").await.unwrap();
    // However long it takes until it attends again.
    query(&url, "update programs set seen_at = seen_at + interval '30 s'").await.unwrap();
    let first = seen().await;
    store.attend(&old).await.unwrap();
    assert_eq!(seen().await, first, "a row is written only now and then");
    age(&url, 41).await;
    let aged = seen().await;
    store.attend(&old).await.unwrap();
    assert_ne!(seen().await, aged);
    assert_eq!(store.forget_programs().await.unwrap(), 0);
    age(&url, 3_700).await;
    assert_eq!(store.forget_programs().await.unwrap(), 1);
}

#[tokio::test]
async fn a_program_that_starts_meanwhile_and_a_contract_never_miss_each_other() {
    for round in 0..10 {
        let (store, url) = database().await;
        store.migrate_to(&next()).await.unwrap();
        let old = Program::new("slipway-backend", "0.9.0");
        let schema = after_next();
        let (migrated, attended) = tokio::join!(store.migrate_to(&schema), store.attend(&old));
        let taken = columns(&url).await == "0";
        assert_eq!(taken, migrated.is_ok());
        assert!(!(taken && attended.is_ok()), "round {round}: it was let in and what it uses was taken away");
    }
}

#[tokio::test]
async fn a_program_that_cannot_live_with_the_schema_does_not_start() {
    let (store, url, old) = grown().await;
    store.leave(&old).await.unwrap();
    store.migrate_to(&after_next()).await.unwrap();
    let started = Command::new(testkit::stack().programs.join("slipway-backend"))
        .args(["serve", "--roles", "api", "--api-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"])
        .args(["--database-url", &url, "--kafka-bootstrap", "127.0.0.1:1"])
        .kill_on_drop(true)
        .output();
    let ended =
        tokio::time::timeout(Duration::from_mins(3), started).await.expect("it ends by itself").unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("know schema 901"), "{said}");
    assert_eq!(
        query(&url, "select count(*) from programs").await.unwrap(),
        "0",
        "it is in no migration's way"
    );
}
