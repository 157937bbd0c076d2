//! A record in hand, and what became of it while nobody could be told.

use std::sync::OnceLock;

use super::Ended;
use crate::decide::Work;

/// What is to be done about a record, and what became of it once that is durable. Where it cannot be told, only that is tried
/// again: its cluster was asked once, however long Kafka is away. Nothing rests on this memory: who has none does it again.
#[derive(Debug)]
pub struct Piece {
    pub(super) work: Work,
    pub(super) settled: OnceLock<Ended>,
}

impl Piece {
    /// Nothing was done about it yet.
    pub(super) fn of(work: Work) -> Self {
        Self { work, settled: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bus::consumer::Turn;
    use store::Store;

    use super::*;
    use crate::decide::decide;
    use crate::decide::tests::{RULES, record};
    use crate::fleet::{self, Fleet};
    use crate::gossip::tests::{silent_to, teller};
    use crate::letters::Letters;
    use crate::metrics::Metrics;
    use crate::work::Worker;

    #[tokio::test]
    async fn what_was_carried_out_and_could_not_be_told_is_not_carried_out_again() {
        let work = decide(record(), &RULES);
        let Work::Carry(job) = &work else { panic!("it was not taken") };
        let (teller, _) = teller();
        silent_to(&teller, job.instruction.database);
        let store = Store::connect("postgres://nobody@127.0.0.1:1/nothing", &store::Settings::default());
        let store = store.unwrap();
        let metrics = Metrics::new(&runtime::Metrics::new(runtime::service!("test")));
        let call_timeout = Duration::from_secs(20);
        let credentials_dir = std::env::temp_dir();
        let settings = fleet::Settings { credentials_dir, call_timeout, cluster_concurrency: 1 };
        let worker = Worker {
            fleet: Fleet::new(store.clone(), settings, runtime::Health::new(), metrics.clone()),
            store,
            teller,
            metrics,
            consumer: "test".to_owned(),
            call_timeout,
            rules: RULES,
            letters: Letters::default(),
        };
        let piece = Piece::of(work);
        piece.settled.set(Ended::Applied).unwrap();
        // Its cluster is not even looked up, which would end otherwise without Postgres.
        let held = worker.step(&piece, &Turn::new(|| ())).await.unwrap_err();
        assert!(held.is_silence(), "{held:?}");
    }
}
