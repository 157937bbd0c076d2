//! What a hand writes over in the operator's own Secret, on a real API server: whoever gave it, it is put right without a restart,
//! counted and told; and who does it again and again is told and not fought.

use std::time::Duration;

use axum::http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use resources::names::{self, condition};
use serde_json::{Value, json};
use testkit::{eventually, unique};

use super::super::edits::behind;
use super::super::fields::at_rest;
use super::super::rig::PATIENCE;
use super::super::subject::Subject;
use super::CANARY;

/// What somebody writes over values, plain and as it is shown.
const THEIRS: (&str, &str) = ("theirs-giraffe-17", "dGhlaXJzLWdpcmFmZmUtMTc=");

/// How often the given password is written over until an event tells of it.
const TRIES: usize = 3;

/// Who wants the Secret otherwise.
const ROTATOR: &str = "rotator";

/// How often somebody who wants another password looks whether it is still there: often enough that no repair stays.
const LOOKS: Duration = Duration::from_millis(50);

/// What hands do, one after the other.
fn hands() -> [(&'static str, Value); 6] {
    let theirs = json!(ByteString(THEIRS.0.as_bytes().to_vec()));
    [
        ("a given password", json!({ "data": { names::secret::PG_PASSWORD: theirs } })),
        ("a drawn password", json!({ "data": { names::secret::HTTP_PASSWORD: theirs } })),
        ("a user", json!({ "data": { names::secret::HTTP_USER: theirs } })),
        ("a password taken out", json!({ "data": { names::secret::HTTP_PASSWORD: null } })),
        ("the copy", json!({ "data": { names::secret::WRITTEN: theirs } })),
        ("the revision", json!({ "metadata": { "annotations": { names::secret::REVISION: "theirs" } } })),
    ]
}

/// Writes over a Secret at rest, and waits until it is as it was.
async fn is_put_right(secrets: &Api<Secret>, before: &Secret, (what, change): &(&str, Value)) {
    let own = before.name_any();
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let is_back = |found: &Secret| {
        found.data == before.data && found.metadata.annotations == before.metadata.annotations
    };
    let written = secrets.patch(&own, &somebody, &Patch::Merge(change)).await.unwrap();
    assert!(!is_back(&written), "{what}: nothing was changed");
    eventually(PATIENCE, &format!("{what} to be put right"), async || {
        is_back(&secrets.get(&own).await.unwrap()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_writes_over_is_put_right_without_a_restart() {
    let mut subject = Subject::new(&unique("overwritten")).await;
    let (operator, front) = behind(&subject.rig).await;
    // A database that is said to be at rest is known to be so: of one that is not nothing is counted.
    front.tell_before_answers();
    subject.serving().await;
    let first = subject.pod().await;
    subject.login("own", CANARY).await;
    let pod = subject.restarted(&first).await;
    let (secrets, own) = (subject.secrets(), names::credentials(&subject.name));
    let before = secrets.get(&own).await.unwrap();
    let counted = async || operator.metric("slipway_drift_corrections_total", "kind=\"Secret\"").await;
    let start = counted().await;
    for hand in hands() {
        at_rest(&subject, &operator).await;
        is_put_right(&secrets, &before, &hand).await;
    }
    at_rest(&subject, &operator).await;
    for _ in 1..TRIES {
        if !is_told(&events(&subject).await) {
            is_put_right(&secrets, &before, &hands()[0]).await;
            at_rest(&subject, &operator).await;
        }
    }
    // Where the operator hears of the hand before it hears that the database is at rest again nothing is counted.
    eventually(PATIENCE, "corrections to be counted", async || (counted().await > start).then_some(())).await;
    let after = subject.pod().await;
    assert_eq!((after.metadata.uid, after.metadata.deletion_timestamp), (pod.metadata.uid, None));
    subject.rests().await;
    told_without_a_value(&subject, &operator.log()).await;
    subject.purge().await;
}

/// All that is told by events.
async fn events(subject: &Subject) -> String {
    let events: Api<Event> = Api::namespaced(subject.rig.admin.clone(), &subject.rig.namespace);
    serde_json::to_string(&events.list(&ListParams::default()).await.unwrap()).unwrap()
}

/// Whether events tell of both passwords. One for which the API server takes too long is given up.
fn is_told(events: &str) -> bool {
    let all = [names::secret::PG_PASSWORD, names::secret::HTTP_PASSWORD];
    all.iter().all(|key| events.contains(&format!("somebody changed {key}")))
}

/// Who looks at the resource's events sees what was changed, and nobody sees to what.
async fn told_without_a_value(subject: &Subject, log: &str) {
    let told = events(subject).await;
    assert!(is_told(&told), "{told}");
    for text in [told.as_str(), log] {
        for value in [CANARY, THEIRS.0, THEIRS.1] {
            assert!(!text.contains(value), "{value} is shown");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_over_a_password_again_and_again_is_told_and_not_fought() {
    let theirs = ByteString(THEIRS.0.as_bytes().to_vec());
    let change = json!({ "data": { names::secret::HTTP_PASSWORD: theirs } });
    fought("rotated", change, ["/data/http-password", ROTATOR]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_off_what_the_secret_is_known_by_again_and_again_is_told_and_not_fought() {
    let change = json!({ "metadata": { "annotations": { names::SECRET_OF: null } } });
    fought("stripped", change, ["/metadata/annotations/crd.questdb.io/name", "somebody who takes it away"])
        .await;
}

/// A database of which somebody changes the Secret in the same way again and again; these words are in what is said of that.
async fn fought(of: &str, change: Value, words: [&str; 2]) {
    let mut subject = Subject::new(&unique(of)).await;
    let (operator, front) = behind(&subject.rig).await;
    // Who is told late of a repair makes it once more, as often as it looks meanwhile.
    front.tell_before_answers();
    subject.serving().await;
    let pod = subject.pod().await;
    let writes =
        || front.seen(|seen| seen.method == Method::PATCH && seen.path.contains("-credentials?")).len();
    let before = writes();
    let rotator = tokio::spawn(rotate(subject.secrets(), names::credentials(&subject.name), change));
    let (api, name) = (subject.rig.as_admin(), subject.name.clone());
    let text = eventually(PATIENCE, "a word about the other", async || {
        let found = api.get(&name).await.unwrap().status?;
        let found = found.conditions.into_iter().find(|found| found.type_ == condition::CONTENDED)?;
        (found.status == "True").then_some(found.message)
    })
    .await;
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(!text.contains(THEIRS.0) && !text.contains(THEIRS.1), "{text}");
    let fought = writes() - before;
    // Three, and those that came because the operator, or the other one, looked late all the same.
    assert!((1..=8).contains(&fought), "{fought} writes");
    eventually(PATIENCE, "what is fought over to be counted", async || {
        (operator.metric("slipway_contended_objects", "Secret").await > 0.0).then_some(())
    })
    .await;
    assert_eq!(writes() - before, fought, "it is fought on");
    rotator.abort();
    assert!(rotator.await.unwrap_err().is_cancelled());
    assert_eq!(subject.pod().await.metadata.uid, pod.metadata.uid);
    subject.purge().await;
}

/// Somebody who wants the Secret otherwise, whatever it takes: where that is so already nothing is written.
async fn rotate(secrets: Api<Secret>, own: String, change: Value) {
    let rotator = PatchParams { field_manager: Some(ROTATOR.to_owned()), ..PatchParams::default() };
    loop {
        secrets.patch(&own, &rotator, &Patch::Merge(&change)).await.unwrap();
        tokio::time::sleep(LOOKS).await;
    }
}
