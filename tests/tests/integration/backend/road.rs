//! From a request to a record, and from gossip to the end of an operation, over a real Kafka.

use std::sync::Arc;
use std::time::Duration;

use ::backend::relay::{Relay, Step};
use ::backend::sink::GossipSink;
use ::bus::sink::Settings;
use ::bus::{Admin, Connection, Message, Producer, Record, TopicSettings};
use domain::{DatabaseId, InstructionId, Position};
use runtime::CancellationToken;
use serde_json::{Value, json};
use testkit::{Collector, eventually, stack, unique};
use wire::{Gossip, Instruction, Observation, Outcome, OutcomeKind, Said};

use super::{App, PATIENCE, text};
use crate::support::counted;

pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// Topics of the test's own, and what the API needs beside them.
pub(super) struct Road {
    pub(super) app: App,
    pub(super) connection: Connection,
    producer: Producer,
    pub(super) instructions: String,
    pub(super) gossip: String,
    /// Where a producer sends its first record, which no test asks for.
    firsts: String,
    collector: Arc<Collector>,
    pub(super) stop: CancellationToken,
}

impl Road {
    pub(super) async fn new() -> Self {
        Self::over(App::new().await).await
    }

    /// The same where many ask for the same rows at once.
    pub(super) async fn crowded() -> Self {
        Self::over(App::crowded().await).await
    }

    async fn over(app: App) -> Self {
        let connection = Connection::new(&stack().kafka_bootstrap, "test");
        let [instructions, gossip, firsts] = ["instructions", "gossip", "firsts"].map(unique);
        let all = [&instructions, &gossip, &firsts];
        let topics = all.map(|topic| TopicSettings::new(topic, 2, 1));
        let admin = Admin::new(&connection).unwrap();
        admin.ensure_topics(&topics, LIMIT).await.unwrap();
        for topic in all {
            // A broker learns of a topic a moment after the controller has made it.
            eventually(LIMIT, "the topic", async || admin.check_partitions(topic, 2, LIMIT).await.ok()).await;
        }
        let producer = warmed(&connection, &firsts).await;
        let (collector, stop) = (Arc::<Collector>::default(), CancellationToken::new());
        let settings = Settings::new(connection.clone(), &instructions, unique("collector"));
        tokio::spawn(::bus::sink::run(settings, Arc::clone(&collector), Arc::default(), stop.clone()));
        Self { app, connection, producer, instructions, gossip, firsts, collector, stop }
    }

    /// A producer of another connection that the brokers have answered already.
    pub(super) async fn producer_of(&self, connection: &Connection) -> Producer {
        warmed(connection, &self.firsts).await
    }

    pub(super) fn relay(&self) -> Relay {
        self.relay_with(self.producer.clone())
    }

    /// Its rounds wait for Kafka's word, however long the brokers take: a test asks what came of each.
    pub(super) fn relay_with(&self, producer: Producer) -> Relay {
        self.usual_relay(producer).patient(LIMIT)
    }

    /// The same, as it is in production: what Kafka does not answer soon is in doubt.
    pub(super) fn usual_relay(&self, producer: Producer) -> Relay {
        let (store, topic) = (self.app.store.clone(), self.instructions.clone());
        Relay::new(store, producer, topic, self.app.doorbell.clone(), self.app.metrics.clone())
    }

    fn start_sink(&self, group: &str) -> CancellationToken {
        let sink = GossipSink::new(self.app.store.clone(), group, &self.gossip, self.app.metrics.clone());
        let settings = Settings::new(self.connection.clone(), &self.gossip, group);
        let stop = self.stop.child_token();
        tokio::spawn(::backend::serve::consume(sink, settings, Arc::default(), stop.clone()));
        stop
    }

    /// The first `count` records of the instructions topic.
    pub(super) async fn records(&self, count: usize) -> Vec<Record> {
        eventually(LIMIT, "records", async || {
            let records = self.collector.records();
            (records.len() >= count).then_some(records)
        })
        .await
    }

    async fn say(&self, gossip: &Gossip) {
        self.send(&gossip.key(), gossip.encode()).await;
    }

    async fn send(&self, key: &str, payload: Vec<u8>) {
        let (topic, key) = (self.gossip.clone(), key.to_owned());
        self.producer.send(Message { topic, key, payload, headers: Vec::new() }).await.unwrap();
    }

    async fn operation(&self, state: &str, id: &str) -> Value {
        eventually(PATIENCE, state, async || {
            let body = self.app.get(&self.app.acme, &format!("/v1/operations/{id}")).await.body;
            (text(&body["state"]) == state).then_some(body)
        })
        .await
    }
}

/// A producer that the brokers have answered already: before the first word of a broker it has to be found and asked for its
/// topics.
async fn warmed(connection: &Connection, topic: &str) -> Producer {
    let producer = Producer::new(connection).unwrap();
    let message = || Message {
        topic: topic.to_owned(),
        key: "first".to_owned(),
        payload: Vec::new(),
        headers: Vec::new(),
    };
    eventually(LIMIT, "the first record", async || producer.send(message()).await.ok()).await;
    producer
}

