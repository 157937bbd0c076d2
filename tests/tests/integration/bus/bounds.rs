//! However long the backlog: what a consumer holds is bounded, and what it leaves out comes later.

use testkit::unique;

use super::stage::{Consumer, Notes, settings, until};
use super::{message, producer, topic};

const RECORDS: usize = 20_000;
const PAYLOAD: usize = 2_000;
/// Of records as they are read.
const MOST: usize = 4 * 1_024 * 1_024;
/// Memory of the process that is not ours to bound: queues of the library and the records being sent.
const BESIDES: usize = 96 * 1_024 * 1_024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_takes_no_more_than_the_bound() {
    let (topic, group, producer, notes) = (topic(4).await, unique("group"), producer(), Notes::new(false));
    // In portions: of all at once a busy broker would have the last too late for the producer.
    for portion in (0..RECORDS).collect::<Vec<_>>().chunks(RECORDS / 20) {
        let mut pending = Vec::new();
        for number in portion {
            let mut message = message(&topic, &format!("key-{number}"), i64::try_from(*number).unwrap());
            message.payload = vec![7; PAYLOAD];
            pending.push(producer.enqueue(&message).unwrap());
        }
        for sent in pending {
            sent.wait().await.unwrap();
        }
    }
    let mut settings = settings(&topic, &group);
    settings.in_memory_bytes = MOST;
    settings.in_memory = RECORDS;
    let before = resident();
    let consumer = Consumer::start(settings, &notes);
    until("the pause", || consumer.state.snapshot().paused).await;
    let rounds = consumer.state.snapshot().rounds;
    until("the loop to turn on", || consumer.state.snapshot().rounds > rounds + 20).await;
    let held = consumer.state.snapshot();
    assert!(held.bytes >= MOST && held.bytes < MOST + 2 * PAYLOAD, "{held:?}");
    assert!(held.in_memory < RECORDS / 4, "{held:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown < MOST + BESIDES, "{grown} bytes more than before");
    let most = std::sync::atomic::AtomicUsize::new(0);
    notes.open.send_replace(true);
    until("everything", || {
        let now = consumer.state.snapshot().bytes;
        most.fetch_max(now, std::sync::atomic::Ordering::Relaxed);
        notes.handled().len() == RECORDS
    })
    .await;
    assert!(most.into_inner() < MOST + 2 * PAYLOAD);
    until("the end of the pause", || !consumer.state.snapshot().paused).await;
    consumer.stop().await;
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
