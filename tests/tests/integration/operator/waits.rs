//! What the operator's guides tell people to wait for comes, and not before it is so: real `kubectl wait` and `kubectl get`.

use std::sync::Arc;

use kube::api::DeleteParams;
use resources::{QuestDB, SnapshotPhase};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::kubectl::{Kubectl, ended, met, succeeded};
use super::others::Others;
use super::rig::{PATIENCE, Rig, apply};
use super::snapshots::{api, take};
use super::subject::Subject;
use super::truth::{made, plain};

const READY: &str = "kubectl -n data wait questdb/trades --for=condition=Ready --timeout=15m";
const PAUSED: &str = "kubectl -n data wait qdb/trades --for=condition=Paused --timeout=30m";
const GONE: &str = "kubectl -n data wait qdb/trades --for=delete --timeout=30m";
/// After an edit: that it was seen, that nothing is left to do, and that nothing is wrong.
const CARRIED_OUT: &str = "\
generation=$(kubectl -n data get qdb trades -o jsonpath='{.metadata.generation}')
kubectl -n data wait qdb/trades --for=jsonpath='{.status.observedGeneration}'=\"$generation\" --timeout=5m
kubectl -n data wait qdb/trades --for=condition=Progressing=False --timeout=30m
kubectl -n data wait qdb/trades --for=condition=Degraded=False --timeout=1s";
const COPIED: [&str; 2] = [
    "kubectl -n data wait qdbsnap/before-the-migration --for=condition=Ready --timeout=2h",
    "kubectl -n data wait --for=condition=Ready questdbsnapshot/before-the-migration --timeout=2h",
];
const SNAPSHOT: &str = "before-the-migration";

/// A database that a person wrote, and that person's terminal.
struct Stage {
    subject: Subject,
    kubectl: Kubectl,
    spec: Value,
}

impl Stage {
    async fn new() -> Self {
        // Names of hosts are everybody's.
        let (rig, name) = (Arc::new(Rig::new().await), unique("waits"));
        let kubectl = Kubectl::new(&rig, &name);
        let spec = plain(&rig, &name, "Delete");
        apply(&rig.as_admin(), &spec).await.unwrap();
        Self { subject: Subject::within(&rig, &name), kubectl, spec }
    }

    /// One edit of its spec.
    async fn edit(&mut self, fields: &[(&str, &str)]) {
        for (field, value) in fields {
            self.spec["spec"][*field] = json!(value);
        }
        apply(&self.subject.rig.as_admin(), &self.spec).await.unwrap();
    }

    /// An edit that is refused is told by the last command, and by none before it.
    async fn is_refused(&mut self, fields: &[(&str, &str)]) {
        self.edit(fields).await;
        let (code, stdout, stderr) = ended(self.kubectl.follow(CARRIED_OUT)).await;
        assert_ne!(code, Some(0), "{stdout}");
        assert!(met(&stdout) == 2 && stderr.contains("timed out"), "{stdout}{stderr}");
    }

    async fn read(&self) -> QuestDB {
        self.subject.rig.as_admin().get(&self.subject.name).await.unwrap()
    }

    /// The edit that was made last is carried out, and all three commands say so.
    async fn carried_out(&self) {
        let printed = succeeded(self.kubectl.follow(CARRIED_OUT)).await;
        assert_eq!(met(&printed), 3, "{printed}");
    }
}

/// What heads the columns, and the only row.
fn table(printed: &str) -> [Vec<&str>; 2] {
    let lines: Vec<&str> = printed.lines().collect();
    let [head, row] = lines[..] else { panic!("more than one row, or none: {printed}") };
    [head, row].map(|line| line.split_whitespace().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_guide_says_to_wait_for_comes_and_not_before() {
    let mut stage = Stage::new().await;
    let rig = Arc::clone(&stage.subject.rig);
    let _operator = rig.start().await;
    let mut ready = stage.kubectl.follow(READY);
    made(&rig).await;
    assert!(ready.try_wait().unwrap().is_none(), "no machine has joined, and it counts as ready");
    let others = Others::of(&rig);
    succeeded(ready).await;
    stage.carried_out().await;
    shown_in_a_line(&stage).await;

    let version = stage.read().await.spec.version;
    stage.is_refused(&[("version", "0.0.1")]).await;
    // It serves on, which is told of that very edit.
    succeeded(stage.kubectl.follow(READY)).await;

    stage.edit(&[("runState", "Paused"), ("version", &version)]).await;
    succeeded(stage.kubectl.follow(PAUSED)).await;
    assert!(rig.instances().await.is_empty(), "a paused database has a machine");
    stage.carried_out().await;
    copied(&stage).await;

    stage.is_refused(&[("runState", "Running"), ("version", "0.0.1")]).await;
    succeeded(stage.kubectl.follow(PAUSED)).await;

    let (gone, name) = (stage.kubectl.follow(GONE), stage.subject.name.clone());
    rig.as_admin().delete(&name, &DeleteParams::default()).await.unwrap();
    succeeded(gone).await;
    assert!(rig.as_admin().get_opt(&name).await.unwrap().is_none());
    assert!(rig.instances().await.is_empty() && rig.groups().await.is_empty());
    drop(others);
    rig.end().await;
}

/// Phase, machine and name are in the line that a person sees.
async fn shown_in_a_line(stage: &Stage) {
    let printed = succeeded(stage.kubectl.follow("kubectl -n data get qdb")).await;
    let [head, row] = table(&printed);
    let columns =
        ["NAME", "PHASE", "READY", "VERSION", "INSTANCE", "SIZE", "NODEREADY", "NODEIP", "DNS", "AGE"];
    assert_eq!(head, columns, "{printed}");
    let found = stage.read().await;
    let (spec, status) = (&found.spec, found.status.as_ref().unwrap());
    let (node, dns) = (status.node.as_ref().unwrap(), status.dns.as_ref().unwrap());
    let size = spec.storage.size_gib.to_string();
    let expected: [&str; 9] = [
        stage.subject.name.as_str(),
        "Ready",
        "True",
        &spec.version,
        &spec.compute.instance_type,
        &size,
        "true",
        node.ip.as_deref().unwrap(),
        &dns.name,
    ];
    assert_eq!(row[..row.len() - 1], expected, "{printed}");
    let printed = succeeded(stage.kubectl.follow("kubectl -n data get qdb -o wide")).await;
    let [head, row] = table(&printed);
    assert_eq!((head.last(), row.last()), (Some(&"DEGRADED"), Some(&"AsExpected")), "{printed}");
}

/// A copy of its disk is whole when both guides' commands return, and goes when it is deleted.
async fn copied(stage: &Stage) {
    let subject = &stage.subject;
    take(subject, SNAPSHOT, "Delete").await;
    for line in COPIED {
        succeeded(stage.kubectl.follow(line)).await;
    }
    let status = api(subject).get(SNAPSHOT).await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.progress), (Some(SnapshotPhase::Succeeded), Some(100)));
    api(subject).delete(SNAPSHOT, &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, "the end of the snapshot", async || {
        api(subject).get_opt(SNAPSHOT).await.unwrap().is_none().then_some(())
    })
    .await;
}