impl Drop for Road {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn observation(database: DatabaseId, resource_version: u64, carried_out: Option<Position>) -> Gossip {
    let said = Said::Observation(Box::new(Observation {
        position: Position::FIRST,
        term: 1,
        resource_version,
        present: true,
        content_hash: String::new(),
        phase: if carried_out.is_some() { "Ready" } else { "Creating" }.to_owned(),
        carried_out,
        conditions: Vec::new(),
        steps: Vec::new(),
        endpoints: Some(wire::proto::Endpoints {
            http: "http://10.0.0.1:9000".to_owned(),
            ..Default::default()
        }),
        node: None,
        volume: Some(wire::proto::Volume { id: "vol-1".to_owned(), ..Default::default() }),
        dns: None,
        namespace: "qdb-acme".to_owned(),
        resource_name: "trades".to_owned(),
        credentials_secret: "trades-credentials".to_owned(),
        traceparent: String::new(),
        asked_size_gib: 0,
        carried_hash: String::new(),
    }));
    Gossip { database, cluster: "eu".parse().unwrap(), said_at: jiff::Timestamp::now(), said }
}

fn applied(made: &Value) -> Gossip {
    let said = Said::Outcome(Outcome {
        position: Position::FIRST,
        instruction: InstructionId::mint(),
        operation: text(&made["operation"]["id"]).parse().unwrap(),
        kind: OutcomeKind::Applied,
        code: String::new(),
        message: String::new(),
    });
    Gossip { database: id(made), cluster: "eu".parse().unwrap(), said_at: jiff::Timestamp::now(), said }
}

pub(super) fn id(made: &Value) -> DatabaseId {
    text(&made["database"]["id"]).parse().unwrap()
}

#[tokio::test]
async fn a_request_becomes_a_record_that_says_everything() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    assert_eq!(road.relay().step().await.unwrap(), Step::Idle);
    let record = road.records(1).await.remove(0);
    assert_eq!(record.key_text(), made["database"]["id"].as_str());
    let headers =
        [("slipway-epoch", "1"), ("slipway-seq", "1"), ("slipway-cluster", "eu"), ("slipway-schema", "1")];
    for (name, value) in headers {
        assert_eq!(record.header_text(name), Some(value));
    }
    let instruction = Instruction::decode(record.payload.as_deref().unwrap()).unwrap();
    assert_eq!(instruction.operation.to_string(), text(&made["operation"]["id"]));
    assert_eq!((instruction.actor.as_str(), instruction.position), ("tenant:test", Position::FIRST));
    let stored = road.app.store.database(None, id(&made)).await.unwrap().unwrap().database;
    assert_eq!((instruction.desired, stored.published), (stored.desired, Some(Position::FIRST)));
    assert_eq!(stored.content_hash, road.app.ask("select content_hash from instructions").await);
}

#[tokio::test]
async fn a_death_between_publishing_and_marking_publishes_again() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    road.relay().step().await.unwrap();
    road.app.ask("update databases set published_epoch = 0, published_seq = 0").await;
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 1, more: false });
    let records = road.records(2).await;
    assert_eq!(records[0].payload, records[1].payload, "the same state at the same position");
    assert_eq!(records[0].partition, records[1].partition);
    assert_eq!(records[1].key_text(), made["database"]["id"].as_str());
}

#[tokio::test]
async fn a_backlog_collapses_to_the_newest_state_of_each_database() {
    let road = Road::new().await;
    let first = road.app.created("trades").await;
    for seq in 1..=4 {
        let body = json!({"storage": {"size_gib": 100 + seq}});
        road.app.patch(text(&first["database"]["id"]), &format!("\"1-{seq}\""), &body).await;
    }
    road.app.created("quotes").await;
    assert_eq!(road.relay().step().await.unwrap(), Step::Published { count: 2, more: false });
    let records = road.records(2).await;
    let instructions: Vec<Instruction> = records
        .iter()
        .map(|record| Instruction::decode(record.payload.as_deref().unwrap()).unwrap())
        .collect();
    let newest = instructions.iter().find(|one| one.database == id(&first)).unwrap();
    assert_eq!((newest.position.seq, newest.desired.storage.size_gib), (5, 104));
}

#[tokio::test]
async fn the_doorbell_and_the_floor_both_publish() {
    let road = Road::new().await;
    let health = runtime::Health::new();
    let heartbeat = health.liveness.heartbeat("relay", LIMIT);
    tokio::spawn(road.relay().run(heartbeat, counted(), road.stop.clone()));
    let rung = road.app.created("rung").await;
    road.records(1).await;
    // The relay marks what it sent a moment after it was sent.
    eventually(LIMIT, "nothing unpublished", async || {
        let waiting = road.app.ask("select count(*) from databases where unpublished").await;
        (waiting == "0").then_some(())
    })
    .await;
    // Minted by another process: nobody rings here.
    road.app.ask("update databases set published_epoch = 0, published_seq = 0").await;
    assert_eq!(road.records(2).await[1].key_text(), rung["database"]["id"].as_str());
}

