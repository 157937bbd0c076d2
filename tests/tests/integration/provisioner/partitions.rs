//! Keys that change their partition: a topic that got more of them, a writer that counts otherwise. Order would be lost, so
//! nothing is carried out, and it is said.

use std::collections::BTreeSet;

use bus::{Connection, Message, Producer};
use domain::Position;
use testkit::eventually;
use wire::{Instruction, OutcomeKind};

use super::rig::{PATIENCE, Rig, Running};

const DATABASES: usize = 16;

/// Gives both topics more partitions, and waits until the brokers say so.
async fn grow(rig: &Rig, partitions: i32) {
    let admin = bus::Admin::new(&rig.connection).unwrap();
    for topic in &rig.topics {
        crate::bus::grow(topic, partitions).await;
        let told = async || (admin.partitions(topic, PATIENCE).await.ok()? == partitions).then_some(());
        eventually(PATIENCE, "more partitions", told).await;
    }
}

/// The last one belongs to the third partition, once there is one.
fn databases(rig: &Rig) -> Vec<Instruction> {
    let moves = |one: &Instruction| bus::partition_of(one.key().as_bytes(), 3) == 2;
    let last = std::iter::repeat_with(|| rig.instruction(1)).find(moves);
    (1..DATABASES).map(|_| rig.instruction(1)).chain(last).collect()
}

fn at(instruction: &Instruction, seq: i64) -> Instruction {
    let mut next = instruction.clone();
    next.position = Position { epoch: 1, seq };
    next.desired.storage.size_gib += 10;
    next
}

/// Sends instructions by another producer; says in which partition each came.
async fn send(rig: &Rig, producer: &Producer, instructions: &[Instruction]) -> Vec<i32> {
    let mut partitions = Vec::new();
    for instruction in instructions {
        let message = Message {
            topic: rig.topics[0].clone(),
            key: instruction.key(),
            payload: instruction.encode(),
            headers: Vec::new(),
        };
        partitions.push(producer.send(message).await.unwrap().partition);
    }
    partitions
}

async fn all(rig: &Rig, instructions: &[Instruction], kind: OutcomeKind) {
    for instruction in instructions {
        rig.outcome(instruction, kind).await;
    }
}

/// Waits until all are in their resources: the listener knows nothing of partitions that came later.
async fn there(rig: &Rig, instructions: &[Instruction]) {
    for instruction in instructions {
        rig.resource(instruction, instruction.position.seq).await;
    }
}

async fn failing(running: &Running, component: &str, word: &str) {
    let what = format!("{component} failing because of {word:?}");
    eventually(PATIENCE, &what, async || {
        let report = running.health.readiness.report();
        let found = report.get(component)?;
        (found.state != runtime::health::State::Ok && format!("{found:?}").contains(word)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_gets_more_partitions_is_left_alone_until_everybody_counts_alike() {
    let rig = Rig::with_partitions(2).await;
    let running = rig.start(&["--gossip-period", "0.5"]);
    let first = databases(&rig);
    for instruction in &first {
        rig.publish(instruction).await;
    }
    all(&rig, &first, OutcomeKind::Applied).await;
    // What were read again would stand in wrong partitions by then.
    rig.committed().await;
    grow(&rig, 3).await;
    failing(&running, "consumer", "3 partitions").await;
    assert!(!running.health.readiness.is_ready());
    // Whoever counts anew writes keys to other partitions; nobody carries that out beside what may still stand elsewhere.
    let fresh = Producer::new(&rig.connection).unwrap();
    let second: Vec<Instruction> = first.iter().map(|one| at(one, 2)).collect();
    let partitions = send(&rig, &fresh, &second).await;
    assert!(partitions.contains(&2), "the fault did not fire: nothing is in the new partition");
    // Of one whose gossip the listener still hears.
    let stays = |one: &&Instruction| bus::partition_of(one.key().as_bytes(), 3) < 2;
    let heard = first.iter().find(stays).expect("one of them stays").database;
    let told = || rig.heard.about(heard).len();
    let before = told();
    eventually(PATIENCE, "what is there to be said again", async || (told() >= before + 3).then_some(()))
        .await;
    for instruction in &second {
        assert_eq!(rig.resource(instruction, 1).await.spec.instruction.map(|held| held.seq), Some(1));
    }
    running.stop().await;
    let running = rig.start(&["--topic-partitions", "3"]);
    there(&rig, &second).await;
    rig.count("select count(*) from dead_letters", "0").await;
    running.stop().await;
}

/// Records that were not read yet when the number changed stand where their keys do not belong any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stood_unread_in_another_partition_does_not_overtake_what_is_newer() {
    let rig = Rig::with_partitions(2).await;
    let first = databases(&rig);
    for instruction in &first {
        rig.publish(instruction).await;
    }
    grow(&rig, 3).await;
    let fresh = Producer::new(&rig.connection).unwrap();
    let second: Vec<Instruction> = first.iter().map(|one| at(one, 2)).collect();
    let now = send(&rig, &fresh, &second).await;
    let moved = first
        .iter()
        .zip(&now)
        .filter(|(one, now)| bus::partition_of(one.key().as_bytes(), 2) != **now)
        .count();
    assert!(moved > 0, "the fault did not fire: every key stayed where it was");
    let running = rig.start(&["--topic-partitions", "3"]);
    there(&rig, &second).await;
    let letters = format!("{moved} wrong_partition");
    rig.count("select count(*) || ' ' || min(code) from dead_letters having min(code) = max(code)", &letters)
        .await;
    for instruction in &second {
        assert_eq!(
            rig.resource(instruction, 2).await.spec.storage.size_gib,
            instruction.desired.storage.size_gib
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_writer_that_counts_partitions_otherwise_are_set_aside_and_said() {
    let rig = Rig::with_partitions(4).await;
    let mut connection: Connection = rig.connection.clone();
    connection.properties.push(("partitioner".to_owned(), "consistent_random".to_owned()));
    let other = Producer::new(&connection).unwrap();
    let sent = databases(&rig);
    let partitions = send(&rig, &other, &sent).await;
    let belongs = |instruction: &Instruction| bus::partition_of(instruction.key().as_bytes(), 4);
    let (right, wrong): (Vec<_>, Vec<_>) =
        sent.iter().zip(&partitions).partition(|(one, partition)| belongs(one) == **partition);
    assert!(!wrong.is_empty(), "the fault did not fire: both count alike");
    let running = rig.start(&[]);
    let letters = "select count(*) from dead_letters where code = 'wrong_partition' and message like '%murmur2_random%'";
    rig.count(letters, &wrong.len().to_string()).await;
    for (instruction, _) in &right {
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    let there: BTreeSet<String> = rig
        .api()
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|resource| Some(resource.spec.instruction?.database_id))
        .collect();
    let expected: BTreeSet<String> = right.iter().map(|(instruction, _)| instruction.key()).collect();
    assert_eq!(there, expected, "nothing of the others was carried out");
    // The same from one who counts right settles it.
    for (instruction, _) in &wrong {
        rig.publish(instruction).await;
        rig.outcome(instruction, OutcomeKind::Applied).await;
    }
    rig.count("select count(*) from dead_letters", &wrong.len().to_string()).await;
    running.stop().await;
}
