//! A changed field costs the writes that it needs, and no object that it does not touch is written.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use kube::api::DynamicObject;
use resources::{Phase, names};
use serde_json::{Value, json};
use testkit::{Spawned, unique};

use super::edits::{OBJECTS, api, behind, name};
use super::others::Others;
use super::quiet::rounds;
use super::snapshots::Stage;
use super::subject::Subject;
use crate::front::{Front, Seen};

/// A key that is read again.
const CONNECTIONS: &str = "http.net.connection.limit";

/// In how many of the changes something may be said again that was said already. Whoever is told of a write before its answer has no
/// reason to, unless the whole process stands still between the two and its next look, 0.4 s later: seldom enough for one of seven.
const LATE: usize = 1;

/// What is changed of a wish.
type Change = fn(&mut Value);

/// One change after the other, and the objects that each of them writes, by kind and what follows the resource's name.
const CHANGES: [(&str, Change, &[&str]); 7] = [
    ("nothing", |_| {}, &[]),
    (
        "who may come in",
        |spec| spec["network"]["allowedCidrs"] = json!(["10.9.0.0/16"]),
        &["NetworkPolicy -questdb"],
    ),
    (
        "an annotation of the Service",
        |spec| spec["network"]["service"]["annotations"] = json!({ "example.com/a": "1" }),
        &["Service "],
    ),
    (
        "an annotation of the other Service",
        |spec| spec["network"]["service"]["headlessAnnotations"] = json!({ "example.com/a": "1" }),
        &["Service -pods"],
    ),
    (
        "no budget",
        |spec| spec["network"]["disruptionBudget"] = json!(false),
        &["PodDisruptionBudget -questdb"],
    ),
    ("the size", |spec| spec["storage"]["sizeGib"] = json!(30), &["PersistentVolume"]),
    ("a label", |spec| spec["pod"]["labels"] = json!({ "team": "trading" }), &["StatefulSet ", "Pod"]),
];

/// Different writes of each object that came from the operator, and which came again of those, as they do where the operator is told
/// late of what it wrote; what it says in status and events is another matter. However often the same is deleted, it goes once.
fn writes(front: &Front, before: usize) -> (BTreeMap<String, usize>, Vec<Seen>) {
    let (mut said, mut again) = (BTreeMap::<String, BTreeSet<String>>::new(), Vec::new());
    for seen in front.seen(is_of_object).into_iter().skip(before) {
        let goes = seen.method == Method::DELETE;
        let what = if goes { String::new() } else { seen.body.clone() };
        let is_new = said.entry(seen.about().to_owned()).or_default().insert(what);
        if !is_new && !goes {
            again.push(seen);
        }
    }
    (said.into_iter().map(|(path, said)| (path, said.len())).collect(), again)
}

/// Whether it writes an object, and not what is said of a database.
pub(super) fn is_of_object(seen: &Seen) -> bool {
    let is_word = seen.about().ends_with("/status") || seen.about().contains("/events");
    seen.is_write() && !is_word
}

/// The path of an object of a database.
pub(super) async fn path(subject: &Subject, object: &str) -> String {
    match object {
        "Pod" => {
            let pod = names::pod(&subject.name);
            format!("/api/v1/namespaces/{}/pods/{pod}", subject.rig.namespace)
        }
        "PersistentVolume" => {
            let volume = subject.volume().await.id;
            format!("/api/v1/persistentvolumes/{}", names::persistent_volume(volume.as_str()))
        }
        _ => {
            let mut all = OBJECTS.into_iter();
            let found = all.find(|(_, _, kind, affix)| format!("{kind} {affix}") == object);
            let found = found.expect("an object of a database");
            format!("{}/{}", api(&subject.rig, found).resource_url(), name(&subject.name, found.3))
        }
    }
}

/// The versions of what a database has in its namespace, by path.
async fn versions(subject: &Subject) -> BTreeMap<String, Option<String>> {
    let mut versions = BTreeMap::new();
    for object in OBJECTS {
        let (api, name) = (api(&subject.rig, object), name(&subject.name, object.3));
        let found: Option<DynamicObject> = api.get_opt(&name).await.unwrap();
        let version = found.and_then(|found| found.metadata.resource_version);
        versions.insert(format!("{}/{name}", api.resource_url()), version);
    }
    versions
}

/// Carries a wish out, to its end and beyond; what that wrote, and what of that it wrote again.
async fn written(
    (operator, front): (&Spawned, &Front),
    subject: &mut Subject,
    wish: impl FnOnce(&mut Value),
) -> (BTreeMap<String, usize>, Vec<Seen>) {
    let before = front.seen(is_of_object).len();
    subject.wish(wish).await;
    subject.carried_out(Phase::Ready).await;
    rounds(operator, 3.0).await;
    writes(front, before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_field_writes_what_it_touches_once_and_nothing_else() {
    let mut subject = Subject::new(&unique("exact")).await;
    let _others = Others::of(&subject.rig);
    let (operator, front) = behind(&subject.rig).await;
    front.tell_before_answers();
    subject.wish_run_state("Running").await;
    subject.carried_out(Phase::Ready).await;
    rounds(&operator, 3.0).await;
    let mut late = Vec::new();
    for (number, (what, _, objects)) in CHANGES.iter().enumerate() {
        let before = versions(&subject).await;
        let wish = |spec: &mut Value| {
            CHANGES[..=number].iter().for_each(|(_, change, _)| change(spec));
        };
        let (found, again) = written((&operator, &front), &mut subject, wish).await;
        late.extend((!again.is_empty()).then_some((what, again)));
        let mut wanted = BTreeMap::new();
        for object in *objects {
            wanted.insert(path(&subject, object).await, 1);
        }
        assert_eq!(found, wanted, "{what}");
        for (path, version) in versions(&subject).await {
            assert!(wanted.contains_key(&path) || before[&path] == version, "{what}: {path} was written");
        }
    }
    assert!(late.len() <= LATE, "in {} changes the same was written again: {late:?}", late.len());
    subject.purge_with_others().await;
}

/// The file, the template for the next start, and on the pod what it is to be shown and what it runs with then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_that_is_read_again_writes_file_template_and_two_notes_on_the_pod() {
    let mut stage = Stage::new().await;
    let (operator, front) = behind(&stage.subject.rig).await;
    front.tell_before_answers();
    let (subject, questdb) = (&mut stage.subject, &stage.questdb);
    subject.bind(1).await;
    rounds(&operator, 3.0).await;
    let versions_before = versions(subject).await;
    // The kubelet is quicker than the operator.
    questdb.configure(&format!("{CONNECTIONS}=80"));
    let wish = |spec: &mut Value| spec["config"][CONNECTIONS] = json!("80");
    let (found, again) = written((&operator, &front), subject, wish).await;
    let mut wanted = BTreeMap::new();
    for (object, count) in [("ConfigMap -config", 1), ("StatefulSet ", 1), ("Pod", 2)] {
        wanted.insert(path(subject, object).await, count);
    }
    assert_eq!(found, wanted);
    assert!(again.len() <= LATE, "the same was written again: {again:?}");
    for (path, version) in versions(subject).await {
        assert!(wanted.contains_key(&path) || versions_before[&path] == version, "{path} was written");
    }
    stage.end(operator).await;
}
