//! Dead letters and the person on call, over the whole circle: what was refused gets to its cluster once that can take it,
//! and what is gone is not brought back by any letter.

use backend::api::{Api, Streams};
use backend::doorbell::Doorbell;
use backend::metrics::Metrics;
use backend::tokens::{self, Wish};
use domain::RunState;
use runtime::CancellationToken;
use runtime::connections::Bounds;
use runtime::ops::Pages;
use serde_json::{Value, json};
use store::Role;
use testkit::postgres::Session;
use testkit::unique;
use wire::Instruction;

use super::healing::{OFTEN, World, resource, stands_at};
use super::rig::{PATIENCE, Running, name};

/// Provisioners that find every instruction with a long configuration too large.
const STRICT: [&str; 6] = [OFTEN[0], OFTEN[1], OFTEN[2], OFTEN[3], "--largest-record", "2000"];

/// The API as the person on call has it.
struct OnCall {
    base: String,
    token: String,
    stop: CancellationToken,
}

impl OnCall {
    async fn new(world: &World) -> Self {
        let store = world.rig.store.clone();
        let wish = Wish { role: Role::Sre, tenant: None, name: "on-call".to_owned(), days: None };
        let token = tokens::create(&store, wish).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let metrics = Metrics::new(&runtime::Metrics::default());
        let pages = Pages { health: runtime::Health::new(), metrics: runtime::Metrics::default() };
        let api = Api::new(store, Doorbell::default(), Streams::new(metrics.clone()), metrics, pages);
        let stop = CancellationToken::new();
        tokio::spawn(backend::serve::listen(listener, api, Bounds::default(), stop.clone()));
        Self { base, token, stop }
    }

