//! What is parked meets what is newer, a program that dies in between, and programs that are too old or new enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::Position;
use provisioner::drain::SETTLED;
use runtime::failpoint::{Action, arm};
use testkit::eventually;
use wire::{Instruction, OutcomeKind, headers};

use super::bulkhead::behind_a_front;
use super::rig::{PATIENCE, Rig};
use crate::front::{Act, Seen};

fn at(instruction: &Instruction, seq: i64) -> Instruction {
    let mut next = instruction.clone();
    next.position = Position { epoch: 1, seq };
    next.desired.storage.size_gib += 10;
    next
}

/// The old one is applied and not yet taken away when the breaker opens again and a newer one is parked in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_record_that_is_parked_while_the_older_drains_stays() {
    let (rig, front) = behind_a_front().await;
    let first = rig.instruction(1);
    let held = arm(SETTLED, first.database, Action::Hold);
    front.set(|_| Act::Answer(503, None));
    let running = rig.start(&[]);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Parked).await;
    front.set(|_| Act::Pass);
    // Whoever is held here does not wait for ever.
    tokio::time::timeout(PATIENCE, held.fired()).await.unwrap();
    assert_eq!(rig.resource(&first, 1).await.spec.instruction.map(|stamp| stamp.seq), Some(1));
    front.set(|_| Act::Answer(503, None));
    let second = at(&first, 2);
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Parked).await;
    rig.count("select string_agg(epoch || '/' || seq, ',') from parked_instructions", "1/2").await;
    held.release();
    rig.outcome(&first, OutcomeKind::Applied).await;
    front.set(|_| Act::Pass);
    rig.outcome(&second, OutcomeKind::Applied).await;
    assert_eq!(rig.resource(&first, 2).await.spec.storage.size_gib, second.desired.storage.size_gib);
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

/// The same, but the newer one is applied at once; the older one's row goes, and nothing goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_record_that_is_applied_while_the_older_drains_wins() {
    let (rig, front) = behind_a_front().await;
    let first = rig.instruction(1);
    let second = at(&first, 2);
    let held = arm(SETTLED, first.database, Action::Hold);
    front.set(|_| Act::Answer(503, None));
    let running = rig.start(&[]);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Parked).await;
    front.set(|_| Act::Pass);
    tokio::time::timeout(PATIENCE, held.fired()).await.unwrap();
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    held.release();
    rig.count("select count(*) from parked_instructions", "0").await;
    assert_eq!(rig.resource(&first, 2).await.spec.storage.size_gib, second.desired.storage.size_gib);
    running.stop().await;
}

/// A drain that holds an old row applies it after a newer record went by: the fence refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_one_that_is_late_is_superseded() {
    let (rig, front) = behind_a_front().await;
    let is_first = |seen: &Seen| seen.is_apply() && seen.body.contains("\"seq\":1,");
    // As if others wrote it all the time, which is no failure of the server: however often it is tried, the cluster is not left alone,
    // and the second one not parked in the first one's place.
    front.set(move |seen| if is_first(seen) { Act::Answer(409, None) } else { Act::Pass });
    // What is held back is not given up before it is let go.
    let running = rig.start(&["--call-timeout", "50"]);
    let first = rig.instruction(1);
    let second = at(&first, 2);
    rig.publish(&first).await;
    rig.outcome(&first, OutcomeKind::Parked).await;
    // Not read again, it is tried by whoever drains alone.
    rig.committed().await;
    let held = Arc::new(AtomicBool::new(false));
    let is_held = Arc::clone(&held);
    front.set(move |seen| {
        if !is_first(seen) {
            return Act::Pass;
        }
        is_held.store(true, Ordering::Relaxed);
        Act::Hold
    });
    eventually(PATIENCE, "the late one held", async || held.load(Ordering::Relaxed).then_some(())).await;
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    front.release();
    rig.outcome(&first, OutcomeKind::Superseded).await;
    assert_eq!(rig.resource(&first, 2).await.spec.storage.size_gib, second.desired.storage.size_gib);
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_dies_between_applying_and_taking_away_does_no_harm() {
    let (rig, front) = behind_a_front().await;
    front.set(|_| Act::Answer(503, None));
    let mark = rig.credentials.join("mark");
    let instruction = rig.instruction(1);
    let order = format!("{SETTLED}/{}=abort,{}", instruction.database, mark.display());
    let mut dying = rig.start_process_failing_at(&order, &[]);
    rig.publish(&instruction).await;
    rig.outcome(&instruction, OutcomeKind::Parked).await;
    front.set(|_| Act::Pass);
    let died = tokio::time::timeout(PATIENCE, dying.wait()).await.unwrap().unwrap();
    assert!(!died.success() && mark.exists(), "it died where it was told to: {died}");
    rig.count("select count(*) from parked_instructions", "1").await;
    let before = rig.resource(&instruction, 1).await;
    let mut heir = rig.start_process();
    rig.count("select count(*) from parked_instructions", "0").await;
    rig.outcome(&instruction, OutcomeKind::Applied).await;
    let after = rig.resource(&instruction, 1).await;
    assert_eq!(
        after.metadata.resource_version, before.metadata.resource_version,
        "the same again is nothing"
    );
    heir.start_kill().unwrap();
    heir.wait().await.unwrap();
}

