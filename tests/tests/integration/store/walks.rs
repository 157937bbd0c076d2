//! How much Postgres looks at for statements that are asked on and on, or first of all when somebody is called: what is over gathers
//! for years, and none of them walks over it. Counted in blocks, which are the same on every machine.

use std::time::Duration;

use ::store::statements;
use domain::ClusterId;
use serde_json::Value;

use super::absorb::fresh;
use super::{Try, at, observation};

const LONG: Duration = Duration::from_mins(5);
/// Rows of the past: each table of theirs has several times as many blocks as [`MOST`].
const PAST: u32 = 20_000;
/// Most blocks that a statement may look at.
const MOST: u64 = 100;
/// Identity number `n` of the past: before all that are minted now.
const ID: &str = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";

impl Try {
    /// How many blocks Postgres looks at for a statement with these parameters, which are in parentheses where there are any.
    async fn blocks(&self, statement: &str, parameters: &str) -> u64 {
        let asked = format!(
            "prepare asked as {statement}; explain (analyze, buffers, format json) execute asked {parameters}"
        );
        let told = self.ask(&asked).await;
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
        let plan = &told[0]["Plan"];
        let blocks = |which: &str| plan[which].as_u64().unwrap_or_else(|| panic!("{which}: {told}"));
        blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
    }

    /// Operations of a database, from one number to another, all in one state, with their deadline and their end.
    async fn operations(&self, database: &str, numbers: &str, state: &str, (deadline, ended): (&str, &str)) {
        let insert = format!(
            "insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor, deadline_at, ended_at) \
             select {ID}, 'acme', '{database}', 'update', 1, 1000 + n, '{state}', 'tenant:test', {deadline}, {ended} \
             from generate_series({numbers}) n; analyze operations"
        );
        self.ask(&insert).await;
    }

    /// Databases of which nothing is left, and what was last seen of them.
    async fn purged_databases(&self) {
        let databases = format!(
            "insert into databases (id, tenant_id, cluster_id, name, desired, desired_schema, content_hash, epoch, seq, \
             published_epoch, published_seq, deleted_at, purged_at) select {ID}, 'acme', 'eu-west-1', 'past-' || n, \
             '{{}}', 1, '', 1, 1, 1, 1, now(), now() from generate_series(1, {PAST}) n; analyze databases"
        );
        self.ask(&databases).await;
        let seen = format!(
            "insert into observations (database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, \
             phase, carried_epoch, carried_seq, body, body_schema, said_at) select {ID}, 'eu-west-1', 1, 1, 0, 1, false, '', \
             'Deleted', 1, 1, '{{}}', 1, now() from generate_series(1, {PAST}) n; analyze observations"
        );
        self.ask(&seen).await;
    }
}

#[tokio::test]
async fn what_goes_on_and_what_failed_is_not_sought_among_all_that_succeeded() {
    let scene = Try::new().await;
    let database = scene.create("trades").await.id.to_string();
    let past = format!("1, {PAST}");
    scene.operations(&database, &past, "succeeded", ("now() - interval '1 hour'", "now()")).await;
    for (state, goes_on) in [("pending", true), ("running", true), ("failed", false), ("superseded", false)] {
        let parameters = format!("(null, null, '{state}', null, 21, {goes_on}, false)");
        let blocks = scene.blocks(statements::OPERATIONS, &parameters).await;
        assert!(blocks <= MOST, "{state}: {blocks} blocks");
    }
}

#[tokio::test]
async fn what_is_late_is_not_sought_among_all_that_is_over_however_much_goes_on() {
    let scene = Try::new().await;
    let database = scene.create("trades").await.id.to_string();
    let past = format!("1, {PAST}");
    scene.operations(&database, &past, "succeeded", ("now() - interval '1 hour'", "now()")).await;
    // As many that Postgres expects to come upon a page of late ones soon, wherever it begins: not one of them is.
    let open = format!("{PAST} + 1, {PAST} + 4000");
    scene.operations(&database, &open, "pending", ("now() + interval '1 hour'", "null")).await;
    let blocks = scene.blocks(statements::DUE, "(null, 100)").await;
    assert!(blocks <= MOST, "{blocks} blocks");
}

#[tokio::test]
async fn databases_of_which_nothing_is_left_are_passed_by_the_sweep() {
    let scene = Try::new().await;
    scene.purged_databases().await;
    scene.create("trades").await;
    let parameters = "('00000000-0000-0000-0000-000000000000', 500, 'gossip', '{invalid}', \
                      'ffffffff-ffff-ffff-ffff-ffffffffffff')";
    let blocks = scene.blocks(statements::SWEEP_SUBJECTS, parameters).await;
    assert!(blocks <= MOST, "{blocks} blocks");
}

#[tokio::test]
async fn under_which_terms_clusters_were_heard_is_not_sought_in_all_that_was_seen() {
    let scene = Try::new().await;
    let cluster: ClusterId = "eu-west-1".parse().unwrap();
    let term = scene.store.observe_cluster(&cluster, "a", LONG).await.unwrap().unwrap();
    // Nothing of this term arrived, so there is none that could be come upon.
    assert!(scene.store.note_listed(&cluster, "a", term, (3, Duration::ZERO)).await.unwrap());
    scene.purged_databases().await;
    for (statement, parameters) in [(statements::LISTINGS, ""), (statements::RAISE_TERMS, "(1000000)")] {
        let blocks = scene.blocks(statement, parameters).await;
        assert!(blocks <= MOST, "{blocks} blocks: {statement}");
    }
}

#[tokio::test]
async fn open_dead_letters_are_not_sought_among_all_that_are_settled() {
    let scene = Try::new().await;
    let letters = format!(
        "insert into dead_letters (topic, kafka_partition, kafka_offset, code, message, consumer, superseded_at) \
         select 'instructions', 0, n, 'undecodable', 'why', 'provisioner', now() from generate_series(1, {PAST}) n; \
         analyze dead_letters"
    );
    scene.ask(&letters).await;
    let blocks = scene.blocks(statements::LETTERS, "(false, null, 21, null, null, null)").await;
    assert!(blocks <= MOST, "{blocks} blocks");
}

/// Every database is told of every ten minutes: that changes one row of one page, and no index.
#[tokio::test]
async fn what_is_said_again_is_written_to_no_index() {
    let scene = Try::new().await;
    let created = scene.create("trades").await;
    scene.store.absorb(&fresh(vec![observation(created.id, at(1))])).await.unwrap();
    let again = "update observations set seq = 2, resource_version = 2, content_hash = 'other', phase = 'Ready', \
                 carried_epoch = 1, carried_seq = 2, body = '{\"zone\": \"a\"}', said_at = now(), received_at = now(); \
                 select n_tup_hot_upd from pg_stat_xact_user_tables where relname = 'observations'";
    assert_eq!(scene.ask(again).await, "1");
}
