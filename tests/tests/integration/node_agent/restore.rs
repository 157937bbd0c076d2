//! What a database made from a copy needs: containers that run before it, once for each pod, and a disk that begins
//! with what the snapshot holds.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use serde_json::{Value, json};
use testkit::eventually;
use tokio::process::Command;

use super::pods::{
    delete_and_wait, is_ready, pod, restarts, rig_with_node, run, until_node, until_rows, waiting_reason,
};
use super::rig::{PATIENCE, Rig, image};

/// A container that runs a script on the database's disk.
fn script(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": image(), "command": ["/bin/sh", "-ec"], "args": [script],
        "env": [
            {"name": "ROOT", "value": "/var/lib/questdb"},
            {"name": "WHO", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/questdb"}],
    })
}

fn preparing(pod: &Pod, index: usize) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.init_container_statuses.as_ref()?.get(index)
}

fn state(pod: &Pod, index: usize) -> Option<&ContainerState> {
    preparing(pod, index)?.state.as_ref()
}

fn is_initialized(pod: &Pod) -> Option<bool> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Initialized").map(|condition| condition.status == "True")
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn with_disk(rig: &Rig, volume: &cloud::VolumeId, claim: &str, node: &str) {
    rig.bound_claim(volume, claim).await;
    let attachment = rig.attachment(volume, node).await;
    rig.until_attached(&attachment).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_that_prepare_run_in_order_until_each_ended_well_and_once_for_each_pod() {
    let (rig, node, instance) = rig_with_node().await;
    let mut agent = rig.start("process");
    until_node(&rig, &node).await;
    let volume = rig.volume().await;
    with_disk(&rig, &volume, "data", &node).await;
    let (runs, go) = (rig.disk(&volume).join("runs"), rig.disk(&volume).join("go"));
    // The first waits to be let go, then fails once for each disk.
    let first = r#"
        echo "$WHO" >> "$ROOT/runs"
        while [ ! -e "$ROOT/go" ]; do sleep 0.05; done
        if [ ! -e "$ROOT/tried" ]; then touch "$ROOT/tried"; exit 3; fi
    "#;
    let mut wanted = pod("db-0", &node, &image());
    wanted["spec"]["initContainers"] =
        json!([script("first", first), script("second", r#"echo second >> "$ROOT/runs""#)]);
    rig.create(wanted.clone()).await;
    rig.until_pod("db-0", "a pod that prepares", |pod| state(pod, 0)?.running.as_ref().map(|_| ())).await;
    let seen = rig.until_pod("db-0", "a waiting database", |pod| Some(pod.clone())).await;
    assert_eq!(waiting_reason(&seen).as_deref(), Some("PodInitializing"));
    assert_eq!(is_initialized(&seen), Some(false));
    let second =
        state(&seen, 1).and_then(|state| state.waiting.as_ref()).and_then(|state| state.reason.clone());
    assert_eq!(second.as_deref(), Some("PodInitializing"));

    // Another agent takes up what runs and begins nothing anew.
    agent.kill().await.unwrap();
    let mut agent = rig.start("process");
    eventually(PATIENCE, "a run", async || (lines(&runs) == ["admin"]).then_some(())).await;
    fs::write(&go, "").unwrap();
    rig.until_pod("db-0", "a ready pod", is_ready).await;
    assert_eq!(lines(&runs), ["admin", "admin", "second"]);
    let seen = rig.until_pod("db-0", "a status", |pod| Some(pod.clone())).await;
    assert_eq!(is_initialized(&seen), Some(true));
    assert_eq!(preparing(&seen, 0).map(|status| (status.restart_count, status.ready)), Some((1, true)));
    assert_eq!(preparing(&seen, 1).map(|status| (status.restart_count, status.ready)), Some((0, true)));

    // Neither a crash of the database nor another agent makes them run again; a new pod does.
    agent.kill().await.unwrap();
    let _agent = rig.start("process");
    let process = rig.process(&seen).expect("a process");
    assert!(Command::new("kill").args(["-KILL", &process]).status().await.unwrap().success());
    rig.until_pod("db-0", "a restart", |pod| (restarts(pod)? == 1).then_some(())).await;
    rig.until_pod("db-0", "a ready pod", is_ready).await;
    assert_eq!(lines(&runs), ["admin", "admin", "second"]);
    delete_and_wait(&rig, "db-0").await;
    rig.create(wanted).await;
    rig.until_pod("db-0", "a ready pod", is_ready).await;
    assert_eq!(lines(&runs), ["admin", "admin", "second", "admin", "second"]);

    delete_and_wait(&rig, "db-0").await;
    rig.aws.terminate_instance(&instance).await.unwrap();
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_made_from_a_snapshot_begins_with_the_rows_of_its_moment() {
    let (rig, node, instance) = rig_with_node().await;
    let _agent = rig.start("process");
    until_node(&rig, &node).await;
    let volume = rig.volume().await;
    with_disk(&rig, &volume, "data", &node).await;
    rig.create(pod("db-0", &node, &image())).await;
    let address = rig.until_pod("db-0", "a ready pod", is_ready).await;
    run(&address, "create table t (ts timestamp, v long) timestamp(ts) partition by day wal").await;
    run(&address, "insert into t values (now(), 42)").await;
    until_rows(&address, "select sum(v) from t", json!([[42]])).await;
    run(&address, "checkpoint create").await;
    let snapshot = rig.snapshot(&volume).await;
    let held = fs::metadata(Rig::snapshots().join(snapshot.as_str()).join("db"));
    assert!(held.is_ok_and(|held| held.is_dir()), "the snapshot holds no bytes");
    run(&address, "checkpoint release").await;
    run(&address, "insert into t values (now(), 1)").await;
    until_rows(&address, "select sum(v) from t", json!([[43]])).await;
    delete_and_wait(&rig, "db-0").await;

    let copy = rig.volume_from(&snapshot).await;
    // On EC2 the new volume does not need the snapshot any more.
    rig.aws.delete_snapshot(&snapshot).await.unwrap();
    with_disk(&rig, &copy, "restored", &node).await;
    let mut restored = pod("db-1", &node, &image());
    restored["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("restored");
    let restore = r#"if [ -d "$ROOT/.checkpoint/db" ]; then touch "$ROOT/_restore" "$ROOT/seen"; fi"#;
    restored["spec"]["initContainers"] = json!([script("restore", restore)]);
    rig.create(restored).await;
    let address = rig.until_pod("db-1", "a ready pod", is_ready).await;
    until_rows(&address, "select sum(v) from t", json!([[42]])).await;
    let disk = rig.disk(&copy);
    assert!(disk.join("seen").exists(), "the copy holds no checkpoint");
    assert!(!disk.join("_restore").exists(), "QuestDB did not restore");

    delete_and_wait(&rig, "db-1").await;
    rig.aws.terminate_instance(&instance).await.unwrap();
    rig.end().await;
}
