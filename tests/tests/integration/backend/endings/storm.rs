//! Mints, cancellations, deletions, redelivered outcomes, observations and deadlines, interleaved at random: ends never
//! move, nobody waits in a circle, and the error that a user was told stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::store::{Observation, OperationFilter, OperationRecord, OutcomeKind, Page};
use domain::DatabaseId;
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use super::{App, at, id_of, observation, outcome};
use crate::store::as_minted;

/// The storms; a failure names its seed.
const SEEDS: [u64; 4] = [1, 20_261_121, 0xfeed, 0xdead_beef];
const DATABASES: usize = 3;
const TASKS: u64 = 6;
const ACTIONS: usize = 40;

/// A small generator (splitmix64): the same seed gives the same storm, as far as the servers let it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn position(&mut self, newest: i64) -> i64 {
        1 + i64::try_from(self.below(u64::try_from(newest).unwrap())).unwrap()
    }
}

/// How often each thing happened: a storm in which something never happened proves nothing about it.
#[derive(Default)]
struct Happened {
    changed: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    reverted: AtomicU64,
    overdue: AtomicU64,
    heard: AtomicU64,
}

fn count(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}

/// What must not change once an operation has ended.
type End = (String, Option<(String, String)>, Option<domain::OperationId>, jiff::Timestamp, i64);

struct Storm {
    app: App,
    databases: Vec<DatabaseId>,
    happened: Happened,
}

impl Storm {
    async fn act(&self, random: &mut Random) {
        let id = *random.pick(&self.databases);
        match random.below(12) {
            0..=2 => self.change(id, random).await,
            3 => self.cancel(id).await,
            4..=5 => self.say(id, random).await,
            6..=8 => self.show(id, random).await,
            9 => self.run_out(id).await,
            10 if random.below(20) == 0 => self.delete(id).await,
            _ => self.judge().await,
        }
    }

    async fn seq(&self, id: DatabaseId) -> i64 {
        self.app.store.database(None, id).await.unwrap().unwrap().database.position.seq
    }

    async fn change(&self, id: DatabaseId, random: &mut Random) {
        let keep = *random.pick(&["revert", "revert", "keep"]);
        let body = json!({"config": {"a.b": random.below(1_000).to_string()}, "on_failure": keep});
        let answer = self.app.patch(&id.to_string(), "*", &body).await;
        assert!([202, 409].contains(&answer.status.as_u16()), "{answer:?}");
        count(&self.happened.changed, usize::from(answer.status == 202));
    }

    async fn cancel(&self, id: DatabaseId) {
        let view = self.app.store.database(None, id).await.unwrap().unwrap();
        let path = format!("/v1/operations/{}", view.operation.unwrap());
        let answer = self.app.cancel(&self.app.acme, &path, &testkit::unique("key")).await;
        assert!([202, 409].contains(&answer.status.as_u16()), "{answer:?}");
        count(&self.happened.cancelled, usize::from(answer.status == 202));
    }

