//! A running QuestDB is told to read its server.conf again: a real one, whose file is brought up to date by the test.

use resources::{ChangeMeans, Phase, QuestDB, names};
use serde_json::json;
use testkit::eventually;

use super::rig::PATIENCE;
use super::snapshots::{Stage, operator};

/// A key that is read again.
const CONNECTIONS: &str = "http.net.connection.limit";

fn step(resource: &QuestDB) -> Option<String> {
    let steps = &resource.status.as_ref()?.steps;
    steps.iter().find(|step| step.name == "reload")?.message.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_in_force_once_questdb_itself_says_so() {
    let mut stage = Stage::new().await;
    let operator = operator(&stage.subject, &[]).await;
    let (subject, questdb) = (&mut stage.subject, &stage.questdb);
    subject.bind(1).await;
    let name = names::pod(&subject.name);
    let before = subject.pods().get(&name).await.unwrap();
    subject.wish(|spec| spec["config"][CONNECTIONS] = json!("80")).await;

    // It was told, and its file is the old one.
    let told = eventually(PATIENCE, "word that it was not taken over", async || {
        let found = subject.rig.as_admin().get(&subject.name).await.unwrap();
        step(&found)?.contains(&format!("has not taken over {CONNECTIONS}:")).then_some(found)
    })
    .await;
    let status = told.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Updating));
    let pending: Vec<_> = status.pending.iter().map(|found| (found.field.as_str(), found.means)).collect();
    assert_eq!(pending, [(format!("/spec/config/{CONNECTIONS}").as_str(), ChangeMeans::Online)]);
    assert!(status.conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"));
    assert!(status.instruction.unwrap().seq < 2, "it is not carried out");
    let annotation = async |key: &str| {
        let pod = subject.pods().get(&name).await.unwrap();
        assert_eq!(pod.metadata.uid, before.metadata.uid);
        pod.metadata.annotations.unwrap().remove(key)
    };
    assert!(annotation(names::CONFIG).await.is_some(), "the kubelet has no reason to look");
    let unknown = format!("\"{CONNECTIONS}\":\"\"");
    let running = annotation(names::RUNNING).await.unwrap();
    assert!(running.contains(&unknown), "{running}");
    assert_eq!(annotation(names::CONFIG_REFUSED).await, None, "its file need not be there yet");

    // A value that it does not accept is not in force either.
    questdb.configure(&format!("{CONNECTIONS}=8x"));
    let tried = operator.metric("slipway_operator_steps_total", "step=\"Reload\",result=\"failed\"").await;
    eventually(PATIENCE, "another attempt", async || {
        let now = operator.metric("slipway_operator_steps_total", "step=\"Reload\",result=\"failed\"").await;
        (now > tried + 1.0).then_some(())
    })
    .await;
    assert!(annotation(names::RUNNING).await.unwrap().contains(&unknown));
    questdb.configure(&format!("{CONNECTIONS}=80"));
    subject.carried_out(Phase::Ready).await;
    let running = annotation(names::RUNNING).await.unwrap();
    assert!(running.contains(CONNECTIONS) && !running.contains(&unknown), "{running}");
    let answer = questdb.sql(&format!("(SHOW PARAMETERS) WHERE property_path = '{CONNECTIONS}'")).await;
    assert_eq!(answer["dataset"][0][2], "80", "{answer}");
    stage.end(operator).await;
}
