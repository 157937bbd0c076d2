//! The sink without its servers: what a batch of records means.

use bus::Record;
use domain::{DatabaseId, InstructionId, OperationId, Position};
use jiff::Timestamp;
use wire::{Gossip, Observation, Outcome, OutcomeKind, Said};

use super::*;

fn sink() -> GossipSink {
    let store = Store::connect("postgres://nobody@127.0.0.1:1/none", &store::Settings::default()).unwrap();
    GossipSink::new(store, "test", "gossip", Metrics::new(&runtime::Metrics::default()))
}

fn observation(seq: i64, term: i64, resource_version: u64) -> Said {
    Said::Observation(Box::new(Observation {
        position: Position { epoch: 1, seq },
        term,
        resource_version,
        present: true,
        content_hash: String::new(),
        phase: format!("{seq}/{term}/{resource_version}"),
        carried_out: None,
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
    }))
}

fn outcome(code: &str) -> Said {
    Said::Outcome(Outcome {
        position: Position::FIRST,
        instruction: InstructionId::mint(),
        operation: OperationId::mint(),
        kind: OutcomeKind::Refused,
        code: code.to_owned(),
        message: "no".to_owned(),
    })
}

fn gossip(database: DatabaseId, cluster: &str, said: Said) -> Gossip {
    Gossip { database, cluster: cluster.parse().unwrap(), said_at: at(0), said }
}

/// A moment of the present time.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_763_700_000 + second).unwrap()
}

fn record(offset: i64, key: &str, payload: &[u8]) -> Record {
    Record {
        topic: "gossip".into(),
        partition: 3,
        offset,
        timestamp_ms: None,
        key: Some(key.as_bytes().to_vec()),
        payload: Some(payload.to_vec()),
        headers: vec![
            ("slipway-cluster".to_owned(), b"eu-west-1".to_vec()),
            ("odd".to_owned(), vec![0, 0xff]),
        ],
    }
}

fn batch(records: Vec<Record>) -> Batch {
    let end = records.last().unwrap().offset + 1;
    Batch { topic: "gossip".into(), partition: 3, start: Some(7), end, records }
}

fn good(offset: i64, said: &Gossip) -> Record {
    record(offset, &said.key(), &said.encode())
}

#[tokio::test]
async fn the_newest_observation_of_each_database_stays_whatever_the_order() {
    let database = DatabaseId::mint();
    let versions = [(1, 1, 1), (2, 1, 3), (2, 2, 1), (2, 2, 2)];
    for rotation in 0..versions.len() {
        let mut rotated = versions;
        rotated.rotate_left(rotation);
        let records = rotated.iter().zip(10..).map(|(&(seq, term, version), offset)| {
            good(offset, &gossip(database, "eu-west-1", observation(seq, term, version)))
        });
        let taken = sink().read(&batch(records.collect()));
        let phases: Vec<&str> = taken.observations.iter().map(|seen| seen.phase.as_str()).collect();
        assert_eq!(phases, ["2/2/2"]);
    }
}

#[tokio::test]
async fn of_a_database_that_was_gone_both_the_end_and_what_is_there_again_are_written() {
    let database = DatabaseId::mint();
    let versions = [(3, 1, true), (3, 2, false), (2, 3, true), (2, 4, true)];
    let records = versions.iter().zip(10..).map(|(&(seq, version, present), offset)| {
        let Said::Observation(mut seen) = observation(seq, 1, version) else { unreachable!() };
        seen.present = present;
        good(offset, &gossip(database, "eu-west-1", Said::Observation(seen)))
    });
    let taken = sink().read(&batch(records.collect()));
    let phases: Vec<&str> = taken.observations.iter().map(|seen| seen.phase.as_str()).collect();
    assert_eq!(phases, ["3/1/2", "2/1/4"]);
}

#[tokio::test]
async fn what_was_carried_out_lies_in_the_body_with_its_content_where_that_is_told() {
    let database = DatabaseId::mint();
    for (told, kept) in [("ab12", Some("ab12")), ("", None)] {
        let Said::Observation(mut seen) = observation(1, 1, 1) else { unreachable!() };
        told.clone_into(&mut seen.carried_hash);
        let said = gossip(database, "eu-west-1", Said::Observation(seen));
        let taken = sink().read(&batch(vec![good(10, &said)]));
        let body: serde_json::Value = serde_json::from_str(taken.observations[0].body.text()).unwrap();
        assert_eq!(body["carried_hash"].as_str(), kept);
    }
}