    async fn delete(&self, id: DatabaseId) {
        let path = format!("/v1/databases/{id}");
        let answer = self.app.send(self.app.request(&self.app.acme, Method::DELETE, &path)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
    }

    /// Says something of an instruction that was minted at some time, perhaps again.
    async fn say(&self, id: DatabaseId, random: &mut Random) {
        let kinds =
            [OutcomeKind::Applied, OutcomeKind::Refused, OutcomeKind::Parked, OutcomeKind::Superseded];
        let seq = random.position(self.seq(id).await);
        let said = outcome(id, seq, *random.pick(&kinds));
        self.hear(Vec::new(), vec![said.clone(), said]).await;
    }

    /// Shows some database at some position, and another one with it.
    async fn show(&self, id: DatabaseId, random: &mut Random) {
        let mut seen: BTreeMap<DatabaseId, Observation> = BTreeMap::new();
        for id in [id, *random.pick(&self.databases)] {
            let held = random.position(self.seq(id).await);
            let carried_out = random.position(held) - 1;
            let volume = random.below(2) == 0;
            seen.insert(id, Observation { volume, ..observation(id, held, carried_out) });
        }
        let mut seen: Vec<Observation> = seen.into_values().collect();
        if random.below(2) == 0 {
            seen.reverse();
        }
        self.hear(seen, Vec::new()).await;
    }

    async fn hear(&self, seen: Vec<Observation>, said: Vec<::store::Outcome>) {
        let batch = super::batch(seen, as_minted(&self.app.url, said).await);
        let absorbed = self.app.store.absorb(&batch).await;
        assert!(absorbed.is_ok(), "{absorbed:?}");
        count(&self.happened.heard, 1);
    }

    async fn run_out(&self, id: DatabaseId) {
        // In the order of locks that everybody keeps: first the database, then its operations.
        self.app
            .ask(&format!(
                "select 1 from databases where id = '{id}' for no key update; \
                 update operations set deadline_at = now() - interval '1 second' \
                 where database_id = '{id}' and ended_at is null"
            ))
            .await;
        self.app.heard_until(0).await;
        self.judge().await;
    }

    async fn judge(&self) {
        let round = self.app.judged().await;
        assert!(round.unreadable.is_empty(), "{round:?}");
        count(&self.happened.failed, round.failed);
        count(&self.happened.reverted, round.reverted);
        count(&self.happened.overdue, round.overdue);
    }

    async fn operations(&self) -> Vec<OperationRecord> {
        let page = Page { after: None, limit: 100_000 };
        let rows = self.app.store.operations(None, OperationFilter::default(), page).await.unwrap();
        rows.into_iter().map(Result::unwrap).collect()
    }

    /// Looks again and again until `done`: an end that was seen once is seen the same for ever.
    async fn watch(&self, done: &runtime::CancellationToken) {
        let mut ends: BTreeMap<domain::OperationId, End> = BTreeMap::new();
        loop {
            let last = done.is_cancelled();
            for record in self.operations().await {
                let id = record.operation.id;
                let now = end(&record);
                let before = ends.get(&id);
                assert!(
                    before.is_none() || before == now.as_ref(),
                    "{id} moved after its end: {before:?}, {now:?}"
                );
                ends.extend(now.map(|now| (id, now)));
            }
            if last {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn end(record: &OperationRecord) -> Option<End> {
    let ended_at = record.ended_at?;
    let failure = record.failure.clone().map(|failure| (failure.code, failure.message));
    Some((record.operation.state.to_string(), failure, record.superseded_by, ended_at, record.last_event))
}

#[tokio::test]
async fn ends_never_move_whatever_happens_in_whatever_order() {
    let mut total = [0_u64; 6];
    for seed in SEEDS {
        let happened = storm(seed).await;
        for (sum, number) in total.iter_mut().zip(happened) {
            *sum += number;
        }
    }
    assert!(total.iter().all(|number| *number > 0), "something never happened: {total:?}");
}

async fn storm(seed: u64) -> [u64; 6] {
    let app = App::crowded().await;
    let mut databases = Vec::new();
    for number in 0..DATABASES {
        databases.push(id_of(&app.created(&format!("trades-{number}")).await));
    }
    let storm = Arc::new(Storm { app, databases, happened: Happened::default() });
    let done = runtime::CancellationToken::new();
    let watcher = tokio::spawn({
        let (storm, done) = (Arc::clone(&storm), done.clone());
        async move { storm.watch(&done).await }
    });
    let tasks = (0..TASKS).map(|task| {
        let storm = Arc::clone(&storm);
        tokio::spawn(async move {
            let mut random = Random(seed ^ (task << 32));
            for _ in 0..ACTIONS {
                storm.act(&mut random).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    done.cancel();
    watcher.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    check(&storm, seed).await;
    let Happened { changed, cancelled, failed, reverted, overdue, heard } = &storm.happened;
    [changed, cancelled, failed, reverted, overdue, heard].map(|counter| counter.load(Ordering::Relaxed))
}

/// What holds after every storm.
async fn check(storm: &Storm, seed: u64) {
    storm.judge().await;
    let operations = storm.operations().await;
    let by_id: BTreeMap<_, _> = operations.iter().map(|record| (record.operation.id, record)).collect();
    let mut taken_back = BTreeMap::new();
    for record in &operations {
        if let Some(id) = record.reverts {
            let reverted = by_id[&id];
            assert!(reverted.reverts.is_none(), "seed {seed}: what takes back is taken back");
            assert!(reverted.operation.state.is_terminal(), "seed {seed}");
            assert_eq!(
                taken_back.insert(id, record.operation.id),
                None,
                "seed {seed}: {id} taken back twice"
            );
        }
        let failed = record.operation.state == domain::OperationState::Failed;
        assert_eq!(failed, record.failure.is_some(), "seed {seed}");
        assert!(!failed || record.settled, "seed {seed}: {} has no aftermath", record.operation.id);
        if let Some(by) = record.superseded_by {
            let by = by_id[&by];
            assert!(
                by.operation.position > record.operation.position,
                "seed {seed}: superseded by an older one"
            );
            assert_eq!(by.operation.database, record.operation.database, "seed {seed}");
        }
    }
    // Every event has its number, and the end is the last of them, told with the error that the row keeps.
    for statement in [
        "select deadlocks from pg_stat_database where datname = current_database()",
        "select count(*) from (select operation_id from operation_events group by 1 \
         having count(*) <> max(number) or min(number) <> 1) as holes",
        "select count(*) from operations o where last_event <> \
         (select max(number) from operation_events e where e.operation_id = o.id)",
        "select count(*) from operations o join operation_events e on e.operation_id = o.id and \
         e.number = o.last_event where o.ended_at is not null and (e.kind <> 'state' or e.body->>'state' <> o.state \
         or e.body->>'code' is distinct from o.failure_code \
         or e.body->>'message' is distinct from o.failure_message)",
        "select count(*) from databases d where not exists (select 1 from instructions i where i.database_id = d.id \
         and (i.epoch, i.seq) = (d.epoch, d.seq) and i.content_hash = d.content_hash)",
        "select count(*) from (select database_id from instructions group by 1 having count(*) <> max(seq)) as gaps",
    ] {
        assert_eq!(storm.app.ask(statement).await, "0", "seed {seed}: {statement}");
    }
    settle(storm, seed).await;
}

/// When the newest state of each database is carried out, nothing is left open.
async fn settle(storm: &Storm, seed: u64) {
    for id in &storm.databases {
        let newest = storm.seq(*id).await;
        let last = Observation { term: 2, ..observation(*id, newest, newest) };
        storm.hear(vec![last], Vec::new()).await;
        let view = storm.app.store.database(None, *id).await.unwrap().unwrap();
        assert_eq!(view.database.position, at(newest), "seed {seed}");
    }
    let open = "select count(*) from operations where ended_at is null";
    assert_eq!(storm.app.ask(open).await, "0", "seed {seed}");
}