    async fn act(&self, letter: &str, verb: &str) -> (u16, Value) {
        let request = testkit::http().post(format!("{}/v1/dead-letters/{letter}:{verb}", self.base));
        let request = request.bearer_auth(&self.token).header("Idempotency-Key", unique("key"));
        let answer = request.json(&json!({"reason": "a test"})).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

impl Drop for OnCall {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Nobody sends anything again until this is rolled back: a sweep waits for its turn. A state for which its provisioner is late would come
/// twice, and be a letter each time.
async fn no_turns(world: &World) -> Session {
    let mut session = Session::open(&world.rig.database_url).await.unwrap();
    session.run("begin; lock table turns in exclusive mode").await.unwrap();
    session
}

/// A database at 1/1 in its cluster, whose state at 1/2 was found too large and lies among the dead letters with all its
/// bytes.
async fn refused(world: &World) -> (Instruction, Running) {
    let running = world.rig.start(&STRICT);
    let first = world.create("bare").await;
    resource(&world.rig.api(), &first, "the resource", |found| stands_at(found, (1, 1))).await;
    let mut held = no_turns(world).await;
    world
        .change(&first, |desired| {
            // As many as it takes, each as long as a resource may have it.
            desired.config.extend((0..5).map(|number| (format!("note.{number}"), "x".repeat(900))));
        })
        .await;
    world.count("select code || ' ' || epoch || '/' || seq from dead_letters", "too_large 1/2").await;
    held.run("rollback").await.unwrap();
    (first, running)
}

/// How many instructions stand on the topic.
async fn sent(world: &World) -> i64 {
    let topic = &world.rig.topics[0];
    bus::Admin::new(&world.rig.connection).unwrap().end_offset(topic, 0, PATIENCE).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_gets_there_once_its_cluster_can_take_it() {
    let world = World::new().await;
    let on_call = OnCall::new(&world).await;
    let (first, running) = refused(&world).await;
    world.turns(8).await;
    let api = world.rig.api();
    assert!(stands_at(&api.get(&name(&first)).await.unwrap(), (1, 1)), "nobody sends it again by himself");
    let letter = world.ask("select id from dead_letters").await;
    // Too early: it comes to lie there again, as a letter of its own.
    let mut held = no_turns(&world).await;
    let (status, body) = on_call.act(&letter, "redrive").await;
    assert_eq!((status, body["outcome"].as_str()), (202, Some("redriven")), "{body}");
    world
        .count("select count(*), count(superseded_at) from dead_letters where code = 'too_large'", "2|1")
        .await;
    held.run("rollback").await.unwrap();
    // Whoever comes next does not read again what this one was too strict for.
    world.rig.committed().await;
    running.stop().await;
    let running = world.rig.start(&OFTEN);
    let letter = world.ask("select id from dead_letters where superseded_at is null").await;
    let (status, body) = on_call.act(&letter, "redrive").await;
    assert_eq!((status, body["outcome"].as_str()), (202, Some("redriven")), "{body}");
    resource(&api, &first, "the state that was refused", |found| stands_at(found, (1, 2))).await;
    world.settled(&first).await;
    assert_eq!(world.ask("select string_agg(settled_as, ',') from dead_letters").await, "redriven,redriven");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_letter_is_superseded_and_never_sent() {
    let world = World::new().await;
    let on_call = OnCall::new(&world).await;
    let (first, running) = refused(&world).await;
    running.stop().await;
    let letter = world.ask("select id from dead_letters").await;
    // Nobody takes the newer state yet, so that the letter is still open.
    world.change(&first, |desired| desired.config.clear()).await;
    let (status, body) = on_call.act(&letter, "redrive").await;
    assert_eq!((status, body["outcome"].as_str()), (202, Some("superseded")), "{body}");
    assert!(
        body["message"].as_str().unwrap().contains("the letter stands at 1/2 and is superseded"),
        "{body}"
    );
    let running = world.rig.start(&OFTEN);
    resource(&world.rig.api(), &first, "the newest state", |found| stands_at(found, (1, 3))).await;
    world.settled(&first).await;
    let size: usize = world.ask("select max(length(payload)) from dead_letters").await.parse().unwrap();
    assert!(size > 4_000, "the letter holds the whole older state");
    let after = world.rig.api().get(&name(&first)).await.unwrap();
    assert!(after.spec.config.is_empty(), "the letter's state is nowhere");
    running.stop().await;
}

/// The worst that a letter can be: the whole state of a running database that is purged, tombstone and all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_letter_brings_a_purged_database_back() {
    let world = World::new().await;
    let on_call = OnCall::new(&world).await;
    let (first, running) = refused(&world).await;
    // The relay marks what it sent a moment after it was sent: from here on nothing but the letter holds the old state.
    world.count("select count(*) from databases where unpublished", "0").await;
    world
        .change(&first, |desired| {
            desired.config.clear();
            desired.run_state = RunState::Purged;
        })
        .await;
    let api = world.rig.api();
    resource(&api, &first, "purged", |found| stands_at(found, (1, 3))).await;
    world.carried_out(&first, 3).await;
    world.count("select count(superseded_at) from dead_letters", "1").await;
    let earlier = world.ask("select id from dead_letters").await;
    world.count("select count(*) from databases where purged_at is not null", "1").await;
    assert!(api.get_opt(&name(&first)).await.unwrap().is_none(), "its tombstone is gone");
    // The same old instruction once more, of which nobody can say where it stood.
    let hex = world.ask("select encode(payload, 'hex') from dead_letters").await;
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let whole = Instruction::decode(&bytes).unwrap();
    assert_eq!((whole.database, whole.desired.run_state), (first.database, RunState::Running));
    world.rig.publish_bytes(&first.key(), bytes).await;
    world.count("select count(*) from dead_letters where superseded_at is null and epoch is null", "1").await;
    let letter = world.ask("select id from dead_letters where superseded_at is null").await;
    let before = sent(&world).await;
    let (status, body) = on_call.act(&letter, "redrive").await;
    assert_eq!((status, body["code"].as_str()), (409, Some("purged")), "{body}");
    let (status, body) = on_call.act(&earlier, "redrive").await;
    assert_eq!((status, body["code"].as_str()), (409, Some("settled")), "{body}");
    world.turns(8).await;
    assert_eq!(sent(&world).await, before, "nothing was sent");
    assert!(api.get_opt(&name(&first)).await.unwrap().is_none(), "nothing came back");
    let (status, body) = on_call.act(&letter, "discard").await;
    assert_eq!((status, body["outcome"].as_str()), (202, Some("discarded")), "{body}");
    world.turns(8).await;
    assert_eq!(sent(&world).await, before);
    assert!(api.get_opt(&name(&first)).await.unwrap().is_none());
    running.stop().await;
}