#[tokio::test]
async fn a_foreign_cluster_does_not_push_aside_what_the_own_one_says() {
    let database = DatabaseId::mint();
    let own = good(10, &gossip(database, "eu-west-1", observation(1, 1, 1)));
    let foreign = good(11, &gossip(database, "us-east-1", observation(9, 9, 9)));
    let taken = sink().read(&batch(vec![own, foreign]));
    assert_eq!(taken.observations.len(), 2);
}

#[tokio::test]
async fn outcomes_keep_their_order_and_a_refusal_has_a_code() {
    let database = DatabaseId::mint();
    let records = ["a", "", "c"]
        .iter()
        .zip(10..)
        .map(|(code, offset)| good(offset, &gossip(database, "eu-west-1", outcome(code))));
    let taken = sink().read(&batch(records.collect()));
    let codes: Vec<&str> = taken.outcomes.iter().map(|outcome| outcome.code.as_str()).collect();
    assert_eq!(codes, ["a", "refused", "c"]);
}

#[tokio::test]
async fn what_cannot_be_understood_is_kept_with_its_bytes_and_the_rest_goes_on() {
    let database = DatabaseId::mint();
    let said = gossip(database, "eu-west-1", observation(1, 1, 1));
    let stranger = DatabaseId::mint().to_string();
    let taken = sink().read(&batch(vec![
        record(10, &database.to_string(), b"\xff\xff\xff"),
        good(11, &said),
        record(12, &stranger, &said.encode()),
    ]));
    assert_eq!(taken.observations.len(), 1);
    assert_eq!(taken.advance, Advance { partition: 3, from: Some(7), to: 13 });
    let letters = &taken.dead_letters;
    assert_eq!(letters.iter().map(|letter| letter.offset).collect::<Vec<_>>(), [10, 12]);
    assert_eq!(letters[0].code, "undecodable");
    assert_eq!(letters[0].payload.as_deref(), Some(&b"\xff\xff\xff"[..]));
    assert_eq!(letters[0].database, Some(database));
    assert_eq!(letters[0].cluster.as_ref().unwrap().as_str(), "eu-west-1");
    assert!(!letters[0].headers[1].1.contains('\0'), "Postgres takes no NUL in a text");
    assert_eq!(letters[1].code, "bad_field");
    assert!(letters[1].message.contains(&stranger), "{}", letters[1].message);
}

#[tokio::test]
async fn a_resource_version_beyond_every_row_is_set_aside() {
    let said = gossip(DatabaseId::mint(), "eu-west-1", observation(1, 1, u64::MAX));
    let taken = sink().read(&batch(vec![good(10, &said)]));
    assert!(taken.observations.is_empty());
    assert!(taken.dead_letters[0].message.contains("resource_version"), "{}", taken.dead_letters[0].message);
}

#[tokio::test]
async fn what_was_said_at_a_time_that_no_row_can_hold_is_set_aside_and_the_rest_goes_on() {
    let said = gossip(DatabaseId::mint(), "eu-west-1", observation(1, 1, 1));
    let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
    // The first is a time of before 4713 BC: Postgres knows none.
    let never = [-300_000_000_000_000, 0, 1_577_836_799_999, 4_102_444_800_000, 250_000_000_000_000];
    for said_at in never.map(at) {
        for said in [said.clone(), gossip(DatabaseId::mint(), "eu-west-1", outcome("a"))] {
            let records = vec![good(10, &Gossip { said_at, ..said.clone() }), good(11, &said)];
            let taken = sink().read(&batch(records));
            assert_eq!(taken.observations.len() + taken.outcomes.len(), 1, "{said_at}");
            let letters: Vec<_> =
                taken.dead_letters.iter().map(|letter| (letter.offset, letter.code.as_str())).collect();
            assert_eq!(letters, [(10, "bad_field")], "{said_at}");
            assert!(
                taken.dead_letters[0].message.contains("said_at_ms"),
                "{}",
                taken.dead_letters[0].message
            );
        }
    }
    for said_at in [1_577_836_800_000, 4_102_444_799_999].map(at) {
        let taken = sink().read(&batch(vec![good(10, &Gossip { said_at, ..said.clone() })]));
        assert_eq!((taken.observations.len(), taken.dead_letters.len()), (1, 0), "{said_at}");
    }
}

#[tokio::test]
async fn what_is_said_again_is_believed_as_of_then() {
    let database = DatabaseId::mint();
    let early = gossip(database, "eu-west-1", observation(1, 1, 1));
    let late = Gossip { said_at: at(100), ..early.clone() };
    for order in [[&early, &late], [&late, &early]] {
        let records = order.iter().zip(10..).map(|(said, offset)| good(offset, said)).collect();
        assert_eq!(sink().read(&batch(records)).observations[0].said_at, late.said_at);
    }
}
