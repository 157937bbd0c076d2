//! Tables that a real QuestDB has suspended: it takes rows for them which nobody sees, and answers its probes. That is told, and costs the
//! API server nothing but what is told.

use resources::Phase;
use resources::names::{self, condition};
use serde_json::json;
use testkit::eventually;

use super::edits::behind;
use super::quiet::{asked, assert_quiet, rounds, until_quiet};
use super::rig::PATIENCE;
use super::snapshots::Stage;
use super::subject::Subject;
use crate::front::Front;

/// What condition `Degraded` is of a database that serves.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    status: String,
    reason: String,
    message: String,
    since: jiff::Timestamp,
}

async fn told(subject: &Subject) -> Option<Told> {
    let status = subject.rig.as_admin().get(&subject.name).await.ok()?.status?;
    let of = |kind: &str| status.conditions.iter().find(|found| found.type_ == kind).cloned();
    let serves = of(condition::READY)?.status == "True" && status.phase == Some(Phase::Ready);
    let found = of(condition::DEGRADED).filter(|_| serves)?;
    let since = found.last_transition_time.0;
    Some(Told { status: found.status, reason: found.reason, message: found.message, since })
}

/// Waits until it is told of these tables.
async fn told_of(subject: &Subject, tables: &str) -> Told {
    let begins = format!("tables {tables} are suspended, which is known since ");
    eventually(PATIENCE, &format!("a word about {tables}"), async || {
        told(subject).await.filter(|told| told.message.starts_with(&begins))
    })
    .await
}

async fn told_of_none(subject: &Subject) {
    let what = "a word that nothing needs anybody";
    eventually(PATIENCE, what, async || told(subject).await.filter(|told| told.status == "False")).await;
}

/// How often the credentials of a database were read.
fn reads(front: &Front, subject: &Subject) -> usize {
    let secret = format!("/secrets/{}", names::credentials(&subject.name));
    asked(front).iter().filter(|request| request.starts_with("GET ") && request.contains(&secret)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_questdb_suspends_are_told_until_they_are_resumed() {
    let mut stage = Stage::new().await;
    // Else it suspends none on request.
    stage.questdb.configure("dev.mode.enabled=true");
    stage.questdb.crash().await;
    let (first, front) = behind(&stage.subject.rig).await;
    let (subject, questdb) = (&stage.subject, &stage.questdb);
    subject.bind(1).await;
    for table in ["a", "b", "c", "d"] {
        let columns = "(ts TIMESTAMP, number INT) TIMESTAMP(ts) PARTITION BY DAY WAL";
        questdb.sql(&format!("CREATE TABLE {table} {columns}")).await;
    }
    questdb.sql("ALTER TABLE b SUSPEND WAL WITH 24, 'no room'").await;
    let one = told_of(subject, "b").await;
    assert_eq!((one.status.as_str(), one.reason.as_str()), ("True", "TablesSuspended"));
    assert!(!one.message.contains("no room"), "that is for QuestDB to say: {}", one.message);
    questdb.sql("INSERT INTO b VALUES (now(), 7)").await;
    assert_eq!(questdb.sql("SELECT number FROM b").await["dataset"], json!([]));

    until_quiet((&first, &front), 3.0).await;
    let before = asked(&front).len();
    assert!(reads(&front, subject) > 0, "it has no way into QuestDB without");
    rounds(&first, 10.0).await;
    assert_quiet(&front, before, "tables that stay suspended cost requests");
    assert_eq!(told(subject).await, Some(one.clone()));
    for table in ["a", "c", "d"] {
        questdb.sql(&format!("ALTER TABLE {table} SUSPEND WAL")).await;
    }
    let all = told_of(subject, "a, b, c and 1 more").await;
    assert_eq!(all.since, one.since);

    // Another one says the same before and after it has asked.
    drop(first);
    let (heir, _front) = behind(&stage.subject.rig).await;
    rounds(&heir, 5.0).await;
    assert_eq!(told(subject).await, Some(all));
    for table in ["a", "b", "c"] {
        questdb.sql(&format!("ALTER TABLE {table} RESUME WAL")).await;
    }
    told_of(subject, "d").await;
    questdb.sql("ALTER TABLE d RESUME WAL").await;
    told_of_none(subject).await;
    eventually(PATIENCE, "the rows of before", async || {
        (questdb.sql("SELECT number FROM b").await["dataset"] == json!([[7]])).then_some(())
    })
    .await;
    stage.end(heir).await;
}
