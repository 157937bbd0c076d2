//! A key of server.conf that is misspelt, asked for of a real QuestDB that serves: it is left out by what QuestDB itself lists, and
//! nobody is stopped for it.

use kube::api::DeleteParams;
use resources::Phase;
use resources::names::{self, condition};
use serde_json::{Value, json};
use testkit::eventually;

use super::rig::PATIENCE;
use super::snapshots::Stage;
use super::subject::Subject;
use super::truth::annotate;

const MEANT: &str = "cairo.max.uncommitted.rows";
const MISSPELT: &str = "cairo.max.uncomitted.rows";

/// Has the operator ask QuestDB for its keys, and go on until it is answered. It would carry out a wish as if all keys of it were known
/// where QuestDB does not answer in time, and a busy machine is slow.
async fn has_listed_keys(subject: &Subject) {
    let wish = json!({ "config": { MISSPELT: "1000" } }).to_string();
    annotate(subject, names::DRY_RUN, json!(wish)).await;
    let (api, wrong) = (subject.rig.as_admin(), format!("wrong: /spec/config/{MISSPELT} "));
    eventually(PATIENCE, "the answer that a key is misspelt", async || {
        let lines = api.get(&subject.name).await.ok()?.status?.plan;
        lines.iter().any(|line| line.starts_with(&wrong) && line.ends_with(MEANT)).then_some(())
    })
    .await;
}

/// Why the spec is refused of a database that serves, or does not.
async fn refused(subject: &Subject, serves: bool) -> String {
    let api = subject.rig.as_admin();
    eventually(PATIENCE, "a refusal of the spec", async || {
        let conditions = api.get(&subject.name).await.ok()?.status?.conditions;
        let of = |kind: &str| conditions.iter().find(|found| found.type_ == kind);
        let said = of(condition::CONFIG_ACCEPTED)?;
        let is_it = (of(condition::READY)?.status == "True") == serves && said.status == "False";
        is_it.then(|| said.message.clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misspelt_key_is_refused_by_name_and_questdb_serves_on_until_it_is_right() {
    let mut stage = Stage::new().await;
    let lease = stage.subject.rig.lease().await;
    let kubeconfig = stage.subject.rig.rights(&lease).await;
    let operator = stage.subject.rig.spawn((&lease, &kubeconfig), &[], &[("SLIPWAY_RESYNC", "1s")]);
    let (subject, questdb) = (&mut stage.subject, &mut stage.questdb);
    subject.bind(1).await;
    questdb.sql("CREATE TABLE kept (number INT)").await;
    questdb.sql("INSERT INTO kept VALUES (7)").await;
    let before = subject.pod().await;
    has_listed_keys(subject).await;

    subject.wish(|spec| spec["config"] = json!({ MISSPELT: "1000" })).await;
    let told = refused(subject, true).await;
    annotate(subject, names::DRY_RUN, Value::Null).await;
    for text in
        [format!("/spec/config/{MISSPELT}").as_str(), "knows no such key", MEANT, "all else is carried out"]
    {
        assert!(told.contains(text), "{text}: {told}");
    }
    let now = subject.pod().await;
    assert_eq!((&now.metadata.uid, &now.metadata.deletion_timestamp), (&before.metadata.uid, &None));
    let template = serde_json::to_string(&subject.set(None).await.spec).unwrap();
    assert!(!template.contains(MISSPELT), "the next pod would not start: {template}");
    assert_eq!(questdb.sql("SELECT number FROM kept").await["dataset"], json!([[7]]));

    subject.wish(|spec| spec["config"] = json!({ MEANT: "1000" })).await;
    let name = names::pod(&subject.name);
    let after = eventually(PATIENCE, "another pod", async || {
        let pod = subject.play_controller(None).await;
        if pod.metadata.deletion_timestamp.is_some() {
            // It is on a machine whose kubelet would have the last word.
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let _ = subject.pods().delete(&name, &at_once).await;
        }
        (pod.metadata.uid != before.metadata.uid).then_some(pod)
    })
    .await;
    let running = &after.metadata.annotations.as_ref().unwrap()[names::RUNNING];
    assert!(running.contains(MEANT), "{running}");

    // A second wish in the middle of the restart: nobody can be asked, and what was listed before counts.
    subject.wish(|spec| spec["config"] = json!({ MEANT: "1000", MISSPELT: "1000" })).await;
    let told = refused(subject, false).await;
    assert!(told.contains(MISSPELT) && told.contains("knows no such key"), "{told}");
    let template = serde_json::to_string(&subject.set(None).await.spec).unwrap();
    assert!(!template.contains(MISSPELT), "the next pod would not start: {template}");
    subject.wish(|spec| spec["config"] = json!({ MEANT: "1000" })).await;
    subject.bind(1).await;
    subject.answer().await;
    subject.carried_out(Phase::Ready).await;
    // The process behind the pod reads what the test gives it.
    questdb.configure(&format!("config.validation.strict=true\n{MEANT}=1000"));
    questdb.crash().await;
    let answer = questdb.sql(&format!("(SHOW PARAMETERS) WHERE property_path = '{MEANT}'")).await;
    assert_eq!(answer["dataset"][0][2], "1000", "{answer}");
    assert_eq!(questdb.sql("SELECT number FROM kept").await["dataset"], json!([[7]]));
    stage.end(operator).await;
}