/// The bytes of an instruction that asks for newer readers.
fn for_newer_readers(instruction: &Instruction) -> Vec<u8> {
    // Of a field that comes twice the last one counts: fields 1 (schema) and 2 (the least reader).
    [instruction.encode(), vec![0x08, 99, 0x10, 99]].concat()
}

fn position(instruction: &Instruction) -> [(&'static str, String); 2] {
    let Position { epoch, seq } = instruction.position;
    [(headers::EPOCH, epoch.to_string()), (headers::SEQ, seq.to_string())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_newer_program_can_read_waits_for_it() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let early = rig.instruction(1);
    rig.publish_with(&early.key(), for_newer_readers(&early), &position(&early)).await;
    let outcome = rig.outcome(&early, OutcomeKind::Parked).await;
    assert_eq!((outcome.code.as_str(), outcome.operation), ("newer_schema", early.operation));
    rig.count("select code || ' ' || epoch || '/' || seq from parked_instructions", "newer_schema 1/1").await;
    rig.count("select count(*) from dead_letters", "0").await;
    // Its lane goes on, and so do others.
    let second = at(&early, 2);
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    running.stop().await;
    // The newer program reads it: what was parked is then nothing special. (Here the row is made readable instead.)
    let third = at(&early, 3);
    rig.publish_with(&third.key(), for_newer_readers(&third), &position(&third)).await;
    let running = rig.start(&[]);
    rig.outcome(&third, OutcomeKind::Parked).await;
    let bytes: Vec<String> = third.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = bytes.concat();
    let upgrade = format!("update parked_instructions set payload = '\\x{bytes}', retry_at = now()");
    testkit::query(&rig.database_url, &upgrade).await.unwrap();
    rig.outcome(&third, OutcomeKind::Applied).await;
    rig.count("select count(*) from parked_instructions", "0").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dead_letter_has_its_own_reason_and_all_that_came_with_it() {
    let rig = Rig::new().await;
    let good = rig.instruction(3);
    let next_generation = vec![0x08, 0xe8, 0x07, 0x10, 0xe8, 0x07];
    rig.publish_with(&good.key(), next_generation, &position(&good)).await;
    rig.publish_with(&good.key(), vec![0; 30_000], &position(&good)).await;
    // A character that Postgres does not take.
    rig.publish_with(&good.key(), vec![0xff, 0xff], &[("odd", "a\0b".to_owned())]).await;
    rig.publish_bytes("", good.encode()).await;
    rig.publish_bytes(&domain::DatabaseId::mint().to_string(), good.encode()).await;
    let running = rig.start(&["--largest-record", "20000"]);
    rig.count(
        "select string_agg(code, ',' order by kafka_offset) from dead_letters",
        "newer_major,too_large,undecodable,null_key,key_mismatch",
    )
    .await;
    rig.count("select count(*) from dead_letters where length(payload) = 30000 and seq = 3", "1").await;
    rig.count("select headers::text like '%odd%' from dead_letters where code = 'undecodable'", "t").await;
    // A later good record of the database settles what went before; others' letters stay open.
    rig.publish(&good).await;
    rig.outcome(&good, OutcomeKind::Applied).await;
    rig.count(
        "select string_agg(code, ',' order by kafka_offset) from dead_letters where superseded_at is null",
        "null_key,key_mismatch",
    )
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_one_that_was_parked_is_a_dead_letter_with_its_place_on_the_topic() {
    let (rig, front) = behind_a_front().await;
    front.set(|_| Act::Answer(503, None));
    let running = rig.start(&[]);
    let filler = rig.instruction(1);
    rig.publish(&filler).await;
    let mut invalid = rig.instruction(1);
    invalid.desired.version = "9".repeat(33);
    rig.publish(&invalid).await;
    rig.outcome(&invalid, OutcomeKind::Parked).await;
    front.set(|_| Act::Pass);
    assert_eq!(rig.outcome(&invalid, OutcomeKind::Refused).await.code, "invalid");
    rig.count(
        "select code || ' ' || kafka_partition || '/' || kafka_offset || ' ' || seq from dead_letters",
        "invalid 0/1 1",
    )
    .await;
    rig.count("select headers::text like '%traceparent%' from dead_letters", "t").await;
    let mut cured = at(&invalid, 2);
    cured.desired.version = "9.3.4".to_owned();
    front.set(|seen: &Seen| if seen.is_apply() { Act::Answer(503, None) } else { Act::Pass });
    rig.publish(&cured).await;
    rig.outcome(&cured, OutcomeKind::Parked).await;
    // Parked is enough: it is newer, and will be carried out.
    rig.count("select count(*) from dead_letters where superseded_at is null", "0").await;
    front.set(|_| Act::Pass);
    rig.outcome(&cured, OutcomeKind::Applied).await;
    running.stop().await;
}

/// A row that a cluster has gone past is taken away although nobody drains it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_behind_what_is_seen_goes() {
    let rig = Rig::new().await;
    let early = rig.instruction(1);
    let running = rig.start(&[]);
    rig.publish_with(&early.key(), for_newer_readers(&early), &position(&early)).await;
    rig.outcome(&early, OutcomeKind::Parked).await;
    let seen = format!(
        "alter table observations drop constraint observations_database_fkey; insert into observations (database_id, cluster_id, epoch, seq, term, \
         resource_version, present, content_hash, phase, carried_epoch, carried_seq, body, body_schema, said_at) \
         values ('{}', 'bare', 1, 2, 1, 1, true, 'h', 'Ready', 0, 0, '{{}}', 1, now())",
        early.database
    );
    testkit::query(&rig.database_url, &seen).await.unwrap();
    eventually(PATIENCE, "the row to go", async || {
        let left =
            testkit::query(&rig.database_url, "select count(*) from parked_instructions").await.unwrap();
        (left == "0").then_some(())
    })
    .await;
    running.stop().await;
}

/// What panics while it is drained ends neither the loop nor the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_one_that_panics_is_tried_once_more_and_then_a_dead_letter() {
    let (rig, front) = behind_a_front().await;
    let (once, always, other) = (rig.instruction(1), rig.instruction(1), rig.instruction(1));
    let panics = [&once, &always, &always].map(|one| arm(SETTLED, one.database, Action::Panic));
    // Nobody tries it a third time.
    let third = arm(SETTLED, always.database, Action::Panic);
    front.set(|_| Act::Answer(503, None));
    let running = rig.start(&[]);
    for one in [&once, &always, &other] {
        rig.publish(one).await;
        rig.outcome(one, OutcomeKind::Parked).await;
    }
    front.set(|_| Act::Pass);
    for panic in &panics {
        tokio::time::timeout(PATIENCE, panic.fired()).await.unwrap();
    }
    rig.count("select count(*) from parked_instructions", "0").await;
    let letters = "select string_agg(code || ' ' || database_id, ',') from dead_letters";
    rig.count(letters, &format!("panicked {}", always.database)).await;
    drop(third);
    rig.outcome(&other, OutcomeKind::Applied).await;
    let next = at(&always, 2);
    rig.publish(&next).await;
    rig.outcome(&next, OutcomeKind::Applied).await;
    rig.count("select count(*) from dead_letters where superseded_at is null", "0").await;
    running.stop().await;
}

/// Without a cluster nobody drains it: it would lie there for ever, and in the way of every repair of its database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_newer_program_can_read_of_a_cluster_that_nobody_knows_is_a_dead_letter() {
    let rig = Rig::new().await;
    let running = rig.start(&[]);
    let lost = rig.instruction(1);
    rig.publish_for("nowhere", &lost.key(), for_newer_readers(&lost), &position(&lost)).await;
    rig.count(
        "select code || ' ' || seq || ' ' || cluster_id from dead_letters",
        "unknown_cluster 1 nowhere",
    )
    .await;
    rig.count("select count(*) from parked_instructions", "0").await;
    let second = at(&lost, 2);
    rig.publish(&second).await;
    rig.outcome(&second, OutcomeKind::Applied).await;
    rig.count("select count(*) from dead_letters where superseded_at is null", "0").await;
    running.stop().await;
}
