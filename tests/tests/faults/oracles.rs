//! The oracles themselves: each sees the damage that it is there for. Without this, a test that passes proves little.

#![cfg(test)]

use std::io::Write as _;
use std::time::Duration;

use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams};
use resources::QuestDB;
use testkit::load::Ledger;

use crate::rig::{GRACE, Rig};

/// Damage done to rows, a word of what the oracles say to it, and how it is undone.
const ROWS: [(&str, &str, &str); 6] = [
    (
        "update observations set seq = seq - 1",
        "an older observation won",
        "update observations set seq = seq + 1; delete from test_audit",
    ),
    (
        "alter table operations disable trigger operations_ends_are_final; \
         update operations set ended_at = ended_at + interval '1 s'",
        "an operation moved after its end",
        "alter table operations enable trigger operations_ends_are_final; delete from test_audit",
    ),
    (
        "alter table operations disable trigger all; update operations set last_event = last_event + 1; \
         alter table operations enable trigger all",
        "have gaps",
        "alter table operations disable trigger all; update operations set last_event = last_event - 1; \
         alter table operations enable trigger all",
    ),
    (
        "insert into dead_letters (topic, kafka_partition, kafka_offset, code, message, consumer) \
         values ('t', 0, 0, 'undecodable', 'm', 'c')",
        "dead letters are",
        "delete from dead_letters",
    ),
    (
        "update databases set content_hash = content_hash || 'x'",
        "the row says",
        "update databases set content_hash = rtrim(content_hash, 'x')",
    ),
    (
        "insert into unclaimed (database_id, cluster_id, code, epoch, seq, body) \
         select id, cluster_id, 'content', epoch, seq, '{}' from databases limit 1",
        "a cluster and Postgres disagree",
        "delete from unclaimed where code = 'content'",
    ),
];

/// Changes a ledger into one that was never promised.
type Lie = fn(&mut Ledger);

/// Lies about what was promised, and a word of what the oracles say to each.
const LIES: [(Lie, &str); 4] = [
    (|ledger| ledger.databases.values_mut().for_each(|entry| entry.position.1 += 1), "accepted at"),
    (|ledger| ledger.databases.values_mut().for_each(|entry| entry.deleted = !entry.deleted), "promised"),
    (
        |ledger| {
            let changes = ledger.databases.values_mut().flat_map(|entry| &mut entry.changes);
            changes.for_each(|change| change.operation = uuid::Uuid::now_v7().to_string());
        },
        "is lost",
    ),
    (
        |ledger| {
            let databases = std::mem::take(&mut ledger.databases).into_values();
            ledger.databases = databases.map(|entry| (uuid::Uuid::now_v7().to_string(), entry)).collect();
        },
        "no row is there",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_damage_is_seen() {
    let rig = Rig::new().await;
    let programs = (rig.backend().await, rig.provisioner().await);
    let load = rig.load(61);
    load.goes_on(30).await;
    let (ledger, _) = rig.proven(load, &[]).await;
    // Nobody heals what is damaged now.
    programs.0.terminate(GRACE * 2).await.unwrap();
    programs.1.terminate(GRACE).await.unwrap();
    let namespace = format!("qdb-{}", rig.tenant);
    let oracle = rig.oracle(&namespace);
    let blamed = async |ledger: &Ledger, word: &str| {
        let said = format!("{:#}", oracle.check(ledger, &[]).await.expect_err(word));
        assert!(said.contains(word), "{word:?} is not in {said}");
    };
    for (damage, word, undo) in ROWS {
        testkit::query(&rig.database_url, damage).await.unwrap();
        blamed(&ledger, word).await;
        testkit::query(&rig.database_url, undo).await.unwrap();
    }
    for (lie, word) in LIES {
        let mut told = ledger.clone();
        lie(&mut told);
        blamed(&told, word).await;
    }
    oracle.check(&ledger, &[]).await.unwrap();

    // Something open is waited for, and then told.
    let park = "insert into parked_instructions (database_id, cluster_id, epoch, seq, payload, code, message) \
                values (gen_random_uuid(), 'near', 1, 1, '', 'unreachable', 'm')";
    testkit::query(&rig.database_url, park).await.unwrap();
    let seen = panics(oracle.settled(Duration::from_millis(300))).await;
    assert!(seen, "a parked instruction is something open");
    testkit::query(&rig.database_url, "delete from parked_instructions").await.unwrap();

    // A complaint at rest, where before nobody said anything.
    rig.nobody_complains().await;
    let log = rig.folder.join("somebody.log");
    std::fs::write(&log, "").unwrap();
    // What is said once is no complaint at rest: a rebalance is that. What is said again and again is one.
    let says = async || {
        let mut log = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        writeln!(log, r#"{{"level":"WARN","message":"again"}}"#).unwrap();
    };
    futures::join!(rig.nobody_complains(), says());
    let again_and_again = async {
        loop {
            says().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Who complains goes first: whoever stood still in between has something to hear when it looks.
    let complained = tokio::select! {
        biased;
        () = again_and_again => unreachable!("it never ends"),
        complained = panics(rig.nobody_complains()) => complained,
    };
    assert!(complained, "somebody complains");
    std::fs::remove_file(&log).unwrap();

    // A resource more than there are databases.
    let client = testkit::client(&testkit::bare_cluster().provisioner_kubeconfig).await.unwrap();
    let api: Api<QuestDB> = Api::namespaced(client, &namespace);
    let mut other = api.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = format!("{}-again", other.metadata.name.unwrap());
    other.metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    other.status = None;
    let manager = PatchParams::apply(resources::names::PROVISIONER);
    api.patch(&name, &manager, &Patch::Apply(&other)).await.unwrap();
    blamed(&ledger, "has 2 resources").await;
}

/// Whether it ends with a panic.
async fn panics<T>(work: impl Future<Output = T>) -> bool {
    futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(work)).await.is_err()
}
