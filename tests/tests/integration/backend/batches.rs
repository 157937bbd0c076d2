//! Gossip in any order, said twice, cut into batches anywhere: Postgres ends with the newest of each database.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::backend::sink::GossipSink;
use ::bus::Record;
use ::bus::sink::{Batch, Sink as _, Stored};
use domain::{DatabaseId, InstructionId, OperationId, Position};
use serde_json::json;
use testkit::Random;
use wire::{Gossip, Observation, Outcome, OutcomeKind, Said};

use super::{App, text};

const SEEDS: u64 = 8;
const DATABASES: usize = 3;
/// Changes of each database, its creation included.
const CHANGES: i64 = 3;
const VERSIONS: u64 = 4;
const TOPIC: &str = "gossip";

/// What orders observations of a database.
type Place = (i64, i64, u64);

fn phase((seq, term, version): Place) -> String {
    format!("{seq}/{term}/{version}")
}

fn gossip(database: DatabaseId, said: Said) -> Gossip {
    Gossip { database, cluster: "eu".parse().unwrap(), said_at: jiff::Timestamp::now(), said }
}

fn observation(database: DatabaseId, place: Place) -> Gossip {
    let position = Position { epoch: 1, seq: place.0 };
    let said = Said::Observation(Box::new(Observation {
        position,
        term: place.1,
        resource_version: place.2,
        present: true,
        content_hash: String::new(),
        phase: phase(place),
        // What is held last was also carried out.
        carried_out: (place.0 == CHANGES).then_some(position),
        conditions: Vec::new(),
        steps: Vec::new(),
        endpoints: None,
        node: None,
        volume: None,
        dns: None,
        namespace: String::new(),
        resource_name: String::new(),
        credentials_secret: String::new(),
        traceparent: String::new(),
        asked_size_gib: 0,
        carried_hash: String::new(),
    }));
    gossip(database, said)
}

fn outcome((database, operations): &(DatabaseId, Vec<OperationId>), seq: i64, kind: OutcomeKind) -> Gossip {
    let said = Said::Outcome(Outcome {
        position: Position { epoch: 1, seq },
        instruction: InstructionId::mint(),
        operation: operations[usize::try_from(seq).unwrap() - 1],
        kind,
        code: String::new(),
        message: String::new(),
    });
    gossip(*database, said)
}

/// Everything that is said of some databases, each thing twice, in some order; and the newest of each.
fn all(
    random: &mut Random,
    databases: &[(DatabaseId, Vec<OperationId>)],
) -> (Vec<Gossip>, BTreeMap<DatabaseId, Place>) {
    let (mut said, mut newest) = (Vec::new(), BTreeMap::new());
    for changed in databases {
        let (database, _) = changed;
        for seq in 1..=CHANGES {
            for kind in [OutcomeKind::Parked, OutcomeKind::Applied] {
                said.extend([outcome(changed, seq, kind), outcome(changed, seq, kind)]);
            }
            for version in 0..VERSIONS {
                let place =
                    (seq, 1 + i64::try_from(random.below(3)).unwrap(), 1 + version * 7 + random.below(7));
                said.extend([observation(*database, place), observation(*database, place)]);
                let entry = newest.entry(*database).or_insert(place);
                *entry = place.max(*entry);
            }
        }
    }
    random.shuffle(&mut said);
    (said, newest)
}

/// Puts everything through the sink, in batches of any size. Answers how many of them said something of one database twice.
async fn absorb(sink: &GossipSink, random: &mut Random, said: Vec<Gossip>) -> usize {
    let (mut offset, mut doubled, mut said) = (0, 0, said.into_iter());
    loop {
        let size = 1 + usize::try_from(random.below(20)).unwrap();
        let part: Vec<Gossip> = said.by_ref().take(size).collect();
        if part.is_empty() {
            return doubled;
        }
        let start = (offset > 0).then_some(offset);
        let observed: Vec<DatabaseId> = part
            .iter()
            .filter(|one| matches!(one.said, Said::Observation(_)))
            .map(|one| one.database)
            .collect();
        doubled +=
            usize::from(observed.iter().any(|id| observed.iter().filter(|other| *other == id).count() > 1));
        let records: Vec<Record> = part
            .iter()
            .enumerate()
            .map(|(at, one)| Record {
                topic: TOPIC.into(),
                partition: 0,
                offset: offset + i64::try_from(at).unwrap(),
                timestamp_ms: None,
                key: Some(one.key().into_bytes()),
                payload: Some(one.encode()),
                headers: Vec::new(),
            })
            .collect();
        let end = offset + i64::try_from(records.len()).unwrap();
        let batch = Batch { topic: TOPIC.into(), partition: 0, start, end, records };
        let stored = sink.store(Arc::new(batch)).await;
        assert!(matches!(stored, Ok(Stored::Done)), "{stored:?}");
        offset = end;
    }
}