#[tokio::test]
async fn gossip_carries_an_operation_to_its_end() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    road.start_sink(&unique("sink"));
    road.say(&applied(&made)).await;
    road.operation("running", text(&made["operation"]["id"])).await;
    road.say(&observation(id(&made), 2, Some(Position::FIRST))).await;
    road.say(&observation(id(&made), 1, None)).await;
    road.operation("succeeded", text(&made["operation"]["id"])).await;
    let database = road.app.get(&road.app.acme, &format!("/v1/databases/{}", id(&made))).await.body;
    let observed = &database["observed"];
    assert_eq!((text(&observed["phase"]), text(&observed["volume_id"])), ("Ready", "vol-1"));
    assert_eq!((text(&observed["endpoints"]["http"]), &observed["seq"]), ("http://10.0.0.1:9000", &json!(1)));
    assert_eq!(text(&observed["credentials_secret"]), "trades-credentials");
    assert!(observed["as_of"].is_string());
}

#[tokio::test]
async fn what_cannot_be_understood_is_kept_and_the_partition_goes_on() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    road.start_sink(&unique("sink"));
    let key = id(&made).to_string();
    road.send(&key, b"\xff\xff\xff".to_vec()).await;
    road.send(&key, Vec::new()).await;
    road.say(&observation(id(&made), 1, Some(Position::FIRST))).await;
    road.operation("succeeded", text(&made["operation"]["id"])).await;
    let letters = "select kafka_offset, code, encode(payload, 'hex'), database_id is not null from dead_letters \
                   order by kafka_offset";
    assert_eq!(road.app.ask(letters).await, "0|undecodable|ffffff|t\n1|bad_field||t");
}

/// The one character that Postgres does not take, in every text that a cluster says.
#[tokio::test]
async fn no_text_of_a_cluster_stops_the_sink() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    road.start_sink(&unique("sink"));
    let nul = || "a\0b".to_owned();
    let mut parked = applied(&made);
    if let Said::Outcome(outcome) = &mut parked.said {
        (outcome.kind, outcome.code, outcome.message) = (OutcomeKind::Parked, nul(), nul());
    }
    road.say(&parked).await;
    let mut seen = observation(id(&made), 1, None);
    if let Said::Observation(seen) = &mut seen.said {
        (seen.phase, seen.content_hash, seen.namespace) = (nul(), nul(), nul());
    }
    road.say(&seen).await;
    road.say(&observation(id(&made), 2, Some(Position::FIRST))).await;
    road.operation("succeeded", text(&made["operation"]["id"])).await;
    assert_eq!(road.app.ask("select count(*) from dead_letters").await, "0", "it is understood");
}

/// Nobody knows of a record that Postgres refuses: here it is told to refuse one.
#[tokio::test]
async fn what_postgres_refuses_for_what_it_is_is_kept_and_the_partition_goes_on() {
    let road = Road::new().await;
    let mut made = Vec::new();
    for number in 0..5 {
        made.push(road.app.created(&format!("db-{number}")).await);
    }
    road.app.ask("alter table observations add constraint no_poison check (phase <> 'Poison')").await;
    for (number, made) in made.iter().enumerate() {
        let mut seen = observation(id(made), 1, Some(Position::FIRST));
        if let (2, Said::Observation(seen)) = (number, &mut seen.said) {
            seen.phase = "Poison".to_owned();
        }
        road.say(&seen).await;
    }
    road.start_sink(&unique("sink"));
    for (_, made) in made.iter().enumerate().filter(|(number, _)| *number != 2) {
        road.operation("succeeded", text(&made["operation"]["id"])).await;
    }
    let letters = "select string_agg(code || ' ' || database_id, ',') from dead_letters";
    let expected = format!("unstorable {}", id(&made[2]));
    eventually(PATIENCE, "the dead letter", async || (road.app.ask(letters).await == expected).then_some(()))
        .await;
    road.say(&observation(id(&made[2]), 2, Some(Position::FIRST))).await;
    road.operation("succeeded", text(&made[2]["operation"]["id"])).await;
}

#[tokio::test]
async fn a_sink_goes_on_where_the_one_before_stopped() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    let group = unique("sink");
    let first = road.start_sink(&group);
    road.say(&applied(&made)).await;
    road.operation("running", text(&made["operation"]["id"])).await;
    first.cancel();
    road.say(&observation(id(&made), 1, Some(Position::FIRST))).await;
    road.start_sink(&group);
    road.operation("succeeded", text(&made["operation"]["id"])).await;
    assert_eq!(road.app.ask("select sum(next_offset) from consumer_offsets").await, "2");
}

#[tokio::test]
async fn offsets_that_kafka_lost_do_not_stop_the_sink() {
    let road = Road::new().await;
    let made = road.app.created("trades").await;
    let group = unique("sink");
    let lost = format!(
        "insert into consumer_offsets select '{group}', '{}', p, 999 from generate_series(0, 1) p",
        road.gossip
    );
    road.app.ask(&lost).await;
    road.say(&observation(id(&made), 1, Some(Position::FIRST))).await;
    road.start_sink(&group);
    road.operation("succeeded", text(&made["operation"]["id"])).await;
}
