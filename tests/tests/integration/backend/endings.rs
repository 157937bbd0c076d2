//! Operations that do not succeed: cancelled, out of time, refused; and what follows. What clusters say is put in by hand.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ::backend::deadlines::{Judge, Round};
use ::backend::heard::Hearing;
use ::store::{Advance, Batch, Observation, Outcome, OutcomeKind};
use domain::recovery::Deadlines;
use domain::{DatabaseId, OperationId, Position};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Answer, App, text};
use crate::store::as_minted;

mod cancel;
mod deadlines;
mod history;
mod placement;
mod purge;
mod refusals;
mod sizes;
mod states;
mod storm;

/// The topic by which it is known what was heard.
const HEARD: &str = "gossip";

const fn at(seq: i64) -> Position {
    Position { epoch: 1, seq }
}

fn id_of(made: &Value) -> DatabaseId {
    text(&made["database"]["id"]).parse().unwrap()
}

/// The path of the operation of an accepted change.
fn path_of(accepted: &Value) -> String {
    format!("/v1/operations/{}", text(&accepted["operation"]["id"]))
}

/// Of an operation that nobody has, before [`as_minted`].
fn outcome(database: DatabaseId, seq: i64, kind: OutcomeKind) -> Outcome {
    let (code, message) = match kind {
        OutcomeKind::Refused => ("invalid", "spec.config: no such key"),
        OutcomeKind::Parked => ("unreachable", "no answer"),
        OutcomeKind::Applied | OutcomeKind::Superseded => ("", ""),
    };
    Outcome {
        database,
        cluster: "eu".parse().unwrap(),
        position: at(seq),
        operation: OperationId::mint(),
        kind,
        code: code.to_owned(),
        message: message.to_owned(),
        said_at: jiff::Timestamp::now(),
    }
}

/// What a cluster shows that holds one position and has carried out another.
fn observation(database: DatabaseId, held: i64, carried_out: i64) -> Observation {
    static VERSION: AtomicI32 = AtomicI32::new(1);
    Observation {
        database,
        cluster: "eu".parse().unwrap(),
        position: at(held),
        term: 1,
        resource_version: VERSION.fetch_add(1, Ordering::Relaxed).into(),
        present: true,
        content_hash: String::new(),
        phase: "Creating".to_owned(),
        carried_out: (carried_out > 0).then(|| at(carried_out)),
        volume: false,
        steps: Vec::new(),
        body: json!({}).into(),
        body_schema: 1,
        said_at: jiff::Timestamp::now(),
    }
}

/// A batch of a partition that nobody read before.
fn batch(observations: Vec<Observation>, outcomes: Vec<Outcome>) -> Batch {
    static PARTITION: AtomicI32 = AtomicI32::new(0);
    Batch {
        consumer: "test".to_owned(),
        topic: "gossip".to_owned(),
        advance: Advance { partition: PARTITION.fetch_add(1, Ordering::Relaxed), from: None, to: 1 },
        observations,
        outcomes,
        ..Batch::default()
    }
}

impl App {
    fn judge(&self) -> Judge {
        Judge {
            store: self.store.clone(),
            doorbell: self.doorbell.clone(),
            metrics: self.metrics.clone(),
            deadlines: Deadlines::default(),
            hearing: Hearing { topic: HEARD.to_owned(), partitions: 1, delay: Duration::from_mins(1) },
            silence: Duration::from_mins(20),
        }
    }

    /// One look of the judge at everything.
    async fn judged(&self) -> Round {
        self.judge().round(&self.stop).await.unwrap()
    }

    async fn hear(&self, observations: Vec<Observation>, outcomes: Vec<Outcome>) {
        let outcomes = as_minted(&self.url, outcomes).await;
        self.store.absorb(&batch(observations, outcomes)).await.unwrap();
    }

    /// A database of acme that is carried out in full, with a volume.
    async fn running(&self, name: &str) -> Value {
        let made = self.created(name).await;
        let seen = Observation { volume: true, ..observation(id_of(&made), 1, 1) };
        self.hear(vec![seen], Vec::new()).await;
        made
    }

    /// All that was said until some seconds ago was heard.
    async fn heard_until(&self, seconds_ago: u32) {
        self.ask(&format!(
            "insert into heard (topic, kafka_partition, partitions, up_to) \
             values ('{HEARD}', 0, 1, now() - interval '{seconds_ago} seconds') \
             on conflict (topic, kafka_partition) do update set up_to = excluded.up_to"
        ))
        .await;
    }

    /// The observer of the database's cluster said some seconds ago that it still watches and that nothing waits to be said.
    async fn watched(&self, made: &Value, seconds_ago: u32) {
        self.ask(&format!(
            "insert into cluster_observers (cluster_id, holder, term, expires_at, listed_term, listed_databases, \
             listed_at, confirmed_at) select cluster_id, 'test', 1, now() + interval '1 hour', 1, 1, now(), \
             now() - interval '{seconds_ago} seconds' from databases where id = '{}' \
             on conflict (cluster_id) do update set confirmed_at = excluded.confirmed_at",
            text(&made["database"]["id"])
        ))
        .await;
    }

    /// Lets the time of an operation run out; all that was said of it by then was heard.
    async fn run_out(&self, accepted: &Value) {
        self.run_out_unheard(accepted).await;
        self.heard_until(0).await;
    }

    async fn run_out_unheard(&self, accepted: &Value) {
        let operation = text(&accepted["operation"]["id"]);
        self.ask(&format!(
            "update operations set deadline_at = now() - interval '1 second' where id = '{operation}'"
        ))
        .await;
    }

    async fn cancel(&self, token: &str, path: &str, key: &str) -> Answer {
        let request = self.request(token, Method::POST, &format!("{path}:cancel"));
        self.send(request.header("Idempotency-Key", key)).await
    }

    async fn operation(&self, path: &str) -> Value {
        self.get(&self.acme, path).await.body
    }

    async fn database(&self, made: &Value) -> Value {
        self.get(&self.acme, &format!("/v1/databases/{}", text(&made["database"]["id"]))).await.body
    }

    /// The newest operation of a database.
    async fn newest(&self, made: &Value) -> Value {
        let shown = self.database(made).await;
        self.operation(&format!("/v1/operations/{}", text(&shown["operation_id"]))).await
    }

    /// Every event of an operation: its number, the state after it and the code it came with.
    async fn events(&self, accepted: &Value) -> Vec<(i64, String, String)> {
        let id: OperationId = text(&accepted["operation"]["id"]).parse().unwrap();
        let events = self.store.events_after(&[(id, 0)], 1_000).await.unwrap().events;
        let code = |kind| match kind {
            ::store::EventKind::State(Some(failure)) => failure.code,
            ::store::EventKind::State(None) | ::store::EventKind::Step(_) => String::new(),
        };
        events.into_iter().map(|event| (event.number, event.state.to_string(), code(event.kind))).collect()
    }
}
