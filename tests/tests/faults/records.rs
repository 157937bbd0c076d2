//! Nonsense on the topics, and everything once more in another order.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Message, Record};
use domain::catalogue::Offer;
use domain::{DatabaseId, InstructionId, OperationId, Position};
use runtime::CancellationToken;
use testkit::{Collector, Random, Stopwatch, eventually, unique};

use crate::recoveries::{self, recovered};
use crate::rig::{PATIENCE, Rig};

impl Rig {
    /// All records of a topic, to its end.
    async fn records(&self, topic: &str) -> Vec<Record> {
        let admin = bus::Admin::new(&self.connection).unwrap();
        let mut ends = BTreeMap::new();
        for partition in 0..admin.partitions(topic, PATIENCE).await.unwrap() {
            ends.insert(partition, admin.end_offset(topic, partition, PATIENCE).await.unwrap());
        }
        let collector = Arc::new(Collector::default());
        let stop = CancellationToken::new();
        let settings = bus::sink::Settings::new(self.connection.clone(), topic, unique("collector"));
        tokio::spawn(bus::sink::run(settings, Arc::clone(&collector), Arc::default(), stop.clone()));
        eventually(PATIENCE, "all records of the topic", async || {
            let offsets = collector.read_to();
            let read = |(partition, end): (&i32, &i64)| *end == 0 || offsets.get(partition) >= Some(end);
            ends.iter().all(read).then_some(())
        })
        .await;
        stop.cancel();
        collector.records()
    }

    /// How often an instruction of a database at a seq stands in the topic.
    pub(crate) async fn published(&self, id: &str, seq: i64) -> usize {
        let records = self.records(&self.instructions).await;
        let seq = seq.to_string();
        let at = |record: &&Record| {
            let headers = &mut record.headers.iter();
            headers.any(|(name, value)| name == wire::headers::SEQ && value == seq.as_bytes())
        };
        records.iter().filter(|record| record.key_text() == Some(id)).filter(at).count()
    }

    /// Sends records once more in a shuffled order, each twice.
    async fn say_again(&self, topic: &str, seed: u64) -> usize {
        let records = self.records(topic).await;
        let mut twice = [records.clone(), records].concat();
        Random::new(seed).shuffle(&mut twice);
        let count = twice.len();
        for record in twice {
            let message = Message {
                topic: topic.to_owned(),
                key: record.key_text().unwrap_or_default().to_owned(),
                payload: record.payload.unwrap_or_default(),
                headers: record.headers,
            };
            self.producer.send(message).await.unwrap();
        }
        count
    }

    async fn produce(&self, topic: &str, key: &str, payload: Vec<u8>) {
        let message = Message { topic: topic.to_owned(), key: key.to_owned(), payload, headers: Vec::new() };
        self.producer.send(message).await.unwrap();
    }

    /// An instruction that nobody minted.
    fn stray(&self, cluster: &str) -> wire::Instruction {
        let create = domain::request::Create {
            name: "stray".to_owned(),
            region: "eu-west-1".to_owned(),
            ..domain::request::Create::default()
        };
        let home = domain::Cluster {
            id: cluster.parse().unwrap(),
            region: "eu-west-1".to_owned(),
            account: "000000000000".to_owned(),
            zones: BTreeMap::new(),
            hosted_zone_id: "Z1".to_owned(),
            dns_suffix: "example.com".to_owned(),
            namespace_template: "qdb-{tenant}".to_owned(),
            state: domain::ClusterState::Active,
            credentials: String::new(),
        };
        let database = DatabaseId::mint();
        wire::Instruction {
            id: InstructionId::mint(),
            database,
            tenant: self.tenant.parse().unwrap(),
            cluster: home.id.clone(),
            operation: OperationId::mint(),
            operation_kind: domain::OperationKind::Create,
            position: Position::FIRST,
            desired: create.validate(&Offer::default()).unwrap().place(database, &home),
            issued_at: jiff::Timestamp::UNIX_EPOCH,
            actor: "nobody".to_owned(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_set_aside_and_everything_else_goes_on() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(51);
    load.goes_on(15).await;
    let stray = rig.stray("near");
    // Several of each, so that every partition has some.
    for number in 0..4_u8 {
        let key = DatabaseId::mint().to_string();
        rig.produce(&rig.instructions, &key, vec![0xff, 0xfe, number]).await;
        rig.produce(&rig.instructions, "", stray.encode()).await;
        rig.produce(&rig.instructions, &key, stray.encode()).await;
        // Fields 1 and 2: a schema, and the oldest reader that may understand it.
        rig.produce(&rig.instructions, &key, vec![0x08, 99, 0x10, 99]).await;
        let lost = rig.stray("nowhere");
        rig.produce(&rig.instructions, &lost.key(), lost.encode()).await;
        rig.produce(&rig.gossip, &key, vec![0xff, number]).await;
    }
    let begun = Stopwatch::start();
    load.goes_on(20).await;
    rig.recovery().await;
    recovered(recoveries::NONSENSE, begun.elapsed());
    let four = |code| [code; 4];
    let codes =
        ["key_mismatch", "null_key", "reader_too_old", "undecodable", "undecodable", "unknown_cluster"];
    let letters = codes.map(four).concat();
    let (ledger, _) = rig.proven(load, &letters).await;
    let whole =
        "select count(*) from dead_letters where payload is not null and message <> '' and consumer <> ''";
    assert_eq!(rig.ask(whole).await, letters.len().to_string(), "with its bytes and the reason");

    // Read again, each is the letter that it was.
    rig.say_again(&rig.gossip, 52).await;
    let letters = [letters, vec!["undecodable"; 8]].concat();
    let mut letters = letters;
    letters.sort_unstable();
    rig.proven_of(&ledger, &letters).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_said_again_in_any_order_changes_nothing() {
    let rig = Rig::new().await;
    let _programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(53);
    load.goes_on(80).await;
    let (ledger, _) = rig.proven(load, &[]).await;
    assert!(ledger.deleted() > 0, "old instructions of deleted databases are the point");
    let believed = "select md5(string_agg(o::text, '|' order by database_id)) from (select database_id, epoch, seq, term, \
                    resource_version, phase, carried_epoch, carried_seq from observations) o";
    let ended = "select md5(string_agg(id || state || last_event, '|' order by id)) from operations";
    let states = || ledger.databases.keys().map(|id| rig.watched.states(id)).collect::<Vec<_>>();
    let before = (states(), rig.ask(believed).await, rig.ask(ended).await);
    let begun = Stopwatch::start();
    let instructions = rig.say_again(&rig.instructions, 54).await;
    let gossip = rig.say_again(&rig.gossip, 55).await;
    assert!(instructions > 80 && gossip > 80, "the fault did not fire: {instructions} and {gossip} records");
    rig.proven_of(&ledger, &[]).await;
    println!("{instructions} instructions and {gossip} pieces of gossip were said again");
    recovered(recoveries::SAID_AGAIN, begun.elapsed());
    assert_eq!((states(), rig.ask(believed).await, rig.ask(ended).await), before);
}
