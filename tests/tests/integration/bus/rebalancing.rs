//! Partitions that come and go while records of them are worked on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::consumer::Limits;
use testkit::unique;

use super::stage::{Consumer, Notes, all_committed, ended_well, send, settings, until};
use super::{producer, topic};

/// Partitions of a consumer, as of its last look.
fn partitions(consumer: &Consumer) -> BTreeSet<i32> {
    consumer.state.snapshot().partitions.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_given_back_waits_for_what_still_runs() {
    const KEYS: usize = 40;
    let (topic, group, producer) = (topic(4).await, unique("group"), producer());
    let (mine, others) = (Notes::new(false), Notes::new(false));
    // Room for every key twice, so that nothing but its key keeps a record from running.
    let mut roomy = settings(&topic, &group);
    roomy.limits = Limits { total: 4 * KEYS, group: 4 * KEYS };
    let first = Consumer::start(roomy, &mine);
    until("all partitions", || partitions(&first).len() == 4).await;
    send(&producer, &topic, (0..KEYS).map(|key| (format!("key-{key}"), 1))).await;
    until("all keys at work", || mine.begun().len() == KEYS).await;
    // Another member takes half of them, works on none, and leaves.
    let second = Consumer::start(settings(&topic, &group), &others);
    until("two partitions taken", || partitions(&second).len() == 2 && partitions(&first).len() == 2).await;
    second.stop.cancel();
    ended_well(&second.task.await.unwrap());
    until("all partitions given back", || partitions(&first).len() == 4).await;
    until("their records to be read again", || first.state.snapshot().read > KEYS as u64).await;
    assert_eq!(mine.overlaps(), [""; 0], "nothing is begun a second time while it runs");
    mine.open.send_replace(true);
    until("all keys", || first.state.snapshot().in_memory == 0 && mine.handled().len() > KEYS).await;
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (key, _) in mine.begun() {
        *times.entry(key).or_default() += 1;
    }
    assert_eq!(times.len(), KEYS);
    assert!(times.values().any(|count| *count == 2), "some were read again: {times:?}");
    assert_eq!(mine.overlaps(), [""; 0]);
    all_committed(&group, &topic, 4).await;
    first.stop().await;
    let rest = Notes::new(true);
    let last = Consumer::start(settings(&topic, &group), &rest);
    send(&producer, &topic, [("last".to_owned(), 1)]).await;
    until("the last record", || !rest.handled().is_empty()).await;
    last.stop().await;
    assert_eq!(rest.handled(), [("last".to_owned(), 1)], "everything before was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_rebalances_leaves_nobody_stuck() {
    const KEYS: i64 = 100;
    let (topic, group, producer) = (topic(8).await, unique("group"), producer());
    let all: Vec<Arc<Notes>> = (0..6).map(|_| Notes::new(true)).collect();
    let mut members: Vec<Consumer> = vec![Consumer::start(settings(&topic, &group), &all[0])];
    until("the first member", || partitions(&members[0]).len() == 8).await;
    let mut number = 0;
    for notes in &all[1..] {
        number += 1;
        send(&producer, &topic, (0..KEYS).map(|key| (format!("key-{key}"), number))).await;
        members.push(Consumer::start(settings(&topic, &group), notes));
        // As soon as the newcomer has something, the oldest leaves.
        until("the newcomer", || !partitions(members.last().unwrap()).is_empty()).await;
        if members.len() > 2 {
            members.remove(0).stop().await;
        }
    }
    number += 1;
    send(&producer, &topic, (0..KEYS).map(|key| (format!("key-{key}"), number))).await;
    until("the newest of every key", || {
        let mut newest: BTreeMap<String, i64> = BTreeMap::new();
        for (key, seen) in all.iter().flat_map(|notes| notes.handled()) {
            let entry = newest.entry(key).or_default();
            *entry = seen.max(*entry);
        }
        newest.len() == 100 && newest.values().all(|seen| *seen == number)
    })
    .await;
    until("nothing left to do, and one owner of each partition", || {
        let owned: Vec<i32> = members.iter().flat_map(|one| one.state.snapshot().partitions).collect();
        let distinct: BTreeSet<i32> = owned.iter().copied().collect();
        let idle = members.iter().all(|one| one.state.snapshot().in_memory == 0);
        idle && (owned.len(), distinct.len()) == (8, 8)
    })
    .await;
    for member in members {
        member.stop().await;
    }
    assert!(all.iter().all(|notes| notes.overlaps().is_empty()), "in no member two of a key ran at once");
}