/// A database that was changed as often as it is spoken of, and the operations of that.
async fn changed(app: &App, number: usize) -> (DatabaseId, Vec<OperationId>) {
    let made = app.created(&format!("db-{number}")).await;
    let id = text(&made["database"]["id"]).to_owned();
    let operation = |of: &serde_json::Value| text(&of["operation"]["id"]).parse().unwrap();
    let mut operations = vec![operation(&made)];
    for seq in 1..CHANGES {
        let body = json!({"storage": {"size_gib": 100 + seq}});
        let answer = app.patch(&id, &format!("\"1-{seq}\""), &body).await;
        assert_eq!(answer.status, 202);
        operations.push(operation(&answer.body));
    }
    (id.parse().unwrap(), operations)
}

#[tokio::test]
async fn the_newest_stays_however_gossip_is_shuffled_doubled_and_cut() {
    for seed in 0..SEEDS {
        let app = App::new().await;
        let mut random = Random::new(seed);
        let mut databases = Vec::new();
        for number in 0..DATABASES {
            databases.push(changed(&app, number).await);
        }
        let (said, newest) = all(&mut random, &databases);
        let sink = GossipSink::new(app.store.clone(), "test", TOPIC, app.metrics.clone());
        let doubled = absorb(&sink, &mut random, said).await;
        assert!(doubled > 0, "seed {seed}: no batch said anything of a database twice");
        for (id, place) in newest {
            let seen = app.ask(&format!("select phase from observations where database_id = '{id}'")).await;
            assert_eq!(seen, phase(place), "seed {seed}");
        }
        for (wrong, statement) in [
            ("open operations", "select count(*) from operations where ended_at is null"),
            (
                "newest operations that did not succeed",
                "select count(*) from operations o join databases d on d.id = o.database_id and o.seq = d.seq \
                 where o.state <> 'succeeded'",
            ),
            (
                "operations whose events have gaps",
                "select count(*) from operations o where last_event <> \
                 (select count(*) from operation_events e where e.operation_id = o.id)",
            ),
            ("dead letters", "select count(*) from dead_letters"),
        ] {
            assert_eq!(app.ask(statement).await, "0", "seed {seed}: {wrong}");
        }
    }
}

#[tokio::test]
async fn outcomes_of_foreign_clusters_are_counted_by_why_they_are_not_believed() {
    let app = App::new().await;
    let made = changed(&app, 0).await;
    let nobody = (DatabaseId::mint(), made.1.clone());
    let registry = runtime::Metrics::default();
    let sink = GossipSink::new(app.store.clone(), "test", TOPIC, ::backend::metrics::Metrics::new(&registry));
    let elsewhere = |said: Gossip| Gossip { cluster: "us".parse().unwrap(), ..said };
    let said = vec![
        outcome(&made, 1, OutcomeKind::Applied),
        elsewhere(outcome(&made, 3, OutcomeKind::Refused)),
        elsewhere(outcome(&made, 2, OutcomeKind::Applied)),
        outcome(&nobody, 1, OutcomeKind::Applied),
    ];
    absorb(&sink, &mut Random::new(1), said).await;
    let shown = registry.encode().unwrap();
    for (code, count) in [("other_cluster", 2), ("unknown_database", 1)] {
        let line = format!("gossip_unbelieved_outcomes_total{{code=\"{code}\"}} {count}");
        assert!(shown.contains(&line), "{shown}");
    }
    let states = "select string_agg(state, ' ' order by seq) from operations";
    assert_eq!(app.ask(states).await, "running pending pending", "only the own cluster was believed");
}
