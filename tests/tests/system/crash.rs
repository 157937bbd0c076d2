//! Programs and servers die in the middle of the main job; it ends all the same, with one machine and one volume.

#![cfg(test)]

use std::time::Duration;

use testkit::{Console, cluster, eventually, unique};

use crate::main_job::{disks, machines, ready_of};
use crate::support::{alone, answered, crash, create, ended, ops_address, pid};

const BACK: Duration = Duration::from_secs(90);

/// Kills a program and waits until the supervisor has another in its place.
pub(crate) async fn crash_and_return(program: &str) {
    let killed = crash(program).await;
    eventually(BACK, &format!("{program} started again"), async || {
        (pid(program).ok()? != killed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_program_dies_once_on_the_way() {
    let _alone = alone().await;
    let console = Console::of(&unique("crash"));
    let home = cluster("eu-west-1");
    let accepted = create(&console, "survivor", home, "delete").await.unwrap();
    let operation = accepted["operation"]["id"].as_str().unwrap();
    for program in ["backend", "provisioner", "eu-west-1-operator", "eu-west-1-nodes"] {
        crash_and_return(program).await;
    }
    let database = ready_of(&console, home, &accepted).await;
    database.ask("select 1").await.unwrap();

    // A crash between a call and its record never makes a second machine or volume.
    let id = &database.id;
    let living = machines(home, id).await;
    assert_eq!(living.len(), 1, "{id}: {living:#?}");
    let volumes = disks(home, id).await;
    assert_eq!(volumes.len(), 1, "{id}: {volumes:#?}");

    let events = format!("/v1/operations/{operation}/events");
    let events = answered(&console.request(reqwest::Method::GET, &events)).await;
    let text = events.text().await.unwrap();
    let numbers: Vec<i64> =
        text.lines().filter_map(|line| line.strip_prefix("id:")?.trim().parse().ok()).collect();
    assert_eq!(
        numbers,
        (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>(),
        "nothing missed, nothing twice"
    );

    let accepted = console.delete(&format!("/v1/databases/{id}")).await.unwrap();
    ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
}

/// What `/readyz` of a program says; the status and the body.
async fn readiness(program: &str) -> Option<(u16, String)> {
    let address = ops_address(program).unwrap();
    let answer = testkit::http().get(format!("http://{address}/readyz")).send().await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

#[tokio::test]
async fn servers_die_and_work_resumes_by_itself() {
    let _alone = alone().await;
    let console = Console::of(&unique("outage"));
    let home = cluster("us-east-1");
    let accepted = create(&console, "patient", home, "delete").await.unwrap();
    for server in ["kafka", "us-east-1-apiserver", "aws", "postgres"] {
        crash_and_return(server).await;
    }
    let database = ready_of(&console, home, &accepted).await;
    database.ask("select 1").await.unwrap();
    eventually(BACK, "the API ready again", async || (readiness("backend").await?.0 == 200).then_some(()))
        .await;
    let accepted = console.delete(&format!("/v1/databases/{}", database.id)).await.unwrap();
    ended(&console, accepted["operation"]["id"].as_str().unwrap()).await;
}

/// A stopped process; it goes on when this is dropped, even by a failing test.
struct Stopped(String);

impl Stopped {
    fn stop(program: &str) -> Self {
        let pid = pid(program).unwrap();
        signal("-STOP", &pid);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, pid: &str) {
    let sent = std::process::Command::new("kill").args([name, pid]).status().unwrap();
    assert!(sent.success(), "the fault did not fire: {name} to process {pid}");
}

#[tokio::test]
async fn readiness_names_the_server_that_is_missing() {
    let _alone = alone().await;
    eventually(BACK, "the API ready", async || (readiness("backend").await?.0 == 200).then_some(())).await;
    let stopped = Stopped::stop("kafka");
    // Something else may be late just then.
    eventually(BACK, "the API not ready, and Kafka named", async || {
        let (status, body) = readiness("backend").await?;
        (status == 503 && body.contains("kafka")).then_some(())
    })
    .await;
    drop(stopped);
    eventually(BACK, "the API ready again", async || (readiness("backend").await?.0 == 200).then_some(()))
        .await;
}
