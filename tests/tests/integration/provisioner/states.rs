//! What is asked for after a state that the API server itself refused: it is in the way of nothing.

use backend::api::{Api, Streams};
use backend::doorbell::Doorbell;
use backend::metrics::Metrics;
use backend::tokens::{self, Wish};
use domain::OperationKind;
use reqwest::Method;
use resources::{QuestDB, RunState};
use runtime::connections::Bounds;
use runtime::ops::Pages;
use serde_json::{Value, json};
use store::Role;
use testkit::{Console, Watched, eventually, unique};
use wire::Instruction;

use super::healing::{HEALED, OFTEN, World, mint, resource, stands_at};

const BORN: u32 = 50;

/// An API over the rows of a world, as its tenant asks it.
async fn console(world: &World) -> Console {
    let metrics = Metrics::new(&runtime::Metrics::default());
    let streams = Streams::new(metrics.clone());
    let pages = Pages { health: runtime::Health::new(), metrics: runtime::Metrics::default() };
    let store = world.rig.store.clone();
    let wish = Wish { role: Role::Sre, tenant: None, name: "test".to_owned(), days: None };
    let token = tokens::create(&store, wish).await.unwrap();
    let api = Api::new(store, Doorbell::default(), streams, metrics, pages);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(backend::serve::listen(listener, api, Bounds::default(), world.stopped()));
    Console::at(&url, &token, &world.rig.tenant)
}

/// Sends a change and waits until its operation has succeeded.
async fn carried_out(console: &Console, method: Method, path: &str, body: Option<Value>) -> Value {
    let request =
        console.request(method, path).header("Idempotency-Key", unique("key")).header("If-Match", "*");
    let answer = body.iter().fold(request, reqwest::RequestBuilder::json).send().await.unwrap();
    let status = answer.status();
    let accepted: Value = answer.json().await.unwrap();
    assert_eq!(status, 202, "{accepted:#}");
    let operation = format!("/v1/operations/{}", accepted["operation"]["id"].as_str().unwrap());
    eventually(HEALED, &format!("the end of what {path} asked for"), async || {
        let operation = console.get(&operation).await.ok()?;
        (operation["state"] == "succeeded").then_some(())
    })
    .await;
    accepted
}

/// A database of which the API server refused the second state: no volume is so slow.
async fn refused(world: &World) -> Instruction {
    let first = world.create("bare").await;
    let ended = format!(
        "select count(*) from operations where database_id = '{}' and state = 'succeeded'",
        first.database
    );
    world.count(&ended, "1").await;
    let mut transaction = world.rig.store.begin().await.unwrap();
    let locked = transaction.lock_database(None, first.database).await.unwrap().unwrap();
    let mut slower = locked.desired.clone();
    slower.storage.iops = 1;
    transaction.change(&locked, mint(OperationKind::Update, slower)).await.unwrap();
    transaction.commit().await.unwrap();
    let fired = format!(
        "select count(*) from operations where database_id = '{}' and seq = 2 and failure_code = 'invalid'",
        first.database
    );
    world.count(&fired, "1").await;
    first
}

fn holds(object: &QuestDB, seq: i64, run_state: RunState, size: u32) -> bool {
    stands_at(object, (1, seq)) && object.spec.run_state == run_state && object.spec.storage.size_gib == size
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_state_is_in_the_way_of_nothing_that_is_asked_for_later() {
    let world = World::new().await;
    let running = world.rig.start(&OFTEN);
    let watched = Watched::start(&testkit::bare_cluster().kubeconfig, &format!("qdb-{}", world.rig.tenant))
        .await
        .unwrap();
    let console = console(&world).await;
    // What is asked for, and what the resource says then.
    let post = |verb: &'static str| (Method::POST, verb, None);
    let table = [
        vec![(post(":pause"), RunState::Paused, BORN), (post(":resume"), RunState::Running, BORN)],
        vec![
            ((Method::DELETE, "", None), RunState::Deleted, BORN),
            (post(":undelete"), RunState::Running, BORN),
        ],
        vec![((Method::PATCH, "", Some(json!({"storage": {"size_gib": 60}}))), RunState::Running, 60)],
        vec![(post(":restart"), RunState::Running, BORN)],
    ];
    for requests in table {
        let first = refused(&world).await;
        for (((method, verb, body), run_state, size), seq) in requests.into_iter().zip(3..) {
            let path = format!("/v1/databases/{}{verb}", first.database);
            carried_out(&console, method, &path, body).await;
            let what = format!("the resource after {path}");
            resource(&world.rig.api(), &first, &what, |found| holds(found, seq, run_state, size)).await;
        }
        let states = watched.states(&first.database.to_string());
        assert!(states.iter().all(|seen| seen.position != (1, 2)), "the refused state was taken: {states:?}");
    }
    // The witness knows of no undelete: it tells of the one that was asked for, and of nothing else.
    let told = watched.wrong();
    let undeleted = |text: &String| text.ends_with("what was deleted came back: (1, 4) after (1, 3)");
    assert!(told.len() == 1 && told.iter().all(undeleted), "{told:?}");
    running.stop().await;
}
